//! What a store knows about a lock, as JSON shows it. The fields are part of the command's interface.

use std::path::Path;

use lockkeeper::store::sqlite::{FileStatus, FileUser, UserState};
use lockkeeper::store::{
    Broken, ClaimId, Holder, LockInfo, Mode, NodeState, NodeStatus, Process, Waiter,
};
use lockkeeper::{Label, Token};
use serde::Serialize;

use lockkeeper_cli::output::{millis, plain, unix_ms, who};

/// One lock.
#[derive(Debug, Serialize)]
pub struct LockView<'a> {
    pub name: &'a str,
    /// `None` where that is not known: of permits whose holders leave no record.
    pub held: Option<bool>,
    /// Whether the store knows anything about the name.
    pub known: bool,
    pub holders: Vec<HolderView<'a>>,
    /// Of a semaphore of clients of other projects: how many permits are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_permits: Option<u32>,
    pub waiters: usize,
    /// The first of them, in order; `None` where they are only counted.
    pub queue: Option<Vec<WaiterView<'a>>>,
    pub last_token: Option<u64>,
    pub broken: Option<BrokenView<'a>>,
    /// How the nodes of a quorum are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeView>,
}

impl<'a> LockView<'a> {
    /// As `list` has it, which only counts those who wait.
    pub fn listed(info: &'a LockInfo) -> LockView<'a> {
        LockView {
            name: &info.name,
            held: is_held(info),
            known: true,
            holders: info.holders.iter().map(HolderView::new).collect(),
            free_permits: info.free_permits,
            waiters: info.waiters,
            queue: None,
            last_token: info.last_token.map(|token| token.get()),
            broken: info.broken.as_ref().map(BrokenView::new),
            nodes: Vec::new(),
        }
    }

    /// As `inspect` has it.
    pub fn inspected(info: &'a LockInfo) -> LockView<'a> {
        LockView {
            queue: Some(info.queue.iter().map(WaiterView::new).collect()),
            ..LockView::listed(info)
        }
    }

    /// A name that the store knows nothing about.
    pub fn unknown(name: &'a str) -> LockView<'a> {
        LockView {
            name,
            held: Some(false),
            known: false,
            holders: Vec::new(),
            free_permits: None,
            waiters: 0,
            queue: Some(Vec::new()),
            last_token: None,
            broken: None,
            nodes: Vec::new(),
        }
    }
}

/// Whether somebody holds it, if that is known.
pub fn is_held(info: &LockInfo) -> Option<bool> {
    match (info.holders.is_empty(), info.free_permits) {
        (false, _) => Some(true),
        (true, None) => Some(false),
        (true, Some(_)) => None,
    }
}

/// A process, as far as it is known.
#[derive(Debug, Serialize)]
pub struct ProcessView<'a> {
    pub host: Option<&'a str>,
    pub pid: Option<u32>,
    pub program: Option<&'a str>,
}

impl<'a> ProcessView<'a> {
    fn new(process: &'a Process) -> ProcessView<'a> {
        let known = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        ProcessView {
            host: known(&process.host),
            pid: Some(process.pid).filter(|pid| *pid != 0),
            // Some programs have no name. Of a process that is not known it is not known.
            program: match process.pid {
                0 => known(&process.program),
                _ => Some(&process.program),
            },
        }
    }
}

/// The claim, if it is known.
pub fn owner(claim: ClaimId) -> Option<String> {
    (claim != ClaimId::UNKNOWN).then(|| claim.to_string())
}

/// One hold. What is not known of it is `None`.
#[derive(Debug, Serialize)]
pub struct HolderView<'a> {
    pub owner: Option<String>,
    #[serde(flatten)]
    pub process: ProcessView<'a>,
    pub mode: String,
    /// Of a semaphore: how many permits this hold has, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<(u32, u32)>,
    pub token: Option<u64>,
    pub label: Option<&'a str>,
    pub since_unix_ms: Option<u64>,
    /// How long the lease is as a whole.
    pub lease_ms: Option<u64>,
    /// `None` also where it has no end.
    pub remaining_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// For people.
    #[serde(skip)]
    pub text: String,
}

impl<'a> HolderView<'a> {
    pub fn new(holder: &'a Holder) -> HolderView<'a> {
        let (mode, permits) = mode(holder.mode);
        HolderView {
            owner: owner(holder.claim),
            process: ProcessView::new(&holder.process),
            mode,
            permits,
            token: holder.token.map(Token::get),
            label: holder.label.as_ref().map(Label::as_str),
            since_unix_ms: holder.since.map(unix_ms),
            lease_ms: holder.lease.map(millis),
            remaining_ms: holder.remaining.map(millis),
            depth: holder.depth,
            text: who(&holder.process, holder.label.as_ref()),
        }
    }
}

/// One claim in the queue.
#[derive(Debug, Serialize)]
pub struct WaiterView<'a> {
    pub owner: Option<String>,
    #[serde(flatten)]
    pub process: ProcessView<'a>,
    pub mode: String,
    /// Of a semaphore: how many permits it wants, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<(u32, u32)>,
    pub label: Option<&'a str>,
    pub since_unix_ms: Option<u64>,
    /// For people.
    #[serde(skip)]
    pub text: String,
}

impl<'a> WaiterView<'a> {
    pub fn new(waiter: &'a Waiter) -> WaiterView<'a> {
        let (mode, permits) = mode(waiter.mode);
        WaiterView {
            owner: owner(waiter.claim),
            process: ProcessView::new(&waiter.process),
            mode,
            permits,
            label: waiter.label.as_ref().map(Label::as_str),
            since_unix_ms: waiter.since.map(unix_ms),
            text: who(&waiter.process, waiter.label.as_ref()),
        }
    }
}

fn mode(mode: Mode) -> (String, Option<(u32, u32)>) {
    match mode {
        Mode::Permit { limit, count } => ("permit".to_owned(), Some((count, limit))),
        mode => (mode.to_string(), None),
    }
}

/// When and why a lock was broken.
#[derive(Debug, Serialize)]
pub struct BrokenView<'a> {
    pub reason: &'a str,
    pub at_unix_ms: u64,
}

impl<'a> BrokenView<'a> {
    pub fn new(broken: &'a Broken) -> BrokenView<'a> {
        BrokenView {
            reason: &broken.reason,
            at_unix_ms: unix_ms(broken.at),
        }
    }
}

/// How one node of a quorum is.
#[derive(Debug, Serialize)]
pub struct NodeView {
    pub node: String,
    /// up, behind, sitting_out, not_voting or down.
    pub state: &'static str,
    /// For how long it still sits out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_in_ms: Option<u64>,
    /// Why it is down, or does not vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip)]
    pub text: String,
}

impl NodeView {
    pub fn new(status: &NodeStatus) -> NodeView {
        let (state, ready_in_ms, reason) = match &status.state {
            NodeState::Up => ("up", None, None),
            NodeState::Behind => ("behind", None, None),
            NodeState::SittingOut { ready_in } => ("sitting_out", Some(millis(*ready_in)), None),
            NodeState::NotVoting { reason } => ("not_voting", None, Some(reason.clone())),
            NodeState::Down { reason } => ("down", None, Some(reason.clone())),
            _ => ("other", None, None),
        };
        NodeView {
            node: status.node.clone(),
            state,
            ready_in_ms,
            reason,
            text: plain(&status.state.to_string()),
        }
    }
}

/// How a SQLite file is.
#[derive(Debug, Serialize)]
pub struct FileView {
    pub path: String,
    pub log_bytes: u64,
    /// The process that keeps others from writing.
    pub writer: Option<FileUserView>,
    /// Which process keeps others from copying the log back.
    pub checkpointer: Option<FileUserView>,
    /// The processes that keep the log from starting over.
    pub readers: Vec<FileUserView>,
}

/// A process that uses a SQLite file.
#[derive(Debug, Serialize)]
pub struct FileUserView {
    pub pid: u32,
    pub program: Option<String>,
    /// runs, stopped or frozen.
    pub state: &'static str,
    #[serde(skip)]
    text: String,
}

impl FileView {
    /// The file at a path, if there is one.
    pub fn of(path: &Path) -> Option<FileView> {
        let path = path.canonicalize().ok()?;
        let status = FileStatus::of(&path);
        Some(FileView {
            path: path.display().to_string(),
            log_bytes: status.log_bytes,
            writer: status.writer.map(FileUserView::new),
            checkpointer: status.checkpointer.map(FileUserView::new),
            readers: status.readers.into_iter().map(FileUserView::new).collect(),
        })
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let path = plain(&self.path);
        let kib = self.log_bytes.div_ceil(1024);
        let mut lines = vec![format!("{path} has a log of {kib} KiB")];
        let has = |user: &FileUserView, what: &str| format!("{} and has {path} {what}", user.text);
        let writer = self.writer.iter();
        lines.extend(writer.map(|user| has(user, "locked: nobody else can write")));
        let copying =
            "locked while it copies the log back: no other process can, and the log grows";
        lines.extend(self.checkpointer.iter().map(|user| has(user, copying)));
        let readers = self.readers.iter();
        lines.extend(readers.map(|user| has(user, "open for reading: its log cannot start over")));
        lines
    }
}

impl FileUserView {
    fn new(user: FileUser) -> FileUserView {
        FileUserView {
            text: plain(&format!("{user} {}", user.state)),
            pid: user.pid,
            program: user.program,
            state: match user.state {
                UserState::Runs => "runs",
                UserState::Stopped => "stopped",
                UserState::Frozen => "frozen",
                _ => "other",
            },
        }
    }
}
