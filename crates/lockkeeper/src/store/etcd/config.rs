//! What a URL says: `etcd://USER:PASSWORD@h1:2379,h2,h3/prefix?OPTIONS`.

use std::time::Duration;

use super::client::Way;
use super::keys::Keys;
use crate::Error;
use crate::store::common::{ServerUrl, StoreKind, Trust, decode, refuse, warn_of_plain_text};
use crate::url::StoreUrl;

/// How errors call it.
pub const KIND: StoreKind = StoreKind {
    store: "etcd",
    example: "etcd://localhost:2379/locks",
    use_tls: "write etcds: instead of etcd:",
    use_no_tls: "write etcd: instead of etcds:",
};

const PORT: u16 = 2379;
/// How long an answer may take. A member gives a proposal up after 7 s itself.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a URL says.
#[derive(Clone, Debug)]
pub struct Settings {
    pub way: Way,
    pub keys: Keys,
}

impl Settings {
    pub fn read(url: &StoreUrl) -> Result<Settings, Error> {
        let server = ServerUrl::parse(url, KIND)?;
        let tls = server.scheme() == "etcds";
        let members = server.addresses(PORT)?;
        let path = decode(server.path().trim_end_matches('/'))?;
        let prefix = path.strip_prefix('/').unwrap_or_default();
        let mut options = server.options()?;
        let connect_timeout = options.timeout("connect_timeout")?;
        let timeout = options.timeout("timeout")?;
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
                "etcd knows a user by name and password; write etcd://USER:PASSWORD@HOST, or a password_file",
            );
        }
        for member in &members {
            if credentials.user.is_some() && !tls && !member.is_local() {
                warn_of_plain_text(member, &KIND);
            }
            trust.warn(member);
        }
        Ok(Settings {
            way: Way {
                kind: KIND,
                members,
                credentials,
                tls: tls.then_some(trust),
                connect_timeout: connect_timeout.unwrap_or(CONNECT_TIMEOUT),
                timeout: timeout.unwrap_or(TIMEOUT),
            },
            keys: Keys::below(prefix),
        })
    }

    /// Where it is, alike in every process that uses it.
    pub fn place(&self) -> String {
        let mut members: Vec<String> = self.way.members.iter().map(ToString::to_string).collect();
        members.sort();
        format!("etcd://{}/{}", members.join(","), self.keys.prefix())
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Settings, Error> {
        Settings::read(&StoreUrl::parse(url)?)
    }

    #[test]
    fn a_url_says_all() {
        let all = read("etcds://me:p%2Fw@b:9,a/x/y/?timeout=1s&connect_timeout=2s&ca=/x.pem");
        let all = all.expect("a URL");
        assert_eq!(all.place(), "etcd://a:2379,b:9/x/y/");
        assert_eq!(all.way.timeout, Duration::from_secs(1));
        assert_eq!(all.way.connect_timeout, Duration::from_secs(2));
        assert!(all.way.tls.is_some());
        assert!(!format!("{all:?}").contains("p/w"));
        let few = read("etcd://localhost").expect("a URL");
        assert_eq!(few.place(), "etcd://localhost:2379/");
        assert!(few.way.tls.is_none());
        // Many have a slash before all of their keys.
        assert_eq!(
            read("etcd://h//locks").expect("a URL").keys.prefix(),
            "/locks/"
        );
    }

    #[test]
    fn each_mistake_is_told() {
        for (url, word) in [
            ("etcd:localhost", "two slashes"),
            ("etcd://", "no host"),
            ("etcd://h?ca=/x.pem", "etcds:"),
            ("etcd://me@h", "password"),
            ("etcd://h?timeout=x", "timeout"),
            ("etcd://h?password=canary", "no option"),
        ] {
            let error = read(url).expect_err(url).to_string();
            assert!(
                error.contains(word) && !error.contains("canary"),
                "{url}: {error}"
            );
        }
    }
}
