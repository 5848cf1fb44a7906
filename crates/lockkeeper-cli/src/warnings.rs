//! What a store finds wrong with how it is set up: told once, on standard error.
//!
//! The library says it by `tracing`, under a target of its own. What it says there of locks and connections is not
//! told here: verbs tell it themselves, where it matters.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use lockkeeper::SETUP_TARGET;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::lang::Lang;
use crate::notes::{say, say_line};
use crate::output::plain;
use crate::words;

/// What was told. A keeper connects several times, and each time finds the same.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How to tell them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// A line for people, in this language.
    Text(Lang),
    /// A line of JSON.
    Json,
    /// Not by ourselves: [`told`] has them.
    Kept,
}

/// From now on tells what there is to warn of.
pub fn tell(manner: Manner) {
    // Fails only if someone else listens already.
    let _ = tracing::subscriber::set_global_default(Warnings(manner));
}

/// What there was to warn of.
pub fn told() -> Vec<String> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Remembers it; whether it is new.
fn is_new(text: &str) -> bool {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let new = !told.iter().any(|known| known == text);
    if new {
        told.push(text.to_owned());
    }
    new
}

struct Warnings(Manner);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == SETUP_TARGET && *metadata.level() <= Level::WARN
    }

    /// So that all else costs the library next to nothing.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let text = words.text();
        if !is_new(&text) {
            return;
        }
        match self.0 {
            Manner::Text(lang) => say(words::warning(&text).get(lang)),
            Manner::Json => say_line(serde_json::json!({ "warning": text }).to_string()),
            Manner::Kept => {}
        }
    }

    // Spans are not enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A warning, and what it is about.
#[derive(Default)]
struct Words {
    message: String,
    about: Vec<String>,
}

impl Words {
    fn add(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.about.push(format!("{name} {value}")),
        }
    }

    /// One line. A server has a say in it.
    fn text(&self) -> String {
        let message = plain(&self.message);
        if self.about.is_empty() {
            message
        } else {
            format!("{message} ({})", plain(&self.about.join(", ")))
        }
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_about_the_set_up_is_told_once_and_on_one_line() {
        // Of this thread alone: what it remembers is the whole process's.
        tracing::subscriber::with_default(Warnings(Manner::Kept), || {
            for _ in 0..2 {
                let policy = "all\u{1b}[2Jkeys\nlru";
                tracing::warn!(target: SETUP_TARGET, server = %"127.0.0.1:1", policy, nodes = 4, "it evicts");
            }
            tracing::warn!(target: SETUP_TARGET, "quarantine=off");
            tracing::info!(target: SETUP_TARGET, "all is well");
            tracing::warn!(target: "lockkeeper::engine", "lock at risk");
            tracing::error!("lock lost");
            let _entered = tracing::error_span!(target: SETUP_TARGET, "a span").entered();
        });
        assert_eq!(
            told(),
            [
                "it evicts (server 127.0.0.1:1, policy all\u{fffd}[2Jkeys\u{fffd}lru, nodes 4)",
                "quarantine=off"
            ]
        );
    }
}
