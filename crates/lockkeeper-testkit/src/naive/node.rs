//! One server of a naive quorum lock.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult};

use super::quorum::Verb;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a free lock for a token above all before, and answers `{1, token}`, or `{0, the last token}`. KEYS: lock,
/// token. ARGV: id, lease in ms, token.
const TAKE: &str = "
    local last = tonumber(redis.call('GET', KEYS[2]) or '0')
    if redis.call('EXISTS', KEYS[1]) == 1 or tonumber(ARGV[3]) <= last then return {0, last} end
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    redis.call('SET', KEYS[2], ARGV[3])
    return {1, ARGV[3]}";

/// Compare and expire.
const RENEW: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0, 0} end
    return {redis.call('PEXPIRE', KEYS[1], ARGV[2]), 0}";

/// Compare and delete.
const RELEASE: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0, 0} end
    return {redis.call('DEL', KEYS[1]), 0}";

#[derive(Debug)]
pub(super) struct Node {
    client: redis::Client,
    name: String,
    lease: Duration,
    /// How long it has to be up before it votes.
    old_enough: Duration,
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

impl Node {
    pub fn new(host: &str, name: &str, lease: Duration, old_enough: Duration) -> RedisResult<Node> {
        Ok(Node {
            client: redis::Client::open(format!("redis://{host}/0"))?,
            name: name.to_owned(),
            lease,
            old_enough,
            connection: tokio::sync::Mutex::default(),
        })
    }

    /// Whether it says yes, and the highest token that it has seen.
    pub async fn ask(&self, verb: &Verb) -> RedisResult<(bool, u64)> {
        let mut connection = self.connection().await?;
        let (script, id, token) = match verb {
            Verb::Take(id, token) => (TAKE, id, *token),
            Verb::Renew(id) => (RENEW, id, 0),
            Verb::Release(id) => (RELEASE, id, 0),
        };
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(2).arg(&self.name);
        eval.arg(format!("{}:token", self.name));
        eval.arg(&**id)
            .arg(self.lease.as_millis() as u64)
            .arg(token);
        let answer: RedisResult<(u64, u64)> = eval.query_async(&mut connection).await;
        if answer.as_ref().is_err_and(RedisError::is_io_error) {
            *self.connection.lock().await = None;
        }
        answer.map(|(yes, last)| (yes == 1, last))
    }

    /// A connection to a server that may vote: whatever it has forgotten is over by now.
    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(PATIENCE));
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("server").query_async(&mut connection).await?;
        let mut lines = info.lines();
        let up = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        let up = up.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        if Duration::from_secs(up) < self.old_enough {
            return Err((ErrorKind::Client, "it sits out").into());
        }
        *slot = Some(connection.clone());
        Ok(connection)
    }
}
