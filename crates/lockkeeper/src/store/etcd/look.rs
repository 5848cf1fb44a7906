//! What people see of a name: who holds it, who waits for it, and when it was broken.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::client::messages::{KeyValue, Operation};
use super::core::Core;
use super::data::{Data, Fence, millis};
use super::fault::Fault;
use super::keys::Kind;
use super::line::{Contender, Line};
use super::tokens;
use crate::store::common::json::Fields;
use crate::store::{Broken, ClaimId, Grant, Holder, LockInfo, MAX_LISTED, Mode, Process, Waiter};
use crate::{Error, Name, Token};

/// One claim, ours or another client's.
#[derive(Clone, Debug)]
pub struct Seen {
    pub contender: Contender,
    pub holder: Holder,
    pub grant: Grant,
    /// Where a break of it puts the fence.
    pub fence: u64,
}

/// What is known of a name.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub line: Line,
    pub holders: Vec<Seen>,
    /// The first of those that wait.
    pub queue: Vec<Seen>,
    pub waiters: usize,
    pub record: Option<Record>,
}

/// What the last break left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The revision that wrote it.
    pub written: i64,
    pub broken: Broken,
    pub fence: u64,
}

impl Record {
    fn read(kv: &KeyValue) -> Option<Record> {
        let fields = Fields::read(&kv.value)?;
        Some(Record {
            written: kv.mod_revision,
            broken: Broken::new(fields.text("reason")?, millis(fields.number("at_ms")?)),
            fence: fields.number("fence")?,
        })
    }
}

/// Looks at a name, as it is now.
pub async fn view(core: &Core, name: &Name) -> Result<View, Fault> {
    let below = core.keys().name(name);
    let reads = vec![
        Operation::list(&below, false),
        Operation::get(&core.keys().broken(name)),
        Operation::get(&core.keys().base()),
    ];
    let mut lists = core.read(reads).await?.lists();
    let mut next = || lists.next().unwrap_or_default();
    let (keys, record, base) = (next(), next(), next());
    let record = record.first().and_then(Record::read);
    Ok(describe(Line::of(&below, keys), record, base_of(&base)))
}

/// The base that tokens of other clients' keys would have.
fn base_of(base: &[KeyValue]) -> u64 {
    let fields = base.first().and_then(|kv| Fields::read(&kv.value));
    let base = fields.and_then(|fields| fields.number("base"));
    base.unwrap_or_default()
}

fn describe(line: Line, record: Option<Record>, base: u64) -> View {
    let (holders, waiting) = line.parted();
    let seen = |one: &Contender| describe_one(one.clone(), base);
    View {
        holders: holders.into_iter().map(seen).collect(),
        waiters: waiting.len(),
        queue: waiting.into_iter().take(MAX_LISTED).map(seen).collect(),
        record,
        line,
    }
}

fn describe_one(contender: Contender, base: u64) -> Seen {
    if let Some(data) = Data::read(&contender.value) {
        let grant = tokens::grant(data.fence, contender.created, data.tokens);
        return Seen {
            fence: tokens::last_of_run(data.fence, contender.created),
            grant,
            holder: Holder::new(
                data.claim,
                data.process.clone(),
                data.mode,
                grant.token,
                data.since(),
                data.lease,
            )
            .with_lease(Some(data.lease))
            .with_label(data.label),
            contender,
        };
    }
    // A client of another project: what it writes is its own affair, as the proposal of an election.
    let mode = match contender.part.kind {
        Kind::Read => Mode::Read,
        Kind::Write => Mode::Write,
        Kind::Plain | Kind::Permit => Mode::Exclusive,
    };
    Seen {
        grant: Grant {
            token: Token::new(0),
            tokens: 0,
        },
        fence: tokens::last_of_run(Fence::Base(base), contender.created),
        holder: Holder::foreign(
            ClaimId::UNKNOWN,
            Process::unknown("another client of etcd"),
            mode,
        ),
        contender,
    }
}

impl View {
    /// `None` if nothing is known.
    fn info(self, name: Name) -> Option<LockInfo> {
        if self.holders.is_empty() && self.waiters == 0 && self.record.is_none() {
            return None;
        }
        let ours = self.holders.iter().filter(|seen| seen.grant.tokens > 0);
        let last = ours.map(|seen| seen.grant.token.get() + u64::from(seen.grant.tokens) - 1);
        let fence = self.record.as_ref().map(|record| record.fence);
        let last = last.chain(fence).max().filter(|last| *last > 0);
        let waiter = |seen: Seen| Waiter {
            claim: seen.holder.claim,
            process: seen.holder.process,
            mode: seen.holder.mode,
            label: seen.holder.label,
            since: seen.holder.since,
        };
        Some(LockInfo {
            name,
            holders: self.holders.into_iter().map(|seen| seen.holder).collect(),
            waiters: self.waiters,
            queue: self.queue.into_iter().map(waiter).collect(),
            last_token: last.map(Token::new),
            broken: self.record.map(|record| record.broken),
            free_permits: None,
        })
    }
}

/// What is known about a name.
pub async fn inspect(core: Arc<Core>, name: Name) -> Result<Option<LockInfo>, Error> {
    core.keys().check(&name)?;
    let view = view(&core, &name).await;
    super::core::answer(view.map(|view| view.info(name)), None)
}

/// Every name that begins so and is held or waited for.
pub async fn list(core: Arc<Core>, prefix: String) -> Result<Vec<LockInfo>, Error> {
    super::core::answer(walk(&core, &prefix).await, Vec::new())
}

async fn walk(core: &Core, prefix: &str) -> Result<Vec<LockInfo>, Fault> {
    let keys = core.keys();
    let from = format!("{}{prefix}", keys.prefix()).into_bytes();
    let reads = vec![Operation::list(&from, false), Operation::get(&keys.base())];
    let mut lists = core.read(reads).await?.lists();
    let mut next = || lists.next().unwrap_or_default();
    let (mut found, base) = (next(), next());
    found.retain(|kv| !keys.is_own(&kv.key));
    let base = base_of(&base);
    // A key without a lease is no lock's, but what somebody keeps there.
    let locks = found.iter().filter(|kv| kv.lease != 0);
    let names: BTreeSet<String> = locks
        .filter_map(|kv| keys.name_of(&kv.key))
        .filter(|name| name.starts_with(prefix))
        .collect();
    let mut list = Vec::new();
    for text in names {
        let Ok(name) = Name::new(&text) else { continue };
        let below = keys.name(&text);
        // They are in the order of their keys.
        let first = found.partition_point(|kv| kv.key < below);
        let of_name = found[first..]
            .iter()
            .take_while(|kv| kv.key.starts_with(&below));
        let line = Line::of(&below, of_name.cloned().collect());
        let view = describe(line, None, base);
        if !view.holders.is_empty() || view.waiters > 0 {
            list.extend(view.info(name).map(|info| info.with_queue(Vec::new())));
        }
    }
    Ok(list)
}
