//! A timeline as lines of text: one lane a line, time from left to right.

use std::fmt::Write;

use lockkeeper_cli::lang::Lang;
use lockkeeper_cli::output::columns;

use super::timeline::{Doing, Lane, MarkKind, Timeline};
use crate::text::Text;

/// How many columns time has.
const WIDTH: usize = 72;

/// How something is drawn, and what it is called below.
const SIGNS: &[(MarkKind, char, Text)] = &[
    (MarkKind::Read, 'r', Text::new("reads", "读取库存")),
    (MarkKind::AtRisk, '?', Text::new("at risk", "有风险")),
    (
        MarkKind::Lost,
        '!',
        Text::new("knows that it is lost", "得知锁已丢失"),
    ),
    (MarkKind::Released, '/', Text::new("releases", "释放")),
    (
        MarkKind::NotHeld,
        'n',
        Text::new("released what it did not hold", "释放了不属于自己的锁"),
    ),
    (MarkKind::GaveUp, 'g', Text::new("gives up", "放弃等待")),
    (MarkKind::Entered, '+', Text::new("enters again", "重入")),
    (MarkKind::Left, '-', Text::new("leaves once", "退出一层")),
    (MarkKind::SoldOut, '0', Text::new("sold out", "已售罄")),
    (
        MarkKind::Abstained,
        'a',
        Text::new("does not write", "不写入"),
    ),
    (MarkKind::Failed, 'e', Text::new("error", "出错")),
    (MarkKind::Sold, '$', Text::new("sold", "卖出一件")),
    (
        MarkKind::Refused,
        'F',
        Text::new("refused by the fence", "被栅栏拒绝"),
    ),
    (MarkKind::Restarted, 'R', Text::new("restarted", "重新启动")),
    (
        MarkKind::Promoted,
        'M',
        Text::new("becomes the master", "成为主节点"),
    ),
    (MarkKind::Killed, 'X', Text::new("killed", "被杀死")),
];

/// How what lasts is drawn, and what it is called below. What comes later hides what comes before.
const LASTING: &[(Doing, char, Text)] = &[
    (Doing::Waits, '░', Text::new("waits", "等待")),
    (
        Doing::Holds,
        '█',
        Text::new("believes that it holds", "认为自己持有锁"),
    ),
    (Doing::Paused, '=', Text::new("paused", "被暂停")),
    (Doing::Down, '×', Text::new("down", "停机")),
    (
        Doing::Serves,
        '▒',
        Text::new("serves customers", "接待顾客"),
    ),
];

/// What two hold at once.
static OVERLAP: (char, Text) = ('▓', Text::new("two at once", "同时持锁"));

/// Draws it. With `color`, what two hold at once is red.
pub fn draw(timeline: &Timeline, color: bool, lang: Lang) -> String {
    let scale = Scale::of(timeline);
    let widest = timeline.lanes.iter().map(|lane| lane.name.len());
    let widest = widest.max().unwrap_or(0);
    let mut text = String::new();
    for lane in &timeline.lanes {
        let _ = write!(text, "{:widest$} ", lane.name);
        for (cell, both) in cells(timeline, lane, &scale) {
            if both && color {
                let _ = write!(text, "\u{1b}[31m{cell}\u{1b}[0m");
            } else {
                text.push(cell);
            }
        }
        text.push('\n');
    }
    let lasted = (scale.end - scale.start) as f64 / 1000.0;
    let unit = Text::new("ms", "毫秒");
    let unit = unit.get(lang);
    let _ = writeln!(text, "{:widest$} {:─<WIDTH$} {lasted:.0} {unit}", "", "└");
    text + &legend(timeline, widest + 1, lang)
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
    for (doing, sign, _) in LASTING {
        let spans = timeline.spans.iter();
        for span in spans.filter(|span| span.lane == lane.id && span.doing == *doing) {
            let to = scale.column(span.to.unwrap_or(timeline.end));
            cells[scale.column(span.from)..=to].fill((*sign, false));
        }
    }
    for overlap in &timeline.overlaps {
        if overlap.lanes.contains(&lane.id) {
            for cell in &mut cells[scale.column(overlap.from)..=scale.column(overlap.to)] {
                *cell = (if cell.0 == '=' { '=' } else { OVERLAP.0 }, true);
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

fn legend(timeline: &Timeline, indent: usize, lang: Lang) -> String {
    let overlap = (!timeline.overlaps.is_empty()).then_some((&OVERLAP.0, &OVERLAP.1));
    let lasts = |doing| timeline.spans.iter().any(|span| span.doing == doing);
    let lasting = LASTING.iter().filter(|(doing, ..)| lasts(*doing));
    let signs = SIGNS.iter().filter(|(kind, ..)| timeline.count(*kind) > 0);
    let entries = overlap.into_iter();
    let entries = entries.chain(lasting.map(|(_, sign, what)| (sign, what)));
    let entries = entries.chain(signs.map(|(_, sign, what)| (sign, what)));
    let mut text = String::new();
    let mut column = 0;
    for (sign, what) in entries {
        let entry = format!("{sign} {}", what.get(lang));
        if column == 0 || column + columns(&entry) + 3 > WIDTH {
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
        column += columns(&entry);
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
        let text = draw(&timeline, false, Lang::En);
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
        assert!(draw(&timeline, true, Lang::En).contains("\u{1b}[31m▓"));
        let text = draw(&timeline, false, Lang::Zh);
        assert!(
            text.contains("▓ 同时持锁") && text.contains("$ 卖出一件"),
            "{text}"
        );
    }

    /// The page has longer words for some of them, but none that are others.
    #[test]
    fn the_legend_speaks_as_the_page_does() {
        let page = include_str!("../page/assets/words.js");
        let lasting = LASTING.iter().map(|(_, _, what)| what);
        let signs = SIGNS.iter().map(|(_, _, what)| what);
        for what in lasting.chain(signs).chain([&OVERLAP.1]) {
            assert!(what.en.is_ascii() && !what.zh.is_ascii(), "{what:?}");
            if what.en != "released what it did not hold" {
                assert!(page.contains(&*what.zh), "{what:?}");
            }
        }
    }
}
