//! What all verbs of a store share: its session, its settings, and how requests are made.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::claims::Claims;
use super::client::wire::{Acl, Answer, Code, Kind, Op, Request};
use super::client::{Client, Replies};
use super::fault::{self, Fault};
use super::line::Line;
use super::names;
use super::tokens::{Base, Step, Tokens};
use super::url::Settings;
use super::watching::Watched;
use crate::clock::{Clock, Moment};
use crate::store::common::HintBoard;
use crate::store::{Capabilities, Process};
use crate::{Error, Name};

/// The largest request that a server takes, with some room. It ends the connection at `jute.maxbuffer`, which is 1 MiB unless it
/// was changed.
const LARGEST: usize = 1_000_000;
/// How large a request may be that can be split, or that a claim will need later in a larger form.
pub const LARGE: usize = 900_000;
/// Requests that are shorter than this are not split: every server takes them.
const SHORTEST_SPLIT: usize = 4_000;
/// How long a verb waits for a connection before it says that there is none.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many weights of nodes are remembered.
const MOST_WEIGHTS: usize = 4096;
/// How many names that were found busy are remembered, before those are forgotten that are looked at no more.
const MOST_BUSY: usize = 4096;
/// How often it is told that numbers end.
const WARNS_EVERY: Duration = Duration::from_secs(60);
/// For how long a name that was found busy is looked at before it is tried.
const BUSY_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Core {
    pub client: Client,
    pub settings: Settings,
    pub capabilities: Capabilities,
    pub process: Process,
    pub hints: HintBoard,
    pub claims: Arc<Claims>,
    pub watched: Watched,
    tokens: Mutex<Tokens>,
    /// What nodes of semaphores weigh, by their paths: limit and count. It never changes.
    weights: Mutex<HashMap<String, (u32, u32)>>,
    /// When a name was last found busy.
    busy: Mutex<HashMap<Name, Moment>>,
    /// When the last write that was committed was sent.
    committed: AtomicU64,
    pub splits: Splits,
    /// When it was last told that numbers end, in nanoseconds; 0 before the first time.
    warned: AtomicU64,
}

/// How long a request may be that can be split: servers end the connection of a client that sends more than their
/// `jute.maxbuffer`.
#[derive(Debug)]
pub struct Splits(AtomicUsize);

impl Default for Splits {
    fn default() -> Splits {
        Splits(AtomicUsize::new(LARGE))
    }
}

impl Splits {
    pub fn at(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// The connection ended instead of an answer to a request of this length that can be split. `cuts` counts how often that
    /// happened without an answer in between. Returns whether it is tried again.
    pub fn was_cut(&self, length: usize, cuts: &mut u32) -> bool {
        let shorter = length / 2;
        if shorter < SHORTEST_SPLIT {
            return false;
        }
        *cuts += 1;
        // A connection ends for other reasons, too, and shorter requests are for good: not before the second time.
        if *cuts == 2 {
            *cuts = 0;
            self.0.fetch_min(shorter, Ordering::SeqCst);
        }
        true
    }
}

/// A claim's place below the chroot.
#[derive(Clone, Debug)]
pub struct Place {
    /// The path of the name.
    pub path: String,
    /// The line for permits.
    pub queue: String,
    /// The leases of permits.
    pub leases: String,
}

impl Core {
    pub fn new(client: Client, settings: Settings, capabilities: Capabilities) -> Core {
        Core {
            client,
            settings,
            capabilities,
            process: Process::current(),
            hints: HintBoard::default(),
            claims: Arc::default(),
            watched: Watched::default(),
            tokens: Mutex::default(),
            weights: Mutex::default(),
            busy: Mutex::default(),
            committed: AtomicU64::new(0),
            splits: Splits::default(),
            warned: AtomicU64::new(0),
        }
    }

    /// Whether a lease of this length can be kept by the session as it is now.
    pub fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.capabilities.check_lease(lease)?;
        let longest = self.client.standing().timeout * 2 / 3;
        if lease <= longest {
            return Ok(());
        }
        Err(super::url::KIND.unavailable(format!(
            "the servers now end sessions so soon that no lease can be longer than {longest:?}; connect a new keeper"
        )))
    }

    pub fn acl(&self) -> Acl {
        self.settings.acl
    }

    pub fn place(&self, name: &str) -> Place {
        let path = format!("{}{}", self.settings.chroot, names::path(name));
        Place {
            queue: format!("{path}/{}", names::PERMIT_LINE),
            leases: format!("{path}/{}", names::PERMIT_LEASES),
            path,
        }
    }

    /// The path of one of our own nodes below the chroot.
    pub fn own(&self, name: &str) -> String {
        format!("{}/{name}", self.settings.chroot)
    }

    pub fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits a little for a connection if there is none.
    async fn ready(&self, not_after: Moment) {
        if !self.client.standing().connected {
            self.client
                .connected(PATIENCE.min(not_after.remaining()))
                .await;
        }
    }

    /// Asks for what changes nothing.
    pub async fn read(&self, requests: Vec<Request>) -> Result<Vec<Result<Answer, Code>>, Fault> {
        self.ready(Moment::NEVER).await;
        let replies = self.client.send(requests, Moment::NEVER).await;
        Ok(replies.map_err(fault::of_read)?.answers)
    }

    /// Asks for what changes something. That it was done says nothing about the session.
    pub async fn write(&self, requests: Vec<Request>, not_after: Moment) -> Result<Replies, Fault> {
        check_length(&requests)?;
        self.ready(not_after).await;
        let replies = self.client.send(requests, not_after).await;
        replies.map_err(fault::of_write)
    }

    /// Asks for what changes something, or writes and changes nothing. If it was done, the session lives for two thirds of
    /// its time-out from when it was sent.
    pub async fn prove(&self, requests: Vec<Request>, not_after: Moment) -> Result<Replies, Fault> {
        check_length(&requests)?;
        self.ready(not_after).await;
        let replies = self.client.send_and_prove(requests, not_after).await;
        replies.map_err(fault::of_write)
    }

    /// A write that was sent then to prove that the session lives was committed.
    pub fn committed(&self, sent: Moment) {
        self.committed.fetch_max(sent.as_nanos(), Ordering::SeqCst);
    }

    /// Whether a write was committed not long ago. Otherwise the server may be a leader that was deposed, or its follower: what it
    /// answers to reads and to `sync` may be of the past.
    pub fn wrote_lately(&self) -> bool {
        let committed = Moment::from_nanos(self.committed.load(Ordering::SeqCst));
        Moment::now().since(committed) <= self.client.standing().timeout / 3
    }

    /// Until when the session lives for sure: two thirds of its time-out after the last write that was committed.
    pub fn lives_until(&self) -> Moment {
        let committed = Moment::from_nanos(self.committed.load(Ordering::SeqCst));
        committed + self.client.standing().timeout * 2 / 3
    }

    /// What creates the folders of a path, from the chroot on.
    pub fn folders(&self, path: &str) -> Vec<Request> {
        let chroot = self.settings.chroot.len();
        let mut ends: Vec<usize> = path
            .match_indices('/')
            .map(|(at, _)| at)
            .filter(|at| *at > 0)
            .collect();
        ends.push(path.len());
        let folder = |end: usize| {
            // The chroot is the administrator's, and stays.
            let kind = if end <= chroot {
                Kind::Persistent
            } else {
                Kind::Container
            };
            Request::Do(Op::Create {
                path: path[..end].to_owned(),
                data: Vec::new(),
                acl: self.acl(),
                kind,
            })
        };
        ends.into_iter().map(folder).collect()
    }

    /// What creates our own folder below the chroot, with these data, and the chroot.
    pub fn own_folder(&self, data: Vec<u8>) -> Vec<Request> {
        let mut requests = match self.settings.chroot.as_str() {
            "" => Vec::new(),
            chroot => self.folders(chroot),
        };
        requests.push(Request::Do(Op::Create {
            path: self.own(names::BASE),
            data,
            acl: self.acl(),
            kind: Kind::Persistent,
        }));
        requests
    }

    /// The step that a transaction which creates a claim has to take with the base of tokens. `None`: tokens are native.
    pub async fn base_step(&self) -> Result<Option<Step>, Fault> {
        if self.settings.native {
            return Ok(None);
        }
        let path = self.own(names::BASE);
        let clock = || Clock::real().unix_micros();
        for _ in 0..100 {
            let known = self.tokens().base.filter(|_| self.client.last_zxid() != 0);
            if let Some(base) = known {
                let zxid = self.client.last_zxid();
                return Ok(Some(self.tokens().step(&path, base, zxid, clock())));
            }
            let requests = vec![
                Request::Sync { path: path.clone() },
                Request::GetData {
                    path: path.clone(),
                    watch: false,
                },
            ];
            match self.read(requests).await?.pop() {
                // Made for the records of breaks, by a keeper whose tokens are native.
                Some(Ok(Answer::Data(data, stat))) if data.is_empty() => {
                    let zxid = self.client.last_zxid();
                    let first = self.tokens().first(zxid, clock());
                    let write = Request::Do(Op::SetData {
                        path: path.clone(),
                        data: first,
                        version: stat.version,
                    });
                    let made = self.write(vec![write], Moment::NEVER).await?;
                    match made.answers.last() {
                        Some(Ok(_) | Err(Code::BAD_VERSION | Code::NO_NODE)) => {}
                        Some(Err(code)) => return Err(fault::of_code(*code, &path)),
                        None => return Err(fault::odd("nothing")),
                    }
                }
                Some(Ok(Answer::Data(data, stat))) => {
                    let base = Base::read(&data, stat.version, stat.mzxid);
                    let base = base.ok_or_else(|| {
                        Fault::Store(super::url::KIND.refused(format!(
                            "the node {path:?} is not what Lockkeeper wrote; use another chroot, or delete it while nobody holds"
                        )))
                    })?;
                    self.tokens().base = Some(base);
                }
                Some(Err(Code::NO_NODE)) => {
                    let first = self.tokens().first(self.client.last_zxid(), clock());
                    let made = self.write(self.own_folder(first), Moment::NEVER).await?;
                    match made.answers.last() {
                        Some(Ok(_) | Err(Code::NODE_EXISTS)) => {}
                        // The chroot is not there, and may not be created.
                        Some(Err(Code::NO_NODE)) if refused(&made.answers) => {
                            return Err(fault::of_code(Code::NO_AUTH, &self.settings.chroot));
                        }
                        Some(Err(code)) => return Err(fault::of_code(*code, &path)),
                        None => return Err(fault::odd("nothing")),
                    }
                }
                Some(Err(code)) => return Err(fault::of_code(code, &path)),
                _ => return Err(fault::odd("no data")),
            }
        }
        Err(fault::odd("the base of tokens changes all the time"))
    }

    /// A write that changes nothing, to be sent before reads: no server answers it without a majority, and what is read behind it is
    /// not of the past. A leader that was deposed answers reads and `sync` alone, and so does a follower of it.
    /// A leader answers the `sync` of its own clients like a read, also while it has yet to apply what a follower of it has answered.
    pub fn barrier(&self) -> Request {
        let root = match self.settings.chroot.as_str() {
            "" => "/",
            chroot => chroot,
        };
        Request::Multi(vec![Op::Check {
            path: root.to_owned(),
            version: -1,
        }])
    }

    /// The children of these paths; what is not there has none. They are read in this order, by one session.
    pub async fn children<const N: usize>(
        &self,
        paths: [&str; N],
    ) -> Result<[Vec<String>; N], Fault> {
        let list = |path: &str| Request::GetChildren {
            path: path.to_owned(),
            watch: false,
        };
        let answers = self.read(paths.into_iter().map(list).collect()).await?;
        let mut lists = answers
            .into_iter()
            .zip(paths)
            .map(|(answer, path)| listed(answer, path));
        let mut children = [const { Vec::new() }; N];
        for list in &mut children {
            *list = lists.next().unwrap_or_else(|| Ok(Vec::new()))?;
        }
        Ok(children)
    }

    /// The transactions that created these nodes of a folder, where they are still there.
    pub async fn created(
        &self,
        folder: &str,
        nodes: &[String],
    ) -> Result<HashMap<String, i64>, Fault> {
        if nodes.is_empty() {
            return Ok(HashMap::new());
        }
        let get = |node: &String| Request::GetData {
            path: format!("{folder}/{node}"),
            watch: false,
        };
        let answers = self.read(nodes.iter().map(get).collect()).await?;
        let mut created = HashMap::new();
        for (node, answer) in nodes.iter().zip(answers) {
            match answer {
                Ok(Answer::Data(data, stat)) => {
                    let place = super::data::Data::read(&data).and_then(|data| data.place);
                    created.insert(node.clone(), place.unwrap_or(stat.czxid));
                }
                Ok(_) => return Err(fault::odd("no data")),
                Err(Code::NO_NODE) => {}
                Err(code) => return Err(fault::of_code(code, folder)),
            }
        }
        Ok(created)
    }

    /// The line among these children of a folder.
    pub async fn line(&self, folder: &str, children: &[String]) -> Result<Line, Fault> {
        let mut line = Line::of(children);
        if line.is_out_of_numbers() {
            let nodes: Vec<String> = line.all().iter().map(|one| one.node.clone()).collect();
            line.order_by(&self.created(folder, &nodes).await?);
        }
        Ok(line)
    }

    /// What nodes of a semaphore weigh: limit and count. What is gone is left out.
    pub async fn weigh(&self, paths: &[String]) -> Result<Vec<(u32, u32)>, Fault> {
        let lock = || self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        let mut weights = Vec::with_capacity(paths.len());
        let mut asked = Vec::new();
        {
            let known = lock();
            for path in paths {
                match known.get(path) {
                    Some(weight) => weights.push(*weight),
                    None => asked.push(path.clone()),
                }
            }
        }
        if asked.is_empty() {
            return Ok(weights);
        }
        let get = |path: &String| Request::GetData {
            path: path.clone(),
            watch: false,
        };
        let answers = self.read(asked.iter().map(get).collect()).await?;
        for (path, answer) in asked.into_iter().zip(answers) {
            let weight = match answer {
                Ok(Answer::Data(data, _)) => super::permits::weight(&data),
                Ok(_) => return Err(fault::odd("no data")),
                Err(Code::NO_NODE) => continue,
                Err(code) => return Err(fault::of_code(code, &path)),
            };
            weights.push(weight);
            let mut known = lock();
            if known.len() >= MOST_WEIGHTS {
                known.clear();
            }
            known.insert(path, weight);
        }
        Ok(weights)
    }

    /// Whether to tell now that numbers end: each release finds that out, for a million of them.
    pub fn warns_of_numbers(&self) -> bool {
        let (now, last) = (Moment::now(), self.warned.load(Ordering::SeqCst));
        let is_due = last == 0 || now.since(Moment::from_nanos(last)) >= WARNS_EVERY;
        is_due
            && self
                .warned
                .compare_exchange(last, now.as_nanos(), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    /// A name was found busy, or free.
    pub fn found(&self, name: &Name, busy: bool) {
        let mut known = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if !busy {
            known.remove(name);
            return;
        }
        let now = Moment::now();
        if known.len() >= MOST_BUSY {
            known.retain(|_, since| now.since(*since) < BUSY_FOR);
        }
        known.insert(name.clone(), now);
    }

    /// Whether a name was found busy not long ago.
    pub fn was_busy(&self, name: &Name) -> bool {
        let known = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(name)
            .is_some_and(|since| Moment::now().since(*since) < BUSY_FOR)
    }
}

/// Whether the rights of this user were too few for one of these.
fn refused(answers: &[Result<Answer, Code>]) -> bool {
    answers.contains(&Err(Code::NO_AUTH))
}

/// Whether the servers take these.
fn check_length(requests: &[Request]) -> Result<(), Fault> {
    match requests.iter().map(Request::length).max() {
        Some(length) if length > LARGEST => Err(super::url::KIND
            .refused(format!(
                "this takes a request of {length} bytes, and servers take no more than {LARGEST}; ask for less at once"
            ))
            .into()),
        _ => Ok(()),
    }
}

/// The children of a folder that may not be there.
pub fn listed(answer: Result<Answer, Code>, path: &str) -> Result<Vec<String>, Fault> {
    match answer {
        Ok(Answer::Children(children, _)) => Ok(children),
        Ok(_) => Err(fault::odd("no children")),
        Err(Code::NO_NODE) => Ok(Vec::new()),
        Err(code) => Err(fault::of_code(code, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_lost_once_makes_no_request_shorter() {
        let (splits, mut cuts) = (Splits::default(), 0);
        assert!(splits.was_cut(100_000, &mut cuts));
        assert_eq!(splits.at(), LARGE);
        // Another renewal.
        assert!(splits.was_cut(100_000, &mut 0));
        assert_eq!(splits.at(), LARGE);
        assert!(splits.was_cut(100_000, &mut cuts));
        assert_eq!(splits.at(), 50_000);
        assert!(splits.was_cut(50_000, &mut cuts));
        assert_eq!(splits.at(), 50_000, "the shorter one was tried once");
        assert!(!splits.was_cut(SHORTEST_SPLIT, &mut cuts));
    }
}
