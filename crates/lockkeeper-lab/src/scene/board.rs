//! Where everything that happens on a side is written down, and told on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkeeper::clock::Moment;
use tokio::sync::{mpsc, watch};

use super::orders::{Event, Said};
use super::timeline::{Doing, Lane, Mark, MarkKind, Span, Step, Timeline};
use super::update::Update;
use crate::text::Text;

/// The listeners that are told what happens. Nobody has to listen.
pub type Updates = mpsc::UnboundedSender<Update>;

/// One side, while it goes on. Actors' lines arrive on threads of their own.
#[derive(Debug)]
pub struct Board {
    start: Moment,
    updates: Updates,
    inner: Mutex<Inner>,
    /// Counts what has arrived, for those who wait for something.
    news: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    timeline: Timeline,
    /// What each lane has said.
    said: Vec<Vec<Said>>,
}

impl Board {
    /// An empty one; its time begins now.
    pub fn new(updates: Updates) -> Board {
        Board {
            start: Moment::now(),
            updates,
            inner: Mutex::default(),
            news: watch::Sender::new(0),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the listeners.
    pub fn tell(&self, update: Update) {
        let _ = self.updates.send(update);
    }

    /// Microseconds since the start.
    pub fn now(&self) -> u64 {
        self.at(Moment::now().as_nanos())
    }

    fn at(&self, nanos: u64) -> u64 {
        let since = Moment::from_nanos(nanos).since(self.start);
        since.as_micros() as u64
    }

    /// One more process.
    pub fn lane(&self, name: &str, server: bool) -> usize {
        let mut inner = self.inner();
        let lane = Lane {
            id: inner.timeline.lanes.len(),
            name: name.to_owned(),
            server,
        };
        self.tell(Update::Lane(lane.clone()));
        let id = lane.id;
        inner.timeline.lanes.push(lane);
        inner.said.push(Vec::new());
        id
    }

    /// What the scene does now.
    pub fn step(&self, text: Text) {
        let step = Step {
            at: self.now(),
            text,
        };
        self.tell(Update::Step(step.clone()));
        self.inner().timeline.steps.push(step);
    }

    /// Something that the scene did to a lane.
    pub fn mark(&self, lane: usize, kind: MarkKind) {
        let mut inner = self.inner();
        self.add_mark(&mut inner, mark(lane, self.now(), kind));
    }

    /// Something begins in a lane.
    pub fn begin(&self, lane: usize, doing: Doing) {
        let now = self.now();
        self.open(&mut self.inner(), lane, doing, now, None, None);
    }

    /// Something ends in a lane.
    pub fn end(&self, lane: usize, doing: Doing) {
        let now = self.now();
        self.close(&mut self.inner(), lane, doing, now);
    }

    /// A process is dead: it waits, believes and pauses no more.
    pub fn dead(&self, lane: usize) {
        let now = self.now();
        let mut inner = self.inner();
        for doing in [Doing::Waits, Doing::Holds, Doing::Paused] {
            self.close(&mut inner, lane, doing, now);
        }
        self.add_mark(&mut inner, mark(lane, now, MarkKind::Killed));
    }

    /// An actor said something.
    pub fn heard(&self, lane: usize, said: Said) {
        let mut inner = self.inner();
        let at = self.at(said.at);
        let note = |kind| mark(lane, at, kind);
        let noted = match &said.event {
            Event::Asked => {
                self.open(&mut inner, lane, Doing::Waits, at, None, None);
                None
            }
            Event::Acquired { token, until } => {
                let until = until.map(|until| self.at(until));
                self.close(&mut inner, lane, Doing::Waits, at);
                self.open(&mut inner, lane, Doing::Holds, at, *token, until);
                None
            }
            Event::BelievesUntil { until } => {
                self.believes(&mut inner, lane, self.at(*until));
                None
            }
            Event::Releases => {
                self.close(&mut inner, lane, Doing::Holds, at);
                None
            }
            Event::Lost => {
                self.close(&mut inner, lane, Doing::Holds, at);
                Some(note(MarkKind::Lost))
            }
            Event::Busy => {
                self.close(&mut inner, lane, Doing::Waits, at);
                Some(note(MarkKind::GaveUp))
            }
            Event::Entered { .. } => {
                self.close(&mut inner, lane, Doing::Waits, at);
                Some(note(MarkKind::Entered))
            }
            Event::Left { .. } => Some(note(MarkKind::Left)),
            Event::Released => {
                self.close(&mut inner, lane, Doing::Holds, at);
                Some(note(MarkKind::Released))
            }
            Event::NotHeld => Some(note(MarkKind::NotHeld)),
            Event::AtRisk => Some(note(MarkKind::AtRisk)),
            Event::Abstained => Some(note(MarkKind::Abstained)),
            Event::SoldOut => Some(note(MarkKind::SoldOut)),
            Event::Read { left } => Some(Mark {
                left: Some(*left),
                ..note(MarkKind::Read)
            }),
            Event::Sold { left } => Some(Mark {
                left: Some(*left),
                ..note(MarkKind::Sold)
            }),
            Event::Refused { seen } => Some(Mark {
                token: inner.timeline.last_token(lane),
                seen: Some(*seen),
                ..note(MarkKind::Refused)
            }),
            Event::Failed { message } => {
                self.close(&mut inner, lane, Doing::Waits, at);
                Some(Mark {
                    note: Some(message.clone()),
                    ..note(MarkKind::Failed)
                })
            }
            Event::Ready | Event::Looked { .. } | Event::Worked | Event::Stopped | Event::Ended => {
                None
            }
        };
        if let Some(mark) = noted {
            self.add_mark(&mut inner, mark);
        }
        inner.said[lane].push(said);
        drop(inner);
        self.news.send_modify(|news| *news += 1);
    }

    fn add_mark(&self, inner: &mut Inner, mark: Mark) {
        self.tell(Update::Mark(mark.clone()));
        inner.timeline.marks.push(mark);
    }

    fn open(
        &self,
        inner: &mut Inner,
        lane: usize,
        doing: Doing,
        from: u64,
        token: Option<u64>,
        until: Option<u64>,
    ) {
        let span = Span {
            id: inner.timeline.spans.len(),
            lane,
            doing,
            from,
            to: None,
            token,
            until,
        };
        self.tell(Update::Span(span.clone()));
        inner.timeline.spans.push(span);
    }

    fn believes(&self, inner: &mut Inner, lane: usize, until: u64) {
        if let Some(span) = inner.timeline.open(lane, Doing::Holds) {
            span.until = Some(until);
            self.tell(Update::Span(span.clone()));
        }
    }

    /// A holder that knew until when to believe stopped then, even if it says so later: it was paused.
    fn close(&self, inner: &mut Inner, lane: usize, doing: Doing, at: u64) {
        if let Some(span) = inner.timeline.open(lane, doing) {
            let to = span.until.map_or(at, |until| until.min(at));
            span.to = Some(to.max(span.from));
            self.tell(Update::Span(span.clone()));
        }
    }

    /// What a lane has said, from a place on, that answers yes; and the place after it.
    pub fn find(
        &self,
        lane: usize,
        from: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> Option<(Said, usize)> {
        let inner = self.inner();
        let said = &inner.said[lane];
        let found = said[from..].iter().position(|said| wanted(&said.event))?;
        Some((said[from + found].clone(), from + found + 1))
    }

    /// Tells when something new has been said.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// All of it, as it is now; ended now.
    pub fn timeline(&self) -> Timeline {
        let mut timeline = self.inner().timeline.clone();
        timeline.close(self.now());
        timeline
    }
}

fn mark(lane: usize, at: u64, kind: MarkKind) -> Mark {
    Mark {
        lane,
        at,
        kind,
        token: None,
        seen: None,
        left: None,
        note: None,
    }
}
