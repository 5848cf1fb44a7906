//! The report as a page of Markdown.

use std::fmt::Write;

use super::Report;
use super::figures::Figures;
use super::scenario::{HANDOFF, SCENARIOS, Scenario};
use super::targets::number;

pub fn text(report: &Report) -> String {
    let mut page = String::new();
    head(&mut page, report);
    targets(&mut page, report);
    for scenario in SCENARIOS {
        table(&mut page, report, scenario);
    }
    notes(&mut page, report);
    page
}

fn head(page: &mut String, report: &Report) {
    let machine = &report.machine;
    let _ = writeln!(
        page,
        "# Beside other libraries\n\n\
         Written by `cargo xtask bench peers`, which measures again and replaces this page. {date}; {processor}, {cores} \
         cores for server and clients together; {kernel}; Redis {redis} on loopback, PING {ping:.0} µs; load before \
         {load}; Lockkeeper at `{revision}`.\n\n\
         One run on one server. In each scenario all take turns, {rotations} windows each and another first in every \
         rotation; figures are medians of these windows. Compare within a table: absolute numbers wander with the machine.\n\n\
         ![Pairs a second, waits, shares and hand-off of each library](peers.svg)\n",
        date = machine.date,
        processor = machine.processor,
        cores = machine.cores,
        kernel = machine.kernel,
        redis = machine.redis,
        ping = machine.ping_us,
        load = machine.load,
        revision = machine.revision,
        rotations = report.rotations,
    );
}

fn targets(page: &mut String, report: &Report) {
    page.push_str("## Targets\n\n| target | seen | |\n| --- | --- | --- |\n");
    for target in &report.targets {
        let verdict = match target.met {
            Some(false) => format!("**{}**", target.verdict()),
            _ => target.verdict().to_owned(),
        };
        let _ = writeln!(page, "| {} | {} | {verdict} |", target.what, target.seen);
    }
    page.push('\n');
}

fn table(page: &mut String, report: &Report, scenario: &Scenario) {
    let handoff = scenario.name == HANDOFF;
    let many = scenario.processes * scenario.tasks > 1;
    let _ = writeln!(page, "## {}\n", scenario.title);
    let mut columns = vec!["library"];
    if handoff {
        columns.push("hand-off p50");
    }
    columns.extend(["pairs/s", "wait p50", "wait p99", "wait max"]);
    if many {
        columns.extend(["tasks", "without"]);
    }
    if scenario.processes > 1 {
        columns.push("processes");
    }
    columns.push("commands");
    if !scenario.hold.is_zero() {
        columns.push("held");
    }
    columns.push("errors");
    let _ = writeln!(page, "| {} |", columns.join(" | "));
    let _ = writeln!(page, "|{}", " --- |".repeat(columns.len()));
    for row in report.scenarios.get(scenario.name).into_iter().flatten() {
        let name = match report.peers.iter().any(|p| p.name == row.peer && p.ours) {
            true => format!("**{}**", row.peer),
            false => row.peer.to_owned(),
        };
        let cells = match (&row.median, &row.failure) {
            (Some(figures), _) => cells(figures, scenario, many, handoff),
            (None, failure) => {
                let reason = failure.as_deref().unwrap_or("no figures");
                vec![format!("not measured: {reason}")]
            }
        };
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    }
    page.push('\n');
}

fn cells(figures: &Figures, scenario: &Scenario, many: bool, handoff: bool) -> Vec<String> {
    let mut cells = Vec::new();
    if handoff {
        cells.push(figures.handoff_p50.map_or("–".into(), time));
    }
    cells.push(number(figures.pairs_per_second));
    let waits = [figures.wait_p50, figures.wait_p99, figures.wait_max];
    cells.extend(waits.map(time));
    if many {
        cells.push(format!("{} : 1", number(figures.task_share)));
        cells.push(figures.without.to_string());
    }
    if scenario.processes > 1 {
        cells.push(format!("{} : 1", number(figures.process_share)));
    }
    cells.push(number(figures.commands));
    if !scenario.hold.is_zero() {
        cells.push(time(figures.held));
    }
    cells.push(match &figures.error {
        Some(error) => format!("{}: {}", figures.errors, error.replace(['|', '\n'], " ")),
        None => "0".into(),
    });
    cells
}

fn notes(page: &mut String, report: &Report) {
    page.push_str(
        "## How it is measured\n\n\
         - A pair is one acquire and one release; the release is waited for. Leases are 30 s, renewed by Lockkeeper and \
         Redisson only, and every client speaks TCP.\n\
         - *wait* is how long acquiring took. Whoever waits at the end of a window waits on until it had its turn: that \
         counts as a wait, not as a pair of the window. Where the releaser takes the lock again at once while others sleep, \
         nearly all waits are its own, short ones, and p99 shows nothing of the others: see the longest wait and the shares.\n\
         - *tasks*, *processes*: most pairs of one to the fewest of another. *without*: tasks that got none at all, in the \
         worst window.\n\
         - *commands*: those that clients sent for one lock, without the calls inside scripts. Redis counts both together \
         (`commandstats`, and `total_commands_processed` too); which ones clients send is seen by `MONITOR`, before the \
         windows that count. A command that both use (Redisson's DEL) is divided as it was seen there.\n\
         - *held*: how long the lock was really held. Timers of different runtimes are not alike.\n\
         - *hand-off*: from just before the release in one process until acquired in the other, where that waited already.\n\
         \n## Who was measured, and how it waits\n\n| library | version | settings |\n| --- | --- | --- |\n",
    );
    for peer in &report.peers {
        let version = match (&peer.version, &peer.left_out) {
            (Some(version), _) => version.clone(),
            (None, Some(reason)) => {
                format!("**left out**: {}", reason.replace(['|', '\n'], " "))
            }
            (None, None) => "not measured".into(),
        };
        let _ = writeln!(page, "| {} | {version} | {} |", peer.name, peer.settings);
    }
}

/// A time in microseconds, in the unit that suits it.
pub fn time(micros: f64) -> String {
    match micros {
        t if t.is_nan() => "–".into(),
        t if t >= 1e6 => format!("{} s", number(t / 1e6)),
        t if t >= 1e3 => format!("{} ms", number(t / 1e3)),
        t => format!("{} µs", number(t)),
    }
}
