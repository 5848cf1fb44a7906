//! The parts of a server's URL: `SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?OPTIONS`.

use std::fmt;

use super::{Address, Credentials, Options};
use crate::Error;
use crate::url::StoreUrl;

/// The words of errors that differ between kinds of stores: the kind's name, and its URLs.
///
/// ```
/// use lockkeeper::store::common::StoreKind;
///
/// const TOY: StoreKind = StoreKind::new("toy", "toy://localhost:7000");
/// assert!(TOY.unavailable("it is down").to_string().contains("toy"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoreKind {
    /// How the store is called in errors, as in [`Error::Unavailable`].
    pub store: &'static str,
    /// A URL that names a host, as an example.
    pub example: &'static str,
    /// What to do for TLS, as "write https: instead of http:".
    pub use_tls: &'static str,
    /// What to do for no TLS, as "write http: instead of https:".
    pub use_no_tls: &'static str,
}

impl StoreKind {
    /// A kind of store of this name, with an example of its URLs. It has no TLS, unless [`with_tls`](StoreKind::with_tls) says how.
    pub const fn new(store: &'static str, example: &'static str) -> StoreKind {
        StoreKind {
            store,
            example,
            use_tls: "this kind of store has no TLS",
            use_no_tls: "this kind of store has no TLS",
        }
    }

    /// What to do for TLS, and what for none.
    pub const fn with_tls(self, use_tls: &'static str, use_no_tls: &'static str) -> StoreKind {
        StoreKind {
            use_tls,
            use_no_tls,
            ..self
        }
    }

    /// [`Error::Unavailable`] of this kind of store.
    pub fn unavailable(&self, reason: impl Into<String>) -> Error {
        Error::unavailable(self.store, reason)
    }

    /// [`Error::Refused`] of this kind of store.
    pub fn refused(&self, reason: impl Into<String>) -> Error {
        Error::refused(self.store, reason)
    }
}

/// A server's URL, parsed into its parts. A part that may have a password in it is never shown, neither by an error nor by
/// `Debug`.
///
/// ```
/// use lockkeeper::store::common::{ServerUrl, StoreKind};
/// use lockkeeper::url::StoreUrl;
///
/// const TOY: StoreKind = StoreKind::new("toy", "toy://localhost:7000");
/// let url = StoreUrl::parse("toy://me:secret@a,b:7001/locks")?;
/// let server = ServerUrl::parse(&url, TOY)?;
/// let hosts: Vec<String> = server.addresses(7000)?.iter().map(ToString::to_string).collect();
/// assert_eq!(hosts, ["a:7000", "b:7001"]);
/// assert_eq!(server.path(), "/locks");
///
/// let url = StoreUrl::parse("toy:a")?;
/// let refused = ServerUrl::parse(&url, TOY).err().expect("it has no slashes");
/// assert!(refused.to_string().contains("toy://localhost:7000"));
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone)]
pub struct ServerUrl<'a> {
    kind: StoreKind,
    scheme: &'a str,
    user_info: &'a str,
    credentials: Credentials,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> ServerUrl<'a> {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] says what to write instead.
    pub fn parse(url: &'a StoreUrl, kind: StoreKind) -> Result<ServerUrl<'a>, Error> {
        let Some(rest) = url.rest().strip_prefix("//") else {
            return refuse(format!(
                "two slashes come before the host; write {}",
                kind.example
            ));
        };
        if rest.contains('#') {
            return refuse("it has a `#`; in a password or path write %23 for it");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // The query may be the rest of a password, so nothing of it is shown.
        if query.contains('@') {
            return refuse(
                "what follows a `?` are options; in a password write %3F for it, and in an option %40 for an `@`",
            );
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A `/` in a password ends the host too early, and the rest of the password would be a path that is shown.
        if path.contains('@') {
            return refuse(
                "its path has an `@`; in a password write %2F for a `/`, and in a path %40 for an `@`",
            );
        }
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        Ok(ServerUrl {
            kind,
            scheme: url.scheme(),
            user_info,
            credentials: Credentials::parse(user_info)?,
            hosts,
            path,
            query,
        })
    }

    /// The kind of store that it is for.
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &'a str {
        self.scheme
    }

    /// The user and the password.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Whether something before the last `@` has a comma: a password with a comma in it, or a user at each of several hosts.
    pub fn has_comma_before_hosts(&self) -> bool {
        self.user_info.contains(',')
    }

    /// The hosts and their ports, as they are written.
    pub fn hosts(&self) -> &'a str {
        self.hosts
    }

    /// The one server.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when there is none, or its port is not a port, and with the text `several` when there are several.
    pub fn address(&self, default_port: u16, several: &str) -> Result<Address, Error> {
        if self.hosts.contains(',') {
            return refuse(several);
        }
        Address::parse(self.hosts, default_port, self.kind.example)
    }

    /// The servers, with commas between them.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when one has no host, or its port is not a port.
    pub fn addresses(&self, default_port: u16) -> Result<Vec<Address>, Error> {
        let hosts = self.hosts.split(',');
        let addresses = hosts.map(|host| Address::parse(host, default_port, self.kind.example));
        addresses.collect()
    }

    /// The socket that the path names.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when there is none, or there is a host; `example` says what to write.
    pub fn socket(&self, example: &str) -> Result<Address, Error> {
        if !self.hosts.is_empty() {
            return refuse(format!(
                "a socket has no host; write three slashes: {example}"
            ));
        }
        match self.path {
            "" | "/" => refuse(format!("it names no socket; write {example}")),
            path => Ok(Address::Unix(decode(path)?.into())),
        }
    }

    /// The path with its slash, as it is written: [`decode`] decodes %XX. Empty if there is none.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The options.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when one is given twice, or has a wrong %XX.
    pub fn options(&self) -> Result<Options, Error> {
        Options::parse(self.scheme, self.query)
    }
}

impl fmt::Debug for ServerUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // If a password is not encoded as it should be, other parts may have a piece of it.
        f.debug_struct("ServerUrl")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

/// Returns the error for a URL. The reason says what to write instead, and has no secret in it.
///
/// # Errors
/// [`Error::InvalidUrl`], always.
pub fn refuse<T>(reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::InvalidUrl {
        reason: reason.into(),
    })
}

/// Decodes %XX.
///
/// # Errors
/// [`Error::InvalidUrl`] when something else follows a `%`, or the result is not UTF-8.
pub fn decode(text: &str) -> Result<String, Error> {
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

    const TOY: StoreKind = StoreKind {
        store: "toy",
        example: "toy://localhost:7000/0",
        use_tls: "write toys: instead of toy:",
        use_no_tls: "write toy: instead of toys:",
    };

    fn with<T>(
        url: &str,
        read: impl FnOnce(ServerUrl<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let url = StoreUrl::parse(url).expect(url);
        ServerUrl::parse(&url, TOY).and_then(read)
    }

    #[test]
    fn a_url_is_parsed_into_its_parts() {
        let url = StoreUrl::parse("TOY://me:p%2Fw@a,b:7,[::1]:8/x%20y/3?wait=1s").expect("a URL");
        let server = ServerUrl::parse(&url, TOY).expect("valid");
        assert_eq!(server.scheme(), "toy");
        assert_eq!(server.credentials().user.as_deref(), Some("me"));
        assert_eq!(server.credentials().password(), Some("p/w"));
        let addresses = server.addresses(7000).expect("valid");
        let addresses: Vec<String> = addresses.iter().map(Address::to_string).collect();
        assert_eq!(addresses, ["a:7000", "b:7", "[::1]:8"]);
        assert_eq!(server.path(), "/x%20y/3");
        assert!(server.options().expect("valid").is_given("wait"));
        let one = with("toy://h", |server| server.address(7, "just one"));
        assert_eq!(one.expect("valid").to_string(), "h:7");
        let socket = with("toy://me@/run/a%20b", |server| server.socket(""));
        assert_eq!(socket.expect("valid"), Address::Unix("/run/a b".into()));
    }

    #[test]
    fn a_comma_before_the_hosts_is_seen() {
        for (url, comma) in [
            ("toy://u:p@a,b", false),
            ("toy://a,b", false),
            ("toy://u:p@a,u:q@b", true),
            ("toy://a,u:p@b,c", true),
            ("toy://u:p,w@a", true),
            ("toy://u:p%2Cw@a,b", false),
        ] {
            let seen = with(url, |server| Ok(server.has_comma_before_hosts()));
            assert_eq!(seen, Ok(comma), "{url}");
        }
    }

    #[test]
    fn each_mistake_has_an_error() {
        let all = |server: ServerUrl<'_>| {
            server.addresses(7)?;
            server.options()
        };
        for (url, word) in [
            ("toy:h", "toy://localhost:7000/0"),
            ("toy:/h", "two slashes"),
            ("toy://", "no host"),
            ("toy://a,,b", "no host"),
            ("toy://h#x", "%23"),
            ("toy://u:%zz@h", "hexadecimal"),
            ("toy://u:%ff@h", "UTF-8"),
            ("toy://u:12?x@h", "%3F"),
            ("toy://h?a=%", "hexadecimal"),
            ("toy://h?a=1&a=2", "twice"),
        ] {
            let error = with(url, all).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
        let several = with("toy://a,b", |server| server.address(7, "just one"));
        assert!(several.expect_err("two").to_string().ends_with("just one"));
        for (url, word) in [("toy://", "no socket"), ("toy://h/run/x", "three slashes")] {
            let error = with(url, |server| server.socket("toy:///run/x"));
            let error = error.expect_err(url).to_string();
            assert!(
                error.contains(word) && error.contains("toy:///run/x"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "toy://u:canary@h",
            "toy://u:canary@h:x",
            "toy://u:canary@",
            "toy://u:canary@a,,b",
            "toy://u:canary%@h",
            "toy://u:12?canary@h",
            "toy://u:12?canary=x@h",
            "toy://u:12?x&canary&y@h",
            "toy://u:12/3?canary@h",
            "toy://u:can/ary@h",
            "toy://u:12/canary@h",
            "toy://u:canary#x@h",
            "toy://h?a=canary&a=canary",
        ] {
            let shown = with(url, |server| {
                let text = format!("{server:?} {:?}", server.credentials());
                server.options()?;
                server.addresses(7)?;
                Ok(text)
            });
            let shown = format!("{shown:?}");
            assert!(!shown.contains("can"), "{url}: {shown}");
        }
    }
}
