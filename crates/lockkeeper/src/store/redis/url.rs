//! What a `redis:` URL says: where the server is, who we are to it, and how to speak.

use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use super::tls::Trust;
use crate::url::StoreUrl;
use crate::{Error, duration};

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// More would be a mistake: a few of a deployment's addresses are enough to find the others.
const MOST_ADDRESSES: usize = 64;
/// A password is a line; whatever is longer is another file.
const MOST_PASSWORD: u64 = 64 * 1024;
/// Long enough for a busy server, short enough to try again within any ordinary lease.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// Replicas that follow confirm within milliseconds; a hold that is not confirmed has to be given back soon.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);
const MOST_REPLICAS: u32 = 100;
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(10);

/// Far above any lease.
const RETENTIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60 * 60)..=Duration::from_secs(3650 * 24 * 60 * 60);

/// Which lock is on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// Redisson's.
    Redisson,
    /// `SET name value NX PX`.
    Plain,
}

/// Where the server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Whether what is sent there stays on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(host, _) => {
                let ip: Result<std::net::IpAddr, _> = host.parse();
                host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

/// Which servers there are, and how to find the one to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Topology {
    Single(Address),
    /// The master of a service, wherever these Sentinels say it is.
    Sentinel(Vec<Address>, String),
    /// Masters that share the slots; these addresses are where to ask for the rest.
    Cluster(Vec<Address>),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| {
            let texts: Vec<String> = addresses.iter().map(Address::to_string).collect();
            texts.join(",")
        };
        match self {
            Topology::Single(address) => address.fmt(f),
            Topology::Sentinel(sentinels, service) => {
                write!(f, "{service} of {}", list(sentinels))
            }
            Topology::Cluster(seeds) => write!(f, "the cluster of {}", list(seeds)),
        }
    }
}

impl Topology {
    /// Whether what is sent stays on this machine, as far as the URL tells.
    pub fn is_local(&self) -> bool {
        match self {
            Topology::Single(address) => address.is_local(),
            Topology::Sentinel(addresses, _) | Topology::Cluster(addresses) => {
                addresses.iter().all(Address::is_local)
            }
        }
    }
}

/// A URL, taken apart. Its `Debug` shows no password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub topology: Topology,
    /// Whether to speak TLS.
    pub tls: bool,
    pub trust: Trust,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: u32,
    pub dialect: Dialect,
    /// What every key at a name starts with.
    pub prefix: String,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    /// Who we are to the Sentinels.
    pub sentinel_user: Option<String>,
    pub sentinel_password: Option<String>,
    /// How many replicas have to confirm a grant, and within which time.
    pub replicas: u32,
    pub replicas_timeout: Duration,
    /// How long a token key stays after its last use; for ever if nothing is said.
    pub token_retention: Option<Duration>,
}

impl Settings {
    /// Whether a password is sent to a server or a Sentinel so that others on the way can read it.
    pub fn shows_a_password(&self) -> bool {
        let secret = self.password.is_some() || self.sentinel_password.is_some();
        secret && !self.tls && !self.topology.is_local()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("servers", &format_args!("{}", self.topology))
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("database", &self.database)
            .field("dialect", &self.dialect)
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::InvalidUrl {
        reason: reason.into(),
    })
}

impl Settings {
    pub fn parse(url: &StoreUrl) -> Result<Settings, Error> {
        let Some(rest) = url.rest().strip_prefix("//") else {
            return refuse("two slashes come before the host; write redis://localhost:6379/0");
        };
        if rest.contains('#') {
            return refuse("it has a `#`; in a password or path write %23 for it");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user_info, host)) => (Some(user_info), host),
            None => (None, authority),
        };
        let (user, password) = credentials(user_info)?;
        let scheme = url.scheme();
        let (topology, database) = match scheme
            .trim_start_matches("rediss")
            .trim_start_matches("redis")
        {
            "+unix" if scheme.starts_with("rediss") => {
                return refuse("a socket needs no TLS; write redis+unix:///run/redis/redis.sock");
            }
            "+unix" => (Topology::Single(socket(host, path)?), None),
            "+sentinel" => {
                let (service, path) = service(path)?;
                let sentinels = addresses(host, SENTINEL_PORT)?;
                (Topology::Sentinel(sentinels, service), database(path)?)
            }
            "+cluster" => {
                if database(path)?.is_some_and(|database| database != 0) {
                    return refuse("a cluster has only database 0");
                }
                (Topology::Cluster(addresses(host, DEFAULT_PORT)?), Some(0))
            }
            _ => {
                if host.contains(',') {
                    return refuse(
                        "it has several hosts; write redis+sentinel://HOSTS/SERVICE or redis+cluster://HOSTS",
                    );
                }
                (
                    Topology::Single(address(host, DEFAULT_PORT)?),
                    database(path)?,
                )
            }
        };
        let mut settings = Settings {
            topology,
            tls: scheme.starts_with("rediss"),
            trust: Trust::default(),
            user,
            password,
            database: database.unwrap_or(0),
            dialect: Dialect::Redisson,
            prefix: String::new(),
            connect_timeout: DEFAULT_TIMEOUT,
            response_timeout: DEFAULT_TIMEOUT,
            sentinel_user: None,
            sentinel_password: None,
            replicas: 0,
            replicas_timeout: REPLICAS_TIMEOUT,
            token_retention: None,
        };
        let options = || query.split('&').filter(|option| !option.is_empty());
        let keys = options().map(|option| option.split('=').next().unwrap_or(option));
        if keys.into_iter().any(|key| key.contains('@')) {
            return refuse("what follows a `?` are options; in a password write %3F for it");
        }
        let mut seen = Vec::new();
        if database.is_some() {
            seen.push("db");
        }
        for option in options() {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            if seen.contains(&key) {
                return refuse(format!("{key:.40?} is given twice"));
            }
            seen.push(key);
            settings.set(key, &decode(value)?)?;
        }
        settings.check(&seen)?;
        Ok(settings)
    }

    /// Values are not repeated in errors: one may be a password in the wrong place.
    fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        match key {
            "dialect" => {
                self.dialect = match value {
                    "redisson" => Dialect::Redisson,
                    "plain" => Dialect::Plain,
                    _ => {
                        return refuse(
                            "there are two dialects: dialect=redisson and dialect=plain",
                        );
                    }
                }
            }
            "db" => self.database = number(value)?,
            "prefix" => match value.len() {
                0..=128 if !value.chars().any(char::is_control) => self.prefix = value.to_owned(),
                _ => return refuse("a prefix has at most 128 bytes and no control characters"),
            },
            "connect_timeout" => self.connect_timeout = timeout(key, value)?,
            "response_timeout" => self.response_timeout = timeout(key, value)?,
            "token_retention" => self.token_retention = Some(retention(value)?),
            "password_file" => self.password = Some(password_file(value)?),
            "sentinel_user" => self.sentinel_user = Some(value.to_owned()),
            "sentinel_password_file" => self.sentinel_password = Some(password_file(value)?),
            "replicas" => match value.parse() {
                Ok(replicas) if replicas <= MOST_REPLICAS => self.replicas = replicas,
                _ => {
                    return refuse(format!(
                        "replicas is how many have to confirm a grant: 0 to {MOST_REPLICAS}"
                    ));
                }
            },
            "replicas_timeout" => self.replicas_timeout = timeout(key, value)?,
            "ca" => self.trust.ca = Some(path(key, value)?),
            "cert" => self.trust.identity.get_or_insert_default().0 = path(key, value)?,
            "key" => self.trust.identity.get_or_insert_default().1 = path(key, value)?,
            "insecure" => match value {
                "yes" => self.trust.insecure = true,
                _ => return refuse("insecure=yes trusts every server; leave it out otherwise"),
            },
            "password" | "pass" | "auth" => {
                return refuse(
                    "a password is no option, as it would be shown; write redis://USER:PASSWORD@HOST in \
                     LOCKKEEPER_STORE, or name a file with password_file=PATH",
                );
            }
            _ => {
                return refuse(format!(
                    "there is no option {key:.40?}; there are dialect, prefix, db, connect_timeout, \
                     response_timeout, token_retention, password_file, replicas, replicas_timeout, ca, cert, key, \
                     insecure, sentinel_user and sentinel_password_file"
                ));
            }
        }
        Ok(())
    }

    /// Whether the options go together.
    fn check(&self, given: &[&str]) -> Result<(), Error> {
        let given = |option: &str| given.contains(&option);
        if let Some(option) = ["ca", "cert", "key", "insecure"]
            .into_iter()
            .find(|option| given(option) && !self.tls)
        {
            return refuse(format!(
                "{option} is for TLS; write rediss: instead of redis:"
            ));
        }
        if let Some(option) = ["sentinel_user", "sentinel_password_file"]
            .into_iter()
            .find(|option| given(option) && !matches!(self.topology, Topology::Sentinel(..)))
        {
            return refuse(format!(
                "{option} is for Sentinels; write redis+sentinel://HOSTS/SERVICE"
            ));
        }
        if given("replicas_timeout") && self.replicas == 0 {
            return refuse(
                "replicas_timeout says how long replicas have; say how many with replicas=N",
            );
        }
        if given("cert") != given("key") {
            return refuse("cert=PATH and key=PATH belong together: a certificate and its key");
        }
        if given("ca") && self.trust.insecure {
            return refuse(
                "ca=PATH says whom to trust, insecure=yes to trust anyone; leave one out",
            );
        }
        Ok(())
    }
}

fn path(key: &str, value: &str) -> Result<PathBuf, Error> {
    match value.is_empty() {
        true => refuse(format!("{key} names a file: {key}=/PATH/TO/FILE.pem")),
        false => Ok(value.into()),
    }
}

fn credentials(user_info: Option<&str>) -> Result<(Option<String>, Option<String>), Error> {
    let Some(user_info) = user_info else {
        return Ok((None, None));
    };
    let (user, password) = match user_info.split_once(':') {
        Some((user, password)) => (user, Some(decode(password)?)),
        None => (user_info, None),
    };
    let user = Some(decode(user)?).filter(|user| !user.is_empty());
    Ok((user, password.filter(|password| !password.is_empty())))
}

/// Several addresses, with commas between them.
fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, Error> {
    let addresses: Result<Vec<Address>, Error> =
        hosts.split(',').map(|host| address(host, port)).collect();
    match addresses? {
        many if many.len() > MOST_ADDRESSES => refuse(format!(
            "it has more than {MOST_ADDRESSES} hosts; a few are enough to find the others"
        )),
        addresses => Ok(addresses),
    }
}

fn address(host: &str, default_port: u16) -> Result<Address, Error> {
    Ok(Address::Tcp(
        tcp_host(host)?.to_owned(),
        tcp_port(host, default_port)?,
    ))
}

/// The service that Sentinels watch over, and what follows it.
fn service(path: &str) -> Result<(String, &str), Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (service, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    match decode(service)? {
        service if service.is_empty() => refuse(
            "it names no service; write what the Sentinels call it: redis+sentinel://HOSTS/mymaster",
        ),
        service if service.chars().any(char::is_control) => {
            refuse("the service's name has a control character")
        }
        service => Ok((service, rest)),
    }
}

fn tcp_host(host: &str) -> Result<&str, Error> {
    let name = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((v6, _)) => v6,
            None => return refuse("an IPv6 address ends with a bracket: redis://[::1]:6379"),
        },
        None => host.split(':').next().unwrap_or_default(),
    };
    match name.is_empty() {
        true => refuse("it names no host; write redis://localhost:6379/0"),
        false => Ok(name),
    }
}

fn tcp_port(host: &str, default: u16) -> Result<u16, Error> {
    let after = match host.rsplit_once(']') {
        Some((_, after)) => after,
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    match after.strip_prefix(':') {
        None if after.is_empty() => Ok(default),
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => refuse(
                "the port is not a number from 1 to 65535; put an IPv6 address into brackets, and write / ? # \
                 in a password as %2F %3F %23",
            ),
        },
        None => refuse("after an IPv6 address comes a colon and the port"),
    }
}

fn socket(host: &str, path: &str) -> Result<Address, Error> {
    if !host.is_empty() {
        return refuse(
            "a socket has no host; write three slashes: redis+unix:///run/redis/redis.sock",
        );
    }
    match path {
        "" | "/" => refuse("it names no socket; write redis+unix:///run/redis/redis.sock"),
        path => Ok(Address::Unix(decode(path)?.into())),
    }
}

fn database(path: &str) -> Result<Option<u32>, Error> {
    match path {
        "" | "/" => Ok(None),
        path => number(&path[1..]).map(Some),
    }
}

fn number(text: &str) -> Result<u32, Error> {
    match text.parse() {
        Ok(number) if number <= 1 << 20 => Ok(number),
        _ => refuse("after the host comes the number of a database, such as /0"),
    }
}

fn timeout(key: &str, value: &str) -> Result<Duration, Error> {
    match duration::parse(value) {
        Ok(timeout) if TIMEOUTS.contains(&timeout) => Ok(timeout),
        _ => refuse(format!(
            "{key} is a duration from 10ms to 10s, such as 500ms"
        )),
    }
}

fn retention(value: &str) -> Result<Duration, Error> {
    match duration::parse(value) {
        Ok(retention) if RETENTIONS.contains(&retention) => Ok(retention),
        Ok(_) => refuse(
            "token_retention is from 1h to 3650d: it has to be far longer than any lease, or a token of a holder that \
             still works may be given out again",
        ),
        Err(_) => refuse("token_retention is a duration such as 30d"),
    }
}

fn password_file(path: &str) -> Result<String, Error> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MOST_PASSWORD).read_to_string(&mut text));
    if let Err(error) = read {
        return refuse(format!(
            "the password file {path:?} cannot be read: {error}"
        ));
    }
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => refuse(format!(
            "the first line of the password file {path:?} is empty"
        )),
    }
}

/// Undoes %XX.
fn decode(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return refuse("after a % come two hexadecimal digits; write %25 for a % itself"),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => refuse("what its %XX stand for is not UTF-8 text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Settings, Error> {
        Settings::parse(&StoreUrl::parse(url).expect(url))
    }

    #[test]
    fn addresses_users_and_databases_are_read() {
        for (url, address, user, password, database) in [
            ("redis://localhost", "localhost:6379", None, None, 0),
            ("redis://10.0.0.7:6400/3", "10.0.0.7:6400", None, None, 3),
            ("redis://[::1]:6400", "[::1]:6400", None, None, 0),
            ("redis://[::1]", "[::1]:6379", None, None, 0),
            (
                "redis://me:s@cret@h/",
                "h:6379",
                Some("me"),
                Some("s@cret"),
                0,
            ),
            ("redis://:p%2Fw@h?db=2", "h:6379", None, Some("p/w"), 2),
            (
                "redis+unix:///run/r.sock?db=1",
                "/run/r.sock",
                None,
                None,
                1,
            ),
            ("rediss://h:1/2", "h:1", None, None, 2),
            (
                "redis+sentinel://me:pw@a,b:7,[::1]/my%20master/3",
                "my master of a:26379,b:7,[::1]:26379",
                Some("me"),
                Some("pw"),
                3,
            ),
            (
                "redis+cluster://a:7000,b",
                "the cluster of a:7000,b:6379",
                None,
                None,
                0,
            ),
            (
                "redis+unix://me:pw@/run/a%20b",
                "/run/a b",
                Some("me"),
                Some("pw"),
                0,
            ),
        ] {
            let settings = parse(url).expect(url);
            assert_eq!(settings.topology.to_string(), address);
            assert_eq!(settings.user.as_deref(), user, "{url}");
            assert_eq!(settings.password.as_deref(), password, "{url}");
            assert_eq!(settings.database, database, "{url}");
        }
    }

    #[test]
    fn options_are_read() {
        let url = "redis://h?dialect=plain&prefix=app%3A&connect_timeout=50ms&response_timeout=1s\
            &token_retention=30d";
        let settings = parse(url).expect("valid");
        assert_eq!(settings.dialect, Dialect::Plain);
        assert_eq!(settings.prefix, "app:");
        assert_eq!(settings.connect_timeout, Duration::from_millis(50));
        assert_eq!(settings.response_timeout, Duration::from_secs(1));
        let month = Duration::from_secs(30 * 24 * 60 * 60);
        assert_eq!(settings.token_retention, Some(month));
    }

    #[test]
    fn options_of_replicas_and_sentinels_are_read() {
        let url = "rediss+sentinel://a,b/m?replicas=2&replicas_timeout=300ms&sentinel_user=watch";
        let settings = parse(url).expect("valid");
        assert!(settings.tls);
        assert_eq!(settings.replicas, 2);
        assert_eq!(settings.replicas_timeout, Duration::from_millis(300));
        assert_eq!(settings.sentinel_user.as_deref(), Some("watch"));
        assert_eq!(parse("redis://h").expect("valid").replicas, 0);
    }

    #[test]
    fn files_of_tls_are_read() {
        let settings = parse("rediss://h?ca=/a%20b.pem&key=/k&cert=/c").expect("valid");
        assert!(settings.tls);
        assert_eq!(settings.trust.ca, Some("/a b.pem".into()));
        assert_eq!(settings.trust.identity, Some(("/c".into(), "/k".into())));
        assert!(
            parse("rediss://h?insecure=yes")
                .expect("valid")
                .trust
                .insecure
        );
    }

    #[test]
    fn a_password_comes_from_a_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("secret");
        std::fs::write(&path, "hunter2\n").expect("writes");
        let url = format!("redis://me@h?password_file={}", path.display());
        let settings = parse(&url).expect("valid");
        assert_eq!(settings.user.as_deref(), Some("me"));
        assert_eq!(settings.password.as_deref(), Some("hunter2"));
        assert!(parse("redis://h?password_file=/no/such/file").is_err());
    }

    #[test]
    fn each_mistake_is_told() {
        for (url, word) in [
            ("redis:localhost", "slashes"),
            ("redis://", "no host"),
            ("redis://:6379", "no host"),
            ("redis://h:0", "port"),
            ("redis://h:port", "port"),
            ("redis://::1", "no host"),
            ("redis://[::1", "bracket"),
            ("redis://a,b", "several hosts"),
            ("redis+sentinel://a,b", "no service"),
            ("redis+sentinel://a,,b/m", "no host"),
            ("redis+sentinel://a/m/x", "database"),
            ("redis+cluster://", "no host"),
            ("redis+cluster://a,b/1", "database 0"),
            ("redis+cluster://a?db=1", "twice"),
            ("redis://h/zero", "database"),
            ("redis://h/-1", "database"),
            ("redis://h/0?dialect=java", "dialect=plain"),
            ("redis://h?colour=red", "no option"),
            ("redis://h?db=1&db=2", "twice"),
            ("redis://h/1?db=2", "twice"),
            ("redis://h?response_timeout=5", "duration"),
            ("redis://h?token_retention=59m", "1h"),
            ("redis://h?token_retention=long", "30d"),
            ("redis://h?connect_timeout=1h", "duration"),
            ("redis://h?password=x", "no option"),
            ("redis://h?ca=/x.pem", "rediss:"),
            ("redis://h?insecure=yes", "rediss:"),
            ("rediss://h?cert=/x.pem", "belong together"),
            ("rediss://h?key=/x.pem", "belong together"),
            ("rediss://h?ca=", "a file"),
            ("rediss://h?insecure=no", "insecure=yes"),
            ("rediss://h?insecure=yes&ca=/x.pem", "leave one out"),
            ("rediss+unix:///run/r.sock", "no TLS"),
            ("redis://h?sentinel_user=me", "redis+sentinel:"),
            ("redis://h?replicas=many", "how many"),
            ("redis://h?replicas=-1", "how many"),
            ("redis://h?replicas_timeout=1s", "replicas=N"),
            (
                "redis+sentinel://h/m?sentinel_password_file=/no/such",
                "cannot be read",
            ),
            ("redis://h#x", "%23"),
            ("redis://u:%zz@h", "hexadecimal"),
            ("redis://u:%ff@h", "UTF-8"),
            ("redis+unix://host/run/r.sock", "three slashes"),
            ("redis+unix://", "no socket"),
        ] {
            let text = parse(url).expect_err(url).to_string();
            assert!(text.contains(word), "{url}: {text}");
        }
    }

    #[test]
    fn a_password_that_others_can_read_on_the_way_is_known() {
        let path = std::env::temp_dir().join(format!("lockkeeper-url-{}", std::process::id()));
        std::fs::write(&path, "canary\n").expect("writes");
        let file = path.display();
        for (url, shown) in [
            ("redis://h".to_owned(), false),
            ("redis://:pw@h".to_owned(), true),
            ("redis://:pw@localhost".to_owned(), false),
            ("rediss://:pw@h".to_owned(), false),
            (
                format!("redis+sentinel://h/s?sentinel_password_file={file}"),
                true,
            ),
            (
                format!("redis+sentinel://[::1]/s?sentinel_password_file={file}"),
                false,
            ),
        ] {
            let settings = parse(&url).expect("a URL");
            assert_eq!(settings.shows_a_password(), shown, "{url}");
            assert!(!format!("{settings:?}").contains("canary"), "{url}");
        }
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "redis://u:canary@h",
            "redis://u:canary@h:x",
            "redis://u:canary@h/x",
            "redis://u:canary@h?colour=red",
            "redis://h?password=canary",
            "redis://h?colour=canary",
            "redis://h/canary",
            "redis://u:canary@",
            "redis://u:canary@a,b",
            "redis://u:canary%@h",
            "redis://u:12?canary@h",
            "redis://u:12?x&canary&y@h",
            "redis://u:12/3?canary@h",
            "redis+unix://u:canary@h/x",
        ] {
            let text = format!("{:?}", parse(url));
            assert!(!text.contains("canary"), "{text}");
        }
    }
}
