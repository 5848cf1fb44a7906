//! What is told about a chapter while it runs.

use serde::Serialize;

use super::figures::Figure;
use super::timeline::{Lane, Mark, Span, Step, Timeline};
use crate::text::Text;

/// Which lock is in the scene.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The one that fails.
    Naive,
    /// Lockkeeper's.
    Ours,
}

/// What one side came to.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Whether nothing went wrong.
    pub held: bool,
    /// What went wrong, or how it held, one sentence each.
    pub found: Vec<Text>,
}

/// Something to show. Everything between two [`Update::SideStarted`] is about the first of them.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "update", rename_all = "snake_case")]
pub enum Update {
    /// A chapter begins.
    ChapterStarted {
        /// Its number.
        chapter: u8,
    },
    /// One side of it begins; times count from now.
    SideStarted {
        /// Which.
        side: Side,
        /// What its lock is.
        lock: Text,
    },
    /// The scene has somebody do something.
    Step(Step),
    /// A process has started.
    Lane(Lane),
    /// A span began, moved its `until`, or ended: the same `id` as before replaces it.
    Span(Span),
    /// Something happened at once.
    Mark(Mark),
    /// A number of this side; they come at its end.
    Figure(Figure),
    /// A side has ended.
    SideEnded {
        /// Which.
        side: Side,
        /// What came of it.
        verdict: Verdict,
        /// All of it, with the overlaps.
        timeline: Timeline,
    },
    /// The chapter cannot run here.
    NotRun {
        /// Its number.
        chapter: u8,
        /// What to install.
        reason: Text,
    },
    /// The chapter has ended, whether as it should or not.
    ChapterEnded {
        /// Its number.
        chapter: u8,
        /// Whether the naive lock failed.
        naive_failed: bool,
        /// Whether ours held.
        ours_held: bool,
        /// How long it took.
        seconds: f64,
    },
}
