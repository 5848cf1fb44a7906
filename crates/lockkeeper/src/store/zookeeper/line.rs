//! Who stands in line below a path, and whose turn it is: pure.
//!
//! Every child whose name ends in a number behind one of the markers of Curator and kazoo is a contender, whoever made it.

use std::collections::HashMap;

/// What comes before the number of a contender, and whether it wants to be alone.
const MARKERS: [(&str, bool); 5] = [
    ("lock-", true),
    ("__lock__", true),
    ("__WRIT__", true),
    ("__READ__", false),
    ("__rlock__", false),
];

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
        (i64::from(i32::MIN)..=LAST)
            .contains(&number)
            .then(|| Contender {
                node: node.to_owned(),
                id: id(&before[..before.len() - marker.len()]),
                alone,
                number,
            })
    }
}

/// The id in the name of a node: `_c_<uuid>-`, or 32 digits as kazoo has them.
pub fn id(prefix: &str) -> Option<u128> {
    let text = prefix.strip_prefix("_c_").unwrap_or(prefix);
    let text = text.strip_suffix('-').unwrap_or(text);
    uuid::Uuid::parse_str(text).ok().map(|uuid| uuid.as_u128())
}

/// The contenders of a path, in their order.
#[derive(Clone, Debug, Default)]
pub struct Line(Vec<Contender>);

impl Line {
    /// The contenders among these children, by their numbers.
    pub fn of(children: &[String]) -> Line {
        let contenders = children.iter().filter_map(|node| Contender::parse(node));
        let mut contenders: Vec<Contender> = contenders.collect();
        contenders.sort_by(|a, b| (a.number, &a.node).cmp(&(b.number, &b.node)));
        Line(contenders)
    }

    /// Whether the numbers say nothing about the order any more, so that the transactions have to be asked for.
    pub fn is_out_of_numbers(&self) -> bool {
        let out = |one: &Contender| one.number < 0 || one.number >= LAST;
        self.0.iter().any(out)
    }

    /// Orders it by the transactions that created the nodes. What has none is gone. The number of each becomes its
    /// transaction's.
    pub fn order_by(&mut self, created: &HashMap<String, i64>) {
        self.0.retain(|one| created.contains_key(&one.node));
        for one in &mut self.0 {
            one.number = created[&one.node];
        }
        self.0
            .sort_by(|a, b| (a.number, &a.node).cmp(&(b.number, &b.node)));
    }

    /// All, in their order.
    pub fn all(&self) -> &[Contender] {
        &self.0
    }

    /// The nearest contender before this claim that it has to wait for. `Err` if the claim is not in the line.
    pub fn blocker(&self, claim: u128, alone: bool) -> Result<Option<&Contender>, ()> {
        let own = self.0.iter().find(|one| one.id == Some(claim)).ok_or(())?;
        let before = self.0.iter().take_while(|one| one.number < own.number);
        let blocks = |one: &&Contender| one.id != Some(claim) && (alone || one.alone);
        Ok(before.filter(blocks).last())
    }

    /// The contenders before this claim. `Err` if the claim is not in the line.
    pub fn before(&self, claim: u128) -> Result<&[Contender], ()> {
        let at = self
            .0
            .iter()
            .position(|one| one.id == Some(claim))
            .ok_or(())?;
        Ok(&self.0[..at])
    }

    /// Those whose turn it is: the first, if it is alone, with who stands beside it; or the readers before the first that
    /// wants to be alone.
    pub fn holders(&self) -> &[Contender] {
        let Some(first) = self.0.first().map(|first| first.number) else {
            return &[];
        };
        let writer = self.0.iter().find(|one| one.number == first && one.alone);
        let end = match writer {
            // One that became a reader has the number of the writer that it was. A claim may have several nodes.
            Some(writer) => self
                .0
                .iter()
                .position(|one| one.number != first && one.id != writer.id),
            None => self.0.iter().position(|one| one.alone),
        };
        &self.0[..end.unwrap_or(self.0.len())]
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
        let blocker = |claim, alone| {
            line.blocker(claim, alone)
                .map(|one| one.map(|one| one.number))
        };
        assert_eq!(blocker(1, false), Ok(None));
        assert_eq!(blocker(2, true), Ok(Some(1)));
        assert_eq!(blocker(3, false), Ok(Some(2)), "not the later writer");
        assert_eq!(blocker(4, true), Ok(Some(3)));
        assert_eq!(blocker(9, true), Err(()));
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
        assert_eq!(before.blocker(0xB, false), Ok(None));
        assert_eq!(before.holders().len(), 2);
        nodes.remove(0);
        let after = line(&nodes);
        assert_eq!(after.blocker(0xB, false), Ok(None));
        assert_eq!(after.holders().len(), 1);
        assert_eq!(after.blocker(0xC, true).map(|one| one.is_some()), Ok(true));
    }

    #[test]
    fn at_the_end_of_the_numbers_transactions_decide() {
        let nodes = [format!("{A}lock-2147483647"), format!("{B}lock-2147483647")];
        let mut line = line(&nodes);
        assert!(line.is_out_of_numbers());
        let created = HashMap::from([(nodes[0].clone(), 9), (nodes[1].clone(), 5)]);
        line.order_by(&created);
        assert_eq!(line.blocker(0xB, true), Ok(None));
        assert_eq!(
            line.blocker(0xA, true).map(|one| one.map(|one| one.number)),
            Ok(Some(5))
        );
        assert_eq!(line.holders().len(), 1);
    }
}
