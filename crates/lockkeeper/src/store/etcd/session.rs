//! The leases of etcd that keep our keys: one for each length of lease that claims ask for.
//!
//! A lease of etcd is kept only together with a request of a claim that needs it, so that it ends in time where the process does
//! nothing any more. Its number is ours, so that a repeated request makes no second one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::client::messages::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse,
};
use super::client::{Client, Failure, Proof, Proved};
use super::fault::{self, Fault};
use crate::clock::Moment;

/// The shortest lease that members grant, unless their election timeout is longer.
const SHORTEST: u64 = 2;

/// One lease of etcd's.
#[derive(Debug)]
pub struct Session {
    pub id: i64,
    /// How long it lives after each keep-alive.
    pub ttl: Duration,
    /// It is known to be gone, and all of its keys with it.
    gone: AtomicBool,
    lives_until: AtomicU64,
    /// The revision that wrote its doubt key; 0 if none did.
    pub doubt: AtomicI64,
}

impl Session {
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// It has ended, or was revoked. There is none of this number any more, and never will be.
    pub fn end(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Until when it lives for sure.
    pub fn lives_until(&self) -> Moment {
        Moment::from_nanos(self.lives_until.load(Ordering::SeqCst))
    }

    /// Learns from a keep-alive. Returns until when the lease lives at least, if that is known by it.
    pub fn learn(&self, proved: &Proved) -> Option<Moment> {
        match proved.lease {
            Proof::Lives(ttl) => {
                let until = proved.sent + ttl.min(self.ttl);
                self.lives_until
                    .fetch_max(until.as_nanos(), Ordering::SeqCst);
                Some(until)
            }
            Proof::Gone => {
                self.end();
                None
            }
            Proof::Unknown => None,
        }
    }
}

/// All leases of a keeper.
#[derive(Debug, Default)]
pub struct Sessions {
    /// By the seconds that they were asked for.
    by_length: Mutex<HashMap<u64, Arc<Session>>>,
    granting: tokio::sync::Mutex<()>,
}

/// The seconds of a lease of etcd's that a claim's lease fits into.
fn length(lease: Duration) -> u64 {
    let whole = lease.as_secs();
    let begun = u64::from(lease > Duration::from_secs(whole));
    (whole + begun).max(SHORTEST)
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<Session>>> {
        self.by_length
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All that may still be there.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let table = self.table();
        let all = table.values().filter(|session| !session.is_gone());
        all.cloned().collect()
    }

    fn known(&self, length: u64) -> Option<Arc<Session>> {
        let mut table = self.table();
        let session = table.get(&length)?;
        // One that was idle for so long may have ended. Its number is used no more.
        if session.is_gone() || session.lives_until() <= Moment::now() {
            table.remove(&length);
            return None;
        }
        Some(session.clone())
    }

    /// A lease of etcd's that a claim's lease fits into.
    pub async fn for_lease(
        &self,
        client: &Client,
        lease: Duration,
        not_after: Moment,
    ) -> Result<Arc<Session>, Fault> {
        let length = length(lease);
        if let Some(known) = self.known(length) {
            return Ok(known);
        }
        let _one_at_a_time = self.granting.lock().await;
        if let Some(known) = self.known(length) {
            return Ok(known);
        }
        // 0 lets the members choose, and others may read it as a number with a sign.
        let id = (Uuid::new_v4().as_u128() as i64 & i64::MAX).max(1);
        let request = LeaseGrantRequest {
            ttl: i64::try_from(length).unwrap_or(i64::MAX),
            id,
        };
        let sent = Moment::now();
        let granted: Result<LeaseGrantResponse, Failure> = client
            .call("/etcdserverpb.Lease/LeaseGrant", request, not_after)
            .await;
        let granted = match granted {
            Ok(granted) => granted,
            // Nothing hangs on it: it ends by itself, and so a lease in doubt is no matter.
            Err(failure) => return Err(fault::of_read(failure)),
        };
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or_default());
        if ttl < Duration::from_secs(length) {
            return Err(fault::odd("a lease that is shorter than it was asked for"));
        }
        let session = Arc::new(Session {
            id,
            ttl,
            gone: AtomicBool::new(false),
            lives_until: AtomicU64::new((sent + ttl).as_nanos()),
            doubt: AtomicI64::new(0),
        });
        self.table().insert(length, session.clone());
        Ok(session)
    }

    /// Gives a lease back, with all of its keys.
    pub async fn revoke(client: &Client, id: i64) {
        let request = LeaseRevokeRequest { id };
        // Otherwise it ends with its time.
        let _revoked: Result<LeaseRevokeResponse, Failure> = client
            .call("/etcdserverpb.Lease/LeaseRevoke", request, Moment::NEVER)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_fits_into_whole_seconds() {
        for (millis, seconds) in [(1, 2), (2_000, 2), (2_001, 3), (30_000, 30)] {
            assert_eq!(length(Duration::from_millis(millis)), seconds, "{millis}");
        }
    }
}
