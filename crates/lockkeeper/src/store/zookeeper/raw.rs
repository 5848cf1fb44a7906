//! A session that does the requests of its caller: `lockkeeper bench` measures our locks beside it.

use super::client::wire::{Acl, Answer, Kind, Op, Request};
use super::client::{Client, Failure, Options};
use super::url::{KIND, Settings};
use crate::Error;
use crate::clock::Moment;
use crate::url::StoreUrl;

/// A session of its own, on the same servers.
#[derive(Clone, Debug)]
pub struct RawSession {
    client: Client,
    chroot: String,
}

impl RawSession {
    /// Opens a session. The caller's runtime drives it.
    ///
    /// # Errors
    /// Those of [`ZooKeeperStore::connect`](super::ZooKeeperStore::connect).
    pub async fn connect(url: &StoreUrl) -> Result<RawSession, Error> {
        let settings = Settings::read(url)?;
        let options = Options {
            session_timeout: settings.session_timeout,
            answer_timeout: settings.timeout,
        };
        let (client, mut events) = Client::open(settings.way, options).await?;
        // Its task serves the connection in a moment.
        let within = settings.timeout.unwrap_or(super::client::ANSWERS_WITHIN);
        client.connected(within).await;
        // Nobody asked for events, and nobody may leave them to pile up.
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        Ok(RawSession {
            client,
            chroot: settings.chroot,
        })
    }

    /// Makes a node below the chroot, unless it is there. It stays: a container would be swept while nobody uses it.
    ///
    /// # Errors
    /// When the servers do not answer.
    pub async fn create_parent(&self, name: &str) -> Result<(), Error> {
        self.create(format!("{}/{name}", self.chroot), Kind::Persistent)
            .await
            .map(|_| ())
    }

    /// Makes an ephemeral, sequential node below a parent, and returns its path.
    ///
    /// # Errors
    /// When the servers do not answer, or there is no such parent.
    pub async fn create_below(&self, parent: &str) -> Result<String, Error> {
        let path = format!("{}/{parent}/_c_raw-lock-", self.chroot);
        let path = self.create(path, Kind::Sequential).await?;
        path.ok_or_else(|| KIND.unavailable("the node was not created"))
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// When the servers do not answer, or there is no such node.
    pub async fn delete(&self, path: String) -> Result<(), Error> {
        match self.one(Request::Do(Op::Delete { path })).await? {
            Ok(_) => Ok(()),
            Err(code) => Err(KIND.unavailable(format!("the node was not deleted: {code:?}"))),
        }
    }

    /// Deletes a parent.
    ///
    /// # Errors
    /// When the servers do not answer.
    pub async fn delete_parent(&self, name: &str) -> Result<(), Error> {
        self.delete(format!("{}/{name}", self.chroot)).await
    }

    /// Commits a write that changes nothing: a round trip to a majority.
    ///
    /// # Errors
    /// When the servers do not answer.
    pub async fn check(&self, parent: &str) -> Result<(), Error> {
        let path = format!("{}/{parent}", self.chroot);
        let check = Op::Check { path, version: -1 };
        self.one(Request::Multi(vec![check])).await.map(|_| ())
    }

    /// The number of the servers' last transaction that this session heard of: how many there were in an epoch.
    pub fn last_transaction(&self) -> u64 {
        // The low half counts, the high half is the epoch.
        u64::from(self.client.last_zxid() as u32)
    }

    /// The path of the node, or `None` where one of this name is there.
    async fn create(&self, path: String, kind: Kind) -> Result<Option<String>, Error> {
        let create = Op::Create {
            path,
            data: Vec::new(),
            acl: Acl::Open,
            kind,
        };
        Ok(match self.one(Request::Do(create)).await? {
            Ok(Answer::Created { path, .. }) => Some(path),
            _ => None,
        })
    }

    async fn one(
        &self,
        request: Request,
    ) -> Result<Result<Answer, super::client::wire::Code>, Error> {
        let sent = self.client.send(vec![request], Moment::NEVER).await;
        let mut replies = sent.map_err(|failure| match failure {
            Failure::NotSent(reason) | Failure::InDoubt(reason) => KIND.unavailable(reason),
            Failure::TooLate => KIND.unavailable("the request was not sent in time"),
        })?;
        let answer = replies.answers.pop();
        answer.ok_or_else(|| KIND.unavailable("there was no answer"))
    }
}
