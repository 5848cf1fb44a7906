//! What happened on one side of a chapter: one lane a process, spans and marks on it.
//!
//! All times are microseconds since the side began, on one clock of one kernel.

use serde::Serialize;

use crate::text::Text;

/// A process: an instance of the program, or a server.
#[derive(Clone, Debug, Serialize)]
pub struct Lane {
    /// Its place, from 0.
    pub id: usize,
    /// What it is called.
    pub name: String,
    /// Whether it is a server, which takes no locks.
    pub server: bool,
}

/// What a process did for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It waited for the lock, or as a customer for an answer.
    Waits,
    /// It believed that it held the lock.
    Holds,
    /// It was stopped (SIGSTOP).
    Paused,
    /// A server did not run, or could not be reached.
    Down,
    /// An instance of the shop served customers.
    Serves,
}

/// Something that lasted.
#[derive(Clone, Debug, Serialize)]
pub struct Span {
    /// Its place among the spans, from 0.
    pub id: usize,
    /// The lane.
    pub lane: usize,
    /// What.
    pub doing: Doing,
    /// From when.
    pub from: u64,
    /// Until when; `None` while it goes on.
    pub to: Option<u64>,
    /// The token of a hold that has one.
    pub token: Option<u64>,
    /// When the holder stops to believe unless it is renewed; `None` for a lock that does not know.
    pub until: Option<u64>,
}

/// What a mark says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// It read the stock, to change it.
    Read,
    /// It sold one.
    Sold,
    /// There was nothing left to sell.
    SoldOut,
    /// The stock refused a token that is too low.
    Refused,
    /// It did not write, because it knew that the lock was lost.
    Abstained,
    /// A renewal is overdue.
    AtRisk,
    /// It learned that the lock is lost.
    Lost,
    /// Entered once more by its owner.
    Entered,
    /// Left once, and still held.
    Left,
    /// It released.
    Released,
    /// It released what was no longer its own, and was told so.
    NotHeld,
    /// It gave up waiting.
    GaveUp,
    /// The store could not do what was asked.
    Failed,
    /// It was killed (SIGKILL).
    Killed,
    /// It was started again.
    Restarted,
    /// The server has become the master.
    Promoted,
}

/// Something that happened at once.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// The lane.
    pub lane: usize,
    /// When.
    pub at: u64,
    /// What.
    pub kind: MarkKind,
    /// The token it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The highest token that the stock had seen when it refused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// What was left in stock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<i64>,
    /// More, such as an error's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What the scene had somebody do, in words.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// When.
    pub at: u64,
    /// What.
    pub text: Text,
}

/// Two processes believed that they held the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// Who.
    pub lanes: [usize; 2],
    /// From when.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

/// One side of a chapter, whole.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// The processes.
    pub lanes: Vec<Lane>,
    /// What lasted.
    pub spans: Vec<Span>,
    /// What happened at once.
    pub marks: Vec<Mark>,
    /// What the scene did.
    pub steps: Vec<Step>,
    /// When two believed at once; computed at the end.
    pub overlaps: Vec<Overlap>,
    /// When it ended.
    pub end: u64,
}

impl Timeline {
    /// The span that goes on in a lane.
    pub fn open(&mut self, lane: usize, doing: Doing) -> Option<&mut Span> {
        let mut spans = self.spans.iter_mut().rev();
        spans.find(|span| span.lane == lane && span.doing == doing && span.to.is_none())
    }

    /// The token of the last hold in a lane.
    pub fn last_token(&self, lane: usize) -> Option<u64> {
        let mut spans = self.spans.iter().rev();
        let hold = spans.find(|span| span.lane == lane && span.doing == Doing::Holds);
        hold.and_then(|span| span.token)
    }

    /// Ends everything at `end`, and finds the overlaps.
    pub fn close(&mut self, end: u64) {
        self.end = end;
        for span in self.spans.iter_mut().filter(|span| span.to.is_none()) {
            span.to = Some(
                span.until
                    .map_or(end, |until| until.min(end))
                    .max(span.from),
            );
        }
        self.overlaps = overlaps(&self.spans);
    }

    /// For how long two believed at once, in all.
    pub fn overlap(&self) -> u64 {
        let lasted = self
            .overlaps
            .iter()
            .map(|overlap| overlap.to - overlap.from);
        lasted.sum()
    }

    /// How often something happened.
    pub fn count(&self, kind: MarkKind) -> u64 {
        self.marks.iter().filter(|mark| mark.kind == kind).count() as u64
    }

    /// The longest that somebody waited for the lock.
    pub fn longest_wait(&self) -> u64 {
        let waits = self.spans.iter().filter(|span| span.doing == Doing::Waits);
        let lasted = waits.map(|span| span.to.unwrap_or(self.end) - span.from);
        lasted.max().unwrap_or(0)
    }
}

/// Every time during which holds of two lanes went on at once. There are few spans: each is compared with each.
fn overlaps(spans: &[Span]) -> Vec<Overlap> {
    let holds: Vec<&Span> = spans.iter().filter(|s| s.doing == Doing::Holds).collect();
    let mut found = Vec::new();
    for (at, one) in holds.iter().enumerate() {
        for other in &holds[at + 1..] {
            let from = one.from.max(other.from);
            let to = one.to.unwrap_or(u64::MAX).min(other.to.unwrap_or(u64::MAX));
            if one.lane != other.lane && from < to {
                let mut lanes = [one.lane, other.lane];
                lanes.sort_unstable();
                found.push(Overlap { lanes, from, to });
            }
        }
    }
    found.sort_by_key(|overlap| overlap.from);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(lane: usize, from: u64, to: Option<u64>, until: Option<u64>) -> Span {
        Span {
            id: 0,
            lane,
            doing: Doing::Holds,
            from,
            to,
            token: None,
            until,
        }
    }

    fn closed(spans: Vec<Span>) -> Timeline {
        let mut timeline = Timeline {
            spans,
            ..Timeline::default()
        };
        timeline.close(100);
        timeline
    }

    #[test]
    fn holds_of_two_lanes_overlap_and_of_one_do_not() {
        let timeline = closed(vec![
            hold(0, 10, Some(30), None),
            hold(1, 20, Some(40), None),
            hold(1, 38, Some(50), None),
            hold(0, 50, Some(60), None),
        ]);
        let overlap = Overlap {
            lanes: [0, 1],
            from: 20,
            to: 30,
        };
        assert_eq!(timeline.overlaps, [overlap]);
        assert_eq!(timeline.overlap(), 10);
    }

    #[test]
    fn who_never_said_that_it_stopped_believes_to_the_end_or_to_its_deadline() {
        let known = closed(vec![hold(0, 10, None, Some(20)), hold(1, 25, None, None)]);
        assert_eq!(known.overlaps, []);
        let unknown = closed(vec![hold(0, 10, None, None), hold(1, 25, None, None)]);
        assert_eq!(unknown.overlap(), 75);
    }
}
