//! One connection to one member: dialled, with or without TLS, logged in, and asked how it is.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{
    AuthenticateRequest, AuthenticateResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    StatusRequest, StatusResponse,
};
use super::{Failure, Way};
use crate::Error;
use crate::store::common::{AbortOnDrop, Address, tls};

/// How much a member may send before we have read it: a large list must not wait for us.
const WINDOW: u32 = 4 << 20;

/// A stream of bytes to a member.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A request that has no answer because of its connection.
#[derive(Debug)]
struct Broken {
    /// Whether a part of it may have reached the member.
    sent: bool,
    reason: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Broken {}

/// What tonic sends requests by. There is no queue: a request goes out now, or comes back unsent.
#[derive(Clone, Debug)]
struct Channel {
    sender: SendRequest<Body>,
    authority: Arc<str>,
    scheme: &'static str,
}

impl tower_service::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = Broken;
    type Future =
        Pin<Box<dyn Future<Output = Result<http::Response<Incoming>, Broken>> + Send + 'static>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let ready = self.sender.poll_ready(cx);
        ready.map_err(|error| Broken {
            sent: false,
            reason: error.to_string(),
        })
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let uri = format!("{}://{}{path}", self.scheme, self.authority);
        if let Ok(uri) = uri.parse() {
            *request.uri_mut() = uri;
        }
        let answer = self.sender.try_send_request(request);
        Box::pin(async move {
            answer.await.map_err(|mut error| Broken {
                sent: error.take_message().is_none(),
                reason: error.into_error().to_string(),
            })
        })
    }
}

/// What becomes of one keep-alive: the time that the lease has, 0 if it is gone, and the term of the member that says so.
pub type KeptAlive = Result<(i64, u64), String>;

/// The callers that wait for the next answers of the stream of keep-alives, in the order of the requests.
#[derive(Debug, Default)]
struct KeepAlives {
    requests: Option<mpsc::UnboundedSender<LeaseKeepAliveRequest>>,
    waiting: VecDeque<(i64, oneshot::Sender<KeptAlive>)>,
    /// Which of the streams that there were this is.
    number: u64,
}

/// A connection that is ready.
pub struct Link {
    channel: Channel,
    way: Way,
    pub server: Address,
    pub cluster: u64,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    login: AsyncMutex<()>,
    keep_alives: Mutex<KeepAlives>,
    /// Why it is over, once it is.
    over: watch::Sender<Option<String>>,
    _driver: AbortOnDrop,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.server)
    }
}

impl Way {
    async fn dial(&self, server: &Address) -> Result<Box<dyn Wire>, Error> {
        let Address::Tcp(host, port) = server else {
            return Err(self
                .kind
                .refused("a member of etcd has no socket in a file"));
        };
        let dialled = TcpStream::connect((host.as_str(), *port)).await;
        let stream = dialled.map_err(|error| {
            self.kind
                .unavailable(format!("{server} cannot be reached: {error}"))
                .caused_by(error)
        })?;
        let _ = stream.set_nodelay(true);
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(trust) => {
                Box::new(tls::handshake_for(stream, host, trust, &self.kind, &[b"h2"]).await?)
            }
        })
    }

    /// Connects to one member within the time-out.
    pub async fn open(&self, server: &Address) -> Result<Arc<Link>, Error> {
        let limit = self.connect_timeout;
        let opened = tokio::time::timeout(limit, self.greet(server)).await;
        opened.unwrap_or_else(|_| {
            Err(self
                .kind
                .unavailable(format!("{server} did not answer within {limit:?}")))
        })
    }

    async fn greet(&self, server: &Address) -> Result<Arc<Link>, Error> {
        let stream = TokioIo::new(self.dial(server).await?);
        let shaken = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(stream)
            .await;
        let (sender, connection) = shaken.map_err(|error| {
            self.kind
                .unavailable(format!("{server} ended the connection: {error}"))
        })?;
        let (over, _) = watch::channel(None);
        let told = over.clone();
        let driver = tokio::spawn(async move {
            let reason = match connection.await {
                Ok(()) => "the server closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            told.send_if_modified(|over| {
                let first = over.is_none();
                over.get_or_insert(reason);
                first
            });
        });
        let mut link = Link {
            channel: Channel {
                sender,
                authority: server.to_string().into(),
                scheme: if self.tls.is_some() { "https" } else { "http" },
            },
            way: self.clone(),
            server: server.clone(),
            cluster: 0,
            token: Mutex::default(),
            login: AsyncMutex::default(),
            keep_alives: Mutex::default(),
            over,
            _driver: AbortOnDrop::of(&driver),
        };
        link.log_in(None).await?;
        link.ask_how_it_is().await?;
        Ok(Arc::new(link))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the member refused because it does not know our token, and so did nothing.
fn wants_a_login(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || status.message().contains("invalid auth token")
        || status.message().contains("revision of auth store is old")
}

impl Link {
    /// Why it is over, if it is.
    pub fn over(&self) -> Option<String> {
        self.over.borrow().clone()
    }

    /// Waits until it is over, and returns why.
    pub async fn ended(&self) -> String {
        let mut over = self.over.subscribe();
        let reason = over.wait_for(Option::is_some).await;
        reason
            .ok()
            .and_then(|reason| reason.clone())
            .unwrap_or_default()
    }

    /// Uses it no more: it is silent, or its member has lost the others.
    pub fn give_up(&self, reason: &str) {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            over.get_or_insert_with(|| reason.to_owned());
            first
        });
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        // A member that has lost its leader says so, instead of leaving us waiting.
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = lock(&self.token).clone() {
            metadata.insert("token", token);
        }
        request
    }

    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<Q, A>::default();
        let answer = self
            .grpc()
            .unary(self.request(message), path, codec)
            .await?;
        Ok(answer.into_inner())
    }

    /// Asks, once more after a login if the member does not know our token any more.
    pub async fn call<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        limit: Duration,
    ) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        if let Some(reason) = self.over() {
            return Err(Failure::NotSent(reason));
        }
        let asked = async {
            let token = lock(&self.token).clone();
            match self.ask(path, message.clone()).await {
                Err(status) if wants_a_login(&status) && self.way.credentials.user.is_some() => {
                    if let Err(error) = self.log_in(token).await {
                        return Err(Status::unauthenticated(error.to_string()));
                    }
                    self.ask(path, message).await
                }
                answer => answer,
            }
        };
        tokio::select! {
            biased;
            answer = asked => answer.map_err(|status| self.failure(&status)),
            // The connection is there, and given up. A request on it may still be done.
            reason = self.ended() => Err(Failure::InDoubt(reason)),
            () = tokio::time::sleep(limit) => {
                let reason = format!("{} did not answer within {limit:?}", self.server);
                self.give_up(&reason);
                Err(Failure::InDoubt(reason))
            }
        }
    }

    /// What this answer says about what was asked for.
    fn failure(&self, status: &Status) -> Failure {
        let said = status.message().to_owned();
        let source = std::error::Error::source(status);
        if let Some(broken) = source.and_then(|source| source.downcast_ref::<Broken>()) {
            let reason = format!("the connection to {} broke: {said}", self.server);
            self.give_up(&reason);
            return if broken.sent {
                Failure::InDoubt(reason)
            } else {
                Failure::NotSent(reason)
            };
        }
        match status.code() {
            // The interceptor says so before anything is done.
            Code::Unavailable if said == "etcdserver: no leader" => {
                self.give_up("the member has no leader");
                Failure::NotSent(format!("{} has no leader", self.server))
            }
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::ResourceExhausted => Failure::Status(status.code(), said),
            // A proposal that timed out may still be committed, and so may one that a change of leaders met.
            _ => {
                let reason = format!("{} answered: {said}", self.server);
                self.give_up(&reason);
                Failure::InDoubt(reason)
            }
        }
    }

    /// Shows the user and the password, unless another request has done so since this token was used.
    async fn log_in(&self, used: Option<MetadataValue<Ascii>>) -> Result<(), Error> {
        let credentials = &self.way.credentials;
        let (Some(name), Some(password)) = (&credentials.user, credentials.password()) else {
            return Ok(());
        };
        let _one_at_a_time = self.login.lock().await;
        if used.is_some() && *lock(&self.token) != used {
            return Ok(());
        }
        *lock(&self.token) = None;
        let request = AuthenticateRequest {
            name: name.clone(),
            password: password.to_owned(),
        };
        let kind = &self.way.kind;
        let answer: Result<AuthenticateResponse, Status> =
            self.ask("/etcdserverpb.Auth/Authenticate", request).await;
        match answer {
            Ok(answer) => {
                let token = answer.token.parse();
                let token = token.map_err(|_| kind.unavailable("the token is no text"))?;
                *lock(&self.token) = Some(token);
                Ok(())
            }
            // Users are not asked for on this cluster.
            Err(status) if status.message().contains("authentication is not enabled") => Ok(()),
            Err(status) if status.code() == Code::InvalidArgument => Err(kind.refused(format!(
                "{} does not let the user {name:?} in: {}",
                self.server,
                status.message()
            ))),
            Err(status) => Err(kind.unavailable(format!(
                "{} could not check the user: {}",
                self.server,
                status.message()
            ))),
        }
    }

    /// Asks for the member's version, its cluster and whether it has a leader.
    async fn ask_how_it_is(&mut self) -> Result<(), Error> {
        let kind = self.way.kind;
        let status: Result<StatusResponse, Status> = self
            .ask("/etcdserverpb.Maintenance/Status", StatusRequest {})
            .await;
        let status = status.map_err(|status| {
            let said = status.message();
            match tls::explain_alert(said) {
                Some(reason) => kind.refused(reason),
                None => kind.unavailable(format!("{} does not serve: {said}", self.server)),
            }
        })?;
        if status.leader == 0 {
            return Err(kind.unavailable(format!("{} has no leader", self.server)));
        }
        super::check_version(&status.version, &self.server, &kind)?;
        self.cluster = status.header.map_or(0, |header| header.cluster_id);
        Ok(())
    }

    /// Asks the leader to keep a lease, for at most `limit`. The answers of one stream come in the order of its requests.
    pub async fn keep_alive(self: &Arc<Link>, id: i64, limit: Duration) -> KeptAlive {
        let (sender, receiver) = oneshot::channel();
        {
            let mut alive = lock(&self.keep_alives);
            let request = LeaseKeepAliveRequest { id };
            let sent = alive.requests.as_ref().map(|way| way.send(request.clone()));
            if !matches!(sent, Some(Ok(()))) {
                // There is no stream, or it has ended: a lease is not given up for that.
                let (requests, outgoing) = mpsc::unbounded_channel();
                let _ = requests.send(request);
                alive.requests = Some(requests);
                alive.waiting.clear();
                alive.number += 1;
                tokio::spawn(keep_alive_stream(self.clone(), outgoing, alive.number));
            }
            alive.waiting.push_back((id, sender));
        }
        tokio::select! {
            answer = receiver => answer.unwrap_or_else(|_| Err("the stream of keep-alives ended".into())),
            reason = self.ended() => Err(reason),
            () = tokio::time::sleep(limit) => Err(format!("no keep-alive was answered within {limit:?}")),
        }
    }

    /// Opens a stream in both directions.
    pub async fn stream<Q, A>(
        &self,
        path: &'static str,
        outgoing: mpsc::UnboundedReceiver<Q>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<Q, A>::default();
        let request = self.request(UnboundedReceiverStream::new(outgoing));
        Ok(self
            .grpc()
            .streaming(request, path, codec)
            .await?
            .into_inner())
    }

    /// A stream ended with this. A token that is not known any more needs a login; a member without a leader is left.
    pub async fn stream_ended(&self, status: &Status) {
        if wants_a_login(status) {
            let token = lock(&self.token).clone();
            let _ = self.log_in(token).await;
        } else {
            self.failure(status);
        }
    }
}

/// Reads the answers to keep-alives until the stream ends.
async fn keep_alive_stream(
    link: Arc<Link>,
    outgoing: mpsc::UnboundedReceiver<LeaseKeepAliveRequest>,
    number: u64,
) {
    let path = "/etcdserverpb.Lease/LeaseKeepAlive";
    let reading = async {
        let mut answers: Streaming<LeaseKeepAliveResponse> = link.stream(path, outgoing).await?;
        while let Some(answer) = answers.message().await? {
            let mut alive = lock(&link.keep_alives);
            if alive.number != number {
                break;
            }
            // An answer out of order would be taken for another lease's.
            let first = alive.waiting.front().map(|(id, _)| *id);
            if first != Some(answer.id) {
                return Err(Status::internal("a keep-alive of another lease"));
            }
            if let Some((_, waiting)) = alive.waiting.pop_front() {
                let term = answer.header.map_or(0, |header| header.raft_term);
                let _ = waiting.send(Ok((answer.ttl, term)));
            }
        }
        Ok(())
    };
    let ended: Result<(), Status> = tokio::select! {
        ended = reading => ended,
        _ = link.ended() => Ok(()),
    };
    let said = match &ended {
        Ok(()) => "the stream of keep-alives ended".to_owned(),
        Err(status) => status.message().to_owned(),
    };
    {
        let mut alive = lock(&link.keep_alives);
        if alive.number == number {
            alive.requests = None;
            for (_, waiting) in alive.waiting.drain(..) {
                let _ = waiting.send(Err(said.clone()));
            }
        }
    }
    if let Err(status) = ended {
        link.stream_ended(&status).await;
    }
}
