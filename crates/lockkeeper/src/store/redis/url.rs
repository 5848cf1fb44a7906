//! What a `redis:` URL says: where the server is (`topology`), who we are to it, and how to speak (`options`).

use std::fmt;
use std::time::Duration;

use super::fault::STORE;
use super::topology::Topology;
use crate::Error;
use crate::store::common::{Credentials, ServerUrl, StoreKind, Trust, warn_of_plain_text};
use crate::url::StoreUrl;

/// What errors say of a URL of one server.
pub(in crate::store) const KIND: StoreKind = StoreKind {
    store: STORE,
    example: "redis://localhost:6379/0",
    use_tls: "write rediss: instead of redis:",
    use_no_tls: "write redis: instead of rediss:",
};

/// How long token keys stay in the plain dialect, where nobody else uses them.
const PLAIN_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Which lock is on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// Redisson's.
    Redisson,
    /// `SET name value NX PX`.
    Plain,
}

/// A URL, taken apart. Its `Debug` shows no password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub kind: StoreKind,
    pub topology: Topology,
    /// Whether to speak TLS.
    pub tls: bool,
    pub trust: Trust,
    pub credentials: Credentials,
    pub database: u32,
    pub dialect: Dialect,
    /// What every key at a name starts with.
    pub prefix: String,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    /// The user that we are to the Sentinels.
    pub sentinel: Credentials,
    /// How many replicas have to confirm a grant, and within which time.
    pub replicas: u32,
    pub replicas_timeout: Duration,
    /// How long a token key stays after its last use, if the URL says so.
    pub token_retention: Option<Retention>,
}

/// How long a token key stays after its last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Retention {
    Forever,
    For(Duration),
}

impl Settings {
    /// How long a token key stays after its last use; `None` for ever. Redisson's clients would start over at 1.
    pub fn token_retention(&self) -> Option<Duration> {
        match (self.token_retention, self.dialect) {
            (Some(Retention::For(time)), _) => Some(time),
            (None, Dialect::Plain) => Some(PLAIN_RETENTION),
            (Some(Retention::Forever), _) | (None, Dialect::Redisson) => None,
        }
    }

    /// Whether a password is sent to a server or a Sentinel so that others on the way can read it.
    pub fn shows_a_password(&self) -> bool {
        let secret = self.credentials.password.is_some() || self.sentinel.password.is_some();
        secret && !self.tls && !self.topology.is_local()
    }

    /// Warns of what makes connections unsafe.
    pub fn warn(&self) {
        if self.shows_a_password() {
            warn_of_plain_text(&self.topology, &self.kind);
        }
        self.trust.warn(&self.topology);
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("servers", &format_args!("{}", self.topology))
            .field("tls", &self.tls)
            .field("credentials", &self.credentials)
            .field("database", &self.database)
            .field("dialect", &self.dialect)
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads the URL of one server, of Sentinels or of a cluster.
    pub fn parse(url: &StoreUrl) -> Result<Settings, Error> {
        let server = ServerUrl::parse(url, KIND)?;
        let (topology, database) = Topology::parse(&server)?;
        let tls = server.scheme().starts_with("rediss");
        let mut options = server.options()?;
        let settings = Settings::of(&server, topology, tls, database, &mut options)?;
        options.finish()?;
        Ok(settings)
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Settings, Error> {
        Settings::parse(&StoreUrl::parse(url).expect(url))
    }

    #[test]
    fn token_keys_stay_for_as_long_as_the_dialect_allows_unless_the_url_says_otherwise() {
        let days = |days: u64| Some(Duration::from_secs(days * 24 * 60 * 60));
        for (options, retention) in [
            ("", None),
            ("dialect=redisson", None),
            ("dialect=plain", days(30)),
            ("token_retention=forever", None),
            ("dialect=plain&token_retention=forever", None),
            ("token_retention=7d&dialect=plain", days(7)),
            ("token_retention=7d", days(7)),
            ("token_retention=3650d", days(3650)),
        ] {
            let settings = parse(&format!("redis://h?{options}")).expect(options);
            assert_eq!(settings.token_retention(), retention, "{options}");
        }
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
            assert_eq!(settings.credentials.user.as_deref(), user, "{url}");
            assert_eq!(settings.credentials.password(), password, "{url}");
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
        assert_eq!(settings.token_retention(), Some(month));
    }

    #[test]
    fn options_of_replicas_and_sentinels_are_read() {
        let url = "rediss+sentinel://a,b/m?replicas=2&replicas_timeout=300ms&sentinel_user=watch";
        let settings = parse(url).expect("valid");
        assert!(settings.tls);
        assert_eq!(settings.replicas, 2);
        assert_eq!(settings.replicas_timeout, Duration::from_millis(300));
        assert_eq!(settings.sentinel.user.as_deref(), Some("watch"));
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
        assert_eq!(settings.credentials.user.as_deref(), Some("me"));
        assert_eq!(settings.credentials.password(), Some("hunter2"));
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
            ("redis://h?token_retention=0s", "1h"),
            ("redis://h?token_retention=never", "forever"),
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
            "redis://u:12?canary=x@h",
            "redis://u:12?x&canary&y@h",
            "redis://u:12/3?canary@h",
            "redis+unix://u:canary@h/x",
        ] {
            let text = format!("{:?}", parse(url));
            assert!(!text.contains("canary"), "{text}");
        }
    }
}
