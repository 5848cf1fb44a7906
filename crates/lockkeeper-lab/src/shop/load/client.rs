//! A small HTTP client: one connection, kept alive, one request at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::server::SPEAKS_WITHIN;
use crate::text::{Text, told};
use crate::words;

/// More than the longest answer.
const MOST_ANSWER: usize = 4 << 20;
/// How long a connection may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection is kept that is not used: half as long as an instance keeps it. A request that crosses the end of its
/// connection is not answered, and nobody knows whether it was read.
const KEPT_FOR: Duration = Duration::from_secs(SPEAKS_WITHIN.as_secs() / 2);

type Connection = SendRequest<Empty<Bytes>>;

/// Where an instance is.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub url: String,
    host: String,
    port: u16,
}

impl Address {
    pub fn parse(url: &str) -> Result<Address> {
        let expected = || words::no_instance(url);
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
        let port = port.context(words::INSTANCE_IS_AN_ADDRESS)?;
        Ok(Address {
            url: url.trim_end_matches('/').to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
        })
    }

    /// As a `Host` names it.
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// A connection to an instance, when there is one.
pub(super) struct Client {
    address: Address,
    patience: Duration,
    /// The connection of before, and since when it is not used.
    kept: Option<(Connection, Instant)>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silence {
    /// It could not be asked.
    NotSent(anyhow::Error),
    /// It was asked, or may have been.
    NoAnswer(anyhow::Error),
}

impl Silence {
    /// As people and programs are told it.
    pub fn told(&self) -> Text {
        match self {
            Silence::NotSent(error) => words::not_reached(&told(error)),
            Silence::NoAnswer(error) => words::no_answer(&told(error)),
        }
    }
}

impl Client {
    pub fn new(address: Address, patience: Duration) -> Client {
        Client {
            address,
            patience,
            kept: None,
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
            Err(_) => Err(anyhow!(words::not_within(self.patience))),
        };
        let answer = answer.map_err(Silence::NoAnswer)?;
        self.kept = Some((connection, Instant::now()));
        Ok(answer)
    }

    /// The connection of before, unless the instance has closed it or is about to.
    async fn kept_alive(&mut self) -> Option<Connection> {
        let (mut connection, since) = self.kept.take()?;
        if since.elapsed() >= KEPT_FOR {
            return None;
        }
        connection.ready().await.ok().map(|()| connection)
    }

    async fn connect(&self) -> Result<Connection> {
        let address = (self.address.host.as_str(), self.address.port);
        let stream = timeout(CONNECTS_WITHIN, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Answers one request after the other, until the other side closes the connection.
    fn serve(mut stream: TcpStream) {
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.extend(byte);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).expect("written");
            }
        }
    }

    /// An instance, and how many connections it has had.
    fn instance() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, SeqCst);
                let stream = stream.expect("a connection");
                std::thread::spawn(|| serve(stream));
            }
        });
        (address, connections)
    }

    #[tokio::test]
    async fn a_connection_that_rested_for_long_is_not_used_again() {
        let (address, connections) = instance();
        let address = Address::parse(&format!("http://{address}")).expect("an address");
        let mut client = Client::new(address, Duration::from_secs(60));
        for (rests, expected) in [(false, 1), (false, 1), (true, 2), (false, 2)] {
            if rests {
                let (_, since) = client.kept.as_mut().expect("kept");
                *since = since.checked_sub(KEPT_FOR).expect("long after the boot");
            }
            let answer = client.ask(Method::GET, "/").await;
            let (status, body) = answer.unwrap_or_else(|silence| panic!("{silence:?}"));
            assert_eq!((status, &body[..]), (StatusCode::OK, &b"ok"[..]));
            assert_eq!(connections.load(SeqCst), expected);
        }
    }
}
