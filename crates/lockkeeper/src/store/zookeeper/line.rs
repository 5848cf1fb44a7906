//! Which claims stand in line below a path, and whose turn it is: pure.
//!
//! Every child whose name ends in a number behind one of the markers of Curator and kazoo is a contender, of whatever client it is.

use std::collections::HashMap;

/// What comes before the number of a contender, and whether it wants to be alone.
const MARKERS: [(&str, bool); 5] = [
    ("lock-", true),
    ("__lock__", true),
    ("__WRIT__", true),
    ("__READ__", false),
    ("__rlock__", false),
];

/// What the name of a node has behind its id while its claim tries and does not wait: it stands in line for a moment only.
pub const TRYING: &str = "try-";

/// The largest number that a server gives; from then on it gives it again and again.
const LAST: i64 = i32::MAX as i64;
/// From here on the numbers of a path are about to end.
pub const NEARLY_LAST: i64 = LAST - 1_000_000;

/// A child of a path that wants the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contender {
    /// The name of its node.
    pub node: String,
    /// Which claim, or which client of another project.
    pub id: Option<u128>,
    /// Whether it can stand beside nobody.
    pub alone: bool,
    /// Whether it leaves at once unless it is its turn.
    pub tries: bool,
    /// The number that the server gave it.
    pub number: i64,
}

impl Contender {
    /// Reads the name of a node; `None` if it is no contender.
    pub fn parse(node: &str) -> Option<Contender> {
        let before = node.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &node[before.len()..];
        let number: i64 = digits.parse().ok()?;
        let marked = |text: &str| MARKERS.iter().find(|(marker, _)| text.ends_with(marker));
        let (number, (marker, alone), before) = match marked(before) {
            Some(found) if digits.len() >= 10 => (number, *found, before),
            _ => {
                let before = before.strip_suffix('-')?;
                (
                    -number,
                    *marked(before).filter(|_| digits.len() >= 9)?,
                    before,
                )
            }
        };
        (i64::from(i32::MIN)..=LAST).contains(&number).then(|| {
            let prefix = &before[..before.len() - marker.len()];
            let untried = prefix.strip_suffix(TRYING);
            Contender {
                node: node.to_owned(),
                id: id(untried.unwrap_or(prefix)),
                alone,
                tries: untried.is_some(),
                number,
            }
        })
    }
}

/// The number at the end of a contender's name as it is written there, with its sign.
pub fn written_number(node: &str) -> Option<&str> {
    let is_below_zero = Contender::parse(node)?.number < 0;
    let before = node.trim_end_matches(|c: char| c.is_ascii_digit());
    Some(&node[before.len() - usize::from(is_below_zero)..])
}

/// The id in the name of a node: `_c_<uuid>-`, or 32 digits as kazoo has them.
pub fn id(prefix: &str) -> Option<u128> {
    let text = prefix.strip_prefix("_c_").unwrap_or(prefix);
    let text = text.strip_suffix('-').unwrap_or(text);
    uuid::Uuid::parse_str(text).ok().map(|uuid| uuid.as_u128())
}

/// The contenders of a path, in their order.
#[derive(Clone, Debug, Default)]
pub struct Line {
    all: Vec<Contender>,
    /// Whether one was gone when it was looked at. It may have left, or stand there under another name.
    aged: bool,
}

impl Line {
    /// The contenders among these children, by their numbers.
    pub fn of(children: &[String]) -> Line {
        let contenders = children.iter().filter_map(|node| Contender::parse(node));
        let mut contenders: Vec<Contender> = contenders.collect();
        contenders.sort_by(|a, b| (a.number, &a.node).cmp(&(b.number, &b.node)));
        Line {
            all: contenders,
            aged: false,
        }
    }

    /// Whether one of them was gone when it was looked at: it may have moved, so that nothing can be said.
    pub fn is_aged(&self) -> bool {
        self.aged
    }

    /// Whether the numbers say nothing about the order any more, so that the transactions have to be asked for.
    pub fn is_out_of_numbers(&self) -> bool {
        let out = |one: &Contender| one.number < 0 || one.number >= LAST;
        self.all.iter().any(out)
    }

    /// Orders it by the transactions that created the nodes. What has none is gone. The number of each becomes its
    /// transaction's.
    pub fn order_by(&mut self, created: &HashMap<String, i64>) {
        let listed = self.all.len();
        self.all.retain(|one| created.contains_key(&one.node));
        self.aged |= self.all.len() < listed;
        for one in &mut self.all {
            one.number = created[&one.node];
        }
        self.all
            .sort_by(|a, b| (a.number, &a.node).cmp(&(b.number, &b.node)));
    }

    /// All, in their order.
    pub fn all(&self) -> &[Contender] {
        &self.all
    }

    /// Where the first of a claim's own nodes stands. They are known by their whole names: a node of another session may have
    /// the claim's id. `Err` if one of them is not in the line.
    fn first_of(&self, own: &[&str]) -> Result<usize, ()> {
        let mut places = Vec::with_capacity(own.len());
        for node in own {
            let at = self.all.iter().position(|one| one.node == *node);
            places.push(at.ok_or(())?);
        }
        places.into_iter().min().ok_or(())
    }

    /// The nearest contender before a claim with these nodes that it has to wait for. `Err` if not all are in the line.
    pub fn blocker(&self, own: &[&str], alone: bool) -> Result<Option<&Contender>, ()> {
        let first = self.all[self.first_of(own)?].number;
        let before = self.all.iter().take_while(|one| one.number < first);
        Ok(before.filter(|one| alone || one.alone).last())
    }

    /// The contenders before a claim with these nodes. `Err` if not all are in the line.
    pub fn before(&self, own: &[&str]) -> Result<&[Contender], ()> {
        Ok(&self.all[..self.first_of(own)?])
    }

    /// Those whose turn it is: the first, if it is alone, with who stands beside it; or the readers before the first that
    /// wants to be alone.
    pub fn holders(&self) -> &[Contender] {
        let Some(first) = self.all.first().map(|first| first.number) else {
            return &[];
        };
        let writer = self.all.iter().find(|one| one.number == first && one.alone);
        let end = match writer {
            // One that became a reader has the number of the writer that it was. A claim may have several nodes.
            Some(writer) => self
                .all
                .iter()
                .position(|one| one.number != first && one.id != writer.id),
            None => self.all.iter().position(|one| one.alone),
        };
        &self.all[..end.unwrap_or(self.all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "_c_00000000-0000-0000-0000-00000000000a-";
    const B: &str = "_c_00000000-0000-0000-0000-00000000000b-";

    fn line(children: &[String]) -> Line {
        Line::of(children)
    }

    #[test]
    fn contenders_of_every_client_are_read() {
        for (node, id, alone, number) in [
            (format!("{A}lock-0000000007"), Some(10), true, 7),
            (format!("{A}__WRIT__0000000007"), Some(10), true, 7),
            (format!("{A}__READ__0000000007"), Some(10), false, 7),
            (format!("{A}try-lock-0000000007"), Some(10), true, 7),
            (format!("{A}try-__READ__0000000007"), Some(10), false, 7),
            (
                "0000000000000000000000000000000b__lock__0000000001".into(),
                Some(11),
                true,
                1,
            ),
            (
                "0000000000000000000000000000000b__rlock__0000000001".into(),
                Some(11),
                false,
                1,
            ),
            ("lock-0000000009".into(), None, true, 9),
            (format!("{A}lock-2147483647"), Some(10), true, LAST),
            (format!("{A}lock--2147483648"), Some(10), true, -(LAST + 1)),
            (format!("{A}lock--000000005"), Some(10), true, -5),
        ] {
            let read = Contender::parse(&node).expect(&node);
            assert_eq!(
                (read.id, read.alone, read.number),
                (id, alone, number),
                "{node}"
            );
            assert_eq!(read.tries, node.contains("-try-"), "{node}");
            // A reader in its place has the same number.
            let place = format!("{B}__READ__{}", written_number(&node).expect(&node));
            let place = Contender::parse(&place).map(|place| place.number);
            assert_eq!(place, Some(number), "{node}");
        }
        for node in [
            "0",
            "locks",
            "leases",
            "a-lease-0000000001",
            "lock-1",
            "lock-99999999999",
            "x0000000001",
            "lock-",
        ] {
            assert_eq!(Contender::parse(node), None, "{node}");
        }
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_and_a_writer_for_all() {
        let nodes: Vec<String> = [
            "_c_00000000-0000-0000-0000-000000000001-__READ__0000000001",
            "_c_00000000-0000-0000-0000-000000000002-__WRIT__0000000002",
            "_c_00000000-0000-0000-0000-000000000003-__READ__0000000003",
            "_c_00000000-0000-0000-0000-000000000004-__WRIT__0000000004",
        ]
        .map(String::from)
        .to_vec();
        let line = line(&nodes);
        let blocker = |at: usize, alone| {
            line.blocker(&[&nodes[at - 1]], alone)
                .map(|one| one.map(|one| one.number))
        };
        assert_eq!(blocker(1, false), Ok(None));
        assert_eq!(blocker(2, true), Ok(Some(1)));
        assert_eq!(blocker(3, false), Ok(Some(2)), "not the later writer");
        assert_eq!(blocker(4, true), Ok(Some(3)));
        assert_eq!(line.blocker(&["gone"], true), Err(()));
        assert_eq!(line.blocker(&[&nodes[0], "gone"], true), Err(()));
        assert_eq!(line.blocker(&[], true), Err(()));
        assert_eq!(line.holders().len(), 1);
    }

    #[test]
    fn one_that_became_a_reader_keeps_the_writers_place() {
        let mut nodes = vec![
            format!("{A}__WRIT__0000000001"),
            format!("{B}__READ__0000000001"),
            "_c_00000000-0000-0000-0000-00000000000c-__WRIT__0000000002".into(),
            "_c_00000000-0000-0000-0000-00000000000d-__READ__0000000003".into(),
        ];
        let before = line(&nodes);
        assert_eq!(before.blocker(&[&nodes[1]], false), Ok(None));
        assert_eq!(before.holders().len(), 2);
        nodes.remove(0);
        let after = line(&nodes);
        assert_eq!(after.blocker(&[&nodes[0]], false), Ok(None));
        assert_eq!(after.holders().len(), 1);
        let writer = after.blocker(&[&nodes[1]], true);
        assert_eq!(writer.map(|one| one.is_some()), Ok(true));
    }

    #[test]
    fn a_node_with_the_claims_id_is_not_its_own() {
        let nodes = [
            format!("{A}lock-0000000001"),
            format!("{B}lock-0000000002"),
            format!("{A}lock-0000000003"),
        ];
        let line = line(&nodes);
        let number = |own: &str| {
            let before = line.blocker(&[own], true);
            before.map(|one| one.map(|one| one.number))
        };
        assert_eq!(number(&nodes[2]), Ok(Some(2)), "not the ghost's place");
        assert_eq!(number(&nodes[1]), Ok(Some(1)));
    }

    #[test]
    fn at_the_end_of_the_numbers_transactions_decide() {
        let nodes = [format!("{A}lock-2147483647"), format!("{B}lock-2147483647")];
        let mut line = line(&nodes);
        assert!(line.is_out_of_numbers());
        let created = HashMap::from([(nodes[0].clone(), 9), (nodes[1].clone(), 5)]);
        line.order_by(&created);
        assert_eq!(line.blocker(&[&nodes[1]], true), Ok(None));
        let first = line.blocker(&[&nodes[0]], true);
        assert_eq!(first.map(|one| one.map(|one| one.number)), Ok(Some(5)));
        assert_eq!(line.holders().len(), 1);
        assert!(!line.is_aged());
        line.order_by(&HashMap::from([(nodes[0].clone(), 9)]));
        assert!(line.is_aged(), "one is gone, or has moved");
    }
}
