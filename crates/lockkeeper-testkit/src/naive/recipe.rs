//! The steps of the recipe, each with the mistakes that are made in it.

use std::time::{Duration, SystemTime};

use lockkeeper::clock::Moment;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, RedisError, RedisResult};

use super::Mistake;
use super::scripts;

/// How long a command may take, unless a mistake needs less.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a release may take where a later one is to be confused by it.
const SHORT_PATIENCE: Duration = Duration::from_millis(300);

/// A server, a name and a mistake.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub mistake: Mistake,
    pub client: redis::Client,
    pub name: String,
    pub lease: Duration,
}

/// What was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub token: u64,
    pub depth: u32,
    pub until: Until,
}

/// When a holder stops to believe.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Moment(Moment),
    /// By the clock on the wall.
    Wall(SystemTime),
}

impl Until {
    /// The same, as far as can be told now.
    pub fn moment(self) -> Moment {
        match self {
            Until::Moment(moment) => moment,
            Until::Wall(time) => {
                let left = time.duration_since(SystemTime::now());
                Moment::now() + left.unwrap_or_default()
            }
        }
    }
}

impl Recipe {
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(PATIENCE));
        let client = &self.client;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    fn token_key(&self) -> String {
        format!("{}:token", self.name)
    }

    fn line_key(&self) -> String {
        format!("{}:line", self.name)
    }

    fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }

    /// When a lease ends that was asked for at `sent` and answered now. Tenths are left for drift.
    pub fn until(&self, sent: Moment) -> Until {
        let sure = self.lease - self.lease / 10;
        match self.mistake {
            Mistake::NoExpiry => Until::Moment(Moment::NEVER),
            Mistake::DeadlineFromReply => Until::Moment(Moment::now() + sure),
            Mistake::WallClockDeadline => Until::Wall(SystemTime::now() + sure),
            _ => Until::Moment(sent + sure),
        }
    }

    /// Asks once.
    pub async fn take(
        &self,
        connection: &mut MultiplexedConnection,
        id: &str,
    ) -> RedisResult<Option<Taken>> {
        let sent = Moment::now();
        let token: Option<u64> = match self.mistake {
            Mistake::ExpireLater => self.take_then_expire(connection, id).await?,
            Mistake::ReentryOffByOne => return self.enter(connection, id).await,
            Mistake::NoExpiry => self.run(connection, scripts::TAKE, id, 0).await?,
            Mistake::ClaimReused => {
                let lease = self.lease_ms();
                self.run(connection, scripts::TAKE_OR_OWN, id, lease)
                    .await?
            }
            Mistake::PushedFromArrival => {
                let lease = self.lease_ms();
                self.run(connection, scripts::TAKE_OR_QUEUE, id, lease)
                    .await?
            }
            _ => {
                let lease = self.lease_ms();
                self.run(connection, scripts::TAKE, id, lease).await?
            }
        };
        let Some(token) = token else { return Ok(None) };
        if matches!(self.mistake, Mistake::WaitIgnored | Mistake::WaitHeeded) {
            let mut wait = redis::cmd("WAIT");
            wait.arg(1).arg(100);
            let replicas: u64 = wait.query_async(connection).await?;
            if replicas == 0 && self.mistake == Mistake::WaitHeeded {
                self.release(connection, id).await?;
                return Ok(None);
            }
        }
        Ok(Some(Taken {
            token,
            depth: 1,
            until: self.until(sent),
        }))
    }

    async fn take_then_expire(
        &self,
        connection: &mut MultiplexedConnection,
        id: &str,
    ) -> RedisResult<Option<u64>> {
        let taken: bool = connection.set_nx(&self.name, id).await?;
        if !taken {
            return Ok(None);
        }
        let lease = self.lease_ms() as i64;
        let _: () = connection.pexpire(&self.name, lease).await?;
        connection.incr(self.token_key(), 1).await.map(Some)
    }

    async fn enter(
        &self,
        connection: &mut MultiplexedConnection,
        id: &str,
    ) -> RedisResult<Option<Taken>> {
        let sent = Moment::now();
        let lease = self.lease_ms();
        let entered: Option<(u64, u32)> = self.run(connection, scripts::ENTER, id, lease).await?;
        Ok(entered.map(|(token, depth)| Taken {
            token,
            depth,
            until: self.until(sent),
        }))
    }

    /// The token of a lock that the last holder has handed over, if that happens within a time.
    pub async fn handed_over(&self, id: &str, within: Duration) -> RedisResult<Option<Taken>> {
        // It blocks, so it needs a connection of its own.
        let mut connection = self.connect().await?;
        let list = format!("{}:wake:{id}", self.name);
        let news: Option<(String, u64)> = connection.blpop(list, within.as_secs_f64()).await?;
        Ok(news.map(|(_, token)| Taken {
            token,
            depth: 1,
            until: self.until(Moment::now()),
        }))
    }

    /// Whether the renewal counts as done.
    pub async fn renew(
        &self,
        connection: &mut MultiplexedConnection,
        id: &str,
    ) -> RedisResult<bool> {
        let lease = self.lease_ms();
        let done: RedisResult<i64> = match self.mistake {
            Mistake::RenewAnyones => connection.pexpire(&self.name, lease as i64).await,
            Mistake::RenewRecreates => {
                self.run(connection, scripts::RENEW_OR_RECREATE, id, lease)
                    .await
            }
            _ => self.run(connection, scripts::RENEW, id, lease).await,
        };
        done.map(|done| done == 1)
    }

    /// How deep its owner still is; `None` if it did not hold.
    pub async fn release(
        &self,
        connection: &mut MultiplexedConnection,
        id: &str,
    ) -> RedisResult<Option<u32>> {
        let lease = self.lease_ms();
        let done: i64 = match self.mistake {
            Mistake::ReentryOffByOne => {
                let depth: i64 = self.run(connection, scripts::LEAVE, id, lease).await?;
                return Ok(u32::try_from(depth).ok());
            }
            Mistake::DelByAnyone => connection.del(&self.name).await?,
            Mistake::GetThenDel => {
                let owner: Option<String> = connection.get(&self.name).await?;
                match owner.as_deref() == Some(id) {
                    true => connection.del(&self.name).await?,
                    false => 0,
                }
            }
            Mistake::FenceRestarts => {
                self.run(connection, scripts::RELEASE_WITH_FENCE, id, lease)
                    .await?
            }
            Mistake::PushedFromArrival => {
                self.run(connection, scripts::RELEASE_TO_NEXT, id, lease)
                    .await?
            }
            Mistake::ClaimReused => {
                let release = self.run(connection, scripts::RELEASE, id, lease);
                tokio::time::timeout(SHORT_PATIENCE, release)
                    .await
                    .map_err(|_| {
                        RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
                    })??
            }
            _ => self.run(connection, scripts::RELEASE, id, lease).await?,
        };
        Ok((done > 0).then_some(0))
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        script: &str,
        id: &str,
        lease: u64,
    ) -> RedisResult<T> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(3).arg(&self.name);
        eval.arg(self.token_key()).arg(self.line_key());
        eval.arg(id).arg(lease);
        eval.query_async(connection).await
    }
}
