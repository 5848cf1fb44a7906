//! How a connection comes to be: log in, look at the server, read its clock, hear our own channel.

use std::sync::Arc;

use ::redis::Value;

use super::checks::ServerInfo;
use super::fault::{explain, refused, unavailable};
use super::replicas::Syncer;
use super::sentinel;
use super::shared::{Shared, Target};
use super::transport::{Heard, Link, Socket, Topic};
use crate::Error;
use crate::clock::Moment;
use crate::store::admission::Admission;
use crate::store::common::{AbortOnDrop, Address};

/// A connection that is set up but not yet in use.
pub(super) struct Fresh {
    pub number: u64,
    pub link: Link,
    pub syncer: Option<(Syncer, AbortOnDrop)>,
    pub admission: Option<Admission>,
}

impl Shared {
    /// A connection that is authenticated, judged and subscribed to our own channel.
    pub async fn connect(self: &Arc<Shared>, number: u64) -> Result<Fresh, Error> {
        match &self.target {
            Target::Server(address) | Target::Node(address, _) => {
                self.connect_to(number, address).await
            }
            Target::MasterOf(sentinels) => sentinel::connect(self, sentinels, number).await,
        }
    }

    pub async fn connect_to(
        self: &Arc<Shared>,
        number: u64,
        address: &Address,
    ) -> Result<Fresh, Error> {
        let limit = self.settings.connect_timeout;
        match tokio::time::timeout(limit, self.set_up(number, address)).await {
            Ok(fresh) => fresh,
            Err(_) => Err(unavailable(format!(
                "{address} did not answer within {limit:?}"
            ))),
        }
    }

    async fn set_up(self: &Arc<Shared>, number: u64, address: &Address) -> Result<Fresh, Error> {
        // The task that reads must not keep alive what would end it.
        let shared = Arc::downgrade(self);
        let heard = move |heard| {
            if let Some(shared) = shared.upgrade() {
                shared.heard(number, heard);
            }
        };
        let settings = &self.settings;
        let mut link = Link::open(address, settings, settings.login(number == 1), heard).await?;
        let connection = &mut link.socket;
        may_ping(connection).await?;
        let info = look_at(connection).await?;
        let vet = match &self.target {
            Target::Node(_, vet) => Some(vet),
            _ => None,
        };
        if let Some(vet) = vet {
            vet.look(&info)?;
        }
        info.judge(address, self.member.is_some())?;
        let sent = Moment::now();
        let time: (u64, u64) = ::redis::cmd("TIME")
            .query_async(connection)
            .await
            .map_err(|error| explain(&error))?;
        // A server may say anything.
        let micros = time.0.saturating_mul(1_000_000).saturating_add(time.1);
        self.clock.saw(micros, sent, Moment::now());
        let admission = match vet {
            Some(vet) => Some(vet.admit(connection, &info, micros).await?),
            None => None,
        };
        info.judge_replicas(settings.replicas, number == 1)?;
        settings
            .warn_of_token_keys(connection, &info, address)
            .await;
        connection
            .subscribe(&[Topic::Channel(self.channel.clone())])
            .await
            .map_err(|error| explain(&error))?;
        let syncer = match settings.replicas {
            0 => None,
            _ => Some(self.syncer(number, address, &info).await?),
        };
        Ok(Fresh {
            number,
            link,
            syncer,
            admission,
        })
    }

    /// A second connection to the same server, which waits for replicas.
    async fn syncer(
        self: &Arc<Shared>,
        number: u64,
        address: &Address,
        info: &ServerInfo,
    ) -> Result<(Syncer, AbortOnDrop), Error> {
        let (reader, waiter) = (Arc::downgrade(self), Arc::downgrade(self));
        // It is subscribed to nothing.
        let heard = move |heard| {
            if let (Heard::Ended(reason), Some(shared)) = (heard, reader.upgrade()) {
                shared.broken(number, reason);
            }
        };
        let settings = &self.settings;
        if info.run_id.is_none() {
            return Err(refused(
                "replicas=N needs INFO, to tell servers apart, and the server's ACL does not allow it; add +info to the \
                 user"
                    .into(),
            ));
        }
        let mut link = Link::open(address, settings, settings.login(false), heard).await?;
        if look_at(&mut link.socket).await?.run_id != info.run_id {
            return Err(unavailable(format!(
                "{address} has just become another server"
            )));
        }
        let broken = move |reason| {
            if let Some(shared) = waiter.upgrade() {
                shared.broken(number, reason);
            }
        };
        Syncer::start(link, settings, broken).await
    }
}

/// Refuses a user whose connections would all end at their first PING.
async fn may_ping(connection: &mut Socket) -> Result<(), Error> {
    match ::redis::cmd("PING").query_async::<Value>(connection).await {
        Err(error) if error.code() == Some("NOPERM") => Err(refused(
            "every connection is checked by PING, and the server's ACL does not allow it; add +ping to the user"
                .into(),
        )),
        // What else is wrong is seen when the connection is used.
        _ => Ok(()),
    }
}

async fn look_at(connection: &mut Socket) -> Result<ServerInfo, Error> {
    match ::redis::cmd("INFO").query_async::<String>(connection).await {
        Ok(text) => Ok(ServerInfo::read(&text)),
        Err(error) if error.code() == Some("NOPERM") => Ok(ServerInfo::default()),
        Err(error) => Err(explain(&error)),
    }
}
