//! What a URL says: `zk://USER:PASSWORD@h1:2181,h2,h3/chroot?OPTIONS`.

use std::time::Duration;

use super::client::Way;
use super::client::wire::Acl;
use super::names;
use crate::store::common::{ServerUrl, StoreKind, Trust, decode, refuse, warn_of_plain_text};
use crate::url::StoreUrl;
use crate::{Error, duration};

/// How errors call it.
pub const KIND: StoreKind = StoreKind {
    store: "zookeeper",
    example: "zk://localhost:2181/locks",
    use_tls: "write zks: instead of zk:",
    use_no_tls: "write zk: instead of zks:",
};

const PORT: u16 = 2181;

/// What to ask the servers for unless the URL says otherwise: enough for a lease of 30 s. They grant less by default.
const SESSION_TIMEOUT: Duration = Duration::from_secs(45);

/// What a URL says.
#[derive(Clone, Debug)]
pub struct Settings {
    pub way: Way,
    /// The path that all is below: empty, or with a slash before it and none behind.
    pub chroot: String,
    pub session_timeout: Duration,
    /// How long an answer may take, if the URL says so.
    pub timeout: Option<Duration>,
    pub acl: Acl,
    /// Whether clients of the recipe for readers and writers are kept out, too.
    pub also_rw: bool,
    /// Whether kazoo's are.
    pub also_kazoo: bool,
    /// Whether tokens are the numbers of transactions.
    pub native: bool,
}

impl Settings {
    pub fn read(url: &StoreUrl) -> Result<Settings, Error> {
        let server = ServerUrl::parse(url, KIND)?;
        let tls = server.scheme() == "zks";
        let servers = server.addresses(PORT)?;
        let chroot = chroot(server.path())?;
        let mut options = server.options()?;
        let expected = "session_timeout is a duration from 1s to 1h, such as 40s";
        let range = Duration::from_secs(1)..=Duration::from_secs(3600);
        let session_timeout = options.read("session_timeout", expected, |value| {
            duration::parse(value)
                .ok()
                .filter(|time| range.contains(time))
        })?;
        let connect_timeout = options.timeout("connect_timeout")?;
        let timeout = options.timeout("timeout")?;
        let expected = "also=rw,kazoo keeps out Curator's readers and writers, and kazoo; name one of them or both";
        let also = options.read("also", expected, |value| {
            let parts: Vec<&str> = value.split(',').collect();
            let known = parts.iter().all(|part| matches!(*part, "rw" | "kazoo"));
            known.then(|| (parts.contains(&"rw"), parts.contains(&"kazoo")))
        })?;
        let expected = "tokens=native makes the number of its transaction a lock's token; leave it out otherwise";
        let native = options.flag("tokens", "native", expected)?;
        let expected = "acl=open lets everybody use the nodes although a user is named; leave it out otherwise";
        let open = options.flag("acl", "open", expected)?;
        let mut credentials = server.credentials().clone();
        if let Some(password) = options.password_file("password_file")? {
            if credentials.password.is_some() {
                return refuse("the password is in the URL and in a file; leave one out");
            }
            credentials.password = Some(password);
        }
        let trust = Trust::read(&mut options, tls, &KIND)?;
        options.finish()?;
        if credentials.user.is_some() != credentials.password.is_some() {
            return refuse(
                "ZooKeeper knows a user by name and password; write zk://USER:PASSWORD@HOST, or a password_file",
            );
        }
        for server in &servers {
            if credentials.user.is_some() && !tls && !server.is_local() {
                warn_of_plain_text(server, &KIND);
            }
            trust.warn(server);
        }
        let (also_rw, also_kazoo) = also.unwrap_or_default();
        Ok(Settings {
            acl: if credentials.user.is_some() && !open {
                Acl::Creator
            } else {
                Acl::Open
            },
            way: Way {
                kind: KIND,
                servers,
                credentials,
                tls: tls.then_some(trust),
                connect_timeout,
            },
            chroot,
            session_timeout: session_timeout.unwrap_or(SESSION_TIMEOUT),
            timeout,
            also_rw,
            also_kazoo,
            native,
        })
    }

    /// Where it is, alike in every process that uses it.
    pub fn place(&self) -> String {
        let mut servers: Vec<String> = self.way.servers.iter().map(ToString::to_string).collect();
        servers.sort();
        format!("zk://{}{}", servers.join(","), self.chroot)
    }
}

fn chroot(path: &str) -> Result<String, Error> {
    let path = decode(path.trim_end_matches('/'))?;
    if path.is_empty() {
        return Ok(path);
    }
    let odd = |part: &str| {
        part.is_empty() || names::path(part) != format!("/{part}") || part == names::RESERVED
    };
    if path[1..].split('/').any(odd) {
        return refuse(
            "its path is no path of ZooKeeper's; write zk://HOST/PATH with plain words between slashes",
        );
    }
    Ok(path)
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Settings, Error> {
        Settings::read(&StoreUrl::parse(url)?)
    }

    #[test]
    fn a_url_says_all() {
        let all = read(
            "zks://me:p%2Fw@a,b:9/x/y/?session_timeout=10s&timeout=1s&also=kazoo&tokens=native&ca=/x.pem",
        );
        let all = all.expect("a URL");
        assert_eq!(all.place(), "zk://a:2181,b:9/x/y");
        assert_eq!(all.chroot, "/x/y");
        assert_eq!(all.session_timeout, Duration::from_secs(10));
        assert_eq!(
            (all.also_rw, all.also_kazoo, all.native),
            (false, true, true)
        );
        assert_eq!(all.acl, Acl::Creator);
        assert!(all.way.tls.is_some());
        assert!(!format!("{all:?}").contains("p/w"));
        let few = read("zookeeper://localhost").expect("a URL");
        assert_eq!((few.chroot.as_str(), few.acl), ("", Acl::Open));
        assert!(few.way.tls.is_none());
    }

    #[test]
    fn each_mistake_is_told() {
        for (url, word) in [
            ("zk:localhost", "two slashes"),
            ("zk://", "no host"),
            ("zk://h?also=java", "rw"),
            ("zk://h?tokens=mine", "native"),
            ("zk://h?session_timeout=1ms", "1s"),
            ("zk://h?ca=/x.pem", "zks:"),
            ("zk://me@h", "password"),
            ("zk://h/a//b", "path"),
            ("zk://h/zookeeper", "path"),
            ("zk://h?password=canary", "no option"),
        ] {
            let error = read(url).expect_err(url).to_string();
            assert!(
                error.contains(word) && !error.contains("canary"),
                "{url}: {error}"
            );
        }
    }
}
