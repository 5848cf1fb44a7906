//! The messages of etcd's protocol that the store uses, with the numbers of its fields. What is not used is left out: readers of
//! this encoding skip fields that they do not know.

use prost::{Message, Oneof};

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field:meta])* $of:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub struct $name {
            $($(#[$field])* pub $of: $type,)*
        }
    )*};
}

messages! {
    Header {
        #[prost(uint64, tag = "1")] cluster_id: u64,
        #[prost(int64, tag = "3")] revision: i64,
        #[prost(uint64, tag = "4")] raft_term: u64,
    }
    KeyValue {
        #[prost(bytes = "vec", tag = "1")] key: Vec<u8>,
        #[prost(int64, tag = "2")] create_revision: i64,
        #[prost(int64, tag = "3")] mod_revision: i64,
        #[prost(bytes = "vec", tag = "5")] value: Vec<u8>,
        #[prost(int64, tag = "6")] lease: i64,
    }
    Event {
        /// 0 is a put, 1 a deletion.
        #[prost(int32, tag = "1")] kind: i32,
        #[prost(message, optional, tag = "2")] kv: Option<KeyValue>,
    }
    RangeRequest {
        #[prost(bytes = "vec", tag = "1")] key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")] range_end: Vec<u8>,
        #[prost(bool, tag = "8")] keys_only: bool,
        #[prost(bool, tag = "9")] count_only: bool,
    }
    RangeResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
        #[prost(message, repeated, tag = "2")] kvs: Vec<KeyValue>,
        #[prost(int64, tag = "4")] count: i64,
    }
    PutRequest {
        #[prost(bytes = "vec", tag = "1")] key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")] value: Vec<u8>,
        #[prost(int64, tag = "3")] lease: i64,
    }
    PutResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
    }
    DeleteRequest {
        #[prost(bytes = "vec", tag = "1")] key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")] range_end: Vec<u8>,
    }
    DeleteResponse {
        #[prost(int64, tag = "2")] deleted: i64,
    }
    Operation {
        #[prost(oneof = "Op", tags = "1, 2, 3")] op: Option<Op>,
    }
    OperationResponse {
        #[prost(oneof = "Done", tags = "1, 2, 3")] done: Option<Done>,
    }
    Compare {
        #[prost(enumeration = "Is", tag = "1")] result: i32,
        #[prost(enumeration = "Target", tag = "2")] target: i32,
        #[prost(bytes = "vec", tag = "3")] key: Vec<u8>,
        #[prost(oneof = "Operand", tags = "4, 5, 6")] operand: Option<Operand>,
        #[prost(bytes = "vec", tag = "64")] range_end: Vec<u8>,
    }
    TxnRequest {
        #[prost(message, repeated, tag = "1")] compare: Vec<Compare>,
        #[prost(message, repeated, tag = "2")] success: Vec<Operation>,
        #[prost(message, repeated, tag = "3")] failure: Vec<Operation>,
    }
    TxnResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
        #[prost(bool, tag = "2")] succeeded: bool,
        #[prost(message, repeated, tag = "3")] responses: Vec<OperationResponse>,
    }
    WatchRequest {
        #[prost(oneof = "WatchAsk", tags = "1, 2")] ask: Option<WatchAsk>,
    }
    WatchCreate {
        #[prost(bytes = "vec", tag = "1")] key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")] range_end: Vec<u8>,
        #[prost(int64, tag = "3")] start_revision: i64,
        /// 0 leaves puts out.
        #[prost(int32, repeated, tag = "5")] filters: Vec<i32>,
        #[prost(int64, tag = "7")] watch_id: i64,
    }
    WatchCancel {
        #[prost(int64, tag = "1")] watch_id: i64,
    }
    WatchResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
        #[prost(int64, tag = "2")] watch_id: i64,
        #[prost(bool, tag = "3")] created: bool,
        #[prost(bool, tag = "4")] canceled: bool,
        #[prost(int64, tag = "5")] compact_revision: i64,
        #[prost(string, tag = "6")] cancel_reason: String,
        #[prost(message, repeated, tag = "11")] events: Vec<Event>,
    }
    LeaseGrantRequest {
        #[prost(int64, tag = "1")] ttl: i64,
        #[prost(int64, tag = "2")] id: i64,
    }
    LeaseGrantResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
        #[prost(int64, tag = "2")] id: i64,
        #[prost(int64, tag = "3")] ttl: i64,
        #[prost(string, tag = "4")] error: String,
    }
    LeaseRevokeRequest {
        #[prost(int64, tag = "1")] id: i64,
    }
    LeaseRevokeResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
    }
    LeaseKeepAliveRequest {
        #[prost(int64, tag = "1")] id: i64,
    }
    LeaseKeepAliveResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
        #[prost(int64, tag = "2")] id: i64,
        #[prost(int64, tag = "3")] ttl: i64,
    }
    AuthenticateResponse {
        #[prost(string, tag = "2")] token: String,
    }
    StatusRequest {}
    StatusResponse {
        #[prost(message, optional, tag = "1")] header: Option<Header>,
        #[prost(string, tag = "2")] version: String,
        #[prost(uint64, tag = "4")] leader: u64,
    }
}

/// A user and a password. It has no `Debug` that shows them.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthenticateRequest")
    }
}

/// One part of a transaction.
#[derive(Clone, PartialEq, Oneof)]
pub enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRequest),
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Done {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteResponse),
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Operand {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
}

#[derive(Clone, PartialEq, Oneof)]
pub enum WatchAsk {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Is {
    Equal = 0,
    Greater = 1,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Target {
    Version = 0,
    Created = 1,
    Modified = 2,
}

/// The end of the range of all keys that begin so. A prefix of nothing but the last byte has no end: all keys that follow.
pub fn after(prefix: &[u8]) -> Vec<u8> {
    let last = prefix.iter().rposition(|byte| *byte < 0xFF);
    match last {
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            end
        }
        None => vec![0],
    }
}

impl Compare {
    fn new(key: &[u8], target: Target, operand: Operand) -> Compare {
        Compare {
            result: Is::Equal as i32,
            target: target as i32,
            key: key.to_vec(),
            operand: Some(operand),
            range_end: Vec::new(),
        }
    }

    /// The key was created by this revision; 0: it is not there.
    pub fn created(key: &[u8], revision: i64) -> Compare {
        Compare::new(key, Target::Created, Operand::Created(revision))
    }

    /// The key was last written by this revision; 0: it is not there.
    pub fn modified(key: &[u8], revision: i64) -> Compare {
        Compare::new(key, Target::Modified, Operand::Modified(revision))
    }

    /// No key is in this range.
    pub fn none_in(from: &[u8], end: &[u8]) -> Compare {
        Compare {
            range_end: end.to_vec(),
            ..Compare::new(from, Target::Version, Operand::Version(0))
        }
    }

    /// There is a key that begins so.
    pub fn some_below(prefix: &[u8]) -> Compare {
        Compare {
            result: Is::Greater as i32,
            ..Compare::none_in(prefix, &after(prefix))
        }
    }

    /// The key is there.
    pub fn exists(key: &[u8]) -> Compare {
        Compare {
            result: Is::Greater as i32,
            ..Compare::new(key, Target::Version, Operand::Version(0))
        }
    }
}

impl Operation {
    fn of(op: Op) -> Operation {
        Operation { op: Some(op) }
    }

    pub fn get(key: &[u8]) -> Operation {
        Operation::of(Op::Range(RangeRequest {
            key: key.to_vec(),
            ..RangeRequest::default()
        }))
    }

    /// All keys that begin so, with their values or without.
    pub fn list(prefix: &[u8], keys_only: bool) -> Operation {
        // The first key of all is a byte of nothing, as no key is empty.
        let key = if prefix.is_empty() { b"\0" } else { prefix };
        Operation::of(Op::Range(RangeRequest {
            key: key.to_vec(),
            range_end: after(prefix),
            keys_only,
            ..RangeRequest::default()
        }))
    }

    /// Whether a key is there. A transaction that only compares is not linearizable without a read.
    pub fn count(key: &[u8]) -> Operation {
        Operation::of(Op::Range(RangeRequest {
            key: key.to_vec(),
            count_only: true,
            ..RangeRequest::default()
        }))
    }

    pub fn put(key: &[u8], value: Vec<u8>, lease: i64) -> Operation {
        Operation::of(Op::Put(PutRequest {
            key: key.to_vec(),
            value,
            lease,
        }))
    }

    pub fn delete(key: &[u8]) -> Operation {
        Operation::of(Op::Delete(DeleteRequest {
            key: key.to_vec(),
            range_end: Vec::new(),
        }))
    }
}

impl TxnResponse {
    pub fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    pub fn term(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.raft_term)
    }

    /// The keys that its reads found, one list for each.
    pub fn lists(self) -> impl Iterator<Item = Vec<KeyValue>> {
        self.responses.into_iter().filter_map(|one| match one.done {
            Some(Done::Range(range)) => Some(range.kvs),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_what_follows_it() {
        assert_eq!(after(b"a/"), b"a0");
        assert_eq!(after(b"a\xFF\xFF"), b"b");
        assert_eq!(after(b"\xFF"), b"\0", "all that follow");
        assert_eq!(after(b""), b"\0");
    }

    /// As Go's client encodes it: a mistake in a number of a field would be no error to a server.
    #[test]
    fn a_transaction_is_encoded_as_the_protocol_has_it() {
        let txn = TxnRequest {
            compare: vec![Compare::created(b"k", 0), Compare::none_in(b"a", b"b")],
            success: vec![Operation::put(b"k", b"v".to_vec(), 5)],
            failure: vec![Operation::list(b"a/", true)],
        };
        let hex: String = txn
            .encode_to_vec()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let compares = "0a0710011a016b28000a091a0161200082040162";
        let put = "120a12080a016b1201761805";
        let list = "1a0c0a0a0a02612f120261304001";
        assert_eq!(hex, format!("{compares}{put}{list}"));
    }
}
