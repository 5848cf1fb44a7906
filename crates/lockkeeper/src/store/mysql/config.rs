//! What a `mysql:` or `mariadb:` URL says: where the servers are, who we are to them, and which tables are ours.

use std::time::Duration;

use super::fault::STORE;
use crate::store::common::{
    Address, Credentials, Options, ServerUrl, StoreKind, Trust, decode, refuse, warn_of_plain_text,
};
use crate::url::StoreUrl;
use crate::{Error, MAX_LEASE, MIN_LEASE, duration};

/// What errors say of a URL.
pub(super) const KIND: StoreKind = StoreKind {
    store: STORE,
    example: "mysql://app@db.example/locks",
    use_tls: "write sslmode=require",
    use_no_tls: "write sslmode=disable, if the way to the server is trusted",
};

const PORT: u16 = 3306;
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest lease, unless the URL says otherwise: a server that may have forgotten grants waits as long.
pub(super) const LONGEST_LEASE: Duration = Duration::from_secs(30);
const PREFIX: &str = "lockkeeper_";

/// A URL, taken apart. Its `Debug` shows no password.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Where the server listens: the first that takes writes is used.
    pub addresses: Vec<Address>,
    pub credentials: Credentials,
    pub database: String,
    /// What the names of our tables begin with.
    pub prefix: String,
    /// Whether to speak TLS, and with whom.
    pub tls: Option<Trust>,
    /// The longest lease that is granted.
    pub longest_lease: Duration,
    /// Whether a server that may have forgotten grants waits until all leases are over.
    pub sits_out: bool,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
}

impl Config {
    pub fn parse(url: &StoreUrl) -> Result<Config, Error> {
        let server = ServerUrl::parse(url, KIND)?;
        if server.has_comma_before_hosts() {
            return refuse(
                "one user and password serve all hosts; in a password write %2C for a comma",
            );
        }
        let mut options = server.options()?;
        let addresses = match options.text("host") {
            None => server.addresses(PORT)?,
            Some(path) if server.hosts().is_empty() && path.starts_with('/') => {
                vec![Address::Unix(path.into())]
            }
            Some(_) => {
                return refuse(
                    "host=PATH names a socket, and then the URL has no other host: mysql:///DATABASE?host=%2Frun%2Fmysqld.sock",
                );
            }
        };
        let mut credentials = server.credentials().clone();
        if let Some(password) = options.password_file("password_file")? {
            if credentials.password.is_some() {
                return refuse("the password is in the URL and in password_file; leave one out");
            }
            credentials.password = Some(password);
        }
        let tls = tls(&mut options, addresses.iter().all(Address::is_local))?;
        let config = Config {
            database: database(server.path())?,
            prefix: prefix(&mut options)?,
            tls,
            longest_lease: longest_lease(&mut options)?,
            sits_out: sits_out(&mut options)?,
            connect_timeout: options.timeout("connect_timeout")?.unwrap_or(TIMEOUT),
            response_timeout: options.timeout("response_timeout")?.unwrap_or(TIMEOUT),
            addresses,
            credentials,
        };
        if let Some(dialect) = options.text("dialect") {
            return refuse(format!(
                "there is no dialect {}; leave it out",
                crate::error::excerpt(&dialect)
            ));
        }
        options.finish()?;
        Ok(config)
    }

    /// Warns of what makes connections unsafe.
    pub fn warn(&self) {
        let shown = || self.addresses.iter().find(|address| !address.is_local());
        match (&self.tls, shown()) {
            (Some(trust), _) => trust.warn(&self.place()),
            (None, Some(address)) if self.credentials.password.is_some() => {
                warn_of_plain_text(address, &KIND);
            }
            _ => {}
        }
    }

    /// Where the locks are, without secrets.
    pub fn place(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        format!("{}/{} {}", addresses.join(","), self.database, self.prefix)
    }
}

/// TLS is used and verified, unless nothing leaves this machine, or the URL says otherwise.
fn tls(options: &mut Options, local: bool) -> Result<Option<Trust>, Error> {
    let expected = "sslmode is disable, or require, which verifies the server's certificate as verify-full does elsewhere";
    let asked = options.read("sslmode", expected, |value| match value {
        "disable" | "disabled" => Some(false),
        "require" | "required" | "verify-ca" | "verify-full" | "verify_identity" => Some(true),
        _ => None,
    })?;
    let named = options
        .first_of(&["ca", "cert", "key", "insecure"])
        .is_some();
    let tls = asked.unwrap_or(named || !local);
    let trust = Trust::read(options, tls, &KIND)?;
    Ok(tls.then_some(trust))
}

fn database(path: &str) -> Result<String, Error> {
    let database = decode(path.strip_prefix('/').unwrap_or(path))?;
    let odd = |c: char| c.is_control() || matches!(c, '/' | '\\' | '`' | '\'' | '"');
    match database.as_str() {
        "" => refuse(format!(
            "it names no database; write {}, after CREATE DATABASE locks",
            KIND.example
        )),
        name if name.chars().count() > 64 || name.contains(odd) => {
            refuse("the database's name has more than 64 characters, or a slash or quote in it")
        }
        _ => Ok(database),
    }
}

/// What a prefix has to be.
pub(super) const PREFIXES: &str = "prefix is at most 40 letters, digits and _, such as lockkeeper_";

/// Names of tables are text of ours in statements, so they have plain characters only.
pub(super) fn is_prefix(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.len() <= 40 && text.chars().all(plain)
}

fn prefix(options: &mut Options) -> Result<String, Error> {
    let prefix = options.read("prefix", PREFIXES, |value| {
        is_prefix(value).then(|| value.to_owned())
    })?;
    Ok(prefix.unwrap_or_else(|| PREFIX.to_owned()))
}

fn longest_lease(options: &mut Options) -> Result<Duration, Error> {
    let expected = "max_lease is a duration from 100ms to 24h, such as 30s; it is the same for all clients of the tables";
    let range = MIN_LEASE..=MAX_LEASE;
    let given = options.read("max_lease", expected, |value| {
        duration::parse(value)
            .ok()
            .filter(|lease| range.contains(lease))
    })?;
    Ok(given.unwrap_or(LONGEST_LEASE))
}

fn sits_out(options: &mut Options) -> Result<bool, Error> {
    let expected = "sit_out is auto, or never for one server that keeps all it has confirmed";
    let given = options.read("sit_out", expected, |value| match value {
        "auto" => Some(true),
        "never" => Some(false),
        _ => None,
    })?;
    Ok(given.unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Config, Error> {
        Config::parse(&StoreUrl::parse(url).expect(url))
    }

    #[test]
    fn a_url_is_taken_apart() {
        let config = parse(
            "mariadb://me:p%2Fw@127.0.0.1:7,[::1]/my%20db?prefix=x_&max_lease=1m&sit_out=never",
        );
        let config = config.expect("valid");
        let addresses: Vec<String> = config.addresses.iter().map(Address::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:7", "[::1]:3306"]);
        assert_eq!(config.credentials.user.as_deref(), Some("me"));
        assert_eq!(config.credentials.password(), Some("p/w"));
        assert_eq!(
            (config.database.as_str(), config.prefix.as_str()),
            ("my db", "x_")
        );
        assert_eq!(config.longest_lease, Duration::from_secs(60));
        assert!(!config.sits_out && config.tls.is_none());
        assert!(!format!("{config:?}").contains("p/w"));
        let socket = parse("mysql://root@/locks?host=%2Frun%2Fm.sock").expect("valid");
        assert_eq!(socket.addresses, [Address::Unix("/run/m.sock".into())]);
    }

    #[test]
    fn tls_is_verified_unless_nothing_leaves_the_machine() {
        for (url, tls) in [
            ("mysql://db.example/x", true),
            ("mysql://db.example/x?sslmode=disable", false),
            ("mysql://localhost/x", false),
            ("mysql://localhost/x?sslmode=require", true),
            ("mysql://localhost/x?ca=/ca.pem", true),
            ("mysql://localhost,db.example/x", true),
            ("mysql:///x?host=%2Fs", false),
        ] {
            assert_eq!(parse(url).expect(url).tls.is_some(), tls, "{url}");
        }
        let trust = parse("mysql://h/x?sslmode=require").expect("valid").tls;
        assert!(!trust.expect("TLS").insecure);
    }

    #[test]
    fn each_mistake_is_told() {
        for (url, word) in [
            ("mysql://h", "no database"),
            ("mysql://h/", "CREATE DATABASE"),
            ("mysql://h/a%2Fb", "slash"),
            ("mysql://h/x?prefix=a-b", "prefix"),
            ("mysql://h/x?prefix=", "prefix"),
            ("mysql://h/x?max_lease=2d", "max_lease"),
            ("mysql://h/x?sit_out=no", "never"),
            ("mysql://h/x?sslmode=prefer", "verifies"),
            ("mysql://h/x?sslmode=disable&ca=/x", "sslmode=require"),
            ("mysql://h/x?host=%2Fs", "socket"),
            ("mysql:///x?host=h", "socket"),
            ("mysql:///x", "no host"),
            ("mysql://u:p@a,u:p@b/x", "%2C"),
            ("mysql://h/x?dialect=foo", "dialect"),
            ("mysql://h/x?schema=foo", "prefix"),
            ("mysql://h/x?password=foo", "password_file"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
