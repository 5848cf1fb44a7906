//! Whose turn it is: what a claim in line has to wait for.

use super::claims::Entry;
use super::client::wire::{Answer, Code, Request};
use super::core::{Core, Place};
use super::fault::{self, Fault};
use super::names;
use crate::store::Mode;

/// The children of a name's folders. Those of `queue` are read before those of `leases`: what moves from the one to the
/// other may be seen in both, and never in none.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    pub main: Vec<String>,
    pub queue: Vec<String>,
    pub leases: Vec<String>,
}

/// What a look at the line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is the claim's turn.
    Turn,
    /// It has to wait for this.
    Behind(Wait),
    /// Its node is gone.
    Gone,
    /// Somebody moved meanwhile: look again.
    Again,
}

/// What a claim waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    /// That this node goes.
    Node(String),
    /// That the children of this folder, which were these, change.
    Children(String, Vec<String>),
}

impl Lists {
    /// What to ask for.
    pub fn requests(place: &Place, mode: Mode) -> Vec<Request> {
        let list = |path: &String| Request::GetChildren {
            path: path.clone(),
            watch: false,
        };
        match mode {
            Mode::Permit { .. } => [&place.path, &place.queue, &place.leases]
                .map(list)
                .to_vec(),
            _ => vec![list(&place.path)],
        }
    }

    /// What was answered. A lock asks for the folders of permits only where they are.
    pub async fn read(
        core: &Core,
        place: &Place,
        mode: Mode,
        answers: impl IntoIterator<Item = Result<Answer, Code>>,
    ) -> Result<Lists, Fault> {
        let mut answers = answers
            .into_iter()
            .map(|answer| super::core::listed(answer, &place.path));
        let mut next = || answers.next().unwrap_or_else(|| Ok(Vec::new()));
        let main = next()?;
        if matches!(mode, Mode::Permit { .. }) {
            return Ok(Lists {
                main,
                queue: next()?,
                leases: next()?,
            });
        }
        let has = |folder: &str| main.iter().any(|child| child == folder);
        if !has(names::PERMIT_LINE) && !has(names::PERMIT_LEASES) {
            return Ok(Lists {
                main,
                ..Lists::default()
            });
        }
        let [queue, leases] = core.children([&place.queue, &place.leases]).await?;
        Ok(Lists {
            main,
            queue,
            leases,
        })
    }
}

/// What the claim has to wait for, by these lists.
pub async fn judge(
    core: &Core,
    place: &Place,
    entry: &Entry,
    lists: &Lists,
) -> Result<Verdict, Fault> {
    match entry.claim.mode {
        Mode::Permit { limit, count } => {
            judge_permits(core, place, entry, lists, limit, count).await
        }
        mode => judge_lock(core, place, entry, lists, mode.is_exclusive()).await,
    }
}

async fn judge_lock(
    core: &Core,
    place: &Place,
    entry: &Entry,
    lists: &Lists,
    alone: bool,
) -> Result<Verdict, Fault> {
    let line = core.line(&place.path, &lists.main).await?;
    // A writer that is gone by now may be a reader that was not there when the line was listed.
    if line.is_aged() {
        return Ok(Verdict::Again);
    }
    match line.blocker(&entry.names(), alone) {
        Err(()) => return Ok(Verdict::Gone),
        Ok(Some(before)) => {
            return Ok(Verdict::Behind(Wait::Node(format!(
                "{}/{}",
                place.path, before.node
            ))));
        }
        Ok(None) => {}
    }
    // A claim that has a permit was here before: a later one would have seen this claim, and waited.
    if !lists.leases.is_empty() {
        let wait = Wait::Children(place.leases.clone(), lists.leases.clone());
        return Ok(Verdict::Behind(wait));
    }
    older(core, &place.queue, &lists.queue, entry.czxid).await
}

/// Waits for the youngest contender of another folder that was there before this transaction. One that is gone by now may
/// have moved on instead of having left: to its permits, or from a writer's node to a reader's.
async fn older(
    core: &Core,
    folder: &str,
    children: &[String],
    czxid: i64,
) -> Result<Verdict, Fault> {
    let line = super::line::Line::of(children);
    let nodes: Vec<String> = line.all().iter().map(|one| one.node.clone()).collect();
    let created = core.created(folder, &nodes).await?;
    if created.len() < nodes.len() {
        return Ok(Verdict::Again);
    }
    let before = created
        .iter()
        .filter(|(_, at)| **at < czxid)
        .max_by_key(|(_, at)| **at);
    Ok(match before {
        Some((node, _)) => Verdict::Behind(Wait::Node(format!("{folder}/{node}"))),
        None => Verdict::Turn,
    })
}

/// Permits: what is held, and what those before it in line want, fits together with it.
///
/// A claim moves from the line to the leases in one transaction. So the sum of all leases and of the line up to a claim
/// never grows, and once it fits, it fits.
async fn judge_permits(
    core: &Core,
    place: &Place,
    entry: &Entry,
    lists: &Lists,
    limit: u32,
    count: u32,
) -> Result<Verdict, Fault> {
    let line = core.line(&place.queue, &lists.queue).await?;
    // One that is gone from the line may have a lease that was not there when the leases were listed.
    if line.is_aged() {
        return Ok(Verdict::Again);
    }
    let Ok(before) = line.before(&entry.names()) else {
        return Ok(Verdict::Gone);
    };
    match older(core, &place.path, &lists.main, entry.czxid).await? {
        Verdict::Turn => {}
        other => return Ok(other),
    }
    let paths: Vec<String> = before
        .iter()
        .map(|one| format!("{}/{}", place.queue, one.node))
        .collect();
    let waiting = core.weigh(&paths).await?;
    if waiting.len() < paths.len() {
        return Ok(Verdict::Again);
    }
    let held: Vec<String> = lists
        .leases
        .iter()
        .map(|node| format!("{}/{node}", place.leases))
        .collect();
    let held = core.weigh(&held).await?;
    let (mut taken, mut smallest) = (u64::from(count), limit);
    for (limit, count) in waiting {
        taken += u64::from(count);
        smallest = smallest.min(limit);
    }
    for (limit, _) in held {
        taken += 1;
        smallest = smallest.min(limit);
    }
    if taken <= u64::from(smallest) {
        return Ok(Verdict::Turn);
    }
    Ok(Verdict::Behind(match paths.last() {
        Some(last) => Wait::Node(last.clone()),
        None => Wait::Children(place.leases.clone(), lists.leases.clone()),
    }))
}

/// Asks to be told when what a claim waits for changes. False if it has changed already.
pub async fn arm(core: &Core, entry: &mut Entry, wait: &Wait) -> Result<bool, Fault> {
    let (path, request) = match wait {
        Wait::Node(path) => (
            path,
            Request::GetData {
                path: path.clone(),
                watch: true,
            },
        ),
        Wait::Children(path, _) => (
            path,
            Request::GetChildren {
                path: path.clone(),
                watch: true,
            },
        ),
    };
    core.claims.wait(path, entry.claim.id);
    let answer = core.read(vec![request]).await?.pop();
    match (answer, wait) {
        (Some(Ok(Answer::Data(..))), Wait::Node(path)) => {
            entry.behind = Some(path.clone());
            Ok(true)
        }
        (Some(Ok(Answer::Children(mut now, _))), Wait::Children(_, seen)) => {
            let mut seen = seen.clone();
            now.sort_unstable();
            seen.sort_unstable();
            entry.behind = None;
            Ok(now == seen)
        }
        // It is not there, and so nothing is watched.
        (Some(Err(Code::NO_NODE)), _) => {
            core.claims.unwatch(path, entry.claim.id);
            Ok(false)
        }
        (Some(Err(code)), _) => Err(fault::of_code(code, path)),
        _ => Err(fault::odd("neither data nor children")),
    }
}
