//! Whether a server fills with token keys that stay for ever.

use ::redis::RedisResult;

use super::checks::ServerInfo;
use super::keys;
use super::transport::Socket;
use super::url::{Dialect, Settings};
use crate::SETUP_TARGET;
use crate::store::common::Address;

/// Fewer keys without an end are not looked at: a hundred bytes each.
const MANY: u64 = 100_000;
/// How many keys tell what the others are.
const SAMPLE: usize = 100;

impl Settings {
    /// Warns of a server with very many token keys that stay for ever, unless the URL says how long they stay.
    ///
    /// Two short requests, and none where `INFO` tells of few keys. Says nothing if the server does not allow them.
    pub async fn warn_of_token_keys(
        &self,
        connection: &mut Socket,
        info: &ServerInfo,
        address: &Address,
    ) {
        if self.dialect == Dialect::Plain || self.token_retention.is_some() {
            return;
        }
        let Some(space) = info.keyspace(self.database) else {
            return;
        };
        if space.keys.saturating_sub(space.expires) < MANY {
            return;
        }
        let Ok((lasting, looked_at)) = self.sample(connection).await else {
            return;
        };
        let about = space.keys.saturating_mul(lasting) / looked_at.max(1);
        if about >= MANY {
            tracing::warn!(
                target: SETUP_TARGET,
                server = %address,
                about,
                keys = space.keys,
                "token keys fill the server: each name that was ever locked has one, and they stay for ever. Where \
                 Lockkeeper alone uses the locks, token_retention=30d lets them end; token_retention=forever keeps them \
                 without this warning"
            );
        }
    }

    /// Of a few keys, how many are token keys without an end, and how many there are.
    async fn sample(&self, connection: &mut Socket) -> RedisResult<(u64, u64)> {
        let mut scan = ::redis::cmd("SCAN");
        scan.arg(0).arg("COUNT").arg(SAMPLE);
        // The keys of a page are spread over the keyspace as by chance.
        let (_, found): (String, Vec<Vec<u8>>) = scan.query_async(connection).await?;
        let mut ends = ::redis::pipe();
        for key in found.iter().filter(|key| self.is_token_key(key)) {
            ends.cmd("PTTL").arg(key.as_slice());
        }
        let ends: Vec<i64> = match ends.is_empty() {
            true => Vec::new(),
            false => ends.query_async(connection).await?,
        };
        let lasting = ends.iter().filter(|left| **left == -1).count();
        Ok((lasting as u64, found.len() as u64))
    }

    fn is_token_key(&self, key: &[u8]) -> bool {
        let name = key.strip_prefix(keys::FENCE.as_bytes());
        name.is_some_and(|name| {
            name.strip_prefix(b"{")
                .is_some_and(|name| name.starts_with(self.prefix.as_bytes()))
                || name.starts_with(self.prefix.as_bytes())
        })
    }
}
