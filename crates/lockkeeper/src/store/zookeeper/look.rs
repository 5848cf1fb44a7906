//! What people see of a name: who holds it, who waits for it, and when it was broken.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::client::wire::{Answer, Code, Request, Stat};
use super::core::{Core, Place, listed};
use super::data::{Data, Fields};
use super::fault::{self, Fault};
use super::line::Contender;
use super::standing::Lists;
use super::{names, permits, release, tokens};
use crate::store::{
    Broken, ClaimId, Grant, Holder, KeeperId, LockInfo, MAX_LISTED, Mode, Process, Waiter,
};
use crate::{Error, Name, Token};

/// How often to look again if nodes go between two looks.
const TRIES: usize = 4;
/// How many folders are listed in one batch.
const LISTED_AT_ONCE: usize = 100;

/// One claim, ours or another client's, with all its nodes.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Whole paths.
    pub nodes: Vec<String>,
    pub holder: Holder,
    pub grant: Grant,
    /// Where a break of it puts the fence.
    pub fence: u64,
}

/// What is known of a name.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub holders: Vec<Seen>,
    /// The first of those that wait.
    pub queue: Vec<Seen>,
    pub waiters: usize,
    pub record: Option<Record>,
}

/// What the last break left.
#[derive(Clone, Debug)]
pub struct Record {
    pub version: i32,
    pub broken: Broken,
    pub fence: u64,
}

impl Record {
    fn read(bytes: &[u8], stat: Stat, native: bool) -> Option<Record> {
        let fields = Fields::read(bytes)?;
        Some(Record {
            version: stat.version,
            broken: Broken {
                reason: fields.text("reason")?.to_owned(),
                at: millis(stat.mtime),
            },
            fence: if native {
                stat.mzxid as u64
            } else {
                fields.number("fence")?
            },
        })
    }
}

/// The path of what is kept about breaks of a name.
pub fn record_path(core: &Core, name: &str) -> String {
    format!("{}/{}", core.own(names::BASE), names::flat(name))
}

fn millis(since_1970: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(since_1970).unwrap_or_default())
}

/// Looks at a name, by a server that has caught up with what was committed before. `listed_only`: nobody wants to see who waits.
pub async fn view(core: &Core, name: &str, listed_only: bool) -> Result<View, Fault> {
    let path = core.place(name).path;
    view_behind(core, &Request::Sync { path }, name, listed_only).await
}

/// The same, by what is read behind this request.
pub async fn view_behind(
    core: &Core,
    before: &Request,
    name: &str,
    listed_only: bool,
) -> Result<View, Fault> {
    let place = core.place(name);
    let record = record_path(core, name);
    for tries in 0.. {
        let mut requests = vec![before.clone()];
        let permits = Mode::Permit { limit: 1, count: 1 };
        requests.extend(Lists::requests(&place, permits));
        requests.push(Request::GetData {
            path: record.clone(),
            watch: false,
        });
        let mut answers = core.read(requests).await?;
        let record = match answers.pop() {
            Some(Ok(Answer::Data(data, stat))) => Record::read(&data, stat, core.settings.native),
            _ => None,
        };
        let answers = answers.into_iter().skip(1);
        let lists = Lists::read(core, &place, permits, answers).await?;
        if !release::is_in_use(&lists) {
            return Ok(View {
                record,
                ..View::default()
            });
        }
        // Where holders come and go all the time, those are left out that are gone when they are looked at.
        let all = tries < TRIES;
        if let Some(view) = sort(core, &place, &lists, listed_only, all).await? {
            return Ok(View { record, ..view });
        }
    }
    unreachable!("it returns")
}

/// A claim's nodes in a folder, before they are read.
struct Group {
    id: Option<u128>,
    nodes: Vec<String>,
    mode: Mode,
}

fn groups<'a>(folder: &str, contenders: impl IntoIterator<Item = &'a Contender>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for one in contenders {
        let path = format!("{folder}/{}", one.node);
        let known = groups
            .iter_mut()
            .find(|group| group.id.is_some() && group.id == one.id);
        match known {
            Some(group) => group.nodes.push(path),
            None => groups.push(Group {
                id: one.id,
                nodes: vec![path],
                mode: if one.node.contains("__WRIT__") {
                    Mode::Write
                } else if one.alone {
                    Mode::Exclusive
                } else {
                    Mode::Read
                },
            }),
        }
    }
    groups
}

/// Which of these hold, and which wait. `None` if `all` are wanted and one is gone by now.
async fn sort(
    core: &Core,
    place: &Place,
    lists: &Lists,
    listed_only: bool,
    all: bool,
) -> Result<Option<View>, Fault> {
    let line = core.line(&place.path, &lists.main).await?;
    let queue = core.line(&place.queue, &lists.queue).await?;
    let mut leases: Vec<Group> = Vec::new();
    for node in &lists.leases {
        let path = format!("{}/{node}", place.leases);
        let id = permits::lease_id(node);
        match leases
            .iter_mut()
            .find(|group| id.is_some() && group.id == id)
        {
            Some(group) => group.nodes.push(path),
            None => leases.push(Group {
                id,
                nodes: vec![path],
                mode: Mode::Permit {
                    limit: u32::MAX,
                    count: 1,
                },
            }),
        }
    }
    let first = line.holders().len();
    let locks_hold = leases.is_empty()
        && (queue.all().is_empty() || is_older(core, place, &line, &queue).await?);
    let mut holders = leases;
    let mut waiting;
    if first > 0 && locks_hold {
        holders = groups(&place.path, &line.all()[..first]);
        let ids: HashSet<_> = holders.iter().filter_map(|group| group.id).collect();
        let others = line.all()[first..].iter();
        waiting = groups(
            &place.path,
            others.filter(|one| waits(one) && one.id.is_none_or(|id| !ids.contains(&id))),
        );
        let lined = queue.all().iter().filter(waits);
        waiting.extend(groups(&place.queue, lined).into_iter().map(permit));
    } else {
        waiting = Vec::new();
        let mut lined: Vec<Group> = groups(&place.queue, queue.all())
            .into_iter()
            .map(permit)
            .collect();
        if line.all().is_empty() {
            let turn = fitting(core, place, lists, &lined).await?;
            holders.extend(lined.drain(..turn));
        }
        waiting.extend(groups(&place.path, line.all().iter().filter(waits)));
        waiting.extend(lined);
    }
    let waiters = waiting.len();
    waiting.truncate(if listed_only { 0 } else { MAX_LISTED });
    let Some(holders) = describe(core, holders, all).await? else {
        return Ok(None);
    };
    let Some(queue) = describe(core, waiting, all).await? else {
        return Ok(None);
    };
    Ok(Some(View {
        holders,
        queue,
        waiters,
        record: None,
    }))
}

/// A claim that only tries is gone in a moment, and may queue later behind others.
fn waits(one: &&Contender) -> bool {
    !one.tries
}

fn permit(group: Group) -> Group {
    Group {
        mode: Mode::Permit {
            limit: u32::MAX,
            count: 1,
        },
        ..group
    }
}

/// Whether the first lock was there before the first who wants permits.
async fn is_older(
    core: &Core,
    place: &Place,
    line: &super::line::Line,
    queue: &super::line::Line,
) -> Result<bool, Fault> {
    let (Some(lock), Some(permit)) = (line.all().first(), queue.all().first()) else {
        return Ok(!line.all().is_empty());
    };
    let locks = core
        .created(&place.path, std::slice::from_ref(&lock.node))
        .await?;
    let permits = core
        .created(&place.queue, std::slice::from_ref(&permit.node))
        .await?;
    Ok(match (locks.get(&lock.node), permits.get(&permit.node)) {
        (Some(lock), Some(permit)) => lock < permit,
        (lock, _) => lock.is_some(),
    })
}

/// How many of the line for permits fit beside what is held.
async fn fitting(
    core: &Core,
    place: &Place,
    lists: &Lists,
    lined: &[Group],
) -> Result<usize, Fault> {
    let held: Vec<String> = lists
        .leases
        .iter()
        .map(|node| format!("{}/{node}", place.leases))
        .collect();
    let held = core.weigh(&held).await?;
    let mut taken = held.len() as u64;
    let mut smallest = held
        .iter()
        .map(|(limit, _)| *limit)
        .min()
        .unwrap_or(u32::MAX);
    for (at, group) in lined.iter().enumerate() {
        let weight = core.weigh(&group.nodes[..1]).await?;
        let Some((limit, count)) = weight.first() else {
            return Ok(at);
        };
        taken += u64::from(*count);
        smallest = smallest.min(*limit);
        if taken > u64::from(smallest) {
            return Ok(at);
        }
    }
    Ok(lined.len())
}

/// Reads what the nodes say. `None` if `all` are wanted and one is gone.
async fn describe(core: &Core, groups: Vec<Group>, all: bool) -> Result<Option<Vec<Seen>>, Fault> {
    if groups.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let get = |group: &Group| Request::GetData {
        path: group.nodes[0].clone(),
        watch: false,
    };
    let answers = core.read(groups.iter().map(get).collect()).await?;
    let mut seen = Vec::with_capacity(groups.len());
    for (group, answer) in groups.into_iter().zip(answers) {
        match answer {
            Ok(Answer::Data(data, stat)) => seen.push(describe_one(group, &data, stat)),
            Ok(_) => return Err(fault::odd("no data")),
            Err(Code::NO_NODE) if all => return Ok(None),
            Err(Code::NO_NODE) => {}
            Err(code) => return Err(fault::of_code(code, &group.nodes[0])),
        }
    }
    Ok(Some(seen))
}

fn describe_one(group: Group, data: &[u8], stat: Stat) -> Seen {
    let since = millis(stat.ctime);
    if let Some(data) = Data::read(data) {
        let grant = tokens::grant(data.fence, stat.czxid, data.tokens);
        return Seen {
            fence: tokens::last_of_run(data.fence, stat.czxid, grant.token.get()),
            nodes: group.nodes,
            grant,
            holder: Holder {
                claim: data.claim,
                process: data.process,
                mode: data.mode,
                token: Some(grant.token),
                since: Some(since),
                remaining: Some(data.lease),
                lease: Some(data.lease),
                label: data.label,
                depth: None,
            },
        };
    }
    // A client of another project: what it writes is its own affair, and mostly an address.
    let said = std::str::from_utf8(data).unwrap_or_default();
    let said = said.chars().filter(|c| !c.is_control()).take(64);
    Seen {
        nodes: group.nodes,
        grant: Grant {
            token: Token::new(0),
            tokens: 0,
        },
        fence: 0,
        holder: Holder {
            claim: ClaimId {
                keeper: KeeperId::from_bits(group.id.unwrap_or_default()),
                number: 0,
            },
            process: Process {
                host: said.collect(),
                pid: 0,
                program: "another client".into(),
            },
            mode: group.mode,
            token: None,
            since: Some(since),
            remaining: None,
            lease: None,
            label: None,
            depth: None,
        },
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
    match view(&core, &name, false).await {
        Ok(view) => Ok(view.info(name)),
        Err(Fault::Store(error)) => Err(error),
        Err(Fault::TooLate) => Ok(None),
    }
}

/// Every name that begins so and is held or waited for.
pub async fn list(core: Arc<Core>, prefix: String) -> Result<Vec<LockInfo>, Error> {
    match walk(&core, &prefix).await {
        Ok(list) => Ok(list),
        Err(Fault::Store(error)) => Err(error),
        Err(Fault::TooLate) => Ok(Vec::new()),
    }
}

async fn walk(core: &Core, prefix: &str) -> Result<Vec<LockInfo>, Fault> {
    let chroot = core.settings.chroot.as_str();
    let root = if chroot.is_empty() { "/" } else { chroot };
    core.read(vec![Request::Sync {
        path: root.to_owned(),
    }])
    .await?;
    // Below the last slash of the prefix, everything may be meant; above it, one way leads there.
    let from = match prefix.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() => names::path(folder),
        _ => String::new(),
    };
    let mut level = vec![from];
    let mut found = Vec::new();
    while !level.is_empty() {
        let whole = |path: &String| match (chroot, path.as_str()) {
            ("", "") => "/".to_owned(),
            (chroot, path) => format!("{chroot}{path}"),
        };
        let get = |path: &String| Request::GetChildren {
            path: whole(path),
            watch: false,
        };
        let mut answers = Vec::with_capacity(level.len());
        // Other verbs come in between.
        for part in level.chunks(LISTED_AT_ONCE) {
            answers.extend(core.read(part.iter().map(get).collect()).await?);
        }
        let mut next = Vec::new();
        for (path, answer) in level.into_iter().zip(answers) {
            let children = match answer {
                // What this user may not see is not listed.
                Err(Code::NO_AUTH) => continue,
                answer => listed(answer, &path)?,
            };
            let permits = |child: &String| {
                matches!(child.as_str(), names::PERMIT_LINE | names::PERMIT_LEASES)
            };
            let used = children
                .iter()
                .any(|child| Contender::parse(child).is_some() || permits(child));
            if used && !path.is_empty() {
                found.extend(names::name(&path).filter(|name| name.starts_with(prefix)));
            }
            for child in children.iter().filter(|child| release::is_folder(child)) {
                let top = path.is_empty();
                if top
                    && matches!(
                        child.as_str(),
                        names::RESERVED | names::LATCHES | names::BASE
                    )
                {
                    continue;
                }
                next.push(format!("{path}/{child}"));
            }
        }
        level = next;
    }
    found.sort_unstable();
    let mut list = Vec::new();
    for name in found {
        let Ok(name) = Name::new(&name) else { continue };
        let view = view(core, &name, true).await?;
        if !view.holders.is_empty() || view.waiters > 0 {
            list.extend(view.info(name));
        }
    }
    Ok(list)
}
