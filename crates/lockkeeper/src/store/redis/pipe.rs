//! How requests go over a link, and answers come back: by the client library, or by a wire of our own.

use std::borrow::Borrow;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::runtime::Handle;

use super::wire::Wire;

/// How requests go over a link.
#[derive(Clone)]
pub(super) enum Pipe {
    Library(MultiplexedConnection),
    Wire(Wire),
}

pub(super) type Sending<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

impl Pipe {
    /// Sends a request that goes out with the next [`flush`](Pipe::flush), at the latest. It has its place in the order
    /// once the answer was polled.
    pub fn start<'a>(&self, cmd: impl Borrow<Cmd> + Send + 'a) -> Sending<'a> {
        match self {
            Pipe::Library(connection) => {
                let mut connection = connection.clone();
                Box::pin(async move { connection.send_packed_command(cmd.borrow()).await })
            }
            Pipe::Wire(wire) => {
                let asked = wire.ask(cmd.borrow());
                Box::pin(async move {
                    let answer = asked?.await;
                    answer
                        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
                })
            }
        }
    }

    pub fn flush(&self) {
        if let Pipe::Wire(wire) = self {
            wire.flush();
        }
    }

    /// For how many answers somebody waits.
    pub fn awaited(&self) -> usize {
        match self {
            Pipe::Library(_) => 0,
            Pipe::Wire(wire) => wire.awaited(),
        }
    }

    /// Sends a request and waits for its answer.
    pub async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        match self {
            Pipe::Library(connection) => connection.clone().send_packed_command(cmd).await,
            Pipe::Wire(wire) => {
                let answer = self.start(cmd);
                wire.flush();
                answer.await
            }
        }
    }

    /// Sends a request, whose answer is told by the task that reads it. `keeper` is where that is, without a wire.
    pub fn tell(
        &self,
        keeper: &Handle,
        cmd: impl Borrow<Cmd> + Send + 'static,
        tell: impl FnOnce(RedisResult<Value>) + Send + 'static,
    ) {
        match self {
            Pipe::Wire(wire) => {
                wire.tell(cmd.borrow(), Box::new(tell));
                wire.flush();
            }
            Pipe::Library(_) => {
                let mut sending = self.start(cmd);
                // At once: what is sent afterwards arrives afterwards.
                let mut context = Context::from_waker(Waker::noop());
                match sending.as_mut().poll(&mut context) {
                    Poll::Ready(answer) => tell(answer),
                    Poll::Pending => drop(keeper.spawn(async move { tell(sending.await) })),
                }
            }
        }
    }

    /// Sends several requests at once, and waits for the answers after the first few.
    pub async fn send_all(&self, requests: &Pipeline, skip: usize) -> RedisResult<Vec<Value>> {
        let many = requests.len() - skip;
        match self {
            Pipe::Library(connection) => {
                let mut connection = connection.clone();
                connection.send_packed_commands(requests, skip, many).await
            }
            Pipe::Wire(wire) => {
                let started: Vec<_> = requests.cmd_iter().map(|cmd| self.start(cmd)).collect();
                wire.flush();
                let mut answers = Vec::with_capacity(many);
                for (number, answer) in started.into_iter().enumerate() {
                    let answer = answer.await?;
                    if number >= skip {
                        answers.push(answer);
                    }
                }
                Ok(answers)
            }
        }
    }
}
