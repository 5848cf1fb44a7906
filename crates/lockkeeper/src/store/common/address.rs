//! Where a server listens.

use std::fmt;
use std::path::PathBuf;

use super::url::refuse;
use crate::Error;

/// Where a server listens. It is shown as `host:port`, `[v6]:port` or the path of a socket.
///
/// ```
/// use lockkeeper::store::common::Address;
///
/// let address = Address::Tcp("::1".into(), 7000);
/// assert_eq!(address.to_string(), "[::1]:7000");
/// assert!(address.is_local());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Address {
    /// A host, by name or address and without brackets, and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
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

    /// Reads `HOST`, `HOST:PORT` or `[V6]:PORT`. `example` is a URL that has a host.
    pub(super) fn parse(text: &str, default_port: u16, example: &str) -> Result<Address, Error> {
        let host = host(text, example)?.to_owned();
        Ok(Address::Tcp(host, port(text, default_port)?))
    }
}

fn host<'a>(text: &'a str, example: &str) -> Result<&'a str, Error> {
    let name = match text.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((v6, _)) => v6,
            None => return refuse("an IPv6 address ends with a bracket, as in [::1]:PORT"),
        },
        None => text.split(':').next().unwrap_or_default(),
    };
    if name.is_empty() {
        return refuse(format!("it names no host; write {example}"));
    }
    Ok(name)
}

fn port(text: &str, default: u16) -> Result<u16, Error> {
    let after = match text.rsplit_once(']') {
        Some((_, after)) => after,
        None => text.find(':').map_or("", |at| &text[at..]),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, Error> {
        Address::parse(text, 7000, "toy://localhost")
    }

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for (text, shown, local) in [
            ("h", "h:7000", false),
            ("h:1", "h:1", false),
            ("localhost", "localhost:7000", true),
            ("127.0.0.9:8", "127.0.0.9:8", true),
            ("10.0.0.9", "10.0.0.9:7000", false),
            ("[::1]", "[::1]:7000", true),
            ("[2001:db8::1]:65535", "[2001:db8::1]:65535", false),
        ] {
            let address = parse(text).expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.is_local(), local, "{text}");
        }
        let socket = Address::Unix("/run/toy".into());
        assert_eq!(socket.to_string(), "/run/toy");
        assert!(socket.is_local());
    }

    #[test]
    fn each_mistake_has_an_error() {
        for (text, word) in [
            ("", "toy://localhost"),
            (":1", "no host"),
            ("[]:1", "no host"),
            ("::1", "no host"),
            ("[::1", "bracket"),
            ("[::1]1", "colon"),
            ("h:0", "65535"),
            ("h:65536", "65535"),
            ("h:x", "%2F"),
            ("a:1:2", "brackets"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
