//! What the figures are to show, and whether they do.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cast::{CURATOR, KAZOO, ON_REDIS, OURS, OURS_OFF, OURS_PLAIN, REDLOCK, RSLOCK};
use super::figures::Figures;
use super::page::time;
use super::scenario::{
    CONTENDED, CONTENDED_HELD, HANDOFF, PARALLEL, PROCESSES, PROCESSES_HELD, QUORUM,
    QUORUM_CONTENDED, Row, SERIAL,
};

/// One thing that is to hold.
#[derive(Debug, Serialize)]
pub struct Target {
    pub what: String,
    pub seen: String,
    /// `None` if it could not be judged.
    pub met: Option<bool>,
}

impl Target {
    pub fn text(&self) -> String {
        format!("{}: {}: {}", self.verdict(), self.what, self.seen)
    }

    pub fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "not met",
            None => "not judged",
        }
    }
}

pub type Scenarios = BTreeMap<&'static str, Vec<Row>>;

fn find<'a>(scenarios: &'a Scenarios, scenario: &str, peer: &str) -> Option<&'a Figures> {
    let rows = scenarios.get(scenario)?;
    rows.iter().find(|row| row.peer == peer)?.median.as_ref()
}

pub fn on_redis(scenarios: &Scenarios) -> Vec<Target> {
    let mut targets = vec![
        times_rslock(scenarios, CONTENDED, OURS, 50.0),
        times_rslock(scenarios, PROCESSES, OURS, 40.0),
        times_rslock(scenarios, PARALLEL, OURS_PLAIN, 1.0),
        times(scenarios, QUORUM, OURS, 1.0, RSLOCK),
        times(scenarios, QUORUM, OURS, 1.0, REDLOCK),
        times_rslock(scenarios, QUORUM_CONTENDED, OURS, 50.0),
    ];
    for scenario in [CONTENDED, CONTENDED_HELD, PROCESSES, PROCESSES_HELD] {
        targets.push(ahead(scenarios, scenario, &WAIT_P99));
        targets.push(ahead(scenarios, scenario, &WAIT_MAX));
        targets.push(ahead(scenarios, scenario, &TASK_SHARE));
        if scenario.starts_with(PROCESSES) {
            targets.push(ahead(scenarios, scenario, &PROCESS_SHARE));
        }
        if scenario.ends_with("1ms") {
            targets.push(ahead(scenarios, scenario, &RATE));
        }
        targets.push(few_commands(scenarios, scenario));
    }
    targets
}

pub fn on_zookeeper(scenarios: &Scenarios) -> Vec<Target> {
    vec![
        times(scenarios, SERIAL, OURS, 1.0, CURATOR),
        times(scenarios, CONTENDED, OURS, 60.0, CURATOR),
        sooner(scenarios, CURATOR),
        sooner(scenarios, KAZOO),
    ]
}

/// Whether a lock of ours comes to another process sooner than one of theirs.
fn sooner(scenarios: &Scenarios, theirs: &str) -> Target {
    let what = format!("*{HANDOFF}*: {OURS}, p50 ahead of {theirs}'s");
    let p50 = |peer| find(scenarios, HANDOFF, peer)?.handoff_p50;
    match (p50(OURS), p50(theirs)) {
        (Some(ours), Some(theirs)) => Target {
            what,
            seen: format!("{} to {}", time(ours), time(theirs)),
            met: Some(ours <= theirs),
        },
        _ => unknown(what, "there are no figures"),
    }
}

/// A figure by which libraries are compared.
struct Aspect {
    name: &'static str,
    of: fn(&Figures) -> f64,
    write: fn(f64) -> String,
    more_is_better: bool,
}

const WAIT_P99: Aspect = Aspect {
    name: "wait p99",
    of: |figures| figures.wait_p99,
    write: time,
    more_is_better: false,
};
const WAIT_MAX: Aspect = Aspect {
    name: "longest wait",
    of: |figures| figures.wait_max,
    write: time,
    more_is_better: false,
};
const TASK_SHARE: Aspect = Aspect {
    name: "share per task",
    of: |figures| figures.task_share,
    write: |share| format!("{} : 1", number(share)),
    more_is_better: false,
};
const PROCESS_SHARE: Aspect = Aspect {
    name: "share per process",
    of: |figures| figures.process_share,
    write: |share| format!("{} : 1", number(share)),
    more_is_better: false,
};
const RATE: Aspect = Aspect {
    name: "pairs/s",
    of: |figures| figures.pairs_per_second,
    write: number,
    more_is_better: true,
};

fn times_rslock(scenarios: &Scenarios, scenario: &str, ours: &str, factor: f64) -> Target {
    times(scenarios, scenario, ours, factor, RSLOCK)
}

fn times(scenarios: &Scenarios, scenario: &str, ours: &str, factor: f64, theirs: &str) -> Target {
    let rate = |peer| find(scenarios, scenario, peer).map(|figures| figures.pairs_per_second);
    let what = format!("*{scenario}*: {ours} ≥ {factor} × {theirs}'s pairs/s");
    match (rate(ours), rate(theirs)) {
        (Some(ours), Some(theirs)) => Target {
            what,
            seen: format!("{ours:.0} to {theirs:.0}, {:.2} ×", ours / theirs),
            met: Some(ours >= factor * theirs),
        },
        _ => unknown(what, "there are no figures"),
    }
}

/// Whether ours without hand-off is ahead of every peer, or equal.
fn ahead(scenarios: &Scenarios, scenario: &str, aspect: &Aspect) -> Target {
    let name = aspect.name;
    let what = format!("*{scenario}*: {OURS_OFF}, {name} ahead of every peer's");
    let Some(ours) = find(scenarios, scenario, OURS_OFF).map(aspect.of) else {
        return unknown(what, "there are no figures");
    };
    let peers = ON_REDIS.iter().filter(|peer| !peer.is_ours());
    let theirs = peers.filter_map(|peer| Some((peer.name, find(scenarios, scenario, peer.name)?)));
    let best = theirs.min_by(|(_, a), (_, b)| {
        let order = (aspect.of)(a).total_cmp(&(aspect.of)(b));
        if aspect.more_is_better {
            order.reverse()
        } else {
            order
        }
    });
    let Some((best, figures)) = best else {
        return unknown(what, "no peer has figures");
    };
    let theirs = (aspect.of)(figures);
    let starved = match figures.without {
        0 => String::new(),
        tasks => format!(" ({tasks} tasks got nothing)"),
    };
    let (ours_text, theirs_text) = ((aspect.write)(ours), (aspect.write)(theirs));
    Target {
        what,
        seen: format!("{ours_text}; the best peer, {best}: {theirs_text}{starved}"),
        met: Some(if aspect.more_is_better {
            ours >= theirs
        } else {
            // Where a task got nothing, it is no comfort that others did no better.
            ours.is_finite() && ours <= theirs
        }),
    }
}

fn few_commands(scenarios: &Scenarios, scenario: &str) -> Target {
    let what = format!("*{scenario}*: {OURS_OFF}, at most 3 commands for a lock");
    match find(scenarios, scenario, OURS_OFF) {
        Some(figures) => Target {
            what,
            seen: format!("{:.2}", figures.commands),
            met: Some(figures.commands <= 3.0),
        },
        None => unknown(what, "there are no figures"),
    }
}

fn unknown(what: String, seen: &str) -> Target {
    Target {
        what,
        seen: seen.to_owned(),
        met: None,
    }
}

/// With three digits or so.
pub fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "–".into(),
        v if v.is_infinite() => "∞".into(),
        v if v >= 100.0 => group(v.round() as u64),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

fn group(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.123), "0.12");
        assert_eq!(number(0.0041), "0.0041");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(404_321.0), "404,321");
        assert_eq!(number(f64::INFINITY), "∞");
    }
}
