//! The report as a page of Markdown.

use std::fmt::Write;

use super::Report;
use super::figures::Figures;
use super::scenario::{HANDOFF, Scenario};
use super::targets::number;

pub fn text(report: &Report) -> String {
    let mut page = String::new();
    head(&mut page, report);
    if report.machine.is_busy() {
        page.push_str(
            "**The machine was busy with other work**, so these figures show little but that it runs.\n\n",
        );
    }
    targets(&mut page, report);
    for scenario in report.group.scenarios() {
        table(&mut page, report, scenario);
    }
    notes(&mut page, report);
    page
}

fn head(page: &mut String, report: &Report) {
    let machine = &report.machine;
    let _ = writeln!(
        page,
        "# {title}\n\n\
         Written by `cargo xtask bench peers {group}`, which measures again and replaces this page. {date}; {processor}, {cores} \
         cores for server and clients together; {kernel}; {server} on loopback{ping}; {busy:.0} % of \
         the processor in use before; Lockkeeper at `{revision}`.\n\n\
         {run} In each scenario all take turns, {rotations} windows each and another first in every \
         rotation; figures are medians of these windows. Compare within a table: absolute numbers wander with the machine.\n\n\
         ![Pairs a second, waits, shares and hand-off of each library]({file}.svg)\n",
        title = report.group.title,
        group = report.group.name,
        run = report.group.run,
        file = report.group.file,
        date = machine.date,
        processor = machine.processor,
        cores = machine.cores,
        kernel = machine.kernel,
        server = machine.server,
        ping = machine
            .ping_us
            .map_or_else(String::new, |ping| format!(", PING {ping:.0} µs")),
        busy = machine.busy * 100.0,
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

/// A column: its title, and what it says of a library.
type Column = (&'static str, fn(&Figures) -> String);

fn columns(scenario: &Scenario) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    if scenario.name == HANDOFF {
        columns.push(("hand-off p50", |f| f.handoff_p50.map_or("–".into(), time)));
        columns.push(("longest", |f| f.handoff_max.map_or("–".into(), time)));
        columns.push(("seen", |f| f.handoffs.to_string()));
    } else {
        columns.push(("pairs/s", |f| number(f.pairs_per_second)));
        columns.push(("wait p50", |f| time(f.wait_p50)));
        columns.push(("wait p99", |f| time(f.wait_p99)));
        columns.push(("wait max", |f| time(f.wait_max)));
        if scenario.processes * scenario.tasks > 1 {
            columns.push(("tasks", |f| format!("{} : 1", number(f.task_share))));
            columns.push(("without", |f| f.without.to_string()));
        }
        if scenario.processes > 1 {
            columns.push(("processes", |f| format!("{} : 1", number(f.process_share))));
        }
    }
    columns.push(("commands", |f| number(f.commands)));
    if !scenario.hold.is_zero() {
        columns.push(("held", |f| time(f.held)));
    }
    columns.push(("errors", |f| match &f.error {
        Some(error) => format!("{}: {}", f.errors, error.replace(['|', '\n'], " ")),
        None => "0".into(),
    }));
    columns
}

fn table(page: &mut String, report: &Report, scenario: &Scenario) {
    let columns = columns(scenario);
    let titles: Vec<_> = columns.iter().map(|(title, _)| *title).collect();
    let _ = writeln!(page, "## {}\n", scenario.title);
    let _ = writeln!(page, "| library | {} |", titles.join(" | "));
    let _ = writeln!(page, "|{}", " --- |".repeat(columns.len() + 1));
    for row in report.scenarios.get(scenario.name).into_iter().flatten() {
        let name = if report.peers.iter().any(|p| p.name == row.peer && p.ours) {
            format!("**{}**", row.peer)
        } else {
            row.peer.to_owned()
        };
        let cells: Vec<String> = match (&row.median, &row.failure) {
            (Some(figures), _) => columns.iter().map(|(_, cell)| cell(figures)).collect(),
            (None, failure) => {
                let reason = failure.as_deref().unwrap_or("no figures");
                vec![format!("not measured: {reason}")]
            }
        };
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    }
    page.push('\n');
}

fn notes(page: &mut String, report: &Report) {
    page.push_str(
        "## How it is measured\n\n\
         - A pair is one acquire and one release; the release is waited for. ",
    );
    page.push_str(report.group.leases);
    page.push_str(
        "\n\
         - *wait* is the time that acquiring takes. A task that waits at the end of a window goes on waiting for its turn: that \
         counts as a wait, not as a pair of the window. If the releaser takes the lock again at once while others sleep, nearly \
         all waits are its own, short ones, and p99 shows nothing of the others: see the longest wait and the shares.\n\
         - *tasks*, *processes*: most pairs of one to the fewest of another. *without*: tasks that got none at all, in the \
         worst window.\n\
         - *commands*: ",
    );
    page.push_str(report.group.commands);
    page.push_str(
        "\n\
         - *held*: how long the lock was really held. Timers of different runtimes differ.\n\
         - *hand-off*: from just before the release in one process until acquired in the other, which has waited for 40 ms \
         or more by then. The first process does not acquire again, and the two change places.\n\
         \n## What was measured, and how it waits\n\n| library | version | settings |\n| --- | --- | --- |\n",
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
