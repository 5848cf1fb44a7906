//! Requests and answers on a stream that is logged in: what a lane needs of a client library, and no more.
//!
//! The library hands every request to the task that writes, and that is most of what a request costs. Here the caller
//! writes, if nobody else is at it, and the task only reads. Answers come in the order of the requests.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker, ready};

use ::redis::{Cmd, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::frame;
use super::pushes::UNASKED;

/// What a stream to a server can do.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// No answer is longer than this.
const LONGEST: usize = 1024 * 1024;

/// What becomes of an answer.
enum Waiting {
    /// Somebody waits for it.
    Asked(oneshot::Sender<RedisResult<Value>>),
    /// The task that reads it is to call this.
    Tell(Box<dyn FnOnce(RedisResult<Value>) + Send>),
}

impl Waiting {
    /// Whether nobody waits any more.
    fn is_in_vain(&self) -> bool {
        matches!(self, Waiting::Asked(waiting) if waiting.is_closed())
    }

    fn answer(self, answer: RedisResult<Value>) {
        match self {
            // A caller that stopped waiting does not mind.
            Waiting::Asked(waiting) => drop(waiting.send(answer)),
            Waiting::Tell(tell) => tell(answer),
        }
    }
}

/// Where requests go in.
#[derive(Clone)]
pub(super) struct Wire(Arc<Both>);

struct Both {
    queue: Mutex<Queue>,
    line: Mutex<Line>,
}

/// What was asked for.
#[derive(Default)]
struct Queue {
    /// Requests that are not on their way yet.
    out: Vec<u8>,
    /// The requests that wait for answers, in order.
    waiting: VecDeque<Waiting>,
    reader: Option<Waker>,
    ended: Option<RedisError>,
}

/// The stream, and what is in between.
struct Line {
    stream: Box<dyn Stream>,
    out: Vec<u8>,
    written: usize,
    /// Whether the stream may keep back what was written.
    unflushed: bool,
    came: Vec<u8>,
    /// How much of what came is there, and how much of that is done with.
    end: usize,
    start: usize,
    /// How far the answer at the start is known.
    scan: frame::Scan,
}

impl Wire {
    /// The second is what reads. When it ends, so does all that waits; it returns why, unless it was given up before.
    pub fn new(stream: Box<dyn Stream>) -> (Wire, impl Future<Output = Option<RedisError>> + Send) {
        let wire = Wire(Arc::new(Both {
            queue: Mutex::default(),
            line: Mutex::new(Line {
                stream,
                out: Vec::new(),
                written: 0,
                unflushed: false,
                came: vec![0; CHUNK],
                end: 0,
                start: 0,
                scan: frame::Scan::default(),
            }),
        }));
        let ends = Ends(wire.clone());
        let read = async move {
            let mut answers = Vec::new();
            let ended = poll_fn(|context| {
                let ended = ends.0.0.poll(context, &mut answers);
                // Nobody is told before the stream is free for what they ask next.
                for (waiting, answer) in answers.drain(..) {
                    waiting.answer(Ok(answer));
                }
                ended
            });
            let error = ended.await;
            ends.0.0.end(error.clone()).then_some(error)
        };
        (wire, read)
    }

    /// Takes a request. It goes out with the next [`flush`](Wire::flush).
    pub fn ask(&self, cmd: &Cmd) -> RedisResult<oneshot::Receiver<RedisResult<Value>>> {
        let (answer, answered) = oneshot::channel();
        match self.put(cmd, Waiting::Asked(answer)) {
            None => Ok(answered),
            Some((error, _)) => Err(error),
        }
    }

    /// As [`ask`](Wire::ask); `tell` is called with the answer, by the task that reads it.
    pub fn tell(&self, cmd: &Cmd, tell: Box<dyn FnOnce(RedisResult<Value>) + Send>) {
        if let Some((error, waiting)) = self.put(cmd, Waiting::Tell(tell)) {
            waiting.answer(Err(error));
        }
    }

    /// Given back if nothing goes out any more.
    fn put(&self, cmd: &Cmd, waiting: Waiting) -> Option<(RedisError, Waiting)> {
        let mut queue = self.0.queue();
        if let Some(error) = &queue.ended {
            return Some((error.clone(), waiting));
        }
        cmd.write_packed_command(&mut queue.out);
        queue.waiting.push_back(waiting);
        None
    }

    /// For how many answers somebody waits.
    pub fn awaited(&self) -> usize {
        let queue = self.0.queue();
        let waiting = queue.waiting.iter();
        waiting.filter(|answer| !answer.is_in_vain()).count()
    }

    /// Tells the callers that no answer comes any more.
    pub fn give_up(&self) {
        let error = io::Error::new(
            io::ErrorKind::BrokenPipe,
            "the connection is not driven any more",
        );
        self.0.end(error.into());
        // Nor is anything read.
        self.0.wake();
    }

    /// Writes what was asked for.
    pub fn flush(&self) {
        let both = &*self.0;
        let mut line = match both.line.try_lock() {
            Ok(line) => line,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody reads or writes, and may not see it.
            Err(TryLockError::WouldBlock) => return both.wake(),
        };
        both.load(&mut line);
        // What does not go at once, and what goes wrong, is the reader's.
        let mut context = Context::from_waker(Waker::noop());
        if !matches!(line.poll_write(&mut context), Poll::Ready(Ok(()))) {
            both.wake();
        }
    }
}

impl Both {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let reader = self.queue().reader.clone();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Moves what was asked for to where it is written from.
    fn load(&self, line: &mut Line) {
        let mut queue = self.queue();
        match line.out.is_empty() {
            true => std::mem::swap(&mut line.out, &mut queue.out),
            false => line.out.append(&mut queue.out),
        }
    }

    /// Reads until there is nothing more, and writes what others could not. Ready when the stream is of no more use.
    fn poll(
        &self,
        context: &mut Context<'_>,
        answers: &mut Vec<(Waiting, Value)>,
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
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        self.load(&mut line);
        if let Poll::Ready(Err(error)) = line.poll_write(context) {
            return Poll::Ready(error.into());
        }
        loop {
            if let Err(error) = ready!(line.poll_read(context)) {
                return Poll::Ready(error.into());
            }
            loop {
                let (value, length) = match line.first() {
                    Ok(Some(first)) => first,
                    Ok(None) if line.end - line.start > LONGEST => {
                        let endless = "the server gave an answer that does not end";
                        return Poll::Ready(io::Error::other(endless).into());
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(error),
                };
                line.start += length;
                if matches!(value, Value::Push { .. }) {
                    // A lane is subscribed to nothing.
                    return Poll::Ready(io::Error::other(UNASKED).into());
                }
                let Some(waiting) = self.queue().waiting.pop_front() else {
                    let unasked = io::Error::other("the server answered what nobody asked");
                    return Poll::Ready(unasked.into());
                };
                answers.push((waiting, value));
            }
        }
    }

    /// Answers whether it had not ended before.
    fn end(&self, error: RedisError) -> bool {
        let (first, waiting) = {
            let mut queue = self.queue();
            let first = queue.ended.is_none();
            queue.ended.get_or_insert_with(|| error.clone());
            (first, std::mem::take(&mut queue.waiting))
        };
        for waiting in waiting {
            waiting.answer(Err(error.clone()));
        }
        first
    }
}

impl Line {
    /// The first answer of what came, as [`frame::Scan::first`].
    fn first(&mut self) -> RedisResult<Option<(Value, usize)>> {
        let first = self.scan.first(&self.came[self.start..self.end]);
        if let Ok(Some(_)) = first {
            self.scan = frame::Scan::default();
        }
        first
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                many => {
                    self.written += many;
                    self.unflushed = true;
                }
            }
        }
        self.out.clear();
        self.written = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.came.len() - self.end < CHUNK / 2 {
            self.came.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
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
}

/// Tells the callers when nobody reads any more.
struct Ends(Wire);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, duplex};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn what_the_stream_keeps_back_goes_out_when_there_is_room() {
        let (near, mut far) = duplex(8);
        // As TLS does, it takes more than goes out.
        let (wire, read) = Wire::new(Box::new(BufWriter::with_capacity(1024, near)));
        let read = tokio::spawn(read);
        let asked = wire.ask(&::redis::cmd("PING")).expect("is driven");
        wire.flush();
        // "*1\r\n$4\r\nPING\r\n"
        let mut request = [0; 14];
        let arrived = timeout(SOON, far.read_exact(&mut request)).await;
        arrived.expect("all of it goes out").expect("is open");
        far.write_all(b"+PONG\r\n").await.expect("is open");
        let answer = timeout(SOON, asked).await.expect("it is answered");
        let pong = Value::SimpleString("PONG".into());
        assert_eq!(answer.expect("is driven").expect("an answer"), pong);
        read.abort();
    }

    #[tokio::test]
    async fn who_reads_knows_whether_it_ended_by_itself() {
        let (near, far) = duplex(64);
        let (wire, read) = Wire::new(Box::new(near));
        let read = tokio::spawn(read);
        let asked = wire.ask(&::redis::cmd("PING")).expect("is driven");
        tokio::task::yield_now().await;
        drop(far);
        let ended = timeout(SOON, read).await.expect("it ends");
        assert!(ended.expect("it ran").is_some());
        assert!(asked.await.expect("it is told").is_err());
        for polled in [false, true] {
            let (near, _far) = duplex(64);
            let (wire, read) = Wire::new(Box::new(near));
            let asked = wire.ask(&::redis::cmd("PING")).expect("is driven");
            let read = tokio::spawn(read);
            if polled {
                tokio::task::yield_now().await;
            }
            wire.give_up();
            assert!(asked.await.expect("it is told").is_err());
            let ended = timeout(SOON, read).await.expect("it ends");
            assert!(ended.expect("it ran").is_none(), "it was given up");
        }
    }

    #[tokio::test]
    async fn an_answer_without_an_end_ends_the_connection() {
        let (near, mut far) = duplex(1 << 20);
        let (wire, read) = Wire::new(Box::new(near));
        let read = tokio::spawn(read);
        let asked = wire.ask(&::redis::cmd("PING")).expect("is driven");
        wire.flush();
        let endless = tokio::spawn(async move {
            let _ = far.write_all(b"$9223372036854775807\r\n").await;
            while far.write_all(&[b'x'; 64 * 1024]).await.is_ok() {}
        });
        let answer = timeout(SOON, asked).await.expect("it is told");
        assert!(answer.expect("is told").is_err());
        assert!(wire.ask(&::redis::cmd("PING")).is_err());
        endless.abort();
        read.await.expect("ends by itself");
    }

    #[tokio::test]
    async fn a_request_nobody_waits_for_takes_its_answer() {
        let (near, mut far) = duplex(1 << 20);
        let (wire, read) = Wire::new(Box::new(near));
        let read = tokio::spawn(read);
        drop(wire.ask(&::redis::cmd("FIRST")).expect("is driven"));
        let asked = wire.ask(&::redis::cmd("SECOND")).expect("is driven");
        wire.flush();
        let answers = ":1\r\n:2\r\n";
        for byte in answers.bytes() {
            far.write_all(&[byte]).await.expect("is open");
            tokio::task::yield_now().await;
        }
        let answer = timeout(SOON, asked).await.expect("it is answered");
        assert_eq!(
            answer.expect("is driven").expect("an answer"),
            Value::Int(2)
        );
        read.abort();
    }

    #[tokio::test]
    async fn a_push_ends_the_connection_and_no_answer_after_it_is_believed() {
        let (near, mut far) = duplex(1 << 20);
        let (wire, read) = Wire::new(Box::new(near));
        let read = tokio::spawn(read);
        let first = wire.ask(&::redis::cmd("FIRST")).expect("is driven");
        let second = wire.ask(&::redis::cmd("SECOND")).expect("is driven");
        wire.flush();
        let push = ">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n";
        let answers = format!(":1\r\n{push}:2\r\n");
        far.write_all(answers.as_bytes()).await.expect("is open");
        let answer = timeout(SOON, first).await.expect("it is answered");
        let answer = answer.expect("is driven").expect("it came before");
        assert_eq!(answer, Value::Int(1));
        let answer = timeout(SOON, second).await.expect("it is told");
        assert!(answer.expect("is told").is_err());
        let ended = timeout(SOON, read).await.expect("it ends");
        let why = ended.expect("it ran").expect("it ended by itself");
        assert!(why.to_string().contains(UNASKED), "{why}");
    }
}
