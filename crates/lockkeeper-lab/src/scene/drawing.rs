//! A timeline as lines of text: one lane a line, time from left to right.

use std::fmt::Write;

use super::timeline::{Doing, Lane, MarkKind, Timeline};

/// How many columns time has.
const WIDTH: usize = 72;

/// How something is drawn, and what it is called below.
const SIGNS: &[(MarkKind, char, &str)] = &[
    (MarkKind::Read, 'r', "reads"),
    (MarkKind::AtRisk, '?', "at risk"),
    (MarkKind::Lost, '!', "knows that it is lost"),
    (MarkKind::Released, '/', "releases"),
    (MarkKind::NotHeld, 'n', "released what it did not hold"),
    (MarkKind::GaveUp, 'g', "gives up"),
    (MarkKind::Entered, '+', "enters again"),
    (MarkKind::Left, '-', "leaves once"),
    (MarkKind::SoldOut, '0', "sold out"),
    (MarkKind::Abstained, 'a', "does not write"),
    (MarkKind::Failed, 'e', "error"),
    (MarkKind::Sold, '$', "sold"),
    (MarkKind::Refused, 'F', "refused by the fence"),
    (MarkKind::Restarted, 'R', "restarted"),
    (MarkKind::Promoted, 'M', "becomes the master"),
    (MarkKind::Killed, 'X', "killed"),
];

/// Draws it. With `color`, what two hold at once is red.
pub fn draw(timeline: &Timeline, color: bool) -> String {
    let scale = Scale::of(timeline);
    let widest = timeline.lanes.iter().map(|lane| lane.name.len());
    let widest = widest.max().unwrap_or(0);
    let mut text = String::new();
    for lane in &timeline.lanes {
        let _ = write!(text, "{:widest$} ", lane.name);
        for (cell, both) in cells(timeline, lane, &scale) {
            match both && color {
                true => drop(write!(text, "\u{1b}[31m{cell}\u{1b}[0m")),
                false => text.push(cell),
            }
        }
        text.push('\n');
    }
    let lasted = (scale.end - scale.start) as f64 / 1000.0;
    let _ = writeln!(text, "{:widest$} {:─<WIDTH$} {lasted:.0} ms", "", "└");
    text + &legend(timeline, widest + 1)
}

struct Scale {
    start: u64,
    end: u64,
}

impl Scale {
    /// From shortly before the first that lasts: how long processes take to start is no part of the story.
    fn of(timeline: &Timeline) -> Scale {
        let first = timeline.spans.iter().map(|span| span.from).min();
        let start = first.unwrap_or(0);
        let end = timeline.end.max(start + 1);
        Scale { start, end }
    }

    fn column(&self, at: u64) -> usize {
        let since = at.saturating_sub(self.start) as u128;
        let column = since * WIDTH as u128 / (self.end - self.start) as u128;
        (column as usize).min(WIDTH - 1)
    }
}

/// What is in each column of a lane, and whether two held then.
fn cells(timeline: &Timeline, lane: &Lane, scale: &Scale) -> Vec<(char, bool)> {
    let mut cells = vec![(' ', false); WIDTH];
    // What is drawn later hides what is drawn before.
    for (doing, sign) in [
        (Doing::Waits, '░'),
        (Doing::Holds, '█'),
        (Doing::Paused, '='),
        (Doing::Down, '×'),
        (Doing::Serves, '▒'),
    ] {
        let spans = timeline.spans.iter();
        for span in spans.filter(|span| span.lane == lane.id && span.doing == doing) {
            let to = scale.column(span.to.unwrap_or(timeline.end));
            cells[scale.column(span.from)..=to].fill((sign, false));
        }
    }
    for overlap in &timeline.overlaps {
        if overlap.lanes.contains(&lane.id) {
            for cell in &mut cells[scale.column(overlap.from)..=scale.column(overlap.to)] {
                *cell = (if cell.0 == '=' { '=' } else { '▓' }, true);
            }
        }
    }
    for (kind, sign, _) in SIGNS {
        let marks = timeline.marks.iter();
        for mark in marks.filter(|mark| mark.lane == lane.id && mark.kind == *kind) {
            cells[scale.column(mark.at)].0 = *sign;
        }
    }
    cells
}

fn legend(timeline: &Timeline, indent: usize) -> String {
    let does = |doing| timeline.spans.iter().any(|span| span.doing == doing);
    let mut entries = Vec::new();
    for (doing, entry) in [
        (Doing::Waits, "░ waits"),
        (Doing::Holds, "█ believes that it holds"),
        (Doing::Paused, "= paused"),
        (Doing::Down, "× down"),
        (Doing::Serves, "▒ serves customers"),
    ] {
        entries.extend(does(doing).then(|| entry.to_owned()));
    }
    if !timeline.overlaps.is_empty() {
        entries.insert(0, "▓ two at once".to_owned());
    }
    let signs = SIGNS.iter().filter(|(kind, ..)| timeline.count(*kind) > 0);
    entries.extend(signs.map(|(_, sign, what)| format!("{sign} {what}")));
    let mut text = String::new();
    let mut column = 0;
    for entry in entries {
        if column == 0 || column + entry.chars().count() + 3 > WIDTH {
            let _ = write!(
                text,
                "{}{:indent$}",
                if column == 0 { "" } else { "\n" },
                ""
            );
            column = 0;
        } else {
            text.push_str(" · ");
            column += 3;
        }
        column += entry.chars().count();
        text.push_str(&entry);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::timeline::{Mark, Span};

    #[test]
    fn an_overlap_is_seen_in_both_lanes() {
        let hold = |lane, from, to| Span {
            id: lane,
            lane,
            doing: Doing::Holds,
            from,
            to: Some(to),
            token: None,
            until: None,
        };
        let lane = |id, name: &str| Lane {
            id,
            name: name.into(),
            server: false,
        };
        let mut timeline = Timeline {
            lanes: vec![lane(0, "A"), lane(1, "B")],
            spans: vec![hold(0, 0, 50_000), hold(1, 25_000, 90_000)],
            marks: vec![Mark {
                lane: 1,
                at: 80_000,
                kind: MarkKind::Sold,
                token: None,
                seen: None,
                left: Some(1),
                note: None,
            }],
            ..Timeline::default()
        };
        timeline.close(100_000);
        let text = draw(&timeline, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("A ██") && lines[0].contains("█▓"),
            "{text}"
        );
        assert!(lines[1].contains("▓█") && lines[1].contains('$'), "{text}");
        assert!(lines[2].ends_with("100 ms"), "{text}");
        assert!(
            text.contains("▓ two at once") && text.contains("$ sold"),
            "{text}"
        );
        assert!(draw(&timeline, true).contains("\u{1b}[31m▓"));
    }
}
