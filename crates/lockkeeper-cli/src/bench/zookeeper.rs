//! The raw limit on ZooKeeper: a node is created and deleted again, by the client of our own store.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::clock::Moment;
use lockkeeper::store::zookeeper::raw::RawSession;
use lockkeeper::url::StoreUrl;
use tokio::runtime::Handle;

use super::lap::{Lap, Pair};
use super::tally::Times;

/// The servers under test, spoken to without Lockkeeper. They have a node of its own for as long as this lives.
pub struct Server {
    runtime: Handle,
    session: RawSession,
    parent: String,
}

impl Server {
    /// The servers that a URL names.
    pub fn find(url: &StoreUrl, unique: &str, runtime: Handle) -> Result<Server> {
        let parent = format!("bench-{unique}");
        let session = runtime.block_on(async {
            let session = RawSession::connect(url).await?;
            session.create_parent(&parent).await?;
            Ok::<_, lockkeeper::Error>(session)
        })?;
        Ok(Server {
            runtime,
            session,
            parent,
        })
    }

    /// A node for each, all in one session.
    pub fn pairs(&self, count: usize) -> Vec<Node> {
        let node = Node {
            session: self.session.clone(),
            parent: self.parent.clone(),
        };
        vec![node; count]
    }

    /// How long a committed write takes, each sent a `pause` after the last was answered.
    pub fn ping(&self, length: Duration, pause: Duration) -> Result<Times> {
        let (session, parent) = (self.session.clone(), self.parent.clone());
        let pings = async move {
            let mut times = Times::new();
            let end = Moment::now() + length;
            while Moment::now() < end || times.count() == 0 {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let sent = Moment::now();
                session.check(&parent).await?;
                times.record(Moment::now().since(sent));
            }
            Ok(times)
        };
        self.runtime.block_on(self.runtime.spawn(pings))?
    }

    /// How many writes the servers committed, by all clients.
    pub fn requests(&self) -> Result<u64> {
        self.runtime.block_on(self.session.check(&self.parent))?;
        Ok(self.session.last_transaction())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let delete = self.session.delete_parent(&self.parent);
        let _ = self.runtime.block_on(delete);
    }
}

/// A node that is created and deleted.
#[derive(Clone)]
pub struct Node {
    session: RawSession,
    parent: String,
}

impl Pair for Node {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let path = self.session.create_below(&self.parent).await?;
        lap.acquired().await;
        Ok(self.session.delete(path).await?)
    }
}
