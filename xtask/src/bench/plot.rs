//! The report as an SVG: a panel a figure, a bar a library, on logarithmic scales.

use std::fmt::Write;

use super::Report;
use super::figures::Figures;
use super::page::time;
use super::scenario::{CONTENDED, HANDOFF, PARALLEL, PROCESSES, PROCESSES_HELD, SERIAL};
use super::targets::number;

const PANEL_WIDTH: f64 = 560.0;
const LABEL_WIDTH: f64 = 236.0;
const VALUE_WIDTH: f64 = 76.0;
const BAR_HEIGHT: f64 = 15.0;
const ROW: f64 = 20.0;
const TITLE: f64 = 48.0;
const MARGIN: f64 = 24.0;
const TOP: f64 = 76.0;

struct Panel {
    title: &'static str,
    direction: &'static str,
    scenario: &'static str,
    of: fn(&Figures) -> f64,
    write: fn(f64) -> String,
}

const MORE: &str = "more is better";
const LESS: &str = "less is better";

const PANELS: &[Panel] = &[
    Panel {
        title: "1 task: pairs/s",
        direction: MORE,
        scenario: SERIAL,
        of: |f| f.pairs_per_second,
        write: number,
    },
    Panel {
        title: "64 tasks, 64 names: pairs/s",
        direction: MORE,
        scenario: PARALLEL,
        of: |f| f.pairs_per_second,
        write: number,
    },
    Panel {
        title: "64 tasks, 1 name: pairs/s",
        direction: MORE,
        scenario: CONTENDED,
        of: |f| f.pairs_per_second,
        write: number,
    },
    Panel {
        title: "4 processes × 16 tasks, 1 name: pairs/s",
        direction: MORE,
        scenario: PROCESSES,
        of: |f| f.pairs_per_second,
        write: number,
    },
    Panel {
        title: "4 × 16, held for 1 ms: pairs/s",
        direction: MORE,
        scenario: PROCESSES_HELD,
        of: |f| f.pairs_per_second,
        write: number,
    },
    Panel {
        title: "4 × 16, held for 1 ms: wait p99",
        direction: LESS,
        scenario: PROCESSES_HELD,
        of: |f| f.wait_p99,
        write: time,
    },
    Panel {
        title: "4 × 16, held for 1 ms: most to fewest a task",
        direction: LESS,
        scenario: PROCESSES_HELD,
        of: |f| f.task_share,
        write: number,
    },
    Panel {
        title: "Hand-off to another process: p50",
        direction: LESS,
        scenario: HANDOFF,
        of: |f| f.handoff_p50.unwrap_or(f64::NAN),
        write: time,
    },
];

/// One panel's bars: name, whether it is ours, and the value if there is one.
type Bars<'a> = Vec<(&'a str, bool, Option<f64>)>;

pub fn text(report: &Report) -> String {
    let on = report.group.on;
    let rows = report.peers.len() as f64;
    let panel_height = TITLE + rows * ROW + 14.0;
    let width = 2.0 * PANEL_WIDTH + 3.0 * MARGIN;
    let lines = PANELS.len().div_ceil(2) as f64;
    let height = TOP + lines * (panel_height + MARGIN);
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Lockkeeper on {on} beside other libraries\">\n{STYLE}\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"head\" x=\"{MARGIN}\" y=\"36\">Locks on {on}: Lockkeeper beside other libraries</text>\n\
         <text class=\"quiet\" x=\"{MARGIN}\" y=\"58\">{}, {} cores, {}. Medians of {} windows. Bars are \
         logarithmic.</text>",
        report.machine.server, report.machine.cores, report.machine.date, report.rotations
    );
    for (number, panel) in PANELS.iter().enumerate() {
        let x = MARGIN + (number % 2) as f64 * (PANEL_WIDTH + MARGIN);
        let y = TOP + (number / 2) as f64 * (panel_height + MARGIN);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        panel.draw(&mut svg, &panel.bars(report), panel_height);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

const STYLE: &str = "<style>\n\
    text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328; }\n\
    .head { font-size: 20px; font-weight: 600; }\n\
    .title { font-size: 14px; font-weight: 600; }\n\
    .quiet { fill: #59636e; }\n\
    .own { font-weight: 600; }\n\
    .page { fill: #ffffff; }\n\
    .panel { fill: #f6f8fa; stroke: #d1d9e0; }\n\
    .bar { fill: #9198a1; }\n\
    .bar.own { fill: #0969da; }\n\
    @media (prefers-color-scheme: dark) {\n\
    text { fill: #f0f6fc; }\n\
    .quiet { fill: #9198a1; }\n\
    .page { fill: #0d1117; }\n\
    .panel { fill: #151b23; stroke: #3d444d; }\n\
    .bar { fill: #656c76; }\n\
    .bar.own { fill: #4493f8; }\n\
    }\n\
    </style>";

impl Panel {
    fn bars<'a>(&self, report: &'a Report) -> Bars<'a> {
        let rows = report.scenarios.get(self.scenario);
        let value = |name: &str| {
            let row = rows?.iter().find(|row| row.peer == name)?;
            let value = (self.of)(row.median.as_ref()?);
            (!value.is_nan()).then_some(value)
        };
        let peers = report.peers.iter();
        peers
            .map(|peer| (peer.name, peer.ours, value(peer.name)))
            .collect()
    }

    fn draw(&self, svg: &mut String, bars: &Bars<'_>, height: f64) {
        let _ = writeln!(
            svg,
            "<rect class=\"panel\" width=\"{PANEL_WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"14\" y=\"26\">{}</text>\n\
             <text class=\"quiet\" x=\"{}\" y=\"26\" text-anchor=\"end\">{}</text>",
            self.title,
            PANEL_WIDTH - 14.0,
            self.direction
        );
        let room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH - 14.0;
        let scale = scale(bars.iter().filter_map(|(_, _, value)| *value));
        for (number, (name, ours, value)) in bars.iter().enumerate() {
            let y = TITLE + number as f64 * ROW;
            let own = if *ours { " own" } else { "" };
            let text_y = y + BAR_HEIGHT - 3.0;
            let _ = writeln!(
                svg,
                "<text class=\"name{own}\" x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{name}</text>",
                LABEL_WIDTH - 4.0
            );
            let (length, label) = match value {
                Some(value) => (room * scale(*value), (self.write)(*value)),
                None => (0.0, "–".into()),
            };
            let _ = writeln!(
                svg,
                "<rect class=\"bar{own}\" x=\"{}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\"/>\n\
                 <text x=\"{:.1}\" y=\"{text_y}\">{label}</text>",
                LABEL_WIDTH + 4.0,
                LABEL_WIDTH + 10.0 + length
            );
        }
    }
}

/// From a value to a length between 0 and 1, by its logarithm. What is endless fills the panel.
fn scale(values: impl Iterator<Item = f64>) -> impl Fn(f64) -> f64 {
    let values: Vec<f64> = values.filter(|v| *v > 0.0).collect();
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let least = finite.clone().fold(f64::INFINITY, f64::min);
    let most = finite.fold(f64::NEG_INFINITY, f64::max);
    // The least still has a bar, values that are alike look alike, and nothing comes near what is endless.
    let endless = values.iter().any(|v| v.is_infinite());
    let (low, high) = (
        least.ln() - 0.7,
        most.ln() + if endless { 2.0 } else { 0.0 },
    );
    move |value| match value {
        v if v.is_infinite() => 1.0,
        v if v <= 0.0 || high <= low => 0.0,
        v => ((v.ln() - low) / (high - low)).clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_fills_the_panel_and_the_least_has_a_bar() {
        let all_end = scale([10.0, 1000.0].into_iter());
        assert_eq!(all_end(1000.0), 1.0);
        assert!(all_end(10.0) > 0.05 && all_end(10.0) < all_end(100.0));
        let one_does_not = scale([10.0, 1000.0, f64::INFINITY].into_iter());
        assert_eq!(one_does_not(f64::INFINITY), 1.0);
        assert!(one_does_not(1000.0) < 0.9);
    }
}
