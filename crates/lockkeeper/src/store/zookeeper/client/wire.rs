//! Requests and answers, as they are on the wire.

use super::jute::{Garbled, Reader, Writer};

/// Why a server refused a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Code(pub i32);

impl Code {
    /// The server ended a list of requests before this one.
    pub const SKIPPED: Code = Code(-2);
    pub const NO_NODE: Code = Code(-101);
    pub const NO_AUTH: Code = Code(-102);
    pub const BAD_VERSION: Code = Code(-103);
    pub const NODE_EXISTS: Code = Code(-110);
    pub const SESSION_EXPIRED: Code = Code(-112);
    pub const INVALID_ACL: Code = Code(-114);
    pub const AUTH_FAILED: Code = Code(-115);
    pub const SESSION_MOVED: Code = Code(-118);
    pub const QUOTA_EXCEEDED: Code = Code(-125);
    pub const THROTTLED: Code = Code(-127);
}

/// What a server knows of a node besides its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that last changed its data.
    pub mzxid: i64,
    /// When it was created, by the leader's wall clock in milliseconds.
    pub ctime: i64,
    /// When its data was last changed.
    pub mtime: i64,
    /// How often its data was changed.
    pub version: i32,
    /// The session that it ends with, or 0.
    pub owner: i64,
    /// How many children it has.
    pub children: i32,
}

/// What each user may do with a node that is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acl {
    /// Everybody may do everything.
    Open,
    /// Only clients with the credentials of this one.
    Creator,
}

/// How long a node stays, and who names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Until it is deleted.
    Persistent,
    /// As long as its session.
    Ephemeral,
    /// As long as its session; the server appends a number to its name.
    Sequential,
    /// Until some time after its last child has gone.
    Container,
}

/// A change of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Create {
        path: String,
        data: Vec<u8>,
        acl: Acl,
        kind: Kind,
    },
    Delete {
        path: String,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    /// Changes nothing, but fails if the node is not there, or has another version (-1: any).
    Check {
        path: String,
        version: i32,
    },
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Do(Op),
    /// All or none.
    Multi(Vec<Op>),
    GetData {
        path: String,
        watch: bool,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    /// What follows sees everything that was committed before.
    Sync {
        path: String,
    },
}

/// What a request got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Created {
        path: String,
        stat: Stat,
    },
    Stat(Stat),
    Data(Vec<u8>, Stat),
    Children(Vec<String>, Stat),
    /// One for each of a list that was done.
    Multi(Vec<Answer>),
    /// The list was not done: which of it failed, and why.
    Failed(usize, Code),
}

impl Answer {
    /// The answer to what was done in this transaction. Servers leave the transaction out where it stands in the header.
    pub fn done_in(mut self, zxid: i64) -> Answer {
        if let Answer::Multi(answers) = &mut self {
            for answer in answers {
                if let Answer::Created { stat, .. } = answer
                    && stat.czxid == 0
                {
                    stat.czxid = zxid;
                }
            }
        }
        self
    }
}

/// What a watch saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub path: String,
    /// Whether it was about the children of the node.
    pub children: bool,
}

/// What a session begins with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Greeting {
    pub timeout_millis: i32,
    pub session: i64,
    pub password: Vec<u8>,
}

/// What stands before every answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub xid: i32,
    pub zxid: i64,
    pub code: i32,
}

pub const XID_WATCH: i32 = -1;
pub const XID_PING: i32 = -2;
pub const XID_AUTH: i32 = -4;

/// How a list of requests answers to each kind of creation: with a path, and nothing about the node.
const CREATED: i32 = 1;
const CREATE: i32 = 15;
const CREATE_CONTAINER: i32 = 19;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SYNC: i32 = 9;
const PING: i32 = 11;
const GET_CHILDREN: i32 = 12;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const AUTH: i32 = 100;
const CLOSE: i32 = -11;
const ERROR: i32 = -1;

const ALL_PERMISSIONS: i32 = 31;

impl Op {
    /// How many bytes it has in a request, at most.
    pub fn length(&self) -> usize {
        match self {
            Op::Create { path, data, .. } => 43 + path.len() + data.len(),
            Op::SetData { path, data, .. } => 12 + path.len() + data.len(),
            Op::Delete { path } | Op::Check { path, .. } => 8 + path.len(),
        }
    }

    fn code(&self) -> i32 {
        match self {
            Op::Create {
                kind: Kind::Container,
                ..
            } => CREATE_CONTAINER,
            Op::Create { .. } => CREATE,
            Op::Delete { .. } => DELETE,
            Op::SetData { .. } => SET_DATA,
            Op::Check { .. } => CHECK,
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Op::Create {
                path,
                data,
                acl,
                kind,
            } => {
                let (scheme, id) = match acl {
                    Acl::Open => ("world", "anyone"),
                    Acl::Creator => ("auth", ""),
                };
                let flags = match kind {
                    Kind::Persistent => 0,
                    Kind::Ephemeral => 1,
                    Kind::Sequential => 3,
                    Kind::Container => 4,
                };
                w.text(path).buffer(data);
                w.int(1).int(ALL_PERMISSIONS).text(scheme).text(id);
                w.int(flags);
            }
            Op::Delete { path } => {
                w.text(path).int(-1);
            }
            Op::SetData {
                path,
                data,
                version,
            } => {
                w.text(path).buffer(data).int(*version);
            }
            Op::Check { path, version } => {
                w.text(path).int(*version);
            }
        }
    }
}

impl Request {
    fn code(&self) -> i32 {
        match self {
            Request::Do(op) => op.code(),
            Request::Multi(_) => MULTI,
            Request::GetData { .. } => GET_DATA,
            Request::Exists { .. } => EXISTS,
            Request::GetChildren { .. } => GET_CHILDREN,
            Request::Sync { .. } => SYNC,
        }
    }

    /// How many bytes it has on the wire.
    pub fn length(&self) -> usize {
        match self {
            Request::Do(op) => 12 + op.length(),
            Request::Multi(ops) => 21 + ops.iter().map(|op| 9 + op.length()).sum::<usize>(),
            Request::GetData { path, .. }
            | Request::Exists { path, .. }
            | Request::GetChildren { path, .. }
            | Request::Sync { path } => 17 + path.len(),
        }
    }

    /// Writes it as a frame.
    pub fn write(&self, xid: i32, w: &mut Writer) {
        w.frame(|w| {
            w.int(xid).int(self.code());
            match self {
                Request::Do(op) => op.write(w),
                Request::Multi(ops) => {
                    for op in ops {
                        w.int(op.code()).bool(false).int(-1);
                        op.write(w);
                    }
                    w.int(-1).bool(true).int(-1);
                }
                Request::GetData { path, watch }
                | Request::Exists { path, watch }
                | Request::GetChildren { path, watch } => {
                    w.text(path).bool(*watch);
                }
                Request::Sync { path } => {
                    w.text(path);
                }
            }
        });
    }

    /// Reads what a server answered to it.
    pub fn read(&self, r: &mut Reader<'_>) -> Result<Answer, Garbled> {
        Ok(match self {
            Request::Multi(_) => multi(r)?,
            Request::GetData { .. } => {
                let data = r.buffer()?.to_vec();
                Answer::Data(data, stat(r)?)
            }
            Request::Exists { .. } => Answer::Stat(stat(r)?),
            Request::GetChildren { .. } => {
                let names = r.texts()?;
                Answer::Children(names, stat(r)?)
            }
            Request::Sync { .. } => Answer::Done,
            Request::Do(op) => done(op.code(), r)?,
        })
    }
}

fn done(code: i32, r: &mut Reader<'_>) -> Result<Answer, Garbled> {
    Ok(match code {
        CREATE | CREATE_CONTAINER => {
            let path = r.text()?;
            Answer::Created {
                path,
                stat: stat(r)?,
            }
        }
        CREATED => Answer::Created {
            path: r.text()?,
            stat: Stat::default(),
        },
        SET_DATA => Answer::Stat(stat(r)?),
        DELETE | CHECK => Answer::Done,
        _ => return Err(Garbled("an unknown kind of result")),
    })
}

fn multi(r: &mut Reader<'_>) -> Result<Answer, Garbled> {
    let mut answers = Vec::new();
    let mut failed = None;
    loop {
        let (code, last, _) = (r.int()?, r.bool()?, r.int()?);
        if last {
            break;
        }
        if code == ERROR {
            let error = Code(r.int()?);
            if error.0 != 0 && error != Code::SKIPPED && failed.is_none() {
                failed = Some((answers.len(), error));
            }
            answers.push(Answer::Done);
        } else {
            answers.push(done(code, r)?);
        }
    }
    Ok(match failed {
        Some((at, code)) => Answer::Failed(at, code),
        None => Answer::Multi(answers),
    })
}

fn stat(r: &mut Reader<'_>) -> Result<Stat, Garbled> {
    let (czxid, mzxid, ctime, mtime) = (r.long()?, r.long()?, r.long()?, r.long()?);
    let (version, _cversion, _aversion) = (r.int()?, r.int()?, r.int()?);
    let (owner, _length, children, _pzxid) = (r.long()?, r.int()?, r.int()?, r.long()?);
    Ok(Stat {
        czxid,
        mzxid,
        ctime,
        mtime,
        version,
        owner,
        children,
    })
}

/// Reads what stands before an answer.
pub fn header(r: &mut Reader<'_>) -> Result<Header, Garbled> {
    Ok(Header {
        xid: r.int()?,
        zxid: r.long()?,
        code: r.int()?,
    })
}

/// Reads what a watch saw; `None` if it is about the session.
pub fn seen(r: &mut Reader<'_>) -> Result<Option<Seen>, Garbled> {
    const CHILDREN_CHANGED: i32 = 4;
    let (kind, _state, path) = (r.int()?, r.int()?, r.text()?);
    let children = kind == CHILDREN_CHANGED;
    Ok((kind > 0).then_some(Seen { path, children }))
}

/// The frame that opens a session, or goes on with one.
pub fn hello(last_zxid: i64, timeout_millis: i32, session: i64, password: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.frame(|w| {
        w.int(0).long(last_zxid).int(timeout_millis).long(session);
        w.buffer(password).bool(false);
    });
    w.finish()
}

/// Reads the answer to [`hello`].
pub fn greeting(r: &mut Reader<'_>) -> Result<Greeting, Garbled> {
    let _protocol = r.int()?;
    let (timeout_millis, session) = (r.int()?, r.long()?);
    let password = r.buffer()?.to_vec();
    Ok(Greeting {
        timeout_millis,
        session,
        password,
    })
}

pub fn ping(w: &mut Writer) {
    w.frame(|w| {
        w.int(XID_PING).int(PING);
    });
}

pub fn close(xid: i32, w: &mut Writer) {
    w.frame(|w| {
        w.int(xid).int(CLOSE);
    });
}

/// The frame that shows a user and a password.
pub fn digest(user: &str, password: &str) -> Vec<u8> {
    let mut w = Writer::default();
    w.frame(|w| {
        w.int(XID_AUTH).int(AUTH).int(0).text("digest");
        w.text(&format!("{user}:{password}"));
    });
    w.finish()
}

#[cfg(feature = "internals")]
/// Reads bytes as every kind of answer. For the fuzzer: nothing may panic, or allocate far more than was sent.
pub fn read_as_anything(bytes: &[u8]) {
    let path = String::new;
    let requests = [
        Request::Multi(Vec::new()),
        Request::GetData {
            path: path(),
            watch: false,
        },
        Request::Exists {
            path: path(),
            watch: false,
        },
        Request::GetChildren {
            path: path(),
            watch: false,
        },
        Request::Do(Op::Create {
            path: path(),
            data: Vec::new(),
            acl: Acl::Open,
            kind: Kind::Ephemeral,
        }),
    ];
    for request in requests {
        let _ = request.read(&mut Reader::new(bytes));
    }
    let _ = header(&mut Reader::new(bytes));
    let _ = seen(&mut Reader::new(bytes));
    let _ = greeting(&mut Reader::new(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_no_longer_than_it_says() {
        let path = || "/a/b".to_owned();
        let create = |acl, kind| Op::Create {
            path: path(),
            data: vec![1, 2, 3],
            acl,
            kind,
        };
        let ops = vec![
            create(Acl::Open, Kind::Sequential),
            create(Acl::Creator, Kind::Container),
            Op::Delete { path: path() },
            Op::Check {
                path: path(),
                version: 1,
            },
            Op::SetData {
                path: path(),
                data: vec![7; 9],
                version: -1,
            },
        ];
        let mut requests: Vec<Request> = ops.iter().cloned().map(Request::Do).collect();
        requests.push(Request::Multi(ops));
        requests.push(Request::Sync { path: path() });
        for request in requests {
            let mut w = Writer::default();
            request.write(1, &mut w);
            let (said, is) = (request.length(), w.finish().len());
            assert!(said >= is && said < is + 30, "{said} {is} {request:?}");
        }
    }
}
