//! A small HTTP client: one connection, kept alive, one request at a time.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// More than the longest answer.
const MOST_ANSWER: usize = 4 << 20;
/// How long a connection may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// Where an instance is.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub url: String,
    host: String,
    port: u16,
}

impl Address {
    pub fn parse(url: &str) -> Result<Address> {
        let expected =
            || format!("{url:?} is no instance; write for instance http://127.0.0.1:8080");
        let uri: Uri = url.parse().with_context(expected)?;
        let root = matches!(uri.path(), "" | "/") && uri.query().is_none();
        ensure!(uri.scheme_str() == Some("http") && root, expected());
        let host = uri.host().with_context(expected)?;
        // Nothing before it: the shop asks for no name or password, and what is written here is printed.
        let all = uri.authority().map_or("", |all| all.as_str());
        let port = match all.strip_prefix(host).map(|rest| rest.strip_prefix(':')) {
            Some(None) => Some(80),
            Some(Some(port)) => port.parse().ok().filter(|port| *port > 0),
            None => None,
        };
        let port = port.context("an instance is http://HOST:PORT, and nothing else")?;
        Ok(Address {
            url: url.trim_end_matches('/').to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
        })
    }

    /// As a `Host` names it.
    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A connection to an instance, when there is one.
pub(super) struct Client {
    address: Address,
    patience: Duration,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silence {
    /// It could not be asked.
    NotSent(anyhow::Error),
    /// It was asked, or may have been.
    NoAnswer(anyhow::Error),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silence::NotSent(error) => write!(f, "not reached: {error:#}"),
            Silence::NoAnswer(error) => write!(f, "no answer: {error:#}"),
        }
    }
}

impl Client {
    pub fn new(address: Address, patience: Duration) -> Client {
        Client {
            address,
            patience,
            connection: None,
        }
    }

    /// Asks, and waits for the whole answer. After silence the next request takes a new connection.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
    ) -> std::result::Result<(StatusCode, Bytes), Silence> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.authority())
            .body(Empty::new());
        let request = request.map_err(|error| Silence::NotSent(error.into()))?;
        let mut connection = match self.kept_alive().await {
            Some(connection) => connection,
            None => self.connect().await.map_err(Silence::NotSent)?,
        };
        let exchange = async {
            let answer = connection.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_ANSWER);
            let body = body.collect().await.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let answer = match timeout(self.patience, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("not within {:?}", self.patience)),
        };
        let answer = answer.map_err(Silence::NoAnswer)?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// The connection of before, unless the instance has closed it.
    async fn kept_alive(&mut self) -> Option<SendRequest<Empty<Bytes>>> {
        let mut connection = self.connection.take()?;
        connection.ready().await.ok().map(|()| connection)
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let address = (self.address.host.as_str(), self.address.port);
        let stream = timeout(CONNECTS_WITHIN, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
