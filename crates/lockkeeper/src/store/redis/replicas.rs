//! `replicas=N`: a grant or a renewal counts only once N replicas have it.
//!
//! WAIT covers what was written on its own connection, and holds up whatever is sent there after it. So it has a
//! connection of its own, to the same server: after the answer that counts, a marker is written there, and waited for.
//! A replica takes changes in their order, so one that has the marker has the grant. Those who come while one WAIT is
//! under way share the next.

use std::time::Duration;

use ::redis::{RedisError, Value};
use tokio::sync::{mpsc, oneshot};

use super::RedisStore;
use super::connection::Connection;
use super::fault::{is_demoted, refused, unavailable, words};
use super::keys::Keys;
use super::transport::{Link, Socket};
use super::url::Settings;
use super::way::Way;
use crate::store::common::AbortOnDrop;
use crate::store::*;

/// How long a marker stays, in milliseconds: it has done its work once it is written.
const MARKER_STAYS: u32 = 1_000;

/// Writes a marker, also when memory is full: a script that has begun to change something may go on. A renewal has to
/// be confirmed then as well.
const MARK: &str = "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])";

/// Waits for replicas, on behalf of many. Clones share the connection.
#[derive(Clone, Debug)]
pub(super) struct Syncer(mpsc::UnboundedSender<Request>);

#[derive(Debug)]
struct Request {
    marker: String,
    answer: oneshot::Sender<Result<(), String>>,
}

impl Syncer {
    /// Takes over a connection, after a look whether the server can wait at all. It ends with what is answered beside it.
    pub async fn start(
        mut link: Link,
        settings: &Settings,
        broken: impl Fn(String) + Send + 'static,
    ) -> Result<(Syncer, AbortOnDrop), Error> {
        let mut probe = ::redis::cmd("WAIT");
        probe.arg(0).arg(1);
        let probed = probe.query_async::<Value>(&mut link.socket).await;
        probed.map_err(|error| cannot_wait(&error))?;
        let (requests, mut inbox) = mpsc::unbounded_channel::<Request>();
        let wait = Wait {
            replicas: settings.replicas,
            within: settings.replicas_timeout,
            answers_within: settings.replicas_timeout + settings.response_timeout,
        };
        let task = tokio::spawn(async move {
            // The whole of it: a connection without its driver is dead.
            let link = link;
            while let Some(first) = inbox.recv().await {
                let mut group = vec![first];
                while let Ok(next) = inbox.try_recv() {
                    group.push(next);
                }
                let outcome = wait.for_marker(&link.socket, &group[0].marker).await;
                let answer = match &outcome {
                    Ok(Ok(replicas)) => wait.judge(*replicas),
                    Ok(Err(reason)) | Err(reason) => Err(reason.clone()),
                };
                for request in group {
                    let _ = request.answer.send(answer.clone());
                }
                if let Err(reason) = outcome {
                    broken(reason);
                }
            }
        });
        Ok((Syncer(requests), AbortOnDrop::of(&task)))
    }

    /// Waits until replicas have everything that was answered before this call.
    pub async fn confirm(&self, marker: String) -> Result<(), String> {
        let (answer, confirmed) = oneshot::channel();
        let gone = || "the connection that waits for replicas ended".to_owned();
        let request = Request { marker, answer };
        self.0.send(request).map_err(|_| gone())?;
        confirmed.await.unwrap_or_else(|_| Err(gone()))
    }
}

struct Wait {
    replicas: u32,
    within: Duration,
    answers_within: Duration,
}

impl Wait {
    /// How many replicas have the marker in time, or why it was not taken. An error of the connection comes apart.
    async fn for_marker(
        &self,
        socket: &Socket,
        marker: &str,
    ) -> Result<Result<u32, String>, String> {
        let mut both = ::redis::pipe();
        both.cmd("EVAL")
            .arg(MARK)
            .arg(1)
            .arg(marker)
            .arg(MARKER_STAYS);
        both.cmd("WAIT")
            .arg(self.replicas)
            .arg(self.within.as_millis() as u64);
        let answers = socket.send_all(&both, 0);
        let answers = match tokio::time::timeout(self.answers_within, answers).await {
            Ok(answers) => answers.map_err(|error| words(&error))?,
            Err(_) => return Err("the server does not answer a WAIT".into()),
        };
        for answer in answers {
            match answer.extract_error() {
                Ok(Value::Int(replicas)) => return Ok(Ok(u32::try_from(replicas).unwrap_or(0))),
                Ok(_) => {}
                Err(error) if is_demoted(&error) => return Err(words(&error)),
                // It takes no changes just now; or, in a cluster, the slot has just moved away.
                Err(error) => return Ok(Err(words(&error))),
            }
        }
        Err("the server answered a WAIT with something else".into())
    }

    fn judge(&self, confirmed: u32) -> Result<(), String> {
        let Wait {
            replicas, within, ..
        } = self;
        match confirmed >= *replicas {
            true => Ok(()),
            false => Err(format!(
                "{confirmed} of {replicas} replicas confirmed within {within:?}"
            )),
        }
    }
}

fn cannot_wait(error: &RedisError) -> Error {
    let said = words(error);
    match error.code() {
        Some("NOPERM") => refused(format!(
            "replicas=N needs WAIT, which the server's ACL does not allow ({said}); add +wait to the user"
        )),
        _ if error.code().is_some() => refused(format!(
            "replicas=N needs WAIT, which this server does not have ({said}); leave replicas out"
        )),
        _ => unavailable(said),
    }
}

impl Connection {
    /// Which connection the next request goes to, if replicas are to confirm what it does.
    async fn epoch(&self) -> Result<Option<u64>, Error> {
        match self.settings().replicas {
            0 => Ok(None),
            _ => self.number().await.map(Some),
        }
    }
}

/// The verbs that give something, once replicas of the same server have it too.
impl RedisStore {
    pub(super) async fn acquire(&self, way: &Way<'_>, claim: &Claim) -> Result<Attempt, Error> {
        let epoch = way.epoch().await?;
        let attempt = self.acquire_once(way, claim).await?;
        if let (Attempt::Granted(_), Some(epoch)) = (&attempt, epoch)
            && let Err(reason) = confirm(way, epoch, &claim.name).await
        {
            let withdrawn = self.withdraw_claim(way, &claim.name, claim.id).await;
            return match withdrawn {
                Ok(()) => Err(unavailable(reason)),
                // It may be held still; the caller withdraws it again later.
                Err(_) => {
                    way.stay();
                    Err(in_doubt(reason))
                }
            };
        }
        Ok(attempt)
    }

    pub(super) async fn release_hold(
        &self,
        way: &Way<'_>,
        release: &Release,
    ) -> Result<Released, Error> {
        let epoch = way.epoch().await?;
        let mut released = self.release_once(way, release).await?;
        if let (Some(_), Some(epoch)) = (&released.regrant, epoch)
            && confirm(way, epoch, &release.name).await.is_err()
        {
            // To the caller, the next claim is queued; it tries again under the same id, and is confirmed then.
            released.regrant = None;
        }
        Ok(released)
    }

    pub(super) async fn renew_holds(
        &self,
        way: &Way<'_>,
        renewals: &[Renewal],
    ) -> Result<Vec<Renewed>, Error> {
        let epoch = way.epoch().await?;
        let renewed = self.renew_once(way, renewals).await?;
        if let (Some(first), Some(epoch)) = (renewals.first(), epoch)
            && renewed.contains(&Renewed::Renewed)
        {
            let confirmed = confirm(way, epoch, &first.name).await;
            confirmed.map_err(in_doubt)?;
        }
        Ok(renewed)
    }
}

async fn confirm(way: &Way<'_>, epoch: u64, name: &Name) -> Result<(), String> {
    let keys = Keys::of(way.settings(), name);
    let marker = keys.map_err(|error| error.to_string())?.marker();
    way.confirm(epoch, marker).await
}

fn in_doubt(reason: String) -> Error {
    Error::outcome_unknown(super::STORE, reason)
}
