//! Which of a cluster's 16,384 slots a key belongs to, and which node serves it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::redis::Value;
use tokio::sync::Notify;

use crate::store::common::Address;

pub(super) const SLOTS: usize = 16_384;
/// A slot that no node serves.
const NOBODY: u16 = u16::MAX;

/// CRC16 of XMODEM, as Redis has it.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = match crc & 0x8000 {
                0 => crc << 1,
                _ => (crc << 1) ^ 0x1021,
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// What is between the first opening brace and the next closing one, if that is anything.
pub(super) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then_some(&rest[..close])
}

/// The slot of a key or of a sharded channel.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc(hash_tag(key).unwrap_or(key)) % SLOTS as u16
}

/// CRC16, as clusters have it.
pub(super) fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, byte| {
        (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// Which server has which slots, as far as is known.
#[derive(Clone)]
pub(super) struct Slots {
    masters: Vec<Address>,
    /// For each slot, which of the masters.
    owners: Vec<u16>,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slots").field(&self.masters).finish()
    }
}

impl Slots {
    fn nobody() -> Slots {
        Slots {
            masters: Vec::new(),
            owners: vec![NOBODY; SLOTS],
        }
    }

    /// Reads the answer to `CLUSTER SLOTS` of a node at `asked`. `None` if it is something else.
    pub fn read(answer: &Value, asked: &Address) -> Option<Slots> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let mut slots = Slots::nobody();
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(master),
                ..,
            ] = parts.as_slice()
            else {
                return None;
            };
            let (host, Some(Value::Int(port))) = (master.first()?, master.get(1)) else {
                return None;
            };
            let address = located(host, u16::try_from(*port).ok()?, asked)?;
            let range = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            slots.give(range, address)?;
        }
        Some(slots)
    }

    fn give(&mut self, range: std::ops::RangeInclusive<usize>, to: Address) -> Option<()> {
        let known = self.masters.iter().position(|master| *master == to);
        let index = known.unwrap_or_else(|| {
            self.masters.push(to);
            self.masters.len() - 1
        });
        let index = u16::try_from(index).ok().filter(|index| *index != NOBODY)?;
        self.owners.get_mut(range)?.fill(index);
        Some(())
    }

    fn owner(&self, slot: u16) -> Option<&Address> {
        let index = self.owners.get(usize::from(slot))?;
        self.masters.get(usize::from(*index))
    }

    /// How many slots somebody serves.
    pub fn served(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }
}

/// A node's address as another one tells it. One that does not know its own host leaves it out: then it is the
/// one that was asked, as it is for a node behind a translated address.
fn located(host: &Value, port: u16, asked: &Address) -> Option<Address> {
    let host = match host {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) => text,
        Value::Nil => "",
        _ => return None,
    };
    at(host, port, asked)
}

fn at(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match (host, asked) {
        ("" | "?", Address::Tcp(host, _)) => Some(Address::Tcp(host.clone(), port)),
        ("" | "?", Address::Unix(_)) => None,
        (host, _) => Some(Address::Tcp(host.to_owned(), port)),
    }
}

/// Reads `HOST:PORT` out of a MOVED or ASK that the node at `asked` answered.
pub(super) fn redirected(to: &str, asked: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    at(host, port.parse().ok()?, asked)
}

/// The slots as all connections of a store know them.
#[derive(Debug)]
pub(super) struct Map {
    slots: Mutex<Slots>,
    /// What a node said when it sent a request elsewhere is in it already, and nobody else was told.
    hearsay: AtomicBool,
    /// Somebody found that it may be out of date.
    pub doubted: Notify,
}

impl Map {
    pub fn new(slots: Slots) -> Map {
        Map {
            slots: Mutex::new(slots),
            hearsay: AtomicBool::new(false),
            doubted: Notify::new(),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn owner(&self, slot: u16) -> Option<Address> {
        self.slots().owner(slot).cloned()
    }

    pub fn is_owner(&self, slot: u16, address: &Address) -> bool {
        self.slots().owner(slot) == Some(address)
    }

    pub fn masters(&self) -> Vec<Address> {
        self.slots().masters.clone()
    }

    /// Asks for a look at the cluster.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// A node said who serves a slot now.
    pub fn moved(&self, slot: u16, to: Address) {
        let mut slots = self.slots();
        if slots.owner(slot) != Some(&to) {
            let slot = usize::from(slot);
            let _ = slots.give(slot..=slot, to);
            self.hearsay.store(true, Ordering::Relaxed);
        }
    }

    /// Puts in what was seen. Answers whether that is anything new.
    pub fn replace(&self, seen: Slots) -> bool {
        let mut slots = self.slots();
        // Nodes list the same masters in different orders.
        let all = 0..SLOTS as u16;
        let new = all
            .into_iter()
            .any(|slot| slots.owner(slot) != seen.owner(slot));
        *slots = seen;
        self.hearsay.swap(false, Ordering::Relaxed) || new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_found_out_is_news_to_everyone_else() {
        let at = |port| Address::Tcp("a".into(), port);
        let all = |port, moved| {
            let mut slots = Slots::nobody();
            slots.give(0..=SLOTS - 1, at(port)).expect("slots");
            slots.give(7..=7, at(moved)).expect("a slot");
            slots
        };
        let map = Map::new(all(1, 1));
        assert!(!map.replace(all(1, 1)));
        map.moved(7, at(1));
        assert!(!map.replace(all(1, 1)), "it was known");
        // The request goes there at once; who listens for hints has to be told.
        map.moved(7, at(2));
        assert!(map.is_owner(7, &at(2)));
        assert!(map.replace(all(1, 2)));
        assert!(!map.replace(all(1, 2)));
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The check value of the specification, and what CLUSTER KEYSLOT of a server answers.
        assert_eq!(slot(b"123456789"), 0x31C3);
        for (key, expected) in [
            ("", 0),
            ("foo", 12182),
            ("bar", 5061),
            ("somekey", 11058),
            ("foo{hash_tag}", 2515),
            ("bar{hash_tag}", 2515),
            ("{user1000}.following", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    fn node(host: Value, port: i64) -> Value {
        let id = Value::BulkString(b"id".to_vec());
        Value::Array(vec![host, Value::Int(port), id])
    }

    #[test]
    fn a_map_is_read_and_moves() {
        let here = Address::Tcp("here".into(), 1);
        let there = Address::Tcp("there".into(), 7001);
        let host = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let range = |first, last, master| {
            let replica = node(host("replica"), 9);
            Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
        };
        let answer = Value::Array(vec![
            range(0, 99, node(host("there"), 7001)),
            range(100, 199, node(Value::Nil, 7002)),
            range(200, 16_383, node(host(""), 7003)),
        ]);
        let slots = Slots::read(&answer, &here).expect("a map");
        assert_eq!(slots.served(), SLOTS);
        let map = Map::new(slots.clone());
        assert_eq!(map.owner(99), Some(there.clone()));
        assert_eq!(map.owner(100), Some(Address::Tcp("here".into(), 7002)));
        assert_eq!(map.owner(16_383), Some(Address::Tcp("here".into(), 7003)));
        map.moved(100, there.clone());
        assert!(map.is_owner(100, &there));
        assert!(map.replace(slots.clone()), "it differed");
        assert!(!map.replace(slots), "it is the same");
        assert_eq!(map.masters().len(), 3);
        for nonsense in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(-1, 5, node(host("a"), 1))]),
            Value::Array(vec![range(0, 20_000, node(host("a"), 1))]),
            Value::Array(vec![range(0, 5, node(host("a"), 1 << 17))]),
        ] {
            assert!(Slots::read(&nonsense, &here).is_none(), "{nonsense:?}");
        }
    }

    #[test]
    fn redirections_are_read() {
        let asked = Address::Tcp("here".into(), 1);
        let tcp = |host: &str, port| Some(Address::Tcp(host.into(), port));
        assert_eq!(redirected("10.0.0.1:7000", &asked), tcp("10.0.0.1", 7000));
        assert_eq!(redirected("::1:7000", &asked), tcp("::1", 7000));
        assert_eq!(redirected(":7000", &asked), tcp("here", 7000));
        assert_eq!(redirected("nonsense", &asked), None);
    }
}
