//! The report as people read it.

use super::report::{Entry, Figure, HeldEntry, Quantiles, Report, Target, WaitersEntry};
use lockkeeper_cli::output::{table, table_text};

/// The whole report as text.
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{} on {} with {} cores; {} rounds of {:.0} ms windows, reference and ours in turn; medians\n",
        report.url, report.system, report.cores, report.rounds, report.window_ms
    );
    if report.hold_ms > 0.0 {
        text += &format!("every pair holds the lock for {} ms\n", report.hold_ms);
    }
    if !report.hand_off {
        text += "no lock is handed from task to task: every release goes to the store\n";
    }
    if report.debug_build {
        text +=
            "built without optimization: build with --release for figures that mean something\n";
    }
    let figures: Vec<&Figure> = report.scenarios.iter().filter_map(figure).collect();
    if !figures.is_empty() {
        text += &format!("\n{}\n", pairs(&figures));
        text += &format!("\n{}\n", references(&figures));
    }
    for entry in &report.scenarios {
        match entry {
            Entry::Figure(_) => {}
            Entry::Held(held) => text += &format!("\n{}\n", describe(held)),
            Entry::Waiters(waiters) => text += &format!("\n{}\n", crowds(waiters)),
            Entry::Skipped(skipped) => {
                text += &format!("\n{}: skipped, {}\n", skipped.scenario, skipped.skipped);
            }
        }
    }
    if report.left_behind > 0 {
        text += &format!("\n{} names were left behind\n", report.left_behind);
    }
    text
}

fn figure(entry: &Entry) -> Option<&Figure> {
    match entry {
        Entry::Figure(figure) => Some(figure),
        _ => None,
    }
}

fn pairs(figures: &[&Figure]) -> String {
    let mut table = table(&[
        "SCENARIO",
        "PAIRS/S",
        "WAIT p50 p99 p999",
        "PAIR p50 p99 p999",
        "OPS/ACQ",
        "TASKS max/min",
        "NONE",
        "PROCESSES max/min",
    ]);
    for figure in figures {
        let fairness = &figure.fairness;
        table.add_row([
            title(figure),
            short(figure.pairs_per_second),
            times(&figure.wait_us),
            times(&figure.pair_us),
            or_dash(figure.ops_per_acquisition),
            or_dash(fairness.task_max_min),
            fairness.tasks_with_nothing.to_string(),
            match figure.processes {
                1 => "-".into(),
                _ => or_dash(fairness.process_max_min),
            },
        ]);
    }
    table_text(&table)
}

fn references(figures: &[&Figure]) -> String {
    let mut table = table(&[
        "SCENARIO",
        "FIGURE",
        "REFERENCE",
        "RATIO",
        "TARGET",
        "BESIDE",
    ]);
    for figure in figures {
        let reference = &figure.reference;
        let (ours, theirs) = match figure.handoff_us {
            Some(handoff) => (
                format!("{} (p99 {})", micros(handoff.p50), micros(handoff.p99)),
                reference.p50_us.map_or_else(dash, micros),
            ),
            None if reference.wait_p99_us.is_some() => (
                format!("wait p99 {}", micros(figure.wait_us.p99)),
                reference.wait_p99_us.map_or_else(dash, micros),
            ),
            None if reference.wait_p50_us.is_some() => (
                format!("wait p50 {}", micros(figure.wait_us.p50)),
                reference.wait_p50_us.map_or_else(dash, micros),
            ),
            None => (
                format!("{}/s", short(figure.pairs_per_second)),
                reference
                    .pairs_per_second
                    .map_or_else(dash, |rate| format!("{}/s", short(rate))),
            ),
        };
        table.add_row([
            title(figure),
            ours,
            theirs,
            or_dash(reference.ratio),
            targets(&figure.targets),
            reference.what.to_owned(),
        ]);
        if let Some(also) = &figure.also {
            let rate = also
                .pairs_per_second
                .map(|rate| format!("{}/s", short(rate)));
            let seen = rate.or_else(|| also.p50_us.map(micros));
            let ratio = or_dash(also.ratio);
            let empty = String::new;
            table.add_row([
                empty(),
                empty(),
                seen.unwrap_or_else(dash),
                ratio,
                empty(),
                also.what.to_owned(),
            ]);
        }
    }
    table_text(&table)
}

fn describe(held: &HeldEntry) -> String {
    let count = &held.count;
    format!(
        "held: {} locks with a lease of {} s renewed for {:.1} s: {} lost; {} renewals, {} a request; \
         {:.1} % of a core, {} µs a renewal; {} bytes of memory a lock; acquired {}/s, released {}/s{}",
        count.locks,
        count.lease_seconds,
        count.watched_seconds,
        count.lost,
        count.renewals.map_or_else(dash, |n| n.to_string()),
        or_dash(count.renewals_per_request),
        count.cpu_share * 100.0,
        or_dash(count.cpu_micros_per_renewal),
        count
            .memory_bytes_per_lock
            .map_or_else(dash, |bytes| format!("{bytes:.0}")),
        short(count.acquired_per_second),
        short(count.released_per_second),
        match targets(&held.targets).as_str() {
            "-" => String::new(),
            targets => format!("; {targets}"),
        }
    )
}

fn crowds(entry: &WaitersEntry) -> String {
    let one = |crowd: &super::report::Crowd| {
        format!(
            "{} of {} finished within {:.2} s, {:.3} commands a release",
            crowd.finished, crowd.waiters, crowd.seconds, crowd.commands_per_release
        )
    };
    format!(
        "waiters: from {} processes on one name: {}; {}",
        entry.processes,
        entry.crowds.iter().map(one).collect::<Vec<_>>().join("; "),
        targets(&entry.targets)
    )
}

fn title(figure: &Figure) -> String {
    match figure.api {
        "async" => figure.scenario.to_owned(),
        api => format!("{} ({api})", figure.scenario),
    }
}

fn targets(targets: &[Target]) -> String {
    if targets.is_empty() {
        return dash();
    }
    let one = |target: &Target| {
        let (sign, limit) = match (target.at_least, target.at_most) {
            (Some(limit), _) => ("≥", limit),
            (None, limit) => ("≤", limit.unwrap_or_default()),
        };
        let verdict = if target.met { "met" } else { "missed" };
        format!("{} {sign} {limit}: {verdict}", target.what)
    };
    targets.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn times(times: &Quantiles) -> String {
    let all = [times.p50, times.p99, times.p999];
    all.map(micros).join(" ")
}

/// Microseconds to about three digits.
fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}µs"),
        us if us < 1_000.0 => format!("{us:.0}µs"),
        us if us < 1_000_000.0 => format!("{:.2}ms", us / 1_000.0),
        us => format!("{:.2}s", us / 1_000_000.0),
    }
}

/// A rate to about three digits.
fn short(number: f64) -> String {
    match number {
        n if n < 1_000.0 => format!("{n:.0}"),
        n if n < 100_000.0 => format!("{:.1}k", n / 1_000.0),
        n if n < 1_000_000.0 => format!("{:.0}k", n / 1_000.0),
        n => format!("{:.2}M", n / 1_000_000.0),
    }
}

fn or_dash(number: Option<f64>) -> String {
    number.map_or_else(dash, |number| {
        if number < 10.0 {
            format!("{number:.3}")
        } else {
            format!("{number:.1}")
        }
    })
}

fn dash() -> String {
    "-".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(12_345.6), "12.3k");
        assert_eq!(short(2_345_678.0), "2.35M");
        assert_eq!(micros(1.234), "1.23µs");
        assert_eq!(micros(54_321.0), "54.32ms");
        assert_eq!(or_dash(None), "-");
    }
}
