//! What the members are asked to tell of: one stream on each connection, with a watch for each range of keys.
//!
//! A watch begins now, with no revision: one that begins at the current revision or before waits for the server's next sweep,
//! which comes every 100 ms. So what happened before it began has to be read once it is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

use super::link::Link;
use super::messages::{WatchAsk, WatchCancel, WatchCreate, WatchRequest, WatchResponse};
use super::{Event, Failure};

const DELETED: i32 = 1;
const NO_PUTS: i32 = 0;
/// How long to wait before a stream that ended is opened anew.
const PAUSE: Duration = Duration::from_millis(50);

/// The keys that a watch is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    pub from: Vec<u8>,
    /// Empty: just this key.
    pub end: Vec<u8>,
    /// Whether to hear of keys that are put, too.
    pub puts: bool,
}

/// How far a watch is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Progress {
    Asked,
    Created,
    /// A member refuses it.
    Refused(String),
}

#[derive(Debug)]
struct Wanted {
    /// Its number on the stream: another one each time that it is asked for.
    id: i64,
    users: usize,
    progress: watch::Sender<Progress>,
    /// Whether it was there before, so that something may have been missed.
    again: bool,
}

#[derive(Debug, Default)]
struct Table {
    wanted: HashMap<Range, Wanted>,
    ids: HashMap<i64, Range>,
    last: i64,
    /// Where requests go, while there is a stream.
    way: Option<mpsc::UnboundedSender<WatchRequest>>,
}

impl Table {
    fn ask(&mut self, range: &Range) {
        self.last += 1;
        let id = self.last;
        let Some(wanted) = self.wanted.get_mut(range) else {
            return;
        };
        self.ids.remove(&wanted.id);
        wanted.id = id;
        self.ids.insert(id, range.clone());
        if let Some(way) = &self.way {
            let _ = way.send(WatchRequest {
                ask: Some(WatchAsk::Create(WatchCreate {
                    key: range.from.clone(),
                    range_end: range.end.clone(),
                    start_revision: 0,
                    filters: if range.puts {
                        Vec::new()
                    } else {
                        vec![NO_PUTS]
                    },
                    watch_id: id,
                })),
            });
        }
    }
}

/// All watches of a keeper.
#[derive(Debug)]
pub struct Watches {
    table: Mutex<Table>,
    /// Something is wanted: time for a stream.
    wake: tokio::sync::Notify,
    events: mpsc::UnboundedSender<Event>,
}

/// Keeps a watch. The last one ends it.
#[derive(Debug)]
pub struct Watching {
    watches: Weak<Watches>,
    range: Range,
    progress: watch::Receiver<Progress>,
}

impl Watching {
    /// Waits until nothing can be missed from here on.
    pub async fn created(&mut self, patience: Duration) -> Result<(), Failure> {
        let settled = self.progress.wait_for(|now| *now != Progress::Asked);
        match tokio::time::timeout(patience, settled).await {
            Ok(Ok(now)) => match &*now {
                Progress::Refused(reason) => Err(Failure::Status(
                    tonic::Code::PermissionDenied,
                    reason.clone(),
                )),
                _ => Ok(()),
            },
            _ => Err(Failure::NotSent("no member watches for us".into())),
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(watches) = self.watches.upgrade() else {
            return;
        };
        let mut table = watches.table();
        let Some(wanted) = table.wanted.get_mut(&self.range) else {
            return;
        };
        wanted.users -= 1;
        if wanted.users > 0 {
            return;
        }
        let id = wanted.id;
        table.wanted.remove(&self.range);
        table.ids.remove(&id);
        if let Some(way) = &table.way {
            let cancel = WatchCancel { watch_id: id };
            let _ = way.send(WatchRequest {
                ask: Some(WatchAsk::Cancel(cancel)),
            });
        }
    }
}

impl Watches {
    pub fn new(events: mpsc::UnboundedSender<Event>) -> Watches {
        Watches {
            table: Mutex::default(),
            wake: tokio::sync::Notify::new(),
            events,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many ranges are watched.
    #[cfg(feature = "internals")]
    pub fn len(&self) -> usize {
        self.table().wanted.len()
    }

    /// Wants to hear of this range.
    pub fn watch(self: &Arc<Watches>, range: Range) -> Watching {
        let mut table = self.table();
        let known = table.wanted.contains_key(&range);
        let wanted = table.wanted.entry(range.clone()).or_insert_with(|| Wanted {
            id: 0,
            users: 0,
            progress: watch::Sender::new(Progress::Asked),
            again: false,
        });
        wanted.users += 1;
        let progress = wanted.progress.subscribe();
        if !known {
            table.ask(&range);
            self.wake.notify_one();
        }
        Watching {
            watches: Arc::downgrade(self),
            range,
            progress,
        }
    }

    /// Keeps a stream on this connection until that is over.
    pub async fn serve(&self, link: &Link) {
        while link.over().is_none() {
            if self.table().wanted.is_empty() {
                tokio::select! {
                    () = self.wake.notified() => {}
                    _ = link.ended() => return,
                }
                continue;
            }
            let (way, outgoing) = mpsc::unbounded_channel();
            {
                let mut table = self.table();
                table.way = Some(way);
                let ranges: Vec<Range> = table.wanted.keys().cloned().collect();
                for range in ranges {
                    table.ask(&range);
                }
            }
            let ended = tokio::select! {
                ended = self.listen(link, outgoing) => ended,
                _ = link.ended() => Ok(()),
            };
            self.no_stream();
            if let Err(status) = ended {
                link.stream_ended(&status).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Nothing is told for now.
    fn no_stream(&self) {
        let mut table = self.table();
        table.way = None;
        table.ids.clear();
        for wanted in table.wanted.values_mut() {
            wanted.progress.send_replace(Progress::Asked);
        }
    }

    async fn listen(
        &self,
        link: &Link,
        outgoing: mpsc::UnboundedReceiver<WatchRequest>,
    ) -> Result<(), Status> {
        let path = "/etcdserverpb.Watch/Watch";
        let mut answers: Streaming<WatchResponse> = link.stream(path, outgoing).await?;
        while let Some(answer) = answers.message().await? {
            let mut refused = None;
            {
                let mut table = self.table();
                let Some(range) = table.ids.get(&answer.watch_id).cloned() else {
                    continue;
                };
                let mut ask_again = false;
                if let Some(wanted) = table.wanted.get_mut(&range) {
                    if answer.canceled && answer.compact_revision == 0 && answer.created {
                        refused = Some(answer.cancel_reason.clone());
                        wanted
                            .progress
                            .send_replace(Progress::Refused(answer.cancel_reason));
                    } else if answer.canceled {
                        // What it would have told is compacted, or the member has too much to do: once more, from now on.
                        wanted.progress.send_replace(Progress::Asked);
                        ask_again = true;
                    } else if answer.created {
                        wanted.progress.send_replace(Progress::Created);
                        if std::mem::replace(&mut wanted.again, true) {
                            let _ = self.events.send(Event::Missed(range.clone()));
                        }
                    } else if !answer.events.is_empty() {
                        let deleted = answer.events.into_iter();
                        let deleted = deleted.filter(|event| event.kind == DELETED);
                        let keys = deleted.filter_map(|event| Some(event.kv?.key)).collect();
                        let _ = self.events.send(Event::Changed(range.clone(), keys));
                    }
                }
                if ask_again {
                    table.ask(&range);
                }
            }
            if let Some(reason) = refused {
                tracing::warn!(target: crate::SETUP_TARGET, reason, "a member refuses a watch");
                // A token may have lapsed: then all is asked for again, after a login.
                if reason.contains("auth") || reason.contains("token") {
                    return Err(Status::unauthenticated(reason));
                }
            }
        }
        Ok(())
    }
}
