//! The loops around the recipe: waiting, renewing, looking.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::clock::Moment;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::Mistake;
use super::recipe::{Recipe, Taken, Until};

const POLL: Duration = Duration::from_millis(15);

/// A lock as many a program has it.
#[derive(Clone, Debug)]
pub struct NaiveLock {
    recipe: Recipe,
    /// Whether holds are renewed.
    renewed: bool,
    /// The process's own id, for those that use no other.
    process: String,
    connection: Arc<tokio::sync::Mutex<Option<MultiplexedConnection>>>,
}

/// A hold of a [`NaiveLock`]. Dropped, it is renewed no longer.
#[derive(Debug)]
pub struct NaiveGuard {
    lock: NaiveLock,
    id: String,
    taken: Taken,
    belief: Arc<Belief>,
    watchdog: Option<AbortHandle>,
}

/// What a holder thinks it has.
#[derive(Debug)]
struct Belief {
    until: Mutex<Until>,
    lost: watch::Sender<bool>,
}

impl NaiveLock {
    /// A lock with a mistake, on the server of a `redis://` URL.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(
        mistake: Mistake,
        url: &str,
        name: &str,
        lease: Duration,
        renewed: bool,
    ) -> RedisResult<NaiveLock> {
        Ok(NaiveLock {
            recipe: Recipe {
                mistake,
                client: redis::Client::open(url)?,
                name: name.to_owned(),
                lease,
            },
            renewed,
            process: Uuid::new_v4().to_string(),
            connection: Arc::default(),
        })
    }

    /// Its mistake.
    pub fn mistake(&self) -> Mistake {
        self.recipe.mistake
    }

    /// Waits for the lock, for so long; `None` if others have it all the while.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn acquire(&self, patience: Duration) -> RedisResult<Option<NaiveGuard>> {
        let id = match self.recipe.mistake {
            Mistake::SharedOwner => "worker".to_owned(),
            Mistake::ClaimReused => self.process.clone(),
            _ => Uuid::new_v4().to_string(),
        };
        let end = Moment::now() + patience;
        loop {
            if let Some(taken) = self.try_once(&id).await? {
                return Ok(Some(self.guard(id, taken)));
            }
            if Moment::now() >= end {
                return Ok(None);
            }
            if self.recipe.mistake == Mistake::PushedFromArrival {
                let within = (self.recipe.lease / 2).min(end.remaining());
                let within = within.max(Duration::from_millis(10));
                if let Some(taken) = self.recipe.handed_over(&id, within).await? {
                    return Ok(Some(self.guard(id, taken)));
                }
            } else {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    async fn try_once(&self, id: &str) -> RedisResult<Option<Taken>> {
        let mut connection = self.connection().await?;
        let taken = self.recipe.take(&mut connection, id).await;
        self.forget_if_broken(&taken).await;
        taken
    }

    fn guard(&self, id: String, taken: Taken) -> NaiveGuard {
        let belief = Arc::new(Belief {
            until: Mutex::new(taken.until),
            lost: watch::Sender::new(false),
        });
        let watchdog = self.renewed.then(|| {
            let watchdog = self.clone().renew_often(id.clone(), belief.clone());
            tokio::spawn(watchdog).abort_handle()
        });
        NaiveGuard {
            lock: self.clone(),
            id,
            taken,
            belief,
            watchdog,
        }
    }

    async fn renew_often(self, id: String, belief: Arc<Belief>) {
        let mistake = self.recipe.mistake;
        // Those who believe what they are told by a renewal, however late it comes.
        let gullible = matches!(
            mistake,
            Mistake::RenewAnyones | Mistake::RenewRecreates | Mistake::SwallowErrors
        );
        loop {
            tokio::time::sleep(self.recipe.lease / 3).await;
            let sent = Moment::now();
            let renewed = self.renew(&id).await;
            let until = self.recipe.until(sent);
            match renewed {
                _ if mistake == Mistake::SwallowErrors => belief.set(until),
                Ok(true) if gullible || belief.held() => belief.set(until),
                Ok(_) => {
                    belief.lost.send_replace(true);
                    return;
                }
                Err(_) => {}
            }
            if !belief.held() {
                belief.lost.send_replace(true);
                return;
            }
        }
    }

    async fn renew(&self, id: &str) -> RedisResult<bool> {
        let attempt = async {
            let mut connection = self.connection().await?;
            let renewed = self.recipe.renew(&mut connection, id).await;
            self.forget_if_broken(&renewed).await;
            renewed
        };
        // The next one is due by then.
        tokio::time::timeout(self.recipe.lease / 3, attempt)
            .await
            .map_err(|_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))?
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        let connection = self.recipe.connect().await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    async fn forget_if_broken<T>(&self, answer: &RedisResult<T>) {
        if answer.as_ref().is_err_and(RedisError::is_io_error) {
            *self.connection.lock().await = None;
        }
    }
}

impl Belief {
    fn set(&self, until: Until) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn until(&self) -> Moment {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.moment()
    }

    fn held(&self) -> bool {
        !*self.lost.borrow() && Moment::now() < self.until()
    }
}

impl NaiveGuard {
    /// Its token.
    pub fn token(&self) -> u64 {
        self.taken.token
    }

    /// How often its owner has it.
    pub fn depth(&self) -> u32 {
        self.taken.depth
    }

    /// Until when it believes.
    pub fn deadline(&self) -> Moment {
        self.belief.until()
    }

    /// Whether it believes.
    pub fn is_held(&self) -> bool {
        match self.lock.recipe.mistake {
            // As long as their watchdog runs, that is.
            Mistake::RenewAnyones | Mistake::RenewRecreates => !*self.belief.lost.borrow(),
            _ => self.belief.held(),
        }
    }

    /// Completes when a renewal has found that the lock is gone.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut lost = self.belief.lost.subscribe();
        async move {
            let _ = lost.wait_for(|lost| *lost).await;
        }
    }

    /// Takes it once more for the same owner.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn again(&self) -> RedisResult<Option<NaiveGuard>> {
        let taken = self.lock.try_once(&self.id).await?;
        Ok(taken.map(|taken| NaiveGuard {
            lock: self.lock.clone(),
            id: self.id.clone(),
            taken,
            belief: self.belief.clone(),
            watchdog: None,
        }))
    }

    /// Lets go, and answers how deep its owner still is; `None` if it did not hold.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn release(self) -> RedisResult<Option<u32>> {
        if let Some(watchdog) = &self.watchdog {
            watchdog.abort();
        }
        let mut connection = self.lock.connection().await?;
        let released = self.lock.recipe.release(&mut connection, &self.id).await;
        self.lock.forget_if_broken(&released).await;
        released
    }
}

impl Drop for NaiveGuard {
    fn drop(&mut self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.abort();
        }
    }
}
