//! The task that keeps a session: it connects, writes, reads, pings, and connects again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::heard::{Heard, Need};
use super::jute::{Reader, Writer};
use super::link::{Identity, Link, Way, Wire, next_frame};
use super::wire::{self, Answer, Code, Request};
use super::{Batch, Ended, Event, Failure, Farewell, Options, Replies, Shared, Standing};
use crate::clock::Moment;
use crate::store::common::Backoff;
use crate::{Error, SETUP_TARGET};

/// Drives one session, and the next when it is over.
pub struct Driver {
    way: Way,
    options: Options,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    identity: Identity,
    /// The server to try next.
    next: usize,
    xid: i32,
    /// When a server last said something.
    heard: Moment,
    /// What was answered on the connection that there is.
    answers: Heard,
    /// What goes out once the leader is known to have heard of the session.
    postponed: Vec<Batch>,
}

/// Requests that were written and are not all answered.
struct Pending {
    first: i32,
    requests: Vec<Request>,
    replies: Replies,
    answer: oneshot::Sender<Result<Replies, Failure>>,
}

/// What is under way on one connection.
struct Traffic {
    pending: VecDeque<Pending>,
    outbox: Vec<u8>,
    wrote: Moment,
    /// When the ping was sent that is not answered yet.
    pinged: Option<Moment>,
    /// When something was last answered.
    answered: Moment,
    /// The request whose echo of the leader's is awaited.
    echo: Option<i32>,
    /// The connection ends once what is under way was answered, to open the session anew.
    opens_anew: bool,
}

/// Whether its answer goes round by the leader.
fn goes_round(request: &Request) -> bool {
    matches!(
        request,
        Request::Do(_) | Request::Multi(_) | Request::Sync { .. }
    )
}

impl Driver {
    pub fn new(
        way: Way,
        options: Options,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Driver {
        let identity = Identity {
            timeout: options.session_timeout,
            ..Identity::default()
        };
        // Clients spread over the servers.
        let next = Uuid::new_v4().as_u128() as usize % way.servers.len().max(1);
        Driver {
            way,
            options,
            shared,
            events,
            identity,
            next,
            xid: 0,
            heard: Moment::now(),
            answers: Heard::new(Duration::ZERO, Moment::now()),
            postponed: Vec::new(),
        }
    }

    /// The first connection: each server is tried once, and the errors of all are told.
    pub async fn connect_first(&mut self) -> Result<Link, Error> {
        let mut told: Vec<String> = Vec::new();
        let mut said = None;
        for _ in 0..self.way.servers.len() {
            match self.connect().await {
                Ok(link) => return Ok(link),
                Err(Error::Unavailable { reason, system, .. }) => {
                    told.push(reason);
                    said = system.or(said);
                }
                Err(error) => return Err(error),
            }
        }
        let error = self.way.kind.unavailable(told.join("; "));
        Err(error.with_system(said))
    }

    /// Tells what a session was granted by this connection, which does not serve yet.
    pub fn greeted(&self, link: &Link) {
        self.shared.standing.send_modify(|standing| {
            standing.session = link.greeting.session;
            standing.timeout = self.identity.timeout;
        });
    }

    /// Tries the next server.
    async fn connect(&mut self) -> Result<Link, Error> {
        // No server can have kept it. One that lost data refuses a client that has seen more than it has.
        if self.heard + self.identity.timeout * 2 < Moment::now() && self.identity.session != 0 {
            self.forget();
        }
        let server = self.way.servers[self.next % self.way.servers.len()].clone();
        self.next = self.next.wrapping_add(1);
        let link = self.way.open(&server, &self.identity).await?;
        let greeting = &link.greeting;
        if greeting.session == 0 || greeting.timeout_millis <= 0 {
            // The servers have ended the session.
            self.forget();
            return Err(self.way.kind.unavailable("the session has expired"));
        }
        let timeout = Duration::from_millis(greeting.timeout_millis as u64);
        let renewed = self.identity.session != greeting.session;
        if !renewed && timeout < self.identity.timeout {
            // Leases count on the time-out that it had. It ends by itself.
            self.forget();
            return Err(self.way.kind.unavailable(format!(
                "{server} ends this session after {timeout:?}, sooner than before"
            )));
        }
        self.identity.session = greeting.session;
        self.identity.password.clone_from(&greeting.password);
        if renewed {
            self.identity.last_zxid = 0;
        }
        self.heard = Moment::now();
        self.identity.timeout = timeout;
        self.answers = Heard::new(timeout, link.asked);
        Ok(link)
    }

    /// The session is over: the next connection opens another one.
    fn forget(&mut self) {
        self.identity = Identity {
            timeout: self.options.session_timeout,
            ..Identity::default()
        };
        self.shared.last_zxid.store(0, Ordering::SeqCst);
        self.shared
            .standing
            .send_modify(|standing| standing.session = 0);
        // All holders are told now.
        let _ = self.events.send(Event::Lost);
    }

    /// What was to be sent is not.
    fn give_back(&mut self, reason: &str) {
        for batch in self.postponed.drain(..) {
            let _ = batch.answer.send(Err(Failure::NotSent(reason.to_owned())));
        }
    }

    /// Serves connections until the last client is gone.
    pub async fn run(mut self, first: Link, mut ended: Ended) {
        let mut backoff = Backoff::default();
        let mut link = Some(first);
        let mut served = 0;
        loop {
            if let Some(link) = link.take() {
                let began = Moment::now();
                let Err(session) = self.serve(link, served, &mut ended.receiver).await else {
                    return;
                };
                served = session;
                let _ = self.events.send(Event::Lost);
                if Moment::now().since(began) >= Backoff::LONGEST {
                    backoff.reset();
                }
            }
            tokio::select! {
                _ = &mut ended.receiver => return,
                connected = self.connect() => match connected {
                    Ok(connected) => link = Some(connected),
                    Err(error) => {
                        // Each caller gets an error of its own, which names the store.
                        let reason = match error {
                            Error::Unavailable { reason, .. } => reason,
                            error => error.to_string(),
                        };
                        self.told(&reason);
                        self.give_back(&reason);
                        let pause = backoff.pause();
                        tokio::select! {
                            _ = &mut ended.receiver => return,
                            () = tokio::time::sleep(pause) => {}
                        }
                    }
                }
            }
        }
    }

    fn told(&self, reason: &str) {
        tracing::debug!(target: SETUP_TARGET, reason, "no connection to ZooKeeper");
        self.shared.standing.send_modify(|standing| {
            standing.connected = false;
            standing.trouble = reason.to_owned();
        });
    }

    /// Serves one connection. `Ok` when nobody wants it any more; otherwise its session.
    async fn serve(
        &mut self,
        link: Link,
        served: i64,
        ended: &mut oneshot::Receiver<()>,
    ) -> Result<(), i64> {
        let session = link.greeting.session;
        let (way, mut wanted) = mpsc::unbounded_channel();
        *self.shared.way() = Some(way);
        self.shared.standing.send_replace(Standing {
            connected: true,
            session,
            timeout: self.identity.timeout,
            trouble: String::new(),
        });
        if served != 0 {
            let renewed = served != session;
            let _ = self.events.send(Event::Connected { renewed });
            if renewed {
                self.give_back("the session has ended");
            }
        }
        let mut traffic = Traffic {
            pending: VecDeque::new(),
            outbox: Vec::new(),
            wrote: Moment::now(),
            pinged: None,
            answered: Moment::now(),
            echo: None,
            opens_anew: false,
        };
        for batch in std::mem::take(&mut self.postponed) {
            if !batch.proves || self.answers.needs(Moment::now()) == Need::Nothing {
                self.write(batch, &mut traffic);
            } else {
                let slow = "it is too slow for the session's time-out".to_owned();
                let _ = batch.answer.send(Err(Failure::NotSent(slow)));
            }
        }
        self.shared.half_written.store(false, Ordering::SeqCst);
        *self.shared.farewell() = link.socket.map(|socket| Farewell {
            socket,
            process: std::process::id(),
        });
        let (mut reader, mut writer) = tokio::io::split(link.stream);
        let inbox = link.inbox;
        let outcome = self
            .exchange(
                &mut reader,
                &mut writer,
                inbox,
                &mut wanted,
                &mut traffic,
                ended,
            )
            .await;
        *self.shared.way() = None;
        *self.shared.farewell() = None;
        let server = &link.server;
        let reason = match &outcome {
            Ok(()) => "the keeper was closed".to_owned(),
            Err(reason) => format!("{server}: {reason}"),
        };
        // Before anybody is answered: what they ask next waits for the next connection.
        self.told(&reason);
        // What was written is in doubt; what was not, is not.
        for pending in traffic.pending {
            let _ = pending.answer.send(Err(Failure::InDoubt(reason.clone())));
        }
        wanted.close();
        while let Ok(batch) = wanted.try_recv() {
            if self.postponed.is_empty() {
                let _ = batch.answer.send(Err(Failure::NotSent(reason.clone())));
            } else {
                self.postponed.push(batch);
            }
        }
        match outcome {
            Ok(()) => {
                self.give_back(&reason);
                self.say_goodbye(&mut reader, &mut writer).await;
                Ok(())
            }
            Err(_) => Err(session),
        }
    }

    async fn exchange(
        &mut self,
        reader: &mut ReadHalf<Box<dyn Wire>>,
        writer: &mut WriteHalf<Box<dyn Wire>>,
        mut inbox: Vec<u8>,
        wanted: &mut mpsc::UnboundedReceiver<Batch>,
        traffic: &mut Traffic,
        ended: &mut oneshot::Receiver<()>,
    ) -> Result<(), String> {
        let silence = self.silence();
        // A packet is sent and answered at least every twelfth of the session's time-out, with time to spare.
        let idle = self.identity.timeout / 48;
        let mut tick = tokio::time::interval(idle.min(silence / 4).max(Duration::from_millis(5)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        inbox.reserve(16 << 10);
        self.flush(writer, traffic).await?;
        loop {
            if traffic.opens_anew && traffic.pending.is_empty() {
                // This server answers. The next one may be down, and what waits for the session would fail.
                self.next = self.next.wrapping_sub(1);
                return Err("nothing was said for a while".into());
            }
            tokio::select! {
                biased;
                read = reader.read_buf(&mut inbox) => {
                    match read {
                        Ok(0) => return Err("the server ended the connection".into()),
                        Ok(_) => {
                            self.take_frames(&mut inbox, traffic)?;
                            self.flush(writer, traffic).await?;
                        }
                        Err(error) => return Err(error.to_string()),
                    }
                }
                batch = wanted.recv() => {
                    let mut next = batch;
                    while let Some(batch) = next.take() {
                        self.write(batch, traffic);
                        next = wanted.try_recv().ok();
                    }
                    self.flush(writer, traffic).await?;
                }
                _ = &mut *ended => return Ok(()),
                _ = tick.tick() => {
                    let now = Moment::now();
                    let oldest = traffic.pending.front().map(|pending| pending.replies.sent);
                    let oldest = oldest.into_iter().chain(traffic.pinged).min();
                    // Answers come in order, so one to a long line of requests may take long.
                    let silent = oldest.map(|sent| now.since(sent.max(traffic.answered)));
                    if silent.is_some_and(|silent| silent >= silence) {
                        return Err(format!("it did not answer within {silence:?}"));
                    }
                    if traffic.pinged.is_none() && now.since(traffic.wrote) >= idle {
                        let mut w = Writer::onto(std::mem::take(&mut traffic.outbox));
                        wire::ping(&mut w);
                        traffic.outbox = w.finish();
                        traffic.pinged = Some(now);
                        self.flush(writer, traffic).await?;
                    }
                }
            }
        }
    }

    /// Puts a batch into the outbox, unless its time has passed.
    fn write(&mut self, batch: Batch, traffic: &mut Traffic) {
        let now = Moment::now();
        if now > batch.not_after {
            let _ = batch.answer.send(Err(Failure::TooLate));
            return;
        }
        // Nobody waits for it any more: nothing was sent, and nothing is.
        if batch.answer.is_closed() {
            return;
        }
        if traffic.opens_anew {
            self.postponed.push(batch);
            return;
        }
        if batch.proves {
            match self.answers.needs(now) {
                Need::Nothing => {}
                Need::Echo => {
                    self.postponed.push(batch);
                    self.ask_for_an_echo(traffic, now);
                    return;
                }
                Need::Opening => {
                    self.postponed.push(batch);
                    traffic.opens_anew = true;
                    return;
                }
            }
        }
        self.put(batch, traffic, now);
    }

    /// Asks the follower for what it has to ask its leader for.
    fn ask_for_an_echo(&mut self, traffic: &mut Traffic, now: Moment) {
        if traffic.echo.is_some() {
            return;
        }
        let (answer, _) = oneshot::channel();
        let echo = Batch {
            requests: vec![Request::Sync { path: "/".into() }],
            not_after: Moment::NEVER,
            proves: false,
            answer,
        };
        self.put(echo, traffic, now);
        traffic.echo = Some(self.xid);
    }

    /// The echo came: what waits for it is sent, or waits for the session to be opened anew.
    fn after_the_echo(&mut self, traffic: &mut Traffic) {
        traffic.echo = None;
        for batch in std::mem::take(&mut self.postponed) {
            if batch.proves && self.answers.needs(Moment::now()) != Need::Nothing {
                traffic.opens_anew = true;
            }
            self.write(batch, traffic);
        }
    }

    fn put(&mut self, batch: Batch, traffic: &mut Traffic, now: Moment) {
        let first = self.xid.wrapping_add(1).max(1);
        let mut w = Writer::onto(std::mem::take(&mut traffic.outbox));
        self.xid = first;
        for (at, request) in batch.requests.iter().enumerate() {
            self.xid = first.wrapping_add(at as i32);
            request.write(self.xid, &mut w);
        }
        traffic.outbox = w.finish();
        let replies = Replies {
            session: self.identity.session,
            sent: now,
            answers: Vec::with_capacity(batch.requests.len()),
        };
        traffic.pending.push_back(Pending {
            first,
            requests: batch.requests,
            replies,
            answer: batch.answer,
        });
    }

    async fn flush(
        &mut self,
        writer: &mut WriteHalf<Box<dyn Wire>>,
        traffic: &mut Traffic,
    ) -> Result<(), String> {
        if traffic.outbox.is_empty() {
            return Ok(());
        }
        let silence = self.silence();
        self.shared.half_written.store(true, Ordering::SeqCst);
        let written = tokio::time::timeout(silence, async {
            writer.write_all(&traffic.outbox).await?;
            writer.flush().await
        });
        let written = written.await;
        traffic.outbox.clear();
        traffic.wrote = Moment::now();
        match written {
            Ok(Ok(())) => {
                self.shared.half_written.store(false, Ordering::SeqCst);
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("it took nothing within {silence:?}")),
        }
    }

    fn take_frames(&mut self, inbox: &mut Vec<u8>, traffic: &mut Traffic) -> Result<(), String> {
        let mut at = 0;
        while let Some(length) = next_frame(&inbox[at..]).map_err(|error| error.to_string())? {
            let frame = &inbox[at + 4..at + 4 + length];
            self.take(frame, traffic)?;
            at += 4 + length;
        }
        inbox.drain(..at);
        Ok(())
    }

    fn take(&mut self, frame: &[u8], traffic: &mut Traffic) -> Result<(), String> {
        let mut r = Reader::new(frame);
        let header = wire::header(&mut r).map_err(|garbled| garbled.to_string())?;
        self.heard = Moment::now();
        if header.zxid > self.identity.last_zxid {
            self.identity.last_zxid = header.zxid;
            self.shared.last_zxid.store(header.zxid, Ordering::SeqCst);
        }
        match header.xid {
            wire::XID_PING => {
                traffic.answered = self.heard;
                if let Some(sent) = traffic.pinged.take() {
                    self.answers.note(sent, self.heard);
                }
                return Ok(());
            }
            wire::XID_WATCH => {
                let seen = wire::seen(&mut r).map_err(|garbled| garbled.to_string())?;
                if let Some(seen) = seen {
                    let _ = self.events.send(Event::Seen(seen));
                }
                return Ok(());
            }
            wire::XID_AUTH => return Ok(()),
            _ => {}
        }
        let Some(front) = traffic.pending.front_mut() else {
            return Err("it answered what nobody asked".into());
        };
        let at = front.replies.answers.len();
        self.answers.note(front.replies.sent, self.heard);
        traffic.answered = self.heard;
        if header.xid != front.first.wrapping_add(at as i32) {
            return Err("its answers are out of order".into());
        }
        let code = Code(header.code);
        if code == Code::SESSION_EXPIRED || code == Code::SESSION_MOVED {
            return Err("the session is not this server's any more".into());
        }
        let answer = match header.code {
            0 => match front.requests[at].read(&mut r) {
                Ok(answer) => Ok(answer.done_in(header.zxid)),
                Err(garbled) => return Err(garbled.to_string()),
            },
            // A list of requests that fails as a whole may still say which.
            _ if matches!(front.requests[at], Request::Multi(_)) && !r.is_empty() => {
                match front.requests[at].read(&mut r) {
                    Ok(Answer::Failed(at, code)) => Ok(Answer::Failed(at, code)),
                    _ => Err(code),
                }
            }
            _ => Err(code),
        };
        if header.code == 0 && goes_round(&front.requests[at]) {
            self.answers.echo(front.replies.sent);
        }
        front.replies.answers.push(answer);
        if front.replies.answers.len() == front.requests.len()
            && let Some(done) = traffic.pending.pop_front()
        {
            let _ = done.answer.send(Ok(done.replies));
        }
        if traffic.echo == Some(header.xid) {
            self.after_the_echo(traffic);
        }
        Ok(())
    }

    /// Ends the session, so that its nodes go now and not after its time-out.
    async fn say_goodbye(
        &mut self,
        reader: &mut ReadHalf<Box<dyn Wire>>,
        writer: &mut WriteHalf<Box<dyn Wire>>,
    ) {
        let mut w = Writer::default();
        wire::close(self.xid.wrapping_add(1).max(1), &mut w);
        let goodbye = async {
            writer.write_all(&w.finish()).await?;
            writer.flush().await?;
            let mut rest = [0; 1024];
            while reader.read(&mut rest).await? > 0 {}
            Ok::<(), std::io::Error>(())
        };
        let _ = tokio::time::timeout(self.silence(), goodbye).await;
    }

    /// How long an answer may take.
    fn silence(&self) -> Duration {
        let asked_for = self.options.answer_timeout;
        asked_for.unwrap_or_else(|| super::within(self.identity.timeout))
    }
}
