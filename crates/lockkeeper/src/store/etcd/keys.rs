//! Which keys a name has, and back.
//!
//! Every key below `<name>/` is a contender for Go's clients. Ours are `<name>/write/<lease>-<number>`, `<name>/read/…` and
//! `<name>/permit/…`. A reader in the place of a writer has the writer's number before its own. A writer's number as a
//! reader's says that the writer has gone and only keeps the place.

use crate::Error;
use crate::store::Mode;

/// What our own records stand below, beside all names.
const OWN: &str = ".lockkeeper/";

/// Where all keys are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    prefix: String,
}

/// How a key of a claim says what it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Write,
    Read,
    Permit,
    /// A client of another project, directly below the name: it wants to be alone.
    Plain,
}

/// What a key below a name says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub kind: Kind,
    /// The lease and the number of a claim of ours.
    pub id: Option<(i64, u64)>,
    /// The number of the writer in whose place it stands.
    pub in_place_of: Option<u64>,
}

impl Keys {
    /// All below these words.
    pub fn below(prefix: &str) -> Keys {
        let mut prefix = prefix.to_owned();
        if !prefix.is_empty() && !prefix.ends_with('/') {
            prefix.push('/');
        }
        Keys { prefix }
    }

    /// Empty, or with a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a name can be kept.
    pub fn check(&self, name: &str) -> Result<(), Error> {
        if !format!("{name}/").starts_with(OWN) {
            return Ok(());
        }
        Err(Error::InvalidName {
            reason: format!(
                "what begins with {OWN:?} is where the etcd store keeps its own records; choose another name"
            ),
        })
    }

    /// What all contenders of a name begin with.
    pub fn name(&self, name: &str) -> Vec<u8> {
        format!("{}{name}/", self.prefix).into_bytes()
    }

    fn own(&self, what: &str) -> Vec<u8> {
        format!("{}{OWN}{what}", self.prefix).into_bytes()
    }

    /// Whether it is one of our own records.
    pub fn is_own(&self, key: &[u8]) -> bool {
        key.starts_with(&self.own(""))
    }

    /// What tokens count from.
    pub fn base(&self) -> Vec<u8> {
        self.own("base")
    }

    /// What is kept about breaks of a name.
    pub fn broken(&self, name: &str) -> Vec<u8> {
        self.own(&format!("broken/{name}"))
    }

    pub fn latch(&self, name: &str) -> Vec<u8> {
        self.own(&format!("latch/{name}"))
    }

    /// What a claim of this lease that is taken back in doubt writes.
    pub fn doubt(&self, lease: i64) -> Vec<u8> {
        self.own(&format!("doubt/{lease:x}"))
    }

    /// The key of a claim.
    pub fn claim(&self, name: &str, mode: Mode, lease: i64, number: u64) -> Vec<u8> {
        let kind = match mode {
            Mode::Read => "read",
            Mode::Permit { .. } => "permit",
            _ => "write",
        };
        format!("{}{name}/{kind}/{lease:x}-{number:016x}", self.prefix).into_bytes()
    }

    /// What the keys of readers in the place of this writer begin with.
    pub fn beside(&self, name: &str, lease: i64, writer: u64) -> Vec<u8> {
        format!("{}{name}/read/{lease:x}-{writer:016x}-", self.prefix).into_bytes()
    }

    /// The key of a reader in the place of a writer.
    pub fn reader_beside(&self, name: &str, lease: i64, writer: u64, number: u64) -> Vec<u8> {
        let mut key = self.beside(name, lease, writer);
        key.extend_from_slice(format!("{number:016x}").as_bytes());
        key
    }

    /// The key that says that a writer only keeps the place of readers beside it.
    pub fn gone(&self, name: &str, lease: i64, writer: u64) -> Vec<u8> {
        self.claim(name, Mode::Read, lease, writer)
    }

    /// The name whose contenders begin so.
    pub fn name_below(&self, below: &[u8]) -> Option<String> {
        let rest = below.strip_prefix(self.prefix.as_bytes())?;
        let name = rest.strip_suffix(b"/")?;
        String::from_utf8(name.to_vec()).ok()
    }

    /// The name of the latch that has this key.
    pub fn name_of_latch(&self, key: &[u8]) -> Option<String> {
        let name = key.strip_prefix(&self.own("latch/")[..])?;
        String::from_utf8(name.to_vec()).ok()
    }

    /// The name of a contender's key. Of another client's it may be one of several: the longest.
    pub fn name_of(&self, key: &[u8]) -> Option<String> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        let text = std::str::from_utf8(rest).ok()?;
        let (before, last) = text.rsplit_once('/')?;
        if let Some((name, kind)) = before.rsplit_once('/')
            && (ours(last).is_some() || last.bytes().all(|byte| byte.is_ascii_digit()))
            && matches!(kind, "write" | "read" | "permit")
        {
            return Some(name.to_owned());
        }
        Some(before.to_owned())
    }
}

/// The lease, the number, and the number of the writer in whose place it stands.
fn ours(last: &str) -> Option<(i64, u64, Option<u64>)> {
    let hex = |text: &str| {
        let digits = text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    let number = |text: &str| hex(text).filter(|_| text.len() == 16);
    let mut parts = last.split('-');
    let lease = i64::try_from(hex(parts.next()?)?).ok()?;
    let first = number(parts.next()?)?;
    let second = match parts.next() {
        Some(text) => Some(number(text)?),
        None => None,
    };
    if parts.next().is_some() {
        return None;
    }
    Some(match second {
        Some(own) => (lease, own, Some(first)),
        None => (lease, first, None),
    })
}

impl Part {
    /// Reads what follows `<name>/`; `None` if it does not contend for that name.
    pub fn read(rest: &[u8]) -> Option<Part> {
        let foreign = |kind| Part {
            kind,
            id: None,
            in_place_of: None,
        };
        let mut parts = rest.split(|byte| *byte == b'/');
        let (first, second) = (parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let Some(last) = second else {
            // Ours are never here: this one is of a name that ends in `/write`, `/read` or `/permit`.
            let known = std::str::from_utf8(first).is_ok_and(|text| ours(text).is_some());
            return (!known).then(|| foreign(Kind::Plain));
        };
        let kind = match first {
            b"write" => Kind::Write,
            b"read" => Kind::Read,
            b"permit" => Kind::Permit,
            _ => return None,
        };
        let of = std::str::from_utf8(last).ok().and_then(ours);
        Some(match of {
            Some((lease, number, in_place_of)) => Part {
                kind,
                id: Some((lease, number)),
                in_place_of,
            },
            // Nobody else has permits: how many this is cannot be known.
            None if kind == Kind::Permit => foreign(Kind::Plain),
            None => foreign(kind),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let keys = Keys::below("locks");
        let name = "orders/42";
        let below = keys.name(name);
        for (mode, kind) in [
            (Mode::Exclusive, Kind::Write),
            (Mode::Fair, Kind::Write),
            (Mode::Write, Kind::Write),
            (Mode::Read, Kind::Read),
            (Mode::Permit { limit: 2, count: 1 }, Kind::Permit),
        ] {
            let key = keys.claim(name, mode, 0x32695c, 7);
            let part = Part::read(&key[below.len()..]).expect("a contender");
            assert_eq!((part.kind, part.id), (kind, Some((0x32695c, 7))));
            assert_eq!(part.in_place_of, None);
            assert_eq!(keys.name_of(&key).as_deref(), Some(name));
        }
        let key = keys.reader_beside(name, 5, 6, 7);
        let part = Part::read(&key[below.len()..]).expect("a contender");
        assert_eq!((part.id, part.in_place_of), (Some((5, 7)), Some(6)));
        assert!(key.starts_with(&keys.beside(name, 5, 6)));
        assert_eq!(keys.name_of(&key).as_deref(), Some(name));
    }

    #[test]
    fn keys_of_other_clients_contend_and_those_of_nested_names_do_not() {
        let read = |rest: &str| Part::read(rest.as_bytes()).map(|part| part.kind);
        for (rest, kind) in [
            ("694d77aa9e38260f", Some(Kind::Plain)),
            ("ours-1", Some(Kind::Plain)),
            ("", Some(Kind::Plain)),
            ("write/1700000000000000000", Some(Kind::Write)),
            ("read/1700000000000000000", Some(Kind::Read)),
            ("permit/x", Some(Kind::Plain)),
            ("b/694d77aa9e38260f", None),
            ("b/write/5-0000000000000001", None),
            ("write/b/5-0000000000000001", None),
            // Of the name that ends in `/write`.
            ("5-0000000000000001", None),
            ("5-1", Some(Kind::Plain)),
        ] {
            assert_eq!(read(rest), kind, "{rest}");
        }
        let keys = Keys::below("");
        for (key, name) in [
            ("a/694d77aa9e38260f", "a"),
            ("a/b/694d77aa9e38260f", "a/b"),
            ("a/write/1700000000000000000", "a"),
            ("a/write/694d77aa9e38260f", "a/write"),
        ] {
            assert_eq!(keys.name_of(key.as_bytes()).as_deref(), Some(name));
        }
        assert_eq!(keys.name_of(b"a"), None);
    }

    #[test]
    fn our_own_records_are_no_names() {
        let keys = Keys::below("");
        for name in [".lockkeeper", ".lockkeeper/base", ".lockkeeper/x/y"] {
            let refused = keys.check(name);
            assert!(matches!(refused, Err(Error::InvalidName { .. })), "{name}");
        }
        for name in [".lockkeepers", "a/.lockkeeper", ".latches"] {
            assert_eq!(keys.check(name), Ok(()), "{name}");
        }
        assert!(keys.is_own(&keys.doubt(7)) && !keys.is_own(b"a/b"));
    }
}
