//! What a run of the load generator found.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

use super::super::answer;
use super::super::stock::Account;
use super::client::Silence;
use crate::text::Text;

/// How requests went. Each is counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tally {
    /// One was sold or given.
    pub sold: u64,
    /// There was none left.
    pub refused: u64,
    /// The lock was not to be had in time.
    pub busy: u64,
    /// The stock refused a holder that had lost the lock.
    pub fenced: u64,
    /// Nothing was sold for another reason: the instance was not reached, or said that it could not.
    pub failed: u64,
    /// Asked and not answered: it may or may not be sold.
    pub unknown: u64,
}

impl Tally {
    /// All of them.
    pub fn requests(&self) -> u64 {
        self.sold + self.refused + self.busy + self.fenced + self.failed + self.unknown
    }

    /// Those to whom the shop could say something about its stock or its lock.
    pub fn answered(&self) -> u64 {
        self.sold + self.refused + self.busy + self.fenced
    }

    /// Those who were neither sold anything nor told by the stock why not.
    pub fn unserved(&self) -> u64 {
        self.busy + self.failed + self.unknown
    }

    pub(super) fn count(&mut self, answer: &Result<answer::Result, Silence>) {
        use answer::Result as R;
        let counter = match answer {
            Ok(R::Sold | R::Received) => &mut self.sold,
            Ok(R::SoldOut | R::AlreadyReceived) => &mut self.refused,
            Ok(R::Busy) => &mut self.busy,
            Ok(R::Fenced) => &mut self.fenced,
            Ok(R::Unavailable | R::Invalid) | Err(Silence::NotSent(_)) => &mut self.failed,
            Ok(R::Unknown) | Err(Silence::NoAnswer(_)) => &mut self.unknown,
        };
        *counter += 1;
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.sold += other.sold;
        self.refused += other.refused;
        self.busy += other.busy;
        self.fenced += other.fenced;
        self.failed += other.failed;
        self.unknown += other.unknown;
    }
}

/// How long answers took, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// Half of them took no longer.
    pub p50: f64,
    /// Nine in ten took no longer.
    pub p90: f64,
    /// Ninety-nine in a hundred took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    pub(super) fn of(micros: &Histogram<u64>) -> Latency {
        let ms = |micros: u64| micros as f64 / 1_000.0;
        Latency {
            p50: ms(micros.value_at_quantile(0.5)),
            p90: ms(micros.value_at_quantile(0.9)),
            p99: ms(micros.value_at_quantile(0.99)),
            max: ms(micros.max()),
        }
    }
}

/// One instance's part.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceReport {
    /// Where it is, or was.
    pub url: String,
    /// How its requests went.
    #[serde(flatten)]
    pub tally: Tally,
    /// Why it was given up during the run, if it was.
    #[serde(serialize_with = "in_english")]
    pub gone: Option<Text>,
    /// Why the first customer was not served who was [not](Tally::unserved).
    #[serde(serialize_with = "in_english")]
    pub trouble: Option<Text>,
}

/// For programs.
fn in_english<S: Serializer>(text: &Option<Text>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_ref().map(|text| &text.en).serialize(serializer)
}

/// What the books say at the end; what there was before the run is not this run's.
#[derive(Clone, Debug, Serialize)]
pub struct Books {
    /// The account of what was bought.
    #[serde(flatten)]
    pub account: Account,
    /// How many sales the ledger has of this run.
    pub recorded: i64,
    /// How many more this run sold than there were.
    pub oversold: i64,
    /// How many sales of this run the count does not know of.
    pub lost_updates: i64,
}

impl Books {
    pub(super) fn new(before: &Account, after: Account) -> Books {
        Books {
            recorded: after.sales - before.sales,
            oversold: after.oversold() - before.oversold(),
            lost_updates: after.lost_updates() - before.lost_updates(),
            account: after,
        }
    }
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked for.
    pub path: String,
    /// How many requests there were.
    pub requests: u64,
    /// How they went.
    #[serde(flatten)]
    pub tally: Tally,
    /// The books; `None` if no instance was left to show them.
    pub books: Option<Books>,
    /// How long it took.
    pub seconds: f64,
    /// How many requests were answered a second.
    pub requests_per_second: f64,
    /// How long answers took.
    pub latency_ms: Latency,
    /// Each instance's part.
    pub instances: Vec<InstanceReport>,
}

impl Report {
    pub(super) fn new(
        path: &str,
        instances: Vec<InstanceReport>,
        books: Option<Books>,
        took: Duration,
        latency: &Histogram<u64>,
    ) -> Report {
        let mut tally = Tally::default();
        for instance in &instances {
            tally.add(&instance.tally);
        }
        Report {
            path: path.to_owned(),
            requests: tally.requests(),
            tally,
            books,
            seconds: took.as_secs_f64(),
            requests_per_second: latency.len() as f64 / took.as_secs_f64().max(f64::EPSILON),
            latency_ms: Latency::of(latency),
            instances,
        }
    }

    /// Whether the books are there and nothing was oversold or lost.
    pub fn held(&self) -> bool {
        let in_order = |books: &Books| books.oversold == 0 && books.lost_updates == 0;
        self.books.as_ref().is_some_and(in_order)
    }
}
