//! What a `postgres:` URL says.

use std::time::Duration;

use crate::store::common::{
    Address, Credentials, Options, ServerUrl, StoreKind, Trust, decode, refuse,
};
use crate::url::StoreUrl;
use crate::{Error, MAX_LEASE, MIN_LEASE, duration};

/// How errors name the store.
pub(super) const KIND: StoreKind = StoreKind {
    store: "postgres",
    example: "postgres://USER@localhost:5432/DATABASE",
    use_tls: "write sslmode=require",
    use_no_tls: "write sslmode=disable",
};

const PORT: u16 = 5432;
/// Long enough for a disk that is busy, short enough to try again within any ordinary lease.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The longest lease unless somebody asks for more.
pub(super) const USUAL_LEASE: Duration = Duration::from_secs(30);
const SSL_MODES: &str = "sslmode is disable, require or verify-full; the latter two are the same here: the server's \
                         certificate is always verified (ca=PATH names its authority, insecure=yes believes any)";

/// Where the server is, and how to use it. Its `Debug` shows no password.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub servers: Vec<Address>,
    pub credentials: Credentials,
    pub database: String,
    pub schema: String,
    pub tls: Option<Trust>,
    pub max_lease: Option<Duration>,
    pub sit_out: bool,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
}

impl Config {
    pub fn parse(url: &StoreUrl) -> Result<Config, Error> {
        let server = ServerUrl::parse(url, KIND)?;
        let mut options = server.options()?;
        let servers = servers(&server, &mut options)?;
        let database = decode(server.path().trim_start_matches('/'))?;
        if database.is_empty() || database.contains('/') {
            return refuse(format!(
                "after the host comes the name of one database; write {}",
                KIND.example
            ));
        }
        options.read(
            "dialect",
            "there is one dialect: leave it out",
            |_| None::<()>,
        )?;
        let fits =
            |name: &str| !name.is_empty() && name.len() < 64 && !name.chars().any(char::is_control);
        let a_schema = "schema names the schema of our tables: 1 to 63 bytes";
        let schema = options.read("schema", a_schema, |name| {
            fits(name).then(|| name.to_owned())
        })?;
        let a_lease =
            "max_lease is the longest lease that is granted: a duration from 100ms to 24h";
        let max_lease = options.read("max_lease", a_lease, |value| {
            let lease = duration::parse(value).ok();
            lease.filter(|lease| (MIN_LEASE..=MAX_LEASE).contains(lease))
        })?;
        let never = "sit_out is auto, or never for a server that loses no commit";
        let sit_out = options.read("sit_out", never, |value| match value {
            "auto" => Some(true),
            "never" => Some(false),
            _ => None,
        })?;
        let connect_timeout = options.timeout("connect_timeout")?.unwrap_or(TIMEOUT);
        let response_timeout = options.timeout("response_timeout")?.unwrap_or(TIMEOUT);
        let mut credentials = server.credentials().clone();
        if let Some(password) = options.password_file("password_file")? {
            credentials.password = Some(password);
        }
        let tls = tls(&servers, &mut options)?;
        options.finish()?;
        Ok(Config {
            servers,
            credentials,
            database,
            schema: schema.unwrap_or_else(|| "lockkeeper".into()),
            tls,
            max_lease,
            sit_out: sit_out.unwrap_or(true),
            connect_timeout,
            response_timeout,
        })
    }

    /// Where the locks are, without secrets.
    pub fn place(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(Address::to_string).collect();
        format!("{}/{} {}", servers.join(","), self.database, self.schema)
    }
}

/// The hosts of the URL, or the socket that `host` names as other clients do: its folder.
fn servers(server: &ServerUrl<'_>, options: &mut Options) -> Result<Vec<Address>, Error> {
    let folder = options.read(
        "host",
        "host is the folder of the server's socket, as in host=%2Frun%2Fpostgresql",
        |value| value.starts_with('/').then(|| value.to_owned()),
    )?;
    let port = options.read("port", "port is a number from 1 to 65535", |value| {
        value.parse().ok().filter(|port: &u16| *port > 0)
    })?;
    match folder {
        Some(_) if !server.hosts().is_empty() => {
            refuse("host=PATH is for a socket; leave out the host before the path")
        }
        Some(folder) => {
            let port = port.unwrap_or(PORT);
            let path = format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'));
            Ok(vec![Address::Unix(path.into())])
        }
        None if port.is_some() => {
            refuse("port=NUMBER goes with host=PATH; otherwise write it after the host")
        }
        None => server.addresses(PORT),
    }
}

/// TLS is used, and the certificate verified, unless all stays on this machine.
fn tls(servers: &[Address], options: &mut Options) -> Result<Option<Trust>, Error> {
    let local = servers.iter().all(Address::is_local);
    let mode = options.read("sslmode", SSL_MODES, |value| match value {
        "disable" => Some(false),
        "require" | "verify-full" => Some(true),
        _ => None,
    })?;
    let asked = options.first_of(&["ca", "cert", "key", "insecure"]);
    let tls = mode.unwrap_or(!local || asked.is_some());
    let trust = Trust::read(options, tls, &KIND)?;
    if tls && servers.iter().any(|one| matches!(one, Address::Unix(_))) {
        return refuse("a socket needs no TLS; leave out sslmode and what goes with it");
    }
    Ok(tls.then_some(trust))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Config, Error> {
        Config::parse(&StoreUrl::parse(url)?)
    }

    #[test]
    fn a_url_says_where_and_how() {
        let config =
            parse("postgres://me:p%40w@a,b:6000/my%20db?schema=x&max_lease=2m&sit_out=never");
        let config = config.expect("valid");
        assert_eq!(config.place(), "a:5432,b:6000/my db x");
        assert_eq!(config.credentials.password(), Some("p@w"));
        assert_eq!(config.max_lease, Some(Duration::from_secs(120)));
        assert!(!config.sit_out && config.tls.is_some());
        let socket = parse("postgresql:///db?host=%2Frun%2Fpg&port=5433").expect("valid");
        assert_eq!(
            socket.servers,
            [Address::Unix("/run/pg/.s.PGSQL.5433".into())]
        );
        assert_eq!(socket.schema, "lockkeeper");
    }

    #[test]
    fn tls_is_used_unless_all_stays_here() {
        for (url, tls) in [
            ("postgres://localhost/x", false),
            ("postgres://127.0.0.1/x?sslmode=require", true),
            ("postgres://[::1]/x?ca=/x.pem", true),
            ("postgres://db.example/x", true),
            ("postgres://db.example/x?sslmode=disable", false),
            ("postgres://localhost,db.example/x", true),
        ] {
            assert_eq!(parse(url).expect(url).tls.is_some(), tls, "{url}");
        }
    }

    #[test]
    fn each_mistake_is_told() {
        for (url, word) in [
            ("postgres:x", "two slashes"),
            ("postgres://h", "database"),
            ("postgres://h/a/b", "database"),
            ("postgres:///x", "no host"),
            ("postgres://h/x?host=%2Frun", "socket"),
            ("postgres://h/x?port=5", "host=PATH"),
            ("postgres:///x?host=h", "folder"),
            ("postgres:///x?host=%2Frun&sslmode=require", "no TLS"),
            ("postgres://h/x?sslmode=prefer", "verify-full"),
            ("postgres://h/x?sslmode=disable&ca=/x", "sslmode=require"),
            ("postgres://h/x?max_lease=50h", "24h"),
            ("postgres://h/x?sit_out=1", "never"),
            ("postgres://h/x?schema=", "63 bytes"),
            ("postgres://h/x?dialect=shedlock", "one dialect"),
            ("postgres://h/x?password=canary", "no option"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(
                error.contains(word) && !error.contains("canary"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let config = parse("postgres://me:canary@h/x").expect("valid");
        assert!(!format!("{config:?} {}", config.place()).contains("canary"));
    }
}
