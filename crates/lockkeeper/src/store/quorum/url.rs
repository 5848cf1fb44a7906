//! What a `redlock:` URL says, and the builder that says the same with one URL a node.

use std::sync::Arc;
use std::time::Duration;

use super::{CAPABILITIES, PLAIN_CAPABILITIES, QuorumStore, STORE};
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::store::common::{Options, ServerUrl, StoreKind, refuse};
use crate::store::redis::node::{self, NodeSettings};
use crate::store::{Answer, Opener, Scheme, Store};
use crate::url::StoreUrl;
use crate::{Error, duration};

const FEWEST: usize = 3;
/// Every request goes to each of them.
const MOST: usize = 15;
pub(super) const MAX_LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// Long enough for a busy server, short enough that a minority that is silent costs a try little.
const NODE_TIMEOUT_DEFAULT: Duration = Duration::from_millis(500);
const NODE_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(5)..=Duration::from_secs(10);

/// Which nodes make a quorum, and what their clients agree on. For nodes that need different credentials, or TLS on some
/// only; otherwise `redlock://a,b,c` says the same. Given to a keeper as an [`Opener`], it is the store `redlock:`, without
/// anything behind the colon.
///
/// ```no_run
/// # async fn example() -> Result<(), lockkeeper::Error> {
/// use std::time::Duration;
/// use lockkeeper::{Lockkeeper, store::quorum::Quorum};
///
/// let quorum = Quorum::of(["redis://a:6379", "rediss://lock:secret@b:6380", "redis://c:6379/1"])?
///     .max_lease(Duration::from_secs(10))?;
/// let keeper = Lockkeeper::builder().opener(quorum).url("redlock:").connect().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Quorum {
    pub(super) nodes: Vec<NodeSettings>,
    pub(super) max_lease: Duration,
    pub(super) node_timeout: Duration,
    pub(super) quarantine: bool,
}

/// What errors say of the URL of a quorum. The errors are those of its servers.
const KIND: StoreKind = StoreKind {
    example: "redlock://a:6379,b:6379,c:6379",
    use_tls: "write tls=yes",
    use_no_tls: "leave tls=yes out",
    ..node::KIND
};

impl Quorum {
    /// The nodes at these URLs: `redis:`, `rediss:` or `redis+unix:`, each with options of its own. `dialect` and `prefix`
    /// are the same for all.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when there are fewer than three or more than fifteen, one comes twice, or one is no node.
    pub fn of<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Quorum, Error> {
        let urls = urls.into_iter();
        let nodes = urls.map(|url| NodeSettings::parse(&StoreUrl::parse(url)?));
        let nodes: Result<Vec<NodeSettings>, Error> = nodes.collect();
        Quorum::with(nodes?)
    }

    fn with(nodes: Vec<NodeSettings>) -> Result<Quorum, Error> {
        if nodes.len() < FEWEST {
            return refuse(format!(
                "it names {} of the nodes, and a quorum has at least {FEWEST}, of which one may fail: \
                 redlock://a:6379,b:6379,c:6379; for one server write redis://",
                nodes.len()
            ));
        }
        if nodes.len() > MOST {
            return refuse(format!(
                "it names {} nodes; a quorum has at most {MOST}, as every request goes to each of them",
                nodes.len()
            ));
        }
        for (number, node) in nodes.iter().enumerate() {
            if nodes[..number]
                .iter()
                .any(|n| n.address() == node.address())
            {
                return refuse(format!(
                    "it names {} twice; each node is a server of its own",
                    node.address()
                ));
            }
            if !node.speaks_like(&nodes[0]) {
                return refuse("dialect and prefix must be the same for all nodes");
            }
        }
        Ok(Quorum {
            nodes,
            max_lease: MAX_LEASE_DEFAULT,
            node_timeout: NODE_TIMEOUT_DEFAULT,
            quarantine: true,
        })
    }

    /// The longest lease that any client of these nodes uses; 30 s unless set. All clients have to name the same: a node
    /// that restarted votes when it is older than that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if out of range.
    pub fn max_lease(mut self, longest: Duration) -> Result<Quorum, Error> {
        if !(MIN_LEASE..=MAX_LEASE).contains(&longest)
            || !longest.subsec_nanos().is_multiple_of(1_000_000)
        {
            return Err(Error::InvalidArgument {
                what: "max_lease",
                reason: format!(
                    "{} is not {} to 24h in whole milliseconds",
                    duration::typed(longest),
                    duration::typed(MIN_LEASE)
                ),
            });
        }
        self.max_lease = longest;
        Ok(self)
    }

    /// How long one request to one node may take; 500 ms unless set. A node that takes longer counts as silent, and is
    /// asked nothing more until it answers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if out of range.
    pub fn node_timeout(mut self, timeout: Duration) -> Result<Quorum, Error> {
        if !NODE_TIMEOUTS.contains(&timeout) {
            return Err(Error::InvalidArgument {
                what: "node_timeout",
                reason: format!("{timeout:?} is not 5ms to 10s"),
            });
        }
        self.node_timeout = timeout;
        Ok(self)
    }

    /// **Unsafe**: lets a node that restarted vote at once, though it may have forgotten locks that are held. For tests,
    /// and for fresh nodes that nobody has used yet.
    pub fn without_quarantine(mut self) -> Quorum {
        self.quarantine = false;
        self
    }

    /// Reads `redlock://USER:PASSWORD@A:PORT,B:PORT,C:PORT/DB?OPTIONS`.
    pub(super) fn parse(url: &StoreUrl) -> Result<Quorum, Error> {
        let server = ServerUrl::parse(url, KIND)?;
        if server.has_comma_before_hosts() {
            return refuse(
                "the user and password stand once, before the first host, and go for all of them (in a password write %40 for @ \
                 and %2C for a comma); where they differ, build it with Quorum::of",
            );
        }
        let mut options = server.options()?;
        let own = Own::read(&mut options)?;
        let nodes = NodeSettings::of_each(&server, own.tls, &mut options)?;
        options.finish()?;
        let mut quorum = Quorum::with(nodes)?;
        let in_url = |error: Error| Error::InvalidUrl {
            reason: error.to_string(),
        };
        if let Some(longest) = own.max_lease {
            quorum = quorum.max_lease(longest).map_err(in_url)?;
        }
        if let Some(timeout) = own.node_timeout {
            quorum = quorum.node_timeout(timeout).map_err(in_url)?;
        }
        quorum.quarantine = !own.no_quarantine;
        Ok(quorum)
    }
}

impl Opener for Quorum {
    fn schemes(&self) -> &[Scheme] {
        const REDISSON: Scheme = Scheme {
            scheme: STORE,
            dialect: Some("redisson"),
            example: "redlock:",
            feature: Some("redis"),
            capabilities: Some(CAPABILITIES),
        };
        const PLAIN: Scheme = Scheme {
            dialect: Some("plain"),
            capabilities: Some(PLAIN_CAPABILITIES),
            ..REDISSON
        };
        match self.nodes[0].is_plain() {
            false => &[REDISSON],
            true => &[PLAIN],
        }
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            if !url.rest().is_empty() {
                return refuse(
                    "the nodes are those of Quorum::of; write redlock: and nothing more",
                );
            }
            Ok(Arc::new(QuorumStore::open(self).await?) as Arc<dyn Store>)
        })
    }
}

/// The options that are not those of a server.
struct Own {
    max_lease: Option<Duration>,
    node_timeout: Option<Duration>,
    no_quarantine: bool,
    tls: bool,
}

impl Own {
    fn read(options: &mut Options) -> Result<Own, Error> {
        let mut time = |name: &'static str| {
            let expected = format!("{name} is a duration, such as 30s or 250ms");
            options.read(name, &expected, |value| duration::parse(value).ok())
        };
        Ok(Own {
            max_lease: time("max_lease")?,
            node_timeout: time("node_timeout")?,
            no_quarantine: options.flag(
                "quarantine",
                "off",
                "quarantine=off lets nodes that restarted vote at once, which is unsafe; leave it out otherwise",
            )?,
            tls: options.flag(
                "tls",
                "yes",
                "tls=yes speaks TLS to all nodes; leave it out otherwise",
            )?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Quorum, Error> {
        Quorum::parse(&StoreUrl::parse(url).expect(url))
    }

    #[test]
    fn nodes_and_options_are_read() {
        let quorum = parse(
            "redlock://me:p%2Fw@a,b:7,[::1]:8/3?max_lease=5s&node_timeout=40ms&dialect=plain&prefix=x:",
        );
        let quorum = quorum.expect("valid");
        let nodes: Vec<String> = quorum.nodes.iter().map(NodeSettings::address).collect();
        assert_eq!(nodes, ["a:6379", "b:7", "[::1]:8"]);
        assert_eq!(quorum.max_lease, Duration::from_secs(5));
        assert_eq!(quorum.node_timeout, Duration::from_millis(40));
        assert!(quorum.quarantine);
        assert!(quorum.nodes.iter().all(NodeSettings::is_plain));
        let usual = parse("redlock://a,b,c?quarantine=off").expect("valid");
        assert_eq!(usual.max_lease, Duration::from_secs(30));
        assert!(!usual.quarantine && !usual.nodes[0].is_plain());
        let ours = Quorum::of([
            "redis://a",
            "rediss://u:p@b:1/2",
            "redis+unix:///run/r.sock",
        ]);
        assert_eq!(ours.expect("valid").nodes[2].address(), "/run/r.sock");
    }

    #[test]
    fn each_mistake_is_told() {
        for (url, word) in [
            ("redlock:a,b,c", "slashes"),
            ("redlock://", "no host"),
            ("redlock://a", "redis://"),
            ("redlock://a,b", "at least 3"),
            ("redlock://a,b,a", "twice"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,,b", "no host"),
            ("redlock://u:p@a,u:q@b,c", "stand once"),
            ("redlock://a,u:p@b,c,d", "stand once"),
            ("redlock://a,b,c?max_lease=0s", "max_lease"),
            ("redlock://a,b,c?max_lease=25h", "24h"),
            ("redlock://a,b,c?max_lease=long", "duration"),
            ("redlock://a,b,c?max_lease=1s&max_lease=2s", "twice"),
            ("redlock://a,b,c?node_timeout=1ms", "5ms"),
            ("redlock://a,b,c?quarantine=no", "quarantine=off"),
            ("redlock://a,b,c?tls=no", "tls=yes"),
            ("redlock://a,b,c?ca=/x.pem", "TLS"),
            ("redlock://a,b,c?replicas=1", "replicas"),
            ("redlock://a,b,c?sentinel_user=me", "Sentinels"),
            ("redlock://a,b,c?colour=red", "no option"),
            (
                "redlock://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
                "at most 15",
            ),
        ] {
            let text = parse(url).expect_err(url).to_string();
            assert!(text.contains(word), "{url}: {text}");
        }
        for (urls, word) in [
            (
                ["redis://a", "redis://b", "redis+sentinel://c/m"],
                "one server",
            ),
            (
                ["redis://a", "redis://b", "redis://c?dialect=plain"],
                "the same",
            ),
            (["redis://a", "redis://b", "redis://c?prefix=x"], "the same"),
            (["redis://a", "redis://b", "sqlite:x"], "one server"),
        ] {
            let text = Quorum::of(urls).expect_err(word).to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "redlock://u:canary@a,b,c",
            "redlock://u:canary@a,b",
            "redlock://u:canary@a,b,c?colour=red",
            "redlock://u:canary@a,b,c/x",
            "redlock://u:x@a,u:canary@b,c",
            "redlock://u:canary@a,b,c:x",
            "redlock://a,b,c?password=canary",
            "redlock://a,b,c?max_lease=canary",
        ] {
            let text = format!("{:?}", parse(url));
            assert!(!text.contains("canary"), "{text}");
        }
    }
}
