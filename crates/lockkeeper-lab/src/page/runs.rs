//! Chapters that are run from the page: one at a time, the others in a queue, whether or not anybody watches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinError};

use super::listeners::{Events, Listeners, Message, message};
use crate::chapters::{self, CHAPTERS, Chapter, Outcome, Stage};
use crate::scene::update::Update;
use crate::text::{self, Text};

/// What browsers are told.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum News<'a> {
    /// Forget everything: all of it follows.
    Reset,
    /// Something happened in a chapter.
    Told { chapter: u8, update: &'a Update },
    /// A chapter's scene could not be played.
    CouldNot { chapter: u8, message: Text },
    /// A chapter was cancelled.
    Cancelled { chapter: u8 },
    /// What runs, and what comes after it.
    Queue {
        running: Option<u8>,
        queued: &'a VecDeque<u8>,
    },
    /// All that has happened was told; the side that runs began so long ago.
    CaughtUp { side_us: u64 },
}

/// Everything about the runs.
#[derive(Debug, Default)]
pub struct Runs {
    inner: Mutex<Inner>,
    /// Something is in the queue.
    queued: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last run of each chapter, as it was told.
    told: BTreeMap<u8, Vec<Told>>,
    queue: VecDeque<u8>,
    running: Option<Running>,
    /// When the side that runs began.
    side: Option<Instant>,
    listeners: Listeners,
}

#[derive(Debug)]
struct Running {
    chapter: u8,
    task: AbortHandle,
}

#[derive(Debug)]
struct Told {
    message: Message,
    /// Whether the timeline at the side's end has it, too.
    detail: bool,
}

impl Inner {
    fn tell(&mut self, news: &News<'_>) {
        self.listeners.tell(&message(news));
    }

    fn tell_queue(&mut self) {
        let running = self.running.as_ref().map(|running| running.chapter);
        let queued = std::mem::take(&mut self.queue);
        self.tell(&News::Queue {
            running,
            queued: &queued,
        });
        self.queue = queued;
    }

    /// Tells something, and remembers it for those who come later.
    fn note(&mut self, chapter: u8, news: &News<'_>, detail: bool) {
        let message = message(news);
        self.listeners.tell(&message);
        let told = self.told.entry(chapter).or_default();
        told.push(Told { message, detail });
    }

    fn told(&mut self, chapter: u8, update: &Update) {
        let told = self.told.entry(chapter).or_default();
        let mut detail = false;
        match update {
            Update::ChapterStarted { .. } => told.clear(),
            Update::SideStarted { .. } => self.side = Some(Instant::now()),
            Update::SideEnded { .. } => told.retain(|told| !told.detail),
            Update::Step(_) | Update::Lane(_) | Update::Span(_) | Update::Mark(_) => detail = true,
            Update::Figure(_) | Update::NotRun { .. } | Update::ChapterEnded { .. } => {}
        }
        self.note(chapter, &News::Told { chapter, update }, detail);
    }
}

impl Runs {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts chapters into the queue, each once.
    pub fn run(&self, chosen: &[&Chapter]) {
        let mut inner = self.inner();
        for chapter in chosen {
            let running = inner.running.as_ref().map(|running| running.chapter);
            if running != Some(chapter.id) && !inner.queue.contains(&chapter.id) {
                inner.queue.push_back(chapter.id);
            }
        }
        inner.tell_queue();
        drop(inner);
        self.queued.notify_one();
    }

    /// Ends a chapter, or takes it from the queue.
    pub fn cancel(&self, chapter: u8) {
        let mut inner = self.inner();
        inner.queue.retain(|queued| *queued != chapter);
        match &inner.running {
            Some(running) if running.chapter == chapter => running.task.abort(),
            _ => inner.tell_queue(),
        }
    }

    /// Ends everything.
    pub fn cancel_all(&self) {
        let mut inner = self.inner();
        inner.queue.clear();
        match &inner.running {
            Some(running) => running.task.abort(),
            None => inner.tell_queue(),
        }
    }

    /// One more who watches, and is told first what has happened so far; `None` if there are too many.
    pub fn listen(&self) -> Option<impl Events + use<>> {
        let mut inner = self.inner();
        let mut first = vec![message(&News::Reset)];
        let told = inner.told.values().flatten();
        first.extend(told.map(|told| told.message.clone()));
        first.push(message(&News::Queue {
            running: inner.running.as_ref().map(|running| running.chapter),
            queued: &inner.queue,
        }));
        let since = inner.side.map(|side| side.elapsed()).unwrap_or_default();
        first.push(message(&News::CaughtUp {
            side_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
        }));
        inner.listeners.add(first)
    }

    /// Tells nobody any more.
    pub fn close(&self) {
        self.inner().listeners.close();
    }

    /// Plays what is in the queue, for ever. Dropping it ends the chapter that runs.
    pub async fn work(&self, stage: &Stage) {
        loop {
            let next = self.inner().queue.pop_front();
            match next.and_then(|id| CHAPTERS.iter().find(|chapter| chapter.id == id)) {
                Some(chapter) => self.play(chapter, stage.clone()).await,
                None => self.queued.notified().await,
            }
        }
    }

    async fn play(&self, chapter: &'static Chapter, stage: Stage) {
        let id = chapter.id;
        let (updates, mut told) = mpsc::unbounded_channel();
        // A task of its own, so that a panic is one chapter's alone; in a set, which ends it with us.
        let mut tasks = tokio::task::JoinSet::new();
        let task = tasks.spawn(async move { chapters::run(chapter, &stage, &updates).await });
        {
            let mut inner = self.inner();
            inner.running = Some(Running { chapter: id, task });
            inner.tell_queue();
        }
        let ended = loop {
            tokio::select! {
                biased;
                Some(update) = told.recv() => self.inner().told(id, &update),
                Some(ended) = tasks.join_next() => break ended,
            }
        };
        let mut inner = self.inner();
        while let Ok(update) = told.try_recv() {
            inner.told(id, &update);
        }
        match failure(ended) {
            Some(None) => inner.note(id, &News::Cancelled { chapter: id }, false),
            Some(Some(message)) => {
                let chapter = id;
                inner.note(id, &News::CouldNot { chapter, message }, false);
            }
            None => {}
        }
        inner.running = None;
        inner.side = None;
        inner.tell_queue();
    }
}

/// `None` if it was played, `Some(None)` if it was cancelled, and otherwise why it could not be played.
fn failure(ended: Result<Result<Outcome>, JoinError>) -> Option<Option<Text>> {
    match ended {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(Some(text::told(&error))),
        Err(error) if error.is_cancelled() => Some(None),
        Err(error) => Some(Some(error.to_string().into())),
    }
}
