//! One connection: to the server, past its checks, with all that is prepared on it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, SimpleQueryMessage, SimpleQueryRow};

use super::config::{Config, KIND};
use super::setup;
use super::statements::{Dialect, identifier};
use super::{fault, wake};
use crate::Error;
use crate::store::common::{AbortOnDrop, Address, tls, warn_of_plain_text};
use crate::store::sql::hosts::{self, Unusable};
use crate::store::sql::keep_alive::keep_alive;
use crate::store::sql::wake::Mailbox;

/// Asks a server for TLS.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A session that has [marked](super::statements::mark) the schema, kept until another one has: what its store holds is in no table.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Option<Arc<Link>>>);

impl Kept {
    /// Keeps this session, and none before it.
    pub fn set(&self, link: Option<Arc<Link>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }
}

/// A connection that is ready for use. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    pub dialect: Dialect,
    /// Behind a pooler: what each transaction has to set for itself.
    pub limits: String,
    pub facts: setup::Facts,
    /// The server warned: a commit may not have reached a replica that it waited for.
    warned: Arc<AtomicBool>,
    ended: watch::Receiver<Option<String>>,
    given_up: Notify,
    is_given_up: AtomicBool,
    has_lost_tables: AtomicBool,
    _driver: AbortOnDrop,
}

impl Link {
    /// Connects to the first server that can be used. `again`: the store is open, waits for a server that changes its role, and keeps
    /// the session that marks the schema.
    pub async fn connect(
        config: &Config,
        mailbox: &Mailbox,
        again: Option<&Kept>,
    ) -> Result<Link, Error> {
        let mut tried = Vec::with_capacity(config.servers.len());
        for address in &config.servers {
            match Link::to(address, config, mailbox, again).await {
                Ok(link) => return Ok(link),
                Err(error) => tried.push((address, error)),
            }
        }
        Err(hosts::none_of(&KIND, tried, again.is_some()))
    }

    async fn to(
        address: &Address,
        config: &Config,
        mailbox: &Mailbox,
        again: Option<&Kept>,
    ) -> Result<Link, Unusable> {
        let told = Arc::new(AtomicU32::new(0));
        let (client, mut connection) = log_in(address, config, told.clone()).await?;
        let warned = Arc::new(AtomicBool::new(false));
        let (tell, ended) = watch::channel(None);
        let (warns, mailbox, schema) = (warned.clone(), mailbox.clone(), config.schema.clone());
        let driver = tokio::spawn(async move {
            let reason = loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(heard))) => {
                        wake::heard(&mailbox, &schema, heard.channel(), heard.payload());
                    }
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        if matches!(notice.code().code(), "01000" | "57P01") {
                            warns.store(true, SeqCst);
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break error.to_string(),
                    None => break "the server closed the connection".into(),
                }
            };
            let _ = tell.send(Some(reason));
        });
        let mut link = Link {
            client,
            dialect: Dialect {
                schema: identifier(&config.schema),
                prepared: true,
                sits_out: config.sit_out,
                system: String::new(),
            },
            limits: String::new(),
            facts: setup::Facts::default(),
            warned,
            ended,
            given_up: Notify::new(),
            is_given_up: AtomicBool::new(false),
            has_lost_tables: AtomicBool::new(false),
            _driver: AbortOnDrop::of(&driver),
        };
        let told = told.load(SeqCst);
        match (
            setup::prepare(&mut link, config, told, again.is_some()).await,
            again,
        ) {
            (Err(error), Some(kept)) if link.facts.has_marked => {
                kept.set(Some(Arc::new(link)));
                Err(error)
            }
            (prepared, _) => prepared.map(|()| link),
        }
    }

    /// Sends one message, and waits for its answer.
    pub async fn ask(
        &self,
        text: &str,
        limit: Duration,
    ) -> Option<Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>> {
        timeout(limit, self.client.simple_query(text)).await.ok()
    }

    /// The rows of one message, where errors are those of connecting.
    pub async fn rows(
        &self,
        text: &str,
        limit: Duration,
        schema: &str,
    ) -> Result<Vec<SimpleQueryRow>, Error> {
        let Some(answer) = self.ask(text, limit).await else {
            return Err(KIND.unavailable(format!("the server did not answer within {limit:?}")));
        };
        let messages = answer.map_err(|error| fault::of_connecting(&error, schema))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Whether the server has warned since the last time.
    pub fn has_warned(&self) -> bool {
        self.warned.swap(false, SeqCst)
    }

    /// Says that it is of no more use.
    pub fn give_up(&self) {
        self.is_given_up.store(true, SeqCst);
        self.given_up.notify_one();
    }

    /// The same, since tables are missing or others than it knows.
    pub fn lose_tables(&self) {
        self.has_lost_tables.store(true, SeqCst);
        self.give_up();
    }

    /// Whether it was given up for its tables.
    pub fn has_lost_tables(&self) -> bool {
        self.has_lost_tables.load(SeqCst)
    }

    /// Whether it is of no more use, also before anybody has looked after that.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(SeqCst)
    }

    /// Waits until it has ended, or is of no more use. Returns why.
    pub async fn end(&self) -> String {
        let mut ended = self.ended.clone();
        tokio::select! {
            reason = ended.wait_for(Option::is_some) => match reason {
                Ok(reason) => reason.clone().unwrap_or_default(),
                Err(_) => "its task has ended".into(),
            },
            () = self.given_up.notified() => "it was given up".into(),
        }
    }
}

/// Connects to a server and logs in, within the time that the URL gives. `told` becomes the process that serves us.
pub(super) async fn log_in(
    address: &Address,
    config: &Config,
    told: Arc<AtomicU32>,
) -> Result<(Client, Connection<Greeting, NoTlsStream>), Error> {
    let mut login = tokio_postgres::Config::new();
    login.ssl_mode(SslMode::Disable);
    login.dbname(&config.database);
    login.application_name("lockkeeper");
    if let Some(user) = &config.credentials.user {
        login.user(user);
    }
    if let Some(password) = config.credentials.password() {
        login.password(password);
        if config.tls.is_none() && !address.is_local() {
            warn_of_plain_text(address, &KIND);
        }
    }
    let connecting = async {
        let stream = Greeting {
            stream: dial(address, config).await?,
            read: Some(Vec::new()),
            process: told,
        };
        let connected = login.connect_raw(stream, NoTls).await;
        connected.map_err(|error| fault::of_connecting(&error, &config.schema))
    };
    let connected = timeout(config.connect_timeout, connecting).await;
    connected.map_err(|_| {
        KIND.unavailable(format!(
            "{address} did not let us in within {:?}",
            config.connect_timeout
        ))
    })?
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn dial(address: &Address, config: &Config) -> Result<Box<dyn Stream>, Error> {
    let unreachable = |error: io::Error| {
        KIND.unavailable(format!("{address} cannot be reached: {error}"))
            .caused_by(error)
    };
    let (host, port) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(unreachable)?;
            return Ok(Box::new(stream));
        }
        Address::Tcp(host, port) => (host.as_str(), *port),
    };
    let stream = TcpStream::connect((host, port)).await;
    let mut stream = stream.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    keep_alive(&stream);
    let Some(trust) = &config.tls else {
        return Ok(Box::new(stream));
    };
    trust.warn(address);
    stream.write_all(&TLS_REQUEST).await.map_err(unreachable)?;
    let answer = stream.read_u8().await.map_err(unreachable)?;
    if answer != b'S' {
        return Err(KIND.refused(tls::no_tls(address, &KIND)));
    }
    Ok(Box::new(tls::handshake(stream, host, trust, &KIND).await?))
}

/// A stream of which the beginning is read: the server says there which process of its serves us. If another does, there is a
/// pooler in between.
pub(super) struct Greeting {
    stream: Box<dyn Stream>,
    /// What came, until that process was named.
    read: Option<Vec<u8>>,
    process: Arc<AtomicU32>,
}

impl Greeting {
    fn look(&mut self, new: &[u8]) {
        let Some(read) = &mut self.read else { return };
        read.extend_from_slice(new);
        loop {
            let [kind, a, b, c, d, rest @ ..] = read.as_slice() else {
                return;
            };
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            match (kind, rest) {
                (b'K', [a, b, c, d, ..]) => {
                    let process = u32::from_be_bytes([*a, *b, *c, *d]);
                    self.process.store(process, SeqCst);
                    break;
                }
                (b'K', _) => return,
                (b'Z' | b'E', _) => break,
                _ if read.len() <= length => return,
                _ => drop(read.drain(..=length)),
            }
        }
        self.read = None;
    }
}

impl AsyncRead for Greeting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.read.is_some() {
            let new = buffer.filled()[before..].to_vec();
            self.look(&new);
        }
        polled
    }
}

impl AsyncWrite for Greeting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
