//! Requests and replies on a stream to a server.
//!
//! A caller writes its request itself, unless another one is writing just then, who writes this as well. One task reads: to
//! hand each request to it, as client libraries do, is most of what a request costs. Replies come in the order of the requests.
//! What the server pushes is no reply, and what nobody asked for ends the connection: no reply after it is believed.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker, ready};

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use rustix::process::{Pid, getpid};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::resp;
use super::topics::{Change, Push, Topic, Topics};
use crate::store::redis::fault::words;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// No reply is longer than this: that of a semaphore with a hundred thousand holders is shorter.
const LONGEST: usize = 32 * 1024 * 1024;

pub(super) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// Where requests go in. Clones share it.
#[derive(Clone)]
pub(in crate::store) struct Socket(Arc<Inner>);

struct Inner {
    /// The process that opened the stream.
    process: Pid,
    queue: Mutex<Queue>,
    out: Mutex<Out>,
}

/// What was asked for.
#[derive(Default)]
struct Queue {
    /// Requests that nobody has begun to write.
    unsent: Vec<u8>,
    /// What waits for replies, in order.
    waiting: VecDeque<Waiting>,
    topics: Topics,
    reader: Option<Waker>,
    ended: Option<RedisError>,
    /// How many changes of subscriptions there were.
    changes: u64,
}

/// What becomes of a reply.
enum Waiting {
    /// Somebody waits for it.
    Caller(oneshot::Sender<RedisResult<Value>>),
    /// The task that reads calls this.
    Call(Box<dyn FnOnce(RedisResult<Value>) + Send>),
    Confirmed(Confirming),
}

impl Waiting {
    fn tell(self, reply: RedisResult<Value>) {
        match self {
            // A caller that stopped waiting does not mind.
            Waiting::Caller(caller) => drop(caller.send(reply)),
            Waiting::Call(call) => call(reply),
            Waiting::Confirmed(Confirming { caller, .. }) => drop(caller.send(reply)),
        }
    }
}

/// A change of subscriptions. The server confirms it by pushes, and replies only if it refuses it. So a PING follows: once that
/// is answered, all is known.
struct Confirming {
    change: Change,
    topics: Vec<Topic>,
    /// What the PING asks for.
    nonce: String,
    refused: Option<RedisError>,
    caller: oneshot::Sender<RedisResult<Value>>,
}

/// What the reply to a change of subscriptions comes to.
enum Confirmation {
    /// The PING is not answered yet.
    Unfinished,
    Finished(RedisResult<Value>),
    /// The server is out of step.
    Wrong,
}

impl Confirming {
    fn take(&mut self, reply: Value, topics: &mut Topics) -> Confirmation {
        match reply.extract_error() {
            Ok(Value::BulkString(echo)) if echo == self.nonce.as_bytes() => {}
            Ok(_) => return Confirmation::Wrong,
            // The command was refused, so this is the PING's.
            Err(_) if self.refused.is_some() => {}
            Err(error) if topics.are_confirmed(self.change, &self.topics) => {
                let of_shards = matches!(self.topics.first(), Some(Topic::Shard(_)));
                let may_be_refused = self.change == Change::Leave && of_shards;
                match error.code() {
                    // A server that is busy, loads its data or cannot save it says so to a PING.
                    Some("LOADING" | "MISCONF") => {}
                    Some("BUSY") if !may_be_refused => {}
                    // The slot went, and the channel with it, before the command came.
                    Some(code) if may_be_refused && code != "BUSY" => {
                        self.refused = Some(error);
                        return Confirmation::Unfinished;
                    }
                    // It may belong to either.
                    _ => return Confirmation::Wrong,
                }
            }
            Err(error) => {
                self.refused = Some(error);
                return Confirmation::Unfinished;
            }
        }
        let confirmed = topics.settle(self.change, &self.topics);
        match self.refused.take() {
            Some(error) => Confirmation::Finished(Err(error)),
            None if confirmed => Confirmation::Finished(Ok(Value::Okay)),
            None => Confirmation::Wrong,
        }
    }
}

/// Where requests go out.
struct Out {
    stream: WriteHalf,
    bytes: Vec<u8>,
    written: usize,
    /// Whether the stream may keep back what was written.
    unflushed: bool,
}

/// What a socket tells of its own accord.
pub(in crate::store) enum Heard {
    Push(Push),
    /// No reply comes any more, for this reason.
    Ended(String),
}

/// A reply that will come.
pub(in crate::store) struct Reply(oneshot::Receiver<RedisResult<Value>>);

impl Future for Reply {
    type Output = RedisResult<Value>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RedisResult<Value>> {
        let reply = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(reply.unwrap_or_else(|_| Err(undriven())))
    }
}

impl Socket {
    /// Has the runtime of the caller read the stream. `heard` is called by the task that reads.
    pub(super) fn start(
        (read, write): (ReadHalf, WriteHalf),
        heard: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Socket {
        let socket = Socket(Arc::new(Inner {
            process: getpid(),
            queue: Mutex::default(),
            out: Mutex::new(Out {
                stream: write,
                bytes: Vec::new(),
                written: 0,
                unflushed: false,
            }),
        }));
        let reading = Reading {
            inner: socket.0.clone(),
            heard,
        };
        let mut reader = Reader {
            stream: read,
            came: vec![0; CHUNK],
            end: 0,
            start: 0,
            scan: resp::Scan::default(),
        };
        tokio::spawn(async move {
            let Reading { inner, heard } = &reading;
            let error = poll_fn(|context| inner.poll(context, &mut reader, heard)).await;
            reading.end(&error);
        });
        socket
    }

    /// Takes a request, which has its place in the order from now on. It goes out with the next [`flush`](Socket::flush).
    pub fn start_request(&self, cmd: &Cmd) -> Reply {
        let (caller, reply) = oneshot::channel();
        self.put(cmd, Waiting::Caller(caller));
        Reply(reply)
    }

    /// Sends a request and waits for its reply.
    pub async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let reply = self.start_request(cmd);
        self.flush();
        reply.await
    }

    /// Sends a request. `call` is called with its reply, by the task that reads it.
    pub fn send_then(&self, cmd: &Cmd, call: impl FnOnce(RedisResult<Value>) + Send + 'static) {
        self.put(cmd, Waiting::Call(Box::new(call)));
        self.flush();
    }

    /// Sends several requests at once, and waits for the replies after the first few.
    pub async fn send_all(&self, requests: &Pipeline, skip: usize) -> RedisResult<Vec<Value>> {
        let replies = self.put_all(requests);
        self.flush();
        let mut values = Vec::with_capacity(replies.len());
        for reply in replies {
            values.push(reply.await?);
        }
        Ok(values.split_off(skip))
    }

    /// Subscribes to topics of one kind, at once; the answer says when the server has confirmed all, or with which error it
    /// refused it.
    pub fn subscribe(&self, topics: &[Topic]) -> impl Future<Output = RedisResult<()>> + use<> {
        self.change(Change::Join, topics)
    }

    /// As [`subscribe`](Socket::subscribe), and ends the subscriptions.
    pub fn unsubscribe(&self, topics: &[Topic]) -> impl Future<Output = RedisResult<()>> + use<> {
        self.change(Change::Leave, topics)
    }

    fn change(
        &self,
        change: Change,
        topics: &[Topic],
    ) -> impl Future<Output = RedisResult<()>> + use<> {
        let first = topics.first();
        let reply = first.map(|first| self.put_change(change, first, topics));
        self.flush();
        async move {
            match reply {
                Some(reply) => reply.await.map(drop),
                None => Ok(()),
            }
        }
    }

    fn put_change(&self, change: Change, first: &Topic, topics: &[Topic]) -> Reply {
        let mut cmd = ::redis::cmd(first.command(change));
        topics.iter().for_each(|topic| {
            cmd.arg(topic.name());
        });
        let (caller, reply) = oneshot::channel();
        let mut queue = self.0.queue();
        if let Some(error) = &queue.ended {
            let _ = caller.send(Err(error.clone()));
            return Reply(reply);
        }
        queue.changes += 1;
        let nonce = format!("change {}", queue.changes);
        let mut ping = ::redis::cmd("PING");
        ping.arg(&nonce);
        cmd.write_packed_command(&mut queue.unsent);
        ping.write_packed_command(&mut queue.unsent);
        queue.topics.expect(change, topics);
        queue.waiting.push_back(Waiting::Confirmed(Confirming {
            change,
            topics: topics.to_vec(),
            nonce,
            refused: None,
            caller,
        }));
        Reply(reply)
    }

    /// Takes several requests, with no other between them: ASKING is for the next one.
    fn put_all(&self, requests: &Pipeline) -> Vec<Reply> {
        let mut queue = self.0.queue();
        let ended = queue.ended.clone();
        let each = requests.cmd_iter().map(|cmd| {
            let (caller, reply) = oneshot::channel();
            match &ended {
                Some(error) => drop(caller.send(Err(error.clone()))),
                None => {
                    cmd.write_packed_command(&mut queue.unsent);
                    queue.waiting.push_back(Waiting::Caller(caller));
                }
            }
            Reply(reply)
        });
        each.collect()
    }

    /// Takes a request, or tells at once that nothing goes out any more.
    fn put(&self, cmd: &Cmd, waiting: Waiting) {
        let mut queue = self.0.queue();
        let Some(error) = queue.ended.clone() else {
            cmd.write_packed_command(&mut queue.unsent);
            queue.waiting.push_back(waiting);
            return;
        };
        drop(queue);
        waiting.tell(Err(error));
    }

    /// Tells the callers that no reply comes any more, and has the stream closed.
    pub(super) fn give_up(&self) {
        self.0.end(&undriven(), || {});
        self.0.wake();
    }

    /// Writes what was asked for. What does not go at once, and what goes wrong, is the reader's.
    pub fn flush(&self) {
        let mut context = Context::from_waker(Waker::noop());
        if !matches!(self.0.write(&mut context), Poll::Ready(Ok(()))) {
            self.0.wake();
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Socket")
    }
}

/// For requests in the words of the `redis` crate.
impl ConnectionLike for Socket {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.send(cmd))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut values = self.send_all(pipeline, offset).await?;
            values.truncate(count);
            Ok(values)
        })
    }

    /// Which it is says the URL.
    fn get_db(&self) -> i64 {
        0
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let reader = self.queue().reader.clone();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Writes what was asked for, unless another one is at it, who looks again when it is done.
    fn write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The stream is the parent's: a request of a fork would have its reply taken for another's.
        if self.process != getpid() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut out = match self.out.try_lock() {
                Ok(out) => out,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Poll::Ready(Ok(())),
            };
            out.load(&mut self.queue().unsent);
            ready!(out.poll_write(context))?;
            drop(out);
            if self.queue().unsent.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads until there is nothing more, and writes what others could not. Ready when the stream is of no more use.
    fn poll(
        &self,
        context: &mut Context<'_>,
        reader: &mut Reader,
        heard: &impl Fn(Heard),
    ) -> Poll<RedisError> {
        {
            let mut queue = self.queue();
            if let Some(error) = &queue.ended {
                return Poll::Ready(error.clone());
            }
            let known = queue.reader.as_ref();
            if !known.is_some_and(|waker| waker.will_wake(context.waker())) {
                queue.reader = Some(context.waker().clone());
            }
        }
        let written = self.write(context);
        // What has come says more than that nothing goes out any more.
        if let Poll::Ready(error) = self.poll_read(context, reader, heard) {
            return Poll::Ready(error);
        }
        match written {
            Poll::Ready(Err(error)) => Poll::Ready(error.into()),
            _ => Poll::Pending,
        }
    }

    fn poll_read(
        &self,
        context: &mut Context<'_>,
        reader: &mut Reader,
        heard: &impl Fn(Heard),
    ) -> Poll<RedisError> {
        loop {
            if let Err(error) = ready!(reader.poll_read(context)) {
                return Poll::Ready(error.into());
            }
            loop {
                match reader.next() {
                    Ok(Some(value)) => {
                        if let Err(wrong) = self.take(value, heard) {
                            return Poll::Ready(io::Error::other(wrong).into());
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(error),
                }
            }
        }
    }

    /// Tells what has come to whom it is for.
    fn take(&self, value: Value, heard: &impl Fn(Heard)) -> Result<(), &'static str> {
        const UNASKED_REPLY: &str = "the server answered what nobody asked";
        let mut queue = self.queue();
        if let Value::Push { kind, data } = value {
            let push = queue.topics.take(&kind, &data)?;
            drop(queue);
            if let Some(push) = push {
                heard(Heard::Push(push));
            }
            return Ok(());
        }
        let Queue {
            waiting, topics, ..
        } = &mut *queue;
        let reply = match waiting.front_mut() {
            None => return Err(UNASKED_REPLY),
            Some(Waiting::Confirmed(confirming)) => match confirming.take(value, topics) {
                Confirmation::Unfinished => return Ok(()),
                Confirmation::Finished(reply) => reply,
                Confirmation::Wrong => {
                    return Err("the server confirmed a subscription by something else");
                }
            },
            Some(_) => Ok(value),
        };
        let first = waiting.pop_front();
        drop(queue);
        if let Some(waiting) = first {
            waiting.tell(reply);
        }
        Ok(())
    }

    /// Takes no more requests, and tells those that wait. `first` is called before that, unless it had ended already.
    fn end(&self, error: &RedisError, first: impl FnOnce()) {
        let waiting = {
            let mut queue = self.queue();
            if queue.ended.is_some() {
                return;
            }
            queue.ended = Some(error.clone());
            std::mem::take(&mut queue.waiting)
        };
        first();
        for waiting in waiting {
            waiting.tell(Err(error.clone()));
        }
    }

    /// Closes the stream, which callers may know for longer.
    fn close(&self) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.stream = Box::new(tokio::io::sink());
    }
}

impl Out {
    fn load(&mut self, unsent: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, unsent);
        } else {
            self.bytes.append(unsent);
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                many => {
                    self.written += many;
                    self.unflushed = true;
                }
            }
        }
        self.bytes.clear();
        self.written = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// What the task that reads has.
struct Reader {
    stream: ReadHalf,
    came: Vec<u8>,
    /// How much of what came is there, and how much of that is done with.
    end: usize,
    start: usize,
    /// How far the reply at the start is known.
    scan: resp::Scan,
}

impl Reader {
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            // What a long reply needed.
            self.came.truncate(CHUNK);
            self.came.shrink_to(CHUNK);
        } else if self.came.len() - self.end < CHUNK / 2 {
            if self.start > 0 {
                self.came.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.came.len() - self.end < CHUNK / 2 {
                self.came.resize(self.came.len() + CHUNK, 0);
            }
        }
        let mut room = ReadBuf::new(&mut self.came[self.end..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut room))?;
        match room.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            many => {
                self.end += many;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The next of what came, if it is there in full.
    fn next(&mut self) -> RedisResult<Option<Value>> {
        let came = &self.came[self.start..self.end];
        match self.scan.first(came)? {
            Some((value, length)) => {
                self.start += length;
                self.scan = resp::Scan::default();
                Ok(Some(value))
            }
            None if came.len() > LONGEST => {
                let endless = "the server gave an answer that does not end";
                Err(io::Error::other(endless).into())
            }
            None => Ok(None),
        }
    }
}

/// What ends the socket when the task that reads does, also with its runtime or by a panic.
struct Reading<H: Fn(Heard)> {
    inner: Arc<Inner>,
    heard: H,
}

impl<H: Fn(Heard)> Reading<H> {
    fn end(&self, error: &RedisError) {
        // Before the callers are told: what they send next waits for another connection.
        let first = || (self.heard)(Heard::Ended(why(error)));
        self.inner.end(error, first);
    }
}

impl<H: Fn(Heard)> Drop for Reading<H> {
    fn drop(&mut self) {
        self.end(&undriven());
        self.inner.close();
    }
}

fn undriven() -> RedisError {
    io::Error::other("the connection is not driven any more").into()
}

/// Why a stream is of no more use.
fn why(error: &RedisError) -> String {
    if error.is_connection_dropped() {
        "the server closed it".into()
    } else {
        words(error)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, DuplexStream, duplex, split};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::store::redis::transport::topics::UNASKED;

    const SOON: Duration = Duration::from_secs(20);

    /// A socket, what it hears, and its server.
    fn connected() -> (Socket, mpsc::UnboundedReceiver<Heard>, DuplexStream) {
        let (near, far) = duplex(1 << 20);
        let (socket, heard) = on(near);
        (socket, heard, far)
    }

    fn on(
        near: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> (Socket, mpsc::UnboundedReceiver<Heard>) {
        let (read, write) = split(near);
        let (tell, heard) = mpsc::unbounded_channel();
        let tell = move |heard| drop(tell.send(heard));
        (
            Socket::start((Box::new(read), Box::new(write)), tell),
            heard,
        )
    }

    fn ask(socket: &Socket, what: &str) -> Reply {
        let reply = socket.start_request(&::redis::cmd(what));
        socket.flush();
        reply
    }

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        timeout(SOON, future).await.expect("in time")
    }

    async fn ended(heard: &mut mpsc::UnboundedReceiver<Heard>) -> String {
        match soon(heard.recv()).await {
            Some(Heard::Ended(why)) => why,
            Some(Heard::Push(push)) => panic!("{push:?}"),
            None => panic!("it was given up"),
        }
    }

    /// Reads requests until this text has come.
    async fn until_asked(far: &mut DuplexStream, text: &str) {
        let mut came = Vec::new();
        let asked = async {
            while !String::from_utf8_lossy(&came).contains(text) {
                let read = far.read_buf(&mut came).await.expect("is open");
                assert!(read > 0, "it was closed");
            }
        };
        soon(asked).await;
    }

    #[tokio::test]
    async fn what_the_stream_keeps_back_goes_out_when_there_is_room() {
        let (near, mut far) = duplex(8);
        // As TLS does, it takes more than goes out.
        let (socket, _heard) = on(BufWriter::with_capacity(1024, near));
        let asked = ask(&socket, "PING");
        // "*1\r\n$4\r\nPING\r\n"
        let mut request = [0; 14];
        soon(far.read_exact(&mut request)).await.expect("is open");
        far.write_all(b"+PONG\r\n").await.expect("is open");
        let pong = Value::SimpleString("PONG".into());
        assert_eq!(soon(asked).await.expect("a reply"), pong);
    }

    #[tokio::test]
    async fn its_end_is_heard_unless_it_was_given_up() {
        let (socket, mut heard, far) = connected();
        let asked = ask(&socket, "PING");
        drop(far);
        assert!(soon(asked).await.is_err());
        assert_eq!(ended(&mut heard).await, "the server closed it");
        assert!(soon(ask(&socket, "PING")).await.is_err());

        let (socket, mut heard, mut far) = connected();
        let asked = ask(&socket, "PING");
        socket.give_up();
        assert!(soon(asked).await.is_err());
        assert!(soon(heard.recv()).await.is_none());
        // Closed, although the socket is still known.
        let mut rest = Vec::new();
        soon(far.read_to_end(&mut rest)).await.expect("is closed");
        drop(socket);
    }

    #[test]
    fn callers_are_told_when_the_runtime_that_reads_has_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let (socket, _heard, _far) = runtime.block_on(async { connected() });
        let asked = ask(&socket, "PING");
        drop(runtime);
        let told = tokio::runtime::Builder::new_current_thread().build();
        let told = told.expect("a runtime").block_on(asked);
        assert!(told.is_err());
    }

    #[tokio::test]
    async fn a_panic_in_what_a_reply_has_us_do_ends_the_connection() {
        let (socket, mut heard, mut far) = connected();
        socket.send_then(&::redis::cmd("FIRST"), |_| panic!("as it should"));
        let asked = ask(&socket, "SECOND");
        far.write_all(b":1\r\n:2\r\n").await.expect("is open");
        assert!(soon(asked).await.is_err());
        ended(&mut heard).await;
    }

    #[tokio::test]
    async fn a_request_is_written_before_it_is_waited_for() {
        let (socket, _heard, mut far) = connected();
        socket.send_then(&::redis::cmd("PING"), |_| {});
        // No task has run yet.
        let mut request = [0; 14];
        let mut context = Context::from_waker(Waker::noop());
        let mut read = Box::pin(far.read_exact(&mut request));
        assert!(read.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn each_of_many_callers_gets_its_own_reply() {
        const CALLERS: usize = 8;
        const EACH: usize = 2_000;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (near, mut far) = duplex(64);
            let (socket, _heard) = on(near);
            let echoes = tokio::spawn(async move {
                let (mut came, mut at) = (Vec::new(), 0);
                while far.read_buf(&mut came).await.expect("is open") > 0 {
                    while let Ok(Some((Value::Array(parts), length))) = resp::first(&came[at..]) {
                        at += length;
                        let Some(Value::BulkString(text)) = parts.last() else {
                            panic!("{parts:?}");
                        };
                        let reply =
                            format!("${}\r\n{}\r\n", text.len(), String::from_utf8_lossy(text));
                        far.write_all(reply.as_bytes()).await.expect("is open");
                    }
                    came.drain(..at);
                    at = 0;
                }
            });
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let socket = socket.clone();
                    tokio::spawn(async move {
                        for number in 0..EACH {
                            let text = format!("{caller}:{number}");
                            let mut cmd = ::redis::cmd("ECHO");
                            let reply = soon(socket.send(cmd.arg(&text))).await;
                            assert_eq!(reply.expect("a reply"), Value::BulkString(text.into()));
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.expect("all are answered");
            }
            socket.give_up();
            echoes.await.expect("it ends");
        });
    }

    #[tokio::test]
    async fn a_reply_without_an_end_ends_the_connection() {
        let (socket, mut heard, mut far) = connected();
        let asked = ask(&socket, "PING");
        let endless = tokio::spawn(async move {
            let _ = far.write_all(b"$9223372036854775807\r\n").await;
            while far.write_all(&[b'x'; 64 * 1024]).await.is_ok() {}
        });
        assert!(soon(asked).await.is_err());
        assert!(ended(&mut heard).await.contains("does not end"));
        soon(endless).await.expect("it is closed");
    }

    #[tokio::test]
    async fn a_request_nobody_waits_for_takes_its_reply() {
        let (socket, _heard, mut far) = connected();
        drop(ask(&socket, "FIRST"));
        let asked = ask(&socket, "SECOND");
        for byte in ":1\r\n:2\r\n".bytes() {
            far.write_all(&[byte]).await.expect("is open");
            tokio::task::yield_now().await;
        }
        assert_eq!(soon(asked).await.expect("a reply"), Value::Int(2));
    }

    #[tokio::test]
    async fn a_reply_that_nobody_asked_for_ends_the_connection() {
        let (socket, mut heard, mut far) = connected();
        let asked = ask(&socket, "FIRST");
        far.write_all(b":1\r\n:2\r\n").await.expect("is open");
        assert_eq!(soon(asked).await.expect("it came before"), Value::Int(1));
        assert!(ended(&mut heard).await.contains("nobody asked"));
        assert!(soon(ask(&socket, "SECOND")).await.is_err());
    }

    #[tokio::test]
    async fn a_push_that_nobody_asked_for_ends_the_connection_and_no_reply_after_it_is_believed() {
        let (socket, mut heard, mut far) = connected();
        let (first, second) = (ask(&socket, "FIRST"), ask(&socket, "SECOND"));
        let push = ">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n";
        let replies = format!(":1\r\n{push}:2\r\n");
        far.write_all(replies.as_bytes()).await.expect("is open");
        assert_eq!(soon(first).await.expect("it came before"), Value::Int(1));
        assert!(soon(second).await.is_err());
        let why = ended(&mut heard).await;
        assert!(why.contains(UNASKED), "{why}");
    }

    fn shards(names: &[&str]) -> Vec<Topic> {
        names
            .iter()
            .map(|name| Topic::Shard((*name).into()))
            .collect()
    }

    fn shard_push(kind: &str, name: &str) -> String {
        format!(
            ">3\r\n${}\r\n{kind}\r\n${}\r\n{name}\r\n:1\r\n",
            kind.len(),
            name.len()
        )
    }

    const ECHO: &str = "$8\r\nchange 1\r\n";

    #[tokio::test]
    async fn a_subscription_is_confirmed_by_pushes_and_replies_keep_their_order() {
        let (socket, mut heard, mut far) = connected();
        let before = ask(&socket, "BEFORE");
        let subscribed = tokio::spawn(socket.subscribe(&shards(&["a", "b"])));
        let after = ask(&socket, "AFTER");
        until_asked(&mut far, "AFTER").await;
        let (a, b) = (shard_push("ssubscribe", "a"), shard_push("ssubscribe", "b"));
        let message = ">3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$2\r\nhi\r\n";
        let all = format!(":1\r\n{a}{message}{b}{ECHO}:2\r\n");
        far.write_all(all.as_bytes()).await.expect("is open");
        assert_eq!(soon(before).await.expect("a reply"), Value::Int(1));
        assert_eq!(soon(after).await.expect("a reply"), Value::Int(2));
        soon(subscribed)
            .await
            .expect("no panic")
            .expect("all are confirmed");
        let Some(Heard::Push(push)) = soon(heard.recv()).await else {
            panic!("no push");
        };
        let (topic, text) = (Topic::Shard("a".into()), "hi".into());
        assert_eq!(push, Push::Message { topic, text });
    }

    /// What a server may answer: an error to the command, to the PING that follows it, or to both.
    #[tokio::test]
    async fn errors_belong_to_the_command_or_to_its_ping() {
        let (a, left) = (
            shard_push("ssubscribe", "a"),
            shard_push("sunsubscribe", "a"),
        );
        let (busy, misconf) = ("-BUSY a script runs\r\n", "-MISCONF cannot save\r\n");
        let (moved, noperm) = ("-MOVED 1 x:1\r\n", "-NOPERM no\r\n");
        // The change, its answers, and whether it succeeds.
        let cases = [
            (Change::Join, format!("{a}{ECHO}"), true),
            (Change::Join, format!("{a}{misconf}"), true),
            (Change::Join, format!("{busy}{busy}"), false),
            (Change::Join, format!("{noperm}{ECHO}"), false),
            (Change::Join, format!("{moved}{misconf}"), false),
            (Change::Leave, format!("{left}{ECHO}"), true),
            // The slot has gone, and the channel with it, before the command came.
            (Change::Leave, format!("{left}{moved}{ECHO}"), false),
            (Change::Leave, format!("{left}{moved}{busy}"), false),
        ];
        for (change, answers, succeeds) in cases {
            let (socket, _heard, mut far) = connected();
            let changed = tokio::spawn(socket.change(change, &shards(&["a"])));
            let next = ask(&socket, "NEXT");
            until_asked(&mut far, "NEXT").await;
            let all = format!("{answers}:7\r\n");
            far.write_all(all.as_bytes()).await.expect("is open");
            let changed = soon(changed).await.expect("no panic");
            assert_eq!(changed.is_ok(), succeeds, "{answers:?}: {changed:?}");
            let next = soon(next).await;
            assert_eq!(next.expect("a reply"), Value::Int(7), "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_confirms_by_something_else_is_left() {
        let a = shard_push("ssubscribe", "a");
        for answers in [
            format!("{a}:1\r\n"),
            format!("{a}$5\r\nother\r\n"),
            format!("{a}{a}"),
            // Not all of it.
            ECHO.to_owned(),
        ] {
            let (socket, mut heard, mut far) = connected();
            let subscribed = tokio::spawn(socket.subscribe(&shards(&["a"])));
            until_asked(&mut far, "change 1").await;
            far.write_all(answers.as_bytes()).await.expect("is open");
            assert!(
                soon(subscribed).await.expect("no panic").is_err(),
                "{answers:?}"
            );
            ended(&mut heard).await;
        }
    }

    /// An error that may be the PING's as well as the command's, or one that a PING must not get.
    #[tokio::test]
    async fn a_server_whose_errors_cannot_be_told_apart_is_left() {
        let (a, left) = (
            shard_push("ssubscribe", "a"),
            shard_push("sunsubscribe", "a"),
        );
        for (change, answers) in [
            (Change::Leave, format!("{left}-BUSY a script runs\r\n")),
            (Change::Join, format!("{a}-NOPERM no\r\n")),
            (Change::Join, format!("{a}-MASTERDOWN no link\r\n")),
        ] {
            let (socket, mut heard, mut far) = connected();
            let changed = tokio::spawn(socket.change(change, &shards(&["a"])));
            let next = ask(&socket, "NEXT");
            until_asked(&mut far, "NEXT").await;
            let all = format!("{answers}-NOSCRIPT none\r\n:7\r\n");
            far.write_all(all.as_bytes()).await.expect("is open");
            assert!(
                soon(changed).await.expect("no panic").is_err(),
                "{answers:?}"
            );
            assert!(soon(next).await.is_err(), "{answers:?}");
            ended(&mut heard).await;
        }
    }

    /// ASKING is for the request behind it.
    #[tokio::test]
    async fn requests_that_are_sent_together_have_no_other_between_them() {
        const ROUNDS: usize = 2_000;
        let (socket, _heard, _far) = connected();
        let alone = std::thread::spawn({
            let socket = socket.clone();
            move || {
                (0..ROUNDS * 10).for_each(|_| drop(socket.start_request(&::redis::cmd("ALONE"))))
            }
        });
        let mut both = ::redis::pipe();
        both.cmd("FIRST").cmd("SECOND");
        (0..ROUNDS).for_each(|_| drop(socket.put_all(&both)));
        alone.join().expect("no panic");
        let unsent = String::from_utf8(socket.0.queue().unsent.clone()).expect("text");
        let words = unsent
            .split("\r\n")
            .filter(|word| word.starts_with(char::is_alphabetic));
        let words: Vec<&str> = words.collect();
        let pairs = words.windows(2).filter(|two| two[0] == "FIRST");
        let followed = pairs.filter(|two| two[1] == "SECOND").count();
        assert_eq!(followed, ROUNDS);
    }

    #[tokio::test]
    async fn a_sharded_channel_that_moves_away_is_a_push_and_no_reply() {
        let (socket, mut heard, mut far) = connected();
        let subscribed = tokio::spawn(socket.subscribe(&shards(&["a"])));
        until_asked(&mut far, "change 1").await;
        let confirmed = format!("{}{ECHO}", shard_push("ssubscribe", "a"));
        far.write_all(confirmed.as_bytes()).await.expect("is open");
        soon(subscribed)
            .await
            .expect("no panic")
            .expect("it is confirmed");
        let asked = ask(&socket, "ASKED");
        let moved = format!("{}:1\r\n", shard_push("sunsubscribe", "a"));
        far.write_all(moved.as_bytes()).await.expect("is open");
        assert_eq!(soon(asked).await.expect("a reply"), Value::Int(1));
        let Some(Heard::Push(push)) = soon(heard.recv()).await else {
            panic!("no push");
        };
        assert_eq!(push, Push::Ended(Topic::Shard("a".into())));
    }
}
