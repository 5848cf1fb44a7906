//! One way in: a stream to an address, with or without TLS, and our login on it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError,
};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Timeout;

use super::fault::{explain, refused, unavailable, words};
use super::lane::Beside;
use super::pipe::Pipe;
use super::url::Settings;
use super::wire::{Stream, Wire};
use crate::Error;
use crate::store::common::{AbortOnDrop, Address, tls};

/// How many requests may wait to be written.
const WRITE_QUEUE: usize = 4096;
/// How much is read of what a server says to whom it does not let in.
const LONGEST_PARTING: u64 = 4096;

/// A connection that we are logged in on. It ends with its owner.
pub(super) struct Link {
    pub connection: MultiplexedConnection,
    /// The stream, if another may take it over.
    lent: Option<Lent>,
    driver: Driver,
}

/// What reads and writes.
enum Driver {
    /// The library's task.
    Task(AbortHandle),
    /// What took its place.
    Wire(Wire),
}

impl Drop for Driver {
    fn drop(&mut self) {
        match self {
            Driver::Task(task) => task.abort(),
            // At once: the runtime that reads may be blocked by who waits for an answer.
            Driver::Wire(wire) => wire.give_up(),
        }
    }
}

/// The user that we are to a server.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub user: Option<&'a str>,
    pub password: Option<&'a str>,
    pub database: u32,
    /// Whether it is the first time: then a connection that ends at once may mean that the server wants TLS.
    pub first: bool,
}

impl Settings {
    /// The user that we are to a server that keeps locks.
    pub fn login(&self, first: bool) -> Login<'_> {
        Login {
            user: self.credentials.user.as_deref(),
            password: self.credentials.password(),
            database: self.database,
            first,
        }
    }
}

/// A stream that the library logs in on, and that is taken back then.
#[derive(Clone)]
struct Lent(Arc<Mutex<Option<Box<dyn Stream>>>>);

impl Lent {
    fn slot(&self) -> MutexGuard<'_, Option<Box<dyn Stream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the stream nothing happens any more.
    fn with<T>(
        &self,
        poll: impl FnOnce(Pin<&mut Box<dyn Stream>>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut *self.slot() {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Pending,
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(context, room))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, bytes))
    }
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(context))
    }
}

impl Link {
    /// As [`open`](Link::open), on another runtime, which drives the connection from then on. [`Error::Closed`] if it
    /// has ended.
    pub async fn open_on(
        runtime: &Handle,
        address: Address,
        settings: Settings,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Link, Error> {
        // That runtime may have none.
        let timers = Handle::current();
        let task = runtime.spawn(async move {
            let login = settings.login(false);
            let stream = stream(&address, &settings, &timers).await?;
            let lent = Lent(Arc::new(Mutex::new(Some(stream))));
            let log_in = Link::log_in(Box::new(lent.clone()), &address, &settings, login, pushed);
            let link = log_in.await?;
            Ok(Link {
                lent: Some(lent),
                ..link
            })
        });
        // Nobody waits any longer: it ends.
        let _ends = AbortOnDrop::of(&task);
        task.await.unwrap_or(Err(Error::Closed))
    }

    /// Connects and logs in. `pushed` gets what comes without being asked for.
    pub async fn open(
        address: &Address,
        settings: &Settings,
        login: Login<'_>,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Link, Error> {
        let stream = stream(address, settings, &Handle::current()).await?;
        Link::log_in(stream, address, settings, login, pushed).await
    }

    /// From now on requests go over a wire of our own, read by that lane's runtime. Nothing must be under way. `ended` is
    /// called when the wire ends by itself.
    pub fn take_over(&mut self, lane: &Beside, ended: impl FnOnce(RedisError) + Send + 'static) {
        let Some(stream) = self.lent.take().and_then(|lent| lent.slot().take()) else {
            return;
        };
        let (wire, read) = Wire::new(stream);
        lane.readers.add(&lane.runtime, async move {
            if let Some(error) = read.await {
                ended(error);
            }
        });
        self.driver = Driver::Wire(wire);
    }

    pub fn pipe(&self) -> Pipe {
        match &self.driver {
            Driver::Wire(wire) => Pipe::Wire(wire.clone()),
            Driver::Task(_) => Pipe::Library(self.connection.clone()),
        }
    }

    async fn log_in(
        stream: Box<dyn Stream>,
        address: &Address,
        settings: &Settings,
        login: Login<'_>,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Link, Error> {
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("lockkeeper", env!("CARGO_PKG_VERSION"))
            .set_db(i64::from(login.database));
        if let Some(user) = login.user {
            info = info.set_username(user);
        }
        if let Some(password) = login.password {
            info = info.set_password(password);
        }
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE)
            .set_push_sender(move |push: PushInfo| {
                pushed(push);
                Ok::<(), ::redis::aio::SendError>(())
            });
        match MultiplexedConnection::new_with_config(&info, stream, config).await {
            Ok((connection, driver)) => Ok(Link {
                connection,
                lent: None,
                driver: Driver::Task(tokio::spawn(driver).abort_handle()),
            }),
            // A server that expects TLS closes the connection, or says something that is none of ours.
            Err(error) if login.first && error.code().is_none() && !settings.tls => {
                // A server that does not speak TLS may wait for the end of what it takes for a line.
                let limit = settings.connect_timeout / 4;
                match tokio::time::timeout(limit, tls::speaks_tls(address, &settings.kind)).await {
                    Ok(true) => Err(refused(format!(
                        "{address} speaks TLS; {}",
                        settings.kind.use_tls
                    ))),
                    _ => Err(match parting_words(address, settings).await {
                        Some(said) => not_let_in(address, &said),
                        None => explain_refusal(&error, login),
                    }),
                }
            }
            Err(error) => Err(explain_refusal(&error, login)),
        }
    }
}

async fn stream(
    address: &Address,
    settings: &Settings,
    timers: &Handle,
) -> Result<Box<dyn Stream>, Error> {
    let unreachable = |error: std::io::Error| {
        unavailable(format!("{address} cannot be reached: {error}")).caused_by(error)
    };
    let (host, port) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(unreachable)?;
            return Ok(Box::new(stream));
        }
        Address::Tcp(host, port) => (host.as_str(), *port),
    };
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(unreachable)?;
    // Without it every small request waits for the acknowledgement of the one before.
    stream.set_nodelay(true).map_err(unreachable)?;
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    if !settings.tls {
        return Ok(Box::new(stream));
    }
    let limit = settings.connect_timeout / 2;
    let handshake = tls::handshake(stream, host, &settings.trust, &settings.kind);
    match within(timers, limit, handshake).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(error),
        // To a server without TLS a handshake is the start of a long line, whose end it waits for.
        Err(_) => match within(timers, limit / 2, speaks_plainly((host, port))).await {
            Ok(true) => Err(refused(tls::no_tls(address, &settings.kind))),
            _ => Err(unavailable(format!(
                "{address} did not answer the TLS handshake within {limit:?}"
            ))),
        },
    }
}

/// Whether a server there speaks without TLS. It is told no secret.
async fn speaks_plainly(address: (&str, u16)) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut first = [0];
        stream.read_exact(&mut first).await?;
        Ok::<bool, io::Error>(matches!(first, [b'+' | b'-']))
    };
    ask.await.unwrap_or(false)
}

/// What a server says to a client that it does not let in, before it closes the connection. A client that speaks first may not
/// hear it.
async fn parting_words(address: &Address, settings: &Settings) -> Option<String> {
    let said = async {
        let mut stream = stream(address, settings, &Handle::current()).await.ok()?;
        let mut said = Vec::new();
        let mut lines = BufReader::new(stream.as_mut().take(LONGEST_PARTING));
        lines.read_until(b'\n', &mut said).await.ok()?;
        parting(&String::from_utf8_lossy(&said))
    };
    let limit = settings.connect_timeout / 4;
    tokio::time::timeout(limit, said).await.ok()?
}

/// The reason in what a server said, without the advice that may follow it for lines.
fn parting(said: &str) -> Option<String> {
    let said = said.lines().next()?.strip_prefix('-')?;
    let said = said.strip_prefix("ERR ").unwrap_or(said);
    Some(match said.split_once(". ") {
        Some((reason, _)) => reason.to_owned(),
        None => said.to_owned(),
    })
}

fn not_let_in(address: &Address, said: &str) -> Error {
    let reason = format!("{address} lets nobody in: {said}");
    match said.starts_with("DENIED") {
        true => refused(reason),
        // Such as too many clients, which may become fewer.
        false => unavailable(reason),
    }
}

fn within<F: Future>(timers: &Handle, limit: Duration, future: F) -> Timeout<F> {
    let _context = timers.enter();
    tokio::time::timeout(limit, future)
}

/// Why a server does not let us in.
fn explain_refusal(error: &RedisError, login: Login<'_>) -> Error {
    if error.kind() == ErrorKind::RESP3NotSupported {
        return refused("the server does not speak RESP3; locks need Redis 6.2 or newer".into());
    }
    let said = words(error);
    if let Some(reason) = tls::explain_alert(&said) {
        return refused(reason);
    }
    if said.contains("DB index") {
        return refused(format!("the server has no database {}", login.database));
    }
    match login.password {
        None if error.code() == Some("NOAUTH") || said.contains("NOAUTH") => refused(
            "the server asks for a password; put it into the URL or name a password_file".into(),
        ),
        _ => explain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_told_without_the_advice() {
        let reason = |said| parting(said).expect("a reason");
        assert_eq!(
            reason("-ERR max number of clients reached\r\n"),
            "max number of clients reached"
        );
        assert_eq!(
            reason(
                "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set \
                 for the default user. In this mode connections are only accepted from the loopback interface. If you \
                 want to connect from external computers to Redis you may adopt one of the following solutions: 1) \
                 Just disable protected mode.\r\n"
            ),
            "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the \
             default user"
        );
        // What is cut off, and what is none.
        assert_eq!(reason("-LOADING Redis is"), "LOADING Redis is");
        assert_eq!(parting("HTTP/1.1 400 Bad Request\r\n"), None);
        assert_eq!(parting(""), None);
    }
}
