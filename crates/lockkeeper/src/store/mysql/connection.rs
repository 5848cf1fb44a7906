//! One connection, and the task that owns it.
//!
//! A request whose caller goes away must not leave its answer to the next one. So only the task reads and writes: it reads
//! every answer to its end, whether somebody still waits for it or not. An answer that does not come in time ends
//! the connection, and so does one that does not fit its request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::config::{Config, KIND};
use super::fault::{Fault, denied, ends_connection};
use super::login::{Denied, Greeting, Login};
use super::packet::{Packets, Stream};
use super::reply::{Reply, Said, exchange};
use crate::Error;
use crate::store::common::{AbortOnDrop, Address, Silence, Trust, tls};
use crate::store::sql::keep_alive::keep_alive;

/// One text, and what becomes of it.
struct Request {
    text: String,
    /// How many statements it has.
    statements: usize,
    /// How long it may take by itself, as one that sleeps in the server does.
    takes: Duration,
    /// How many of them are a transaction, which is rolled back if one of them fails. Only then comes the next request: it
    /// would be done inside of it, or commit the rest.
    whole: usize,
    answer: oneshot::Sender<Result<Vec<Reply>, Fault>>,
}

/// A connection that is logged in. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    requests: mpsc::UnboundedSender<Request>,
    /// Why it ended.
    ended: watch::Receiver<Option<String>>,
    /// Ends it between two requests.
    retired: Arc<Notify>,
    /// Where the server is.
    pub address: Address,
    /// The server's number of it.
    pub number: u64,
    _task: AbortOnDrop,
}

impl Connection {
    /// Connects to a server and logs in, within the time that the URL gives.
    pub async fn open(config: &Config, address: &Address) -> Result<Connection, Error> {
        let opening = log_in(config, address);
        let opened = tokio::time::timeout(config.connect_timeout, opening).await;
        let (packets, greeting) = opened.map_err(|_| {
            KIND.unavailable(format!(
                "{address} did not answer within {:?}",
                config.connect_timeout
            ))
        })??;
        let (requests, received) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let silence = config.response_timeout;
        let retired = Arc::new(Notify::new());
        let task = tokio::spawn(own(packets, received, silence, retired.clone(), end));
        Ok(Connection {
            requests,
            ended,
            retired,
            address: address.clone(),
            number: greeting.connection,
            _task: AbortOnDrop::of(&task),
        })
    }

    /// Runs one statement.
    pub async fn one(&self, text: impl Into<String>) -> Result<Reply, Fault> {
        let mut replies = self.run(text, 1).await?;
        replies.pop().ok_or_else(|| Fault::Lost("no answer".into()))
    }

    /// Runs one statement that selects.
    pub async fn rows(&self, text: impl Into<String>) -> Result<Vec<super::reply::Row>, Fault> {
        match self.one(text).await? {
            Reply::Rows(rows) => Ok(rows),
            other => Err(Fault::Lost(format!("a SELECT was answered by {other:?}"))),
        }
    }

    /// Runs a text of so many statements. Returns one answer for each; an error of any is that of all.
    pub async fn run(
        &self,
        text: impl Into<String>,
        statements: usize,
    ) -> Result<Vec<Reply>, Fault> {
        let replies = self.ask(text.into(), statements, Duration::ZERO).await?;
        match replies.last() {
            Some(Reply::Failed(error)) => Err(Fault::Server(error.clone())),
            _ => Ok(replies),
        }
    }

    /// Runs a text and returns what came, with an error at its end if there was one.
    pub async fn ask(
        &self,
        text: String,
        statements: usize,
        takes: Duration,
    ) -> Result<Vec<Reply>, Fault> {
        self.send(text, statements, takes, 0).await
    }

    /// Runs a text and returns what came. The first `whole` statements are a transaction, which is rolled back if one of them
    /// fails.
    pub async fn transact(
        &self,
        text: String,
        statements: usize,
        whole: usize,
    ) -> Result<Vec<Reply>, Fault> {
        self.send(text, statements, Duration::ZERO, whole).await
    }

    async fn send(
        &self,
        text: String,
        statements: usize,
        takes: Duration,
        whole: usize,
    ) -> Result<Vec<Reply>, Fault> {
        let (answer, answered) = oneshot::channel();
        let request = Request {
            text,
            statements,
            takes,
            whole,
            answer,
        };
        if self.requests.send(request).is_err() {
            return Err(Fault::NotSent(self.gone()));
        }
        // The task answers all that it takes, and takes all, unless the runtime ends.
        answered
            .await
            .unwrap_or_else(|_| Err(Fault::Lost(self.why())))
    }

    /// Runs one statement whose answer does not matter.
    pub fn tell(&self, text: String) {
        let (answer, _) = oneshot::channel();
        let _ = self.requests.send(Request {
            text,
            statements: 1,
            takes: Duration::ZERO,
            whole: 0,
            answer,
        });
    }

    /// Ends it after the request that is under way: its server is not what it was when the session began.
    pub fn retire(&self) {
        self.retired.notify_one();
    }

    /// Waits until it is of no more use, and returns why.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(Option::is_some).await;
        self.why()
    }

    /// Whether it is of no more use.
    pub fn is_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    fn why(&self) -> String {
        let why = self.ended.borrow().clone();
        why.unwrap_or_else(|| "the connection was closed".into())
    }

    fn gone(&self) -> Error {
        KIND.unavailable(format!(
            "the connection to {} is lost: {}",
            self.address,
            self.why()
        ))
    }
}

/// Owns the stream: one request after the other, each read to its end.
async fn own(
    mut packets: Packets,
    mut requests: mpsc::UnboundedReceiver<Request>,
    limit: Duration,
    retired: Arc<Notify>,
    end: watch::Sender<Option<String>>,
) {
    let reason = loop {
        let request = tokio::select! {
            biased;
            () = retired.notified() => break "the server's role, settings or tables have changed".to_owned(),
            request = requests.recv() => request,
            () = packets.unasked() => {
                let parting = tokio::time::timeout(limit, packets.parting()).await;
                break parting.unwrap_or_else(|_| "the server began to say something".into());
            }
        };
        let Some(request) = request else { return };
        let silence = Silence::after(limit + request.takes * 4 / 3);
        let answer = silence.probe(exchange(&mut packets, &request.text));
        let said = match answer.await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => {
                let _ = request.answer.send(Err(Fault::Lost(error.to_string())));
                break error.to_string();
            }
            Err(reason) => {
                let _ = request.answer.send(Err(Fault::Lost(reason.clone())));
                break reason;
            }
        };
        let mut parting = misfit(&said, request.statements);
        let replies = said.replies;
        if replies.len() <= request.whole
            && parting.is_none()
            && let Some(Reply::Failed(_)) = replies.last()
            && let Some(reason) = roll_back(&mut packets, silence).await
        {
            parting = Some(Misfit::Ends(reason));
        }
        let _ = request.answer.send(match &parting {
            Some(Misfit::Foreign(reason)) => Err(Fault::Lost(reason.clone())),
            _ => Ok(replies),
        });
        if let Some(Misfit::Foreign(reason) | Misfit::Ends(reason)) = parting {
            break reason;
        }
    };
    end.send_replace(Some(reason.clone()));
    // What is sent from now on fails at once; what is here was never sent to the server.
    requests.close();
    while let Some(request) = requests.recv().await {
        let never = KIND.unavailable(format!("the connection is lost: {reason}"));
        let _ = request.answer.send(Err(Fault::NotSent(never)));
    }
}

/// Ends a transaction. Returns why it cannot be ended, if so: the server does it then, with the connection.
async fn roll_back(packets: &mut Packets, silence: Silence) -> Option<String> {
    let answer = silence.probe(exchange(packets, "ROLLBACK"));
    match answer.await {
        Ok(Ok(said)) => match misfit(&said, 1) {
            Some(Misfit::Foreign(reason) | Misfit::Ends(reason)) => Some(reason),
            None => None,
        },
        Ok(Err(error)) => Some(error.to_string()),
        Err(reason) => Some(reason),
    }
}

/// Why a connection is of no more use after an answer.
enum Misfit {
    /// The answer is not one to the request.
    Foreign(String),
    /// The server says that it ends.
    Ends(String),
}

/// A text of several statements has an answer for each, or an error at the end. No text of ours leaves a transaction open: what was done
/// in one that is open would be undone with the connection.
fn misfit(said: &Said, statements: usize) -> Option<Misfit> {
    if said.is_open {
        let open = "the session does not commit by itself as it was told to";
        return Some(Misfit::Foreign(open.into()));
    }
    let replies = &said.replies;
    match replies.last() {
        Some(Reply::Failed(error)) if ends_connection(error) => {
            Some(Misfit::Ends(error.message.clone()))
        }
        Some(Reply::Failed(_)) if replies.len() <= statements => None,
        Some(Reply::Done { .. } | Reply::Rows(_)) if replies.len() == statements => None,
        _ => Some(Misfit::Foreign(format!(
            "{} answers came to {statements} statements",
            replies.len()
        ))),
    }
}

/// A stream to a server on which we are logged in.
async fn log_in(config: &Config, address: &Address) -> Result<(Packets, Greeting), Error> {
    match try_login(config, address, config.tls.as_ref()).await {
        // Nobody else reads what stays on this machine. TLS there only tells the server that it is so.
        Err(Failed::Denied(Denied::NeedsTls)) if address.is_local() => {
            let anyone = Trust {
                insecure: true,
                ..Trust::default()
            };
            try_login(config, address, Some(&anyone)).await
        }
        other => other,
    }
    .map_err(|failed| match failed {
        Failed::Denied(why) => denied(address, why),
        Failed::Other(error) => error,
    })
}

enum Failed {
    Denied(Denied),
    Other(Error),
}

impl From<Denied> for Failed {
    fn from(denied: Denied) -> Failed {
        Failed::Denied(denied)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Denied(Denied::Lost(error))
    }
}

async fn try_login(
    config: &Config,
    address: &Address,
    trust: Option<&Trust>,
) -> Result<(Packets, Greeting), Failed> {
    let mut packets = Packets::new(dial(address).await.map_err(Failed::Other)?);
    let greeting = Greeting::read(&mut packets).await?;
    // A socket needs no TLS, whatever the URL says of other hosts.
    let trust = trust.filter(|_| matches!(address, Address::Tcp(..)));
    if let Some(trust) = trust {
        if !greeting.offers_tls {
            return Err(Failed::Other(KIND.refused(tls::no_tls(address, &KIND))));
        }
        greeting.ask_for_tls(&mut packets).await?;
        packets = begin_tls(packets, address, trust)
            .await
            .map_err(Failed::Other)?;
    }
    let login = Login {
        user: config.credentials.user.as_deref().unwrap_or_default(),
        password: config.credentials.password().unwrap_or_default(),
        database: &config.database,
        is_private: trust.is_some() || matches!(address, Address::Unix(_)),
    };
    greeting
        .log_in(&mut packets, &login, trust.is_some())
        .await?;
    Ok((packets, greeting))
}

async fn dial(address: &Address) -> Result<Box<dyn Stream>, Error> {
    let unreachable = |error: std::io::Error| {
        KIND.unavailable(format!("{address} cannot be reached: {error}"))
            .caused_by(error)
    };
    match address {
        Address::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            keep_alive(&stream);
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(unreachable)?;
            Ok(Box::new(stream))
        }
    }
}

async fn begin_tls(packets: Packets, address: &Address, trust: &Trust) -> Result<Packets, Error> {
    let Address::Tcp(host, _) = address else {
        return Err(KIND.refused("a socket has no TLS"));
    };
    let (stream, next) = packets.into_parts();
    let stream = tls::handshake(stream, host, trust, &KIND).await?;
    Ok(Packets::go_on(Box::new(stream), next))
}
