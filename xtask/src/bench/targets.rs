//! What the figures are to show, and whether they do.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cast::{OURS, OURS_OFF, OURS_PLAIN, PEERS, RSLOCK};
use super::figures::Figures;
use super::scenario::{CONTENDED, CONTENDED_HELD, PARALLEL, PROCESSES, PROCESSES_HELD, Row};

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

type Scenarios = BTreeMap<&'static str, Vec<Row>>;

fn find<'a>(scenarios: &'a Scenarios, scenario: &str, peer: &str) -> Option<&'a Figures> {
    let rows = scenarios.get(scenario)?;
    rows.iter().find(|row| row.peer == peer)?.median.as_ref()
}

pub fn judge(scenarios: &Scenarios) -> Vec<Target> {
    let mut targets = vec![
        times_rslock(scenarios, CONTENDED, OURS, 50.0),
        times_rslock(scenarios, PROCESSES, OURS, 40.0),
        times_rslock(scenarios, PARALLEL, OURS_PLAIN, 1.0),
    ];
    for scenario in [CONTENDED, CONTENDED_HELD, PROCESSES, PROCESSES_HELD] {
        targets.push(ahead(scenarios, scenario, "wait p99", " ms", false, |f| {
            f.wait_p99 / 1e3
        }));
        targets.push(ahead(
            scenarios,
            scenario,
            "share per task",
            " : 1",
            false,
            |f| f.task_share,
        ));
        if scenario.starts_with(PROCESSES) {
            let share = |f: &Figures| f.process_share;
            targets.push(ahead(
                scenarios,
                scenario,
                "share per process",
                " : 1",
                false,
                share,
            ));
        }
        if scenario.ends_with("1ms") {
            let rate = |f: &Figures| f.pairs_per_second;
            targets.push(ahead(scenarios, scenario, "pairs/s", "", true, rate));
        }
        targets.push(few_commands(scenarios, scenario));
    }
    targets
}

fn times_rslock(scenarios: &Scenarios, scenario: &str, ours: &str, factor: f64) -> Target {
    let rate = |peer| find(scenarios, scenario, peer).map(|figures| figures.pairs_per_second);
    let what = format!("*{scenario}*: {ours} ≥ {factor} × rslock's pairs/s");
    match (rate(ours), rate(RSLOCK)) {
        (Some(ours), Some(theirs)) => Target {
            what,
            seen: format!("{ours:.0} to {theirs:.0}, {:.2} ×", ours / theirs),
            met: Some(ours >= factor * theirs),
        },
        _ => unknown(what, "there are no figures"),
    }
}

/// Whether ours without hand-off is ahead of every peer, or equal.
fn ahead(
    scenarios: &Scenarios,
    scenario: &str,
    figure: &str,
    unit: &str,
    more_is_better: bool,
    of: impl Fn(&Figures) -> f64,
) -> Target {
    let what = format!("*{scenario}*: {OURS_OFF}, {figure} ahead of every peer's");
    let Some(ours) = find(scenarios, scenario, OURS_OFF).map(&of) else {
        return unknown(what, "there are no figures");
    };
    let peers = PEERS.iter().filter(|peer| !peer.is_ours());
    let mut theirs: Vec<(&str, f64)> = peers
        .filter_map(|peer| Some((peer.name, of(find(scenarios, scenario, peer.name)?))))
        .collect();
    theirs.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    if more_is_better {
        theirs.reverse();
    }
    let Some((best, value)) = theirs.first().copied() else {
        return unknown(what, "no peer has figures");
    };
    Target {
        what,
        seen: format!(
            "{}{unit}; the best peer, {best}: {}{unit}",
            number(ours),
            number(value)
        ),
        met: Some(match more_is_better {
            true => ours >= value,
            false => ours <= value,
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
