//! One connection to one server: dialled, with or without TLS, greeted and logged in.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::jute::Reader;
use super::wire::{self, Code, Greeting};
use crate::Error;
use crate::clock::Moment;
use crate::store::common::{Address, Credentials, StoreKind, Trust, tls};

/// Larger frames are no answers of a server's.
const LARGEST_FRAME: usize = 256 << 20;

/// A stream of bytes to a server.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// How to reach the servers.
#[derive(Clone, Debug)]
pub struct Way {
    pub kind: StoreKind,
    pub servers: Vec<Address>,
    pub credentials: Credentials,
    pub tls: Option<Trust>,
    /// How long a connection may take until it is ready, if the URL says so.
    pub connect_timeout: Option<Duration>,
}

/// What a session is known by.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// 0 asks for a new one.
    pub session: i64,
    pub password: Vec<u8>,
    pub last_zxid: i64,
    pub timeout: Duration,
}

/// A connection that is ready.
pub struct Link {
    pub stream: Box<dyn Wire>,
    /// The same socket, if nothing is encrypted.
    pub socket: Option<std::net::TcpStream>,
    /// What was read and belongs to later frames.
    pub inbox: Vec<u8>,
    pub greeting: Greeting,
    /// When the session was asked for.
    pub asked: Moment,
    pub server: String,
}

impl Way {
    /// Connects to one server within the time-out.
    pub async fn open(&self, server: &Address, identity: &Identity) -> Result<Link, Error> {
        let within = self.connect_timeout;
        let within = within.unwrap_or_else(|| super::within(identity.timeout));
        let opened = tokio::time::timeout(within, self.greet(server, identity)).await;
        opened.unwrap_or_else(|_| {
            Err(self
                .kind
                .unavailable(format!("{server} did not answer within {within:?}")))
        })
    }

    async fn dial(
        &self,
        server: &Address,
    ) -> Result<(Box<dyn Wire>, Option<std::net::TcpStream>), Error> {
        let Address::Tcp(host, port) = server else {
            return Err(self
                .kind
                .refused("a ZooKeeper server has no socket in a file"));
        };
        let dialled = TcpStream::connect((host.as_str(), *port)).await;
        let stream = dialled.map_err(|error| {
            self.kind
                .unavailable(format!("{server} cannot be reached: {error}"))
                .caused_by(error)
        })?;
        let _ = stream.set_nodelay(true);
        Ok(match &self.tls {
            None => {
                let socket = same_socket(&stream);
                (Box::new(stream), socket)
            }
            Some(trust) => {
                let secure = tls::handshake(stream, host, trust, &self.kind).await?;
                (Box::new(secure), None)
            }
        })
    }

    async fn greet(&self, server: &Address, identity: &Identity) -> Result<Link, Error> {
        let lost = |error: std::io::Error| {
            self.kind.unavailable(format!(
                "{server} ended the connection before the session began: {error}; it may not serve just now, speak TLS only, \
                 or have too many connections from this address"
            ))
        };
        let (mut stream, socket) = self.dial(server).await?;
        let timeout = i32::try_from(identity.timeout.as_millis()).unwrap_or(i32::MAX);
        let hello = wire::hello(
            identity.last_zxid,
            timeout,
            identity.session,
            &identity.password,
        );
        let asked = Moment::now();
        stream.write_all(&hello).await.map_err(lost)?;
        let mut inbox = Vec::new();
        let frame = frame(&mut stream, &mut inbox).await.map_err(lost)?;
        let greeting = wire::greeting(&mut Reader::new(&frame));
        let greeting = greeting.map_err(|garbled| {
            self.kind
                .refused(format!("{server} is no ZooKeeper server: {garbled}"))
        })?;
        if let (Some(user), Some(password)) = (&self.credentials.user, self.credentials.password())
            && greeting.session != 0
        {
            let login = wire::digest(user, password);
            stream.write_all(&login).await.map_err(lost)?;
            self.logged_in(server, &mut stream, &mut inbox).await?;
        }
        Ok(Link {
            stream,
            socket,
            inbox,
            greeting,
            asked,
            server: server.to_string(),
        })
    }

    async fn logged_in(
        &self,
        server: &Address,
        stream: &mut Box<dyn Wire>,
        inbox: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let refused = || {
            self.kind
                .refused(format!("{server} does not accept the user and password"))
        };
        let Ok(frame) = frame(stream, inbox).await else {
            return Err(refused());
        };
        match wire::header(&mut Reader::new(&frame)) {
            Ok(header) if header.xid == wire::XID_AUTH && header.code == 0 => Ok(()),
            Ok(header) if Code(header.code) == Code::AUTH_FAILED => Err(refused()),
            _ => Err(self
                .kind
                .refused(format!("{server} does not answer to a log-in"))),
        }
    }
}

#[cfg(unix)]
fn same_socket(stream: &TcpStream) -> Option<std::net::TcpStream> {
    use std::os::fd::AsFd;
    let socket = stream.as_fd().try_clone_to_owned().ok()?;
    Some(socket.into())
}

#[cfg(not(unix))]
fn same_socket(_: &TcpStream) -> Option<std::net::TcpStream> {
    None
}

/// Reads one frame; what follows it stays in `inbox`.
async fn frame(stream: &mut Box<dyn Wire>, inbox: &mut Vec<u8>) -> std::io::Result<Vec<u8>> {
    loop {
        if let Some(length) = next_frame(inbox)? {
            let frame = inbox[4..4 + length].to_vec();
            inbox.drain(..4 + length);
            return Ok(frame);
        }
        if stream.read_buf(inbox).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The length of the first frame, if all of it is there.
pub fn next_frame(bytes: &[u8]) -> std::io::Result<Option<usize>> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*length));
    let length = length.ok().filter(|length| *length <= LARGEST_FRAME);
    let length = length.ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((bytes.len() >= 4 + length).then_some(length))
}
