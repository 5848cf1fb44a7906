//! Where the master of a service is, as its Sentinels say.
//!
//! They are asked for every connection that is made. Besides, one of them is listened to all the while, so that a
//! fail-over is followed at once, also when the old master still answers.
//!
//! Sentinels learn of a fail-over one after the other. Each counts a configuration's epoch up, so whatever is older
//! than what we know is passed over; and a master has to say itself that it is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::{RedisError, Value};
use tokio::sync::Notify;

use super::fault::{explain, refused, unavailable, words};
use super::setup::Fresh;
use super::shared::Shared;
use super::transport::{Heard, Link, Login, Socket, Topic};
use super::url::Settings;
use crate::Error;
use crate::clock::Moment;
use crate::store::common::Address;

/// Where a Sentinel tells of a new master.
const SWITCHED: &str = "+switch-master";
/// How often the Sentinel that is listened to is asked as well: what it said may have been missed.
const ASK_EVERY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

/// The Sentinels of a service.
#[derive(Debug)]
pub(super) struct Sentinels {
    addresses: Vec<Address>,
    pub service: String,
    /// The one that answered last.
    last: AtomicUsize,
    /// The newest configuration that was heard of.
    epoch: AtomicU64,
}

/// What a Sentinel says about the service.
struct Opinion {
    master: Address,
    epoch: u64,
}

impl Sentinels {
    pub fn new(addresses: Vec<Address>, service: String) -> Sentinels {
        Sentinels {
            addresses,
            service,
            last: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// All of them, the one that answered last first.
    fn in_turn(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.last.load(Ordering::Relaxed), self.addresses.len());
        (0..count).map(move |at| (first + at) % count)
    }

    /// Takes note of an opinion, unless a newer one is known.
    fn takes(&self, at: usize, opinion: &Opinion) -> bool {
        let current = opinion.epoch >= self.epoch.fetch_max(opinion.epoch, Ordering::Relaxed);
        if current {
            self.last.store(at, Ordering::Relaxed);
        }
        current
    }

    /// Asks for the master, one Sentinel after the other.
    async fn master(&self, settings: &Settings) -> Result<Address, Error> {
        let mut stale: Option<(usize, Opinion)> = None;
        let mut failures = Vec::new();
        for at in self.in_turn() {
            let asked = async {
                let mut link = self.open(at, settings, |_| {}).await?;
                self.ask(&mut link.socket).await
            };
            match within(settings, asked).await {
                Ok(opinion) if self.takes(at, &opinion) => return Ok(opinion.master),
                Ok(opinion) => {
                    if stale
                        .as_ref()
                        .is_none_or(|(_, best)| best.epoch < opinion.epoch)
                    {
                        stale = Some((at, opinion));
                    }
                }
                Err(error) => failures.push((&self.addresses[at], error)),
            }
        }
        let (all, answered) = (self.addresses.len(), self.addresses.len() - failures.len());
        match stale {
            // Sentinels that were set up anew count from the start.
            Some((at, opinion)) if 2 * answered > all => {
                self.last.store(at, Ordering::Relaxed);
                self.epoch.store(opinion.epoch, Ordering::Relaxed);
                Ok(opinion.master)
            }
            // A few may be cut off from the others, together with the old master.
            Some(_) => Err(unavailable(format!(
                "{answered} of {all} Sentinels answer, and only with a master from before the last fail-over"
            ))),
            None => Err(self.no_answer(failures)),
        }
    }

    /// A refusal weighs more than silence: it does not pass by itself.
    fn no_answer(&self, failures: Vec<(&Address, Error)>) -> Error {
        let mut silent = Vec::new();
        for (address, error) in failures {
            match error {
                Error::Unavailable { reason, .. } => silent.push(format!("{address}: {reason}")),
                error => return error,
            }
        }
        unavailable(format!("no Sentinel answers ({})", silent.join("; ")))
    }

    async fn open(
        &self,
        at: usize,
        settings: &Settings,
        heard: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link, Error> {
        let login = Login {
            user: settings.sentinel.user.as_deref(),
            password: settings.sentinel.password(),
            database: 0,
            first: self.epoch.load(Ordering::Relaxed) == 0,
        };
        let address = &self.addresses[at];
        let link = Link::open(address, settings, login, heard).await;
        link.map_err(|error| match error {
            Error::Refused { store, reason, .. } => Error::refused(
                store,
                format!(
                    "the Sentinel {address}: {}",
                    reason.replace(
                        "put it into the URL or name a password_file",
                        "name a file with sentinel_password_file=PATH"
                    )
                ),
            ),
            other => other,
        })
    }

    async fn ask(&self, connection: &mut Socket) -> Result<Opinion, Error> {
        let sentinel = |what: &str| {
            let mut cmd = ::redis::cmd("SENTINEL");
            cmd.arg(what);
            cmd
        };
        let mut whereabouts = sentinel("GET-MASTER-ADDR-BY-NAME");
        whereabouts.arg(&self.service);
        let found: Option<(String, u16)> = whereabouts
            .query_async(connection)
            .await
            .map_err(|error| not_told(&error))?;
        let Some((host, port)) = found else {
            let known = sentinel("MASTERS").query_async(connection).await;
            return Err(refused(self.unknown(&services(known.unwrap_or_default()))));
        };
        // Not every deployment lets clients see more than the address.
        let mut details = sentinel("MASTER");
        details.arg(&self.service);
        let details = details.query_async::<Value>(connection).await;
        let epoch = field(details.as_ref().unwrap_or(&Value::Nil), "config-epoch");
        Ok(Opinion {
            master: Address::Tcp(host, port),
            epoch: epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
        })
    }

    fn unknown(&self, known: &[String]) -> String {
        let service = &self.service;
        match known {
            [] => format!("the Sentinels know no service {service:?}, nor any other"),
            known => format!(
                "the Sentinels know no service {service:?}; they know {}",
                known.join(", ")
            ),
        }
    }
}

/// A Sentinel has a part of the time only, so that a dead one does not keep us from the next.
async fn within<T>(
    settings: &Settings,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let limit = settings.connect_timeout / 2;
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(unavailable(format!("no answer within {limit:?}"))),
    }
}

/// Why a Sentinel does not tell.
fn not_told(error: &RedisError) -> Error {
    let said = words(error);
    match said.contains("unknown command") {
        true => refused(
            "what the URL names as a Sentinel is a server; write redis://HOST:PORT for it, or name the Sentinels, \
             whose port is usually 26379"
                .into(),
        ),
        false => explain(error),
    }
}

/// The names in the answer to SENTINEL MASTERS.
fn services(masters: Vec<Value>) -> Vec<String> {
    let names = masters.iter().filter_map(|master| field(master, "name"));
    names.take(10).collect()
}

/// One field of what a Sentinel says about a master: a map, or a list of names and values.
fn field(master: &Value, name: &str) -> Option<String> {
    let text = |value: &Value| ::redis::from_redis_value_ref::<String>(value).ok();
    match master {
        Value::Map(fields) => {
            let mut found = fields
                .iter()
                .filter(|(key, _)| text(key).as_deref() == Some(name));
            found.next().and_then(|(_, value)| text(value))
        }
        Value::Array(list) => {
            let mut found = list
                .chunks_exact(2)
                .filter(|pair| text(&pair[0]).as_deref() == Some(name));
            found.next().and_then(|pair| text(&pair[1]))
        }
        _ => None,
    }
}

/// Connects to the master. While the Sentinels are choosing another it is looked for again, for a while.
pub(super) async fn connect(
    shared: &Arc<Shared>,
    sentinels: &Sentinels,
    number: u64,
) -> Result<Fresh, Error> {
    let end = Moment::now() + shared.settings.connect_timeout;
    loop {
        let master = sentinels.master(&shared.settings).await?;
        shared.set_address(master.clone());
        match shared.connect_to(number, &master).await {
            Err(Error::Unavailable { .. }) if Moment::now() < end => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(Error::Unavailable {
                store,
                reason,
                system,
            }) => {
                let service = &sentinels.service;
                return Err(Error::Unavailable {
                    store,
                    reason: format!("{service} has no working master just now: {reason}"),
                    system,
                });
            }
            other => return other,
        }
    }
}

/// Listens to one Sentinel after the other for as long as the connection is wanted.
pub(super) async fn watch(shared: Arc<Shared>, sentinels: Arc<Sentinels>) {
    loop {
        for at in sentinels.in_turn() {
            let Err(error) = listen(&shared, &sentinels, at).await;
            let sentinel = &sentinels.addresses[at];
            tracing::debug!(%sentinel, %error, "not listening to this Sentinel");
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn listen(
    shared: &Arc<Shared>,
    sentinels: &Sentinels,
    at: usize,
) -> Result<std::convert::Infallible, Error> {
    let settings = &shared.settings;
    let switched = Arc::new(Notify::new());
    let heard = switched.clone();
    let subscribed = async {
        let link = sentinels.open(at, settings, move |_| heard.notify_one());
        let link = link.await?;
        let done = link.socket.subscribe(&[Topic::Channel(SWITCHED.into())]);
        done.await.map_err(|error| explain(&error))?;
        Ok(link)
    };
    let mut link = within(settings, subscribed).await?;
    loop {
        let opinion = within(settings, sentinels.ask(&mut link.socket)).await?;
        if sentinels.takes(at, &opinion) {
            shared.follow(&opinion.master);
        }
        let _ = tokio::time::timeout(ASK_EVERY, switched.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_opinion_never_counts_after_a_newer_one() {
        let address = |port| Address::Tcp("a".into(), port);
        let sentinels = Sentinels::new(vec![address(1), address(2)], "locks".into());
        let opinion = |epoch| Opinion {
            master: address(9),
            epoch,
        };
        assert!(sentinels.takes(0, &opinion(3)));
        assert!(sentinels.takes(1, &opinion(3)));
        assert!(!sentinels.takes(0, &opinion(2)));
        assert_eq!(sentinels.epoch.load(Ordering::Relaxed), 3);
        assert_eq!(sentinels.in_turn().next(), Some(1), "the last that counted");
    }
}
