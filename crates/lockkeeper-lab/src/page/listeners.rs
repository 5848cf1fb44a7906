//! Browsers that are told what happens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

/// How far a browser may fall behind. One that does is dropped, comes back by itself, and is told everything anew.
const MOST_BEHIND: usize = 8_192;

/// A message, written once for all.
pub type Message = Arc<str>;

/// Writes a message.
pub fn message(value: &impl Serialize) -> Message {
    // Nothing here has a map without text as its key, or a number that is none.
    serde_json::to_string(value).unwrap_or_default().into()
}

/// Who is told.
#[derive(Debug, Default)]
pub struct Listeners(Vec<mpsc::Sender<Message>>);

impl Listeners {
    /// Tells everybody.
    pub fn tell(&mut self, message: &Message) {
        self.0
            .retain(|listener| listener.try_send(message.clone()).is_ok());
    }

    /// One more, who is told all of `first` before what comes.
    pub fn add(
        &mut self,
        first: Vec<Message>,
    ) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
        let (sender, receiver) = mpsc::channel(MOST_BEHIND);
        self.0.push(sender);
        tokio_stream::iter(first)
            .chain(ReceiverStream::new(receiver))
            .map(|message| Ok(Event::default().data(&*message)))
    }

    /// Whether somebody listens.
    pub fn any(&mut self) -> bool {
        self.0.retain(|listener| !listener.is_closed());
        !self.0.is_empty()
    }

    /// Ends every stream.
    pub fn close(&mut self) {
        self.0.clear();
    }
}
