//! How clients agree on the longest lease: each node has it recorded, and votes only for clients that have the same.
//!
//! A client reads what all nodes have before it writes anywhere, and a client that is refused writes nothing. A node that
//! lost its record takes that of the others. Where no node has one, it may be that nobody ever wrote one, or that those
//! who know it are silent. So the first record needs an answer of every node, or nodes that are so old that no lease
//! whatsoever of before their start can stand. It is written on one node after the other, in an order that is the same
//! for all clients: of several that come first with different leases one gets to the first node first, and the others stop there.

use std::time::Duration;

use super::terms::Terms;

/// What is known of a node's record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// The node cannot be asked.
    Silent,
    /// It has none.
    Missing {
        /// For how long it is up.
        uptime: Duration,
    },
    /// It has this longest lease.
    Longest(Duration),
}

/// What a client may do about nodes that have no record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Agreement {
    /// Nothing: every node that can be asked has one.
    Settled,
    /// These nodes take the record of the others.
    Join(Vec<usize>),
    /// These nodes get the first record, one after the other, until one turns out to have another.
    First(Vec<usize>),
    /// Nothing, until nodes that are silent are back or the others are old enough.
    Wait,
    /// Nothing: nodes have another record.
    Disputed,
}

/// What a client with these terms may do, as it knows this of each node.
///
/// One node that has our record is enough for those without one to take it, also while others are silent. Otherwise nobody new
/// could come when one of three is down and another restarted empty.
pub fn agree(terms: &Terms, records: &[Record]) -> Agreement {
    let missing = |least: Duration| -> Vec<usize> {
        let old =
            |record: &Record| matches!(record, Record::Missing { uptime } if *uptime >= least);
        let nodes = records.iter().enumerate();
        nodes.filter(|(_, r)| old(r)).map(|(at, _)| at).collect()
    };
    let count = |which: &dyn Fn(Duration) -> bool| {
        let has = |record: &&Record| matches!(record, Record::Longest(longest) if which(*longest));
        records.iter().filter(has).count()
    };
    let all = missing(Duration::ZERO);
    let ours = count(&|longest| longest == terms.max_lease);
    let others = count(&|longest| longest != terms.max_lease);
    if all.is_empty() {
        return Agreement::Settled;
    }
    if ours >= terms.majority || ours > 0 && others == 0 {
        return Agreement::Join(all);
    }
    if others > 0 {
        return Agreement::Disputed;
    }
    if all.len() == terms.nodes {
        return Agreement::First(all);
    }
    let old = missing(terms.outlives);
    match old.len() >= terms.majority {
        true => Agreement::First(old),
        false => Agreement::Wait,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const YOUNG: Record = Record::Missing {
        uptime: Duration::ZERO,
    };
    const OLD: Record = Record::Missing {
        uptime: Duration::from_secs(25 * 60 * 60),
    };
    const SILENT: Record = Record::Silent;
    const OURS: Record = Record::Longest(Duration::from_secs(30));
    const OTHER: Record = Record::Longest(Duration::from_secs(60));

    fn decided(records: &[Record]) -> Agreement {
        agree(&Terms::new(records.len(), S(30)), records)
    }

    #[test]
    fn a_first_record_needs_every_answer_or_nodes_that_outlived_every_lease() {
        assert_eq!(decided(&[YOUNG; 3]), Agreement::First(vec![0, 1, 2]));
        assert_eq!(decided(&[YOUNG, SILENT, YOUNG]), Agreement::Wait);
        assert_eq!(decided(&[OLD, SILENT, YOUNG]), Agreement::Wait);
        assert_eq!(
            decided(&[OLD, SILENT, OLD]),
            Agreement::First(vec![0, 2]),
            "nothing of before can stand"
        );
        assert_eq!(decided(&[SILENT; 3]), Agreement::Settled);
    }

    #[test]
    fn a_node_without_a_record_takes_that_of_the_others() {
        assert_eq!(decided(&[OURS, YOUNG, OURS]), Agreement::Join(vec![1]));
        assert_eq!(decided(&[OURS, YOUNG, SILENT]), Agreement::Join(vec![1]));
        assert_eq!(decided(&[OURS, OURS, OTHER]), Agreement::Settled);
        // The majority has it, and one is wrong.
        let mixed = [OTHER, OURS, OURS, OURS, YOUNG];
        assert_eq!(decided(&mixed), Agreement::Join(vec![4]));
    }

    #[test]
    fn a_client_that_others_do_not_agree_with_writes_nothing() {
        assert_eq!(decided(&[OTHER, YOUNG, YOUNG]), Agreement::Disputed);
        assert_eq!(decided(&[OTHER, OLD, OLD]), Agreement::Disputed);
        assert_eq!(decided(&[OTHER, OURS, YOUNG]), Agreement::Disputed);
    }

    /// A client on its way: what it has read, what it has still to write, and what it found there.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Client {
        max_lease: Duration,
        read: Vec<Record>,
        to_write: Option<Vec<usize>>,
        refused: bool,
    }

    const NODES: usize = 3;

    impl Client {
        fn new(max_lease: Duration) -> Client {
            Client {
                max_lease,
                read: Vec::new(),
                to_write: None,
                refused: false,
            }
        }

        /// Does one thing on one node; `false` if there is nothing left to do.
        fn step(&mut self, nodes: &mut [Record; NODES]) -> bool {
            if self.read.len() < NODES {
                self.read.push(nodes[self.read.len()]);
                return true;
            }
            let writes = self.to_write.get_or_insert_with(|| {
                match agree(&Terms::new(NODES, self.max_lease), &self.read) {
                    Agreement::First(nodes) | Agreement::Join(nodes) => nodes,
                    Agreement::Disputed => {
                        self.refused = true;
                        Vec::new()
                    }
                    Agreement::Settled | Agreement::Wait => Vec::new(),
                }
            });
            if writes.is_empty() {
                return false;
            }
            let at = writes.remove(0);
            let ours = Record::Longest(self.max_lease);
            if matches!(nodes[at], Record::Missing { .. }) {
                nodes[at] = ours;
            } else if nodes[at] != ours {
                self.refused = true;
                writes.clear();
            }
            true
        }
    }

    /// In every order in which two clients can do what they do.
    #[test]
    fn of_two_that_come_first_with_different_leases_one_wins_everywhere() {
        let start = ([YOUNG; NODES], [Client::new(S(30)), Client::new(S(60))]);
        let (mut open, mut seen, mut ends) = (vec![start], HashSet::new(), 0);
        while let Some((nodes, clients)) = open.pop() {
            if !seen.insert((nodes, clients.clone())) {
                continue;
            }
            let mut over = true;
            for at in 0..2 {
                let (mut nodes, mut clients) = (nodes, clients.clone());
                if clients[at].step(&mut nodes) {
                    over = false;
                    open.push((nodes, clients));
                }
            }
            if over {
                ends += 1;
                assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
                assert!(matches!(nodes[0], Record::Longest(_)), "nobody won");
            }
        }
        assert!(ends > 1, "there is more than one order");
    }
}
