//! The raw limit on a Redis server: the dialect's smallest lock and unlock calls by the same client library, over
//! one multiplexed connection as ours is; and what the server says about how many commands it was sent.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::clock::Moment;
use lockkeeper::store::KeeperId;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, Script, Value,
};
use tokio::runtime::Runtime;

use super::lap::{Lap, Pair, Window};
use super::side::Side;
use super::tally::{Tally, Times};

/// As long as ours.
const LEASE_MS: u64 = 30_000;

/// What Redisson's lock does at least: a hash with a count for each holder.
const LOCK: &str = "if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then \
     redis.call('HINCRBY', KEYS[1], ARGV[2], 1) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return nil end \
     return redis.call('PTTL', KEYS[1])";
const UNLOCK: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end \
     if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end \
     redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], 0) return 1";
/// Compare and delete, as every recipe around `SET NX PX` has it.
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Commands that clients send and our scripts do not call.
const SENT: [&str; 9] = [
    "evalsha",
    "eval",
    "ping",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Redisson,
    Plain,
}

/// The server under test, spoken to without Lockkeeper.
pub struct Server {
    client: Client,
    pub dialect: Dialect,
}

impl Server {
    /// The server that a Lockkeeper URL names, password included.
    pub fn find(url: &str) -> Result<Server> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let options: HashMap<&str, &str> = query
            .split('&')
            .filter_map(|option| option.split_once('='))
            .collect();
        let mut info = connection_info(base)?;
        let mut redis = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        if let Some(db) = options.get("db") {
            redis = redis.set_db(db.parse()?);
        }
        if let Some(path) = options.get("password_file") {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("the password file {path:?} cannot be read"))?;
            redis = redis.set_password(text.lines().next().unwrap_or_default());
        }
        // Off by default: small requests would wait for acknowledgements.
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        info = info.set_redis_settings(redis).set_tcp_settings(tcp);
        Ok(Server {
            client: Client::open(info)?,
            dialect: match options.get("dialect") {
                Some(&"plain") => Dialect::Plain,
                _ => Dialect::Redisson,
            },
        })
    }

    /// A connection whose task runs where those who use it do: there is no quicker way.
    pub fn connect(&self, runtime: &Runtime) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_push_sender(|_| Ok::<(), redis::aio::SendError>(()));
        let connect = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let connection = runtime.block_on(async {
            let connection = connect.await?;
            for script in [LOCK, UNLOCK, DELETE] {
                let load = Script::new(script);
                load.load_async(&mut connection.clone()).await?;
            }
            Ok::<_, redis::RedisError>(connection)
        });
        connection.context("the reference cannot connect")
    }

    /// Pairs of raw calls over one connection, one a name.
    pub fn pairs(&self, runtime: &Runtime, names: Vec<String>) -> Result<Vec<RawPair>> {
        let connection = self.connect(runtime)?;
        let hash = |script| Script::new(script).get_hash().to_owned();
        let holder = format!("{}:1", KeeperId::new());
        let pair = |name: String| {
            let mut lock = Cmd::new();
            let mut unlock = Cmd::new();
            match self.dialect {
                Dialect::Redisson => {
                    let channel = format!("redisson_lock__channel:{{{name}}}");
                    lock.arg("EVALSHA").arg(hash(LOCK)).arg(1).arg(&name);
                    lock.arg(LEASE_MS).arg(&holder);
                    unlock.arg("EVALSHA").arg(hash(UNLOCK)).arg(2).arg(&name);
                    unlock.arg(channel).arg(&holder);
                }
                Dialect::Plain => {
                    lock.arg("SET").arg(&name).arg(&holder);
                    lock.arg("NX").arg("PX").arg(LEASE_MS);
                    unlock.arg("EVALSHA").arg(hash(DELETE)).arg(1).arg(&name);
                    unlock.arg(&holder);
                }
            }
            RawPair {
                connection: connection.clone(),
                lock,
                unlock,
            }
        };
        Ok(names.into_iter().map(pair).collect())
    }

    /// Counts what clients send from now on.
    pub fn commands(&self) -> Result<Commands> {
        Ok(Commands(self.client.get_connection()?))
    }

    /// The id of its process, on its machine.
    pub fn process_id(&self) -> Result<i32> {
        let mut connection = self.client.get_connection()?;
        let text: String = redis::cmd("INFO").arg("server").query(&mut connection)?;
        let mut lines = text.lines();
        let pid = lines.find_map(|line| line.strip_prefix("process_id:"));
        let pid = pid.context("the server does not tell its process id")?;
        Ok(pid.trim().parse()?)
    }

    /// Where it is, without a password.
    pub fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Whether it is on this machine.
    pub fn is_local(&self) -> bool {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                let ip = host.parse::<std::net::IpAddr>();
                host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
            }
            ConnectionAddr::Unix(_) => true,
            _ => false,
        }
    }

    /// How long PING takes, each sent a `pause` after the last was answered: by a task, over a connection as ours is.
    /// Without a pause neither side sleeps, nor does either have to wake.
    pub fn ping(&self, runtime: &Runtime, length: Duration, pause: Duration) -> Result<Times> {
        let mut connection = self.connect(runtime)?;
        let pings = async move {
            let mut times = Times::new();
            let ping = redis::cmd("PING");
            let end = Moment::now() + length;
            while Moment::now() < end || times.count() == 0 {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let sent = Moment::now();
                connection.send_packed_command(&ping).await?;
                times.record(Moment::now().since(sent));
            }
            Ok::<_, redis::RedisError>(times)
        };
        Ok(runtime.block_on(runtime.spawn(pings))??)
    }
}

/// The library does not read the user of a socket's URL as ours does.
fn connection_info(base: &str) -> Result<ConnectionInfo> {
    let Some(rest) = base.strip_prefix("redis+unix://") else {
        return Ok(base.into_connection_info()?);
    };
    let (user_info, path) = rest.split_once("@/").unwrap_or(("", rest));
    let path = format!("/{}", path.trim_start_matches('/'));
    // As the user info of a host, so that it is decoded in the same way.
    let settings = match user_info {
        "" => RedisConnectionInfo::default(),
        user_info => format!("redis://{user_info}@localhost")
            .as_str()
            .into_connection_info()?
            .redis_settings()
            .clone(),
    };
    let info = ConnectionAddr::Unix(path.into()).into_connection_info()?;
    Ok(info.set_redis_settings(settings))
}

/// One name's lock and unlock.
#[derive(Clone)]
pub struct RawPair {
    connection: MultiplexedConnection,
    lock: Cmd,
    unlock: Cmd,
}

impl Pair for RawPair {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let locked = self.connection.send_packed_command(&self.lock).await?;
        // Redisson's answers nothing, SET answers OK.
        anyhow::ensure!(
            matches!(locked, Value::Nil | Value::Okay),
            "the reference did not get its lock: {locked:?}"
        );
        lap.acquired().await;
        let unlocked = self.connection.send_packed_command(&self.unlock).await?;
        anyhow::ensure!(
            unlocked == Value::Int(1),
            "the reference lost its lock: {unlocked:?}"
        );
        Ok(())
    }
}

/// How many commands the server was sent, by all clients.
pub struct Commands(redis::Connection);

impl Commands {
    pub fn count(&mut self) -> Result<u64> {
        let text: String = redis::cmd("INFO").arg("commandstats").query(&mut self.0)?;
        Ok(sent(&text))
    }
}

fn sent(stats: &str) -> u64 {
    let calls = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        SENT.contains(&command).then_some(calls)
    };
    stats.lines().filter_map(calls).sum()
}

/// A side whose commands its servers count.
pub struct Counted<'b> {
    pub side: Box<dyn Side + 'b>,
    pub servers: Vec<Commands>,
}

impl Counted<'_> {
    fn count(&mut self) -> Result<u64> {
        self.servers.iter_mut().map(Commands::count).sum()
    }
}

impl Side for Counted<'_> {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let before = self.count()?;
        let mut tally = self.side.window(window)?;
        tally.commands = Some(self.count()?.saturating_sub(before));
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_clients_send_is_counted() {
        let stats = "# Commandstats\r\ncmdstat_evalsha:calls=7,usec=1\r\ncmdstat_hset:calls=9,usec=1\r\n\
            cmdstat_psubscribe:calls=2,usec=1\r\n";
        assert_eq!(sent(stats), 9);
    }

    #[test]
    fn the_reference_goes_where_ours_goes() {
        let of = |url: &str| {
            let server = Server::find(url).expect(url);
            let info = server.client.get_connection_info().clone();
            let redis = info.redis_settings();
            (
                info.addr().to_string(),
                redis.username().map(str::to_owned),
                redis.password().map(str::to_owned),
                redis.db(),
                server.dialect,
            )
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of("redis://me:p%2Fw@h:7000/3?prefix=a"),
            (
                "h:7000".into(),
                some("me"),
                some("p/w"),
                3,
                Dialect::Redisson
            )
        );
        assert_eq!(
            of("redis+unix://me:pw@/run/r.sock?db=2&dialect=plain"),
            (
                "/run/r.sock".into(),
                some("me"),
                some("pw"),
                2,
                Dialect::Plain
            )
        );
        assert_eq!(of("redis+unix:///run/r.sock").0, "/run/r.sock");
    }
}
