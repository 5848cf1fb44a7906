//! Browsers that are told what happens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};

/// How far a browser may fall behind. One that does is dropped, comes back by itself, and is told everything anew.
const MOST_BEHIND: usize = 8_192;

/// More windows than anybody looks at.
const MOST_LISTENERS: usize = 64;

/// What a browser is sent.
pub trait Events: Stream<Item = Result<Event, Infallible>> + Send + 'static {}
impl<S: Stream<Item = Result<Event, Infallible>> + Send + 'static> Events for S {}

/// A message, written once for all.
pub type Message = Arc<str>;

/// Writes a message.
pub fn message(value: &impl Serialize) -> Message {
    // Nothing here has a map without text as its key, or a number that is none.
    serde_json::to_string(value).unwrap_or_default().into()
}

/// The listeners that are told everything, in order.
#[derive(Debug, Default)]
pub struct Listeners(Vec<mpsc::Sender<Message>>);

impl Listeners {
    /// Tells everybody.
    pub fn tell(&mut self, message: &Message) {
        self.0
            .retain(|listener| listener.try_send(message.clone()).is_ok());
    }

    /// One more, who is told all of `first` before what comes; `None` if there are too many.
    pub fn add(&mut self, first: Vec<Message>) -> Option<impl Events + use<>> {
        self.0.retain(|listener| !listener.is_closed());
        if self.0.len() >= MOST_LISTENERS {
            return None;
        }
        let (sender, receiver) = mpsc::channel(MOST_BEHIND);
        self.0.push(sender);
        let told = tokio_stream::iter(first).chain(ReceiverStream::new(receiver));
        Some(told.map(|message| event(&message)))
    }

    /// Ends every stream.
    pub fn close(&mut self) {
        self.0.clear();
    }
}

/// The listeners that are told what is, and not what was: a browser that falls behind misses what nobody needs any more.
#[derive(Debug, Default)]
pub struct Watchers(watch::Sender<Message>);

impl Watchers {
    /// Tells everybody.
    pub fn tell(&self, message: Message) {
        self.0.send_replace(message);
    }

    /// One more, who is told what comes; `None` if there are too many.
    pub fn add(&self) -> Option<impl Events + use<>> {
        let place = self.0.receiver_count() < MOST_LISTENERS;
        let told = place.then(|| WatchStream::from_changes(self.0.subscribe()));
        told.map(|told| told.map(|message| event(&message)))
    }

    /// Whether somebody watches.
    pub fn any(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Ends every stream.
    pub fn close(&mut self) {
        *self = Watchers::default();
    }
}

fn event(message: &Message) -> Result<Event, Infallible> {
    Ok(Event::default().data(&**message))
}
