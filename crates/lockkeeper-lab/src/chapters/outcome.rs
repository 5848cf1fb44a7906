//! What came of a chapter.

use serde_json::{Value, json};

use super::Chapter;
use crate::scene::figures::Figures;
use crate::scene::timeline::Timeline;
use crate::scene::update::Verdict;
use crate::text::Text;

/// What came of a chapter.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its number.
    pub id: u8,
    /// Its title.
    pub title: Text,
    /// What its locks are: the naive one, and ours.
    pub locks: [Text; 2],
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub seconds: f64,
}

/// How a chapter ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// It was played to its end.
    Played {
        /// What came of the naive lock.
        naive: Box<Played>,
        /// What came of ours.
        ours: Box<Played>,
    },
    /// Something is missing here.
    NotRun(Text),
}

/// What came of one side.
#[derive(Clone, Debug)]
pub struct Played {
    /// Whether it held, and what went wrong.
    pub verdict: Verdict,
    /// Its numbers.
    pub figures: Figures,
    /// All that happened.
    pub timeline: Timeline,
}

impl Outcome {
    pub(super) fn new(chapter: &Chapter, ended: Ended, seconds: f64) -> Outcome {
        Outcome {
            id: chapter.id,
            title: chapter.title.clone(),
            locks: [&chapter.naive, &chapter.ours].map(|lock| lock.about.clone()),
            ended,
            seconds,
        }
    }

    /// Whether the naive lock failed and ours held. A chapter that was not played did not.
    pub fn as_it_should(&self) -> bool {
        match &self.ended {
            Ended::Played { naive, ours } => !naive.verdict.held && ours.verdict.held,
            Ended::NotRun(_) => false,
        }
    }

    /// For programs: `id`, `title`, `naive` and `ours` with their figures, `seconds`; or `not_run` with the reason.
    pub fn to_json(&self) -> Value {
        let (id, title) = (self.id, &self.title.en);
        match &self.ended {
            Ended::NotRun(reason) => json!({ "id": id, "title": title, "not_run": reason.en }),
            Ended::Played { naive, ours } => {
                let mut naive_side = side(naive);
                naive_side["failed"] = (!naive.verdict.held).into();
                let mut our_side = side(ours);
                our_side["held"] = ours.verdict.held.into();
                let seconds = (self.seconds * 1000.0).round() / 1000.0;
                json!({
                    "id": id,
                    "title": title,
                    "naive": naive_side,
                    "ours": our_side,
                    "seconds": seconds,
                })
            }
        }
    }
}

fn side(played: &Played) -> Value {
    // A map of numbers cannot fail to be one.
    let mut side = serde_json::to_value(&played.figures).unwrap_or_default();
    let found = played.verdict.found.iter().map(|text| text.en.as_ref());
    side["found"] = found.collect::<Vec<_>>().into();
    side
}
