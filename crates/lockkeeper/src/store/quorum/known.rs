//! What was last heard of each node, for decisions that concern several of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::{Record, Terms};
use crate::Error;
use crate::clock::Moment;

/// What was last heard of the nodes, over all connections to them.
#[derive(Debug)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug)]
struct State {
    nodes: Vec<Heard>,
    twins: Option<Error>,
}

#[derive(Clone, Debug)]
struct Heard {
    run: Option<String>,
    record: Record,
    /// For how long it was up, or without a record if it had one and lost it...
    uptime: Duration,
    /// ...at this moment.
    at: Moment,
}

impl Known {
    pub fn of(count: usize) -> Known {
        let nothing = Heard {
            run: None,
            record: Record::Silent,
            uptime: Duration::ZERO,
            at: Moment::now(),
        };
        Known(Mutex::new(State {
            nodes: vec![nothing; count],
            twins: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which run a node is of, unless another address leads to the same server: returns that node then.
    pub fn is_run(&self, number: usize, run: &str) -> Result<(), usize> {
        let nodes = &mut self.state().nodes;
        let mut others = nodes.iter();
        match others.position(|node| node.run.as_deref() == Some(run)) {
            Some(other) if other != number => Err(other),
            _ => {
                nodes[number].run = Some(run.to_owned());
                Ok(())
            }
        }
    }

    /// Two addresses lead to one server.
    pub fn are_twins(&self, error: Error) {
        self.state().twins = Some(error);
    }

    pub fn twins(&self) -> Option<Error> {
        self.state().twins.clone()
    }

    /// A node that is up for so long has this record.
    pub fn connected(&self, number: usize, record: Option<Duration>, uptime: Duration) {
        let heard = &mut self.state().nodes[number];
        heard.record = record.map_or(Record::Missing { uptime }, Record::Longest);
        (heard.uptime, heard.at) = (uptime, Moment::now());
    }

    /// A node that is connected has this record now.
    pub fn reads(&self, number: usize, record: Option<Duration>) {
        let heard = &mut self.state().nodes[number];
        if record.is_none() && matches!(heard.record, Record::Longest(_)) {
            // It lost its data without a restart.
            (heard.uptime, heard.at) = (Duration::ZERO, Moment::now());
        }
        let uptime = heard.uptime;
        heard.record = record.map_or(Record::Missing { uptime }, Record::Longest);
    }

    /// A node does not tell its record now. That it had none is worth nothing: it may have got one since.
    pub fn is_silent(&self, number: usize) {
        let heard = &mut self.state().nodes[number];
        if matches!(heard.record, Record::Missing { .. }) {
            heard.record = Record::Silent;
        }
    }

    /// What is known of the records now. A node that is away counts as having what it had.
    pub fn records(&self) -> Vec<Record> {
        let now = Moment::now();
        let nodes = self.state().nodes.clone().into_iter();
        let record = |heard: Heard| match heard.record {
            Record::Missing { .. } => Record::Missing {
                uptime: heard.uptime + now.since(heard.at),
            },
            known => known,
        };
        nodes.map(record).collect()
    }

    /// The first node whose record another client wrote, if no node has ours.
    pub fn outvoted(&self, terms: &Terms) -> Option<(usize, Duration)> {
        let mut other = None;
        for (number, record) in self.records().into_iter().enumerate() {
            match record {
                Record::Longest(longest) if longest == terms.max_lease => return None,
                Record::Longest(longest) => other = other.or(Some((number, longest))),
                _ => {}
            }
        }
        other
    }

    /// Puts nodes into an order that is the same for all clients.
    pub fn order(&self, nodes: &mut [usize]) {
        let state = self.state();
        nodes.sort_by_key(|number| &state.nodes[*number].run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_away_has_what_it_had_but_may_have_got_what_it_had_not() {
        let (known, longest) = (Known::of(2), Duration::from_secs(30));
        known.connected(0, None, longest);
        known.connected(1, Some(longest), longest);
        assert!(matches!(known.records()[0], Record::Missing { uptime } if uptime >= longest));
        for number in [0, 1] {
            known.is_silent(number);
        }
        assert_eq!(known.records(), [Record::Silent, Record::Longest(longest)]);
        // It is as old as before; one that had a record and lost it is as good as new.
        for number in [0, 1] {
            known.reads(number, None);
        }
        let age = |number: usize| match known.records()[number] {
            Record::Missing { uptime } => uptime,
            other => panic!("{other:?}"),
        };
        assert!(age(0) >= longest && age(1) < longest);
        known.connected(1, None, longest);
        assert!(age(1) >= longest);
    }
}
