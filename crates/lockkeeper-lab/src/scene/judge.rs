//! What went wrong on a side, from its timeline and its books. Both sides are judged alike.

use anyhow::Result;

use super::Scene;
use super::figures;
use super::stock::Stock;
use super::timeline::{Doing, MarkKind, Timeline};
use super::update::Verdict;
use crate::text::Text;

impl Scene {
    /// Ends the side: adds the numbers that every side has, and judges.
    pub fn judge(&mut self) -> Result<(Verdict, Timeline)> {
        let timeline = self.board.timeline();
        let mut faults = std::mem::take(&mut self.faults);
        faults.extend(overlapped(&timeline));
        faults.extend(stuck(&timeline));
        let figures = &mut self.figures;
        if let Some(path) = &self.stock {
            let books = Stock::open(path)?.books()?;
            figures.add(&figures::STOCK, books.initial);
            figures.add(&figures::SOLD, books.sold);
            figures.add(&figures::OVERSOLD, books.oversold());
            figures.add(&figures::LOST_UPDATES, books.lost_updates);
            figures.add(&figures::LEFT, books.left);
            if books.oversold() > 0 {
                let (sold, initial) = (books.sold, books.initial);
                faults.push(Text::made(
                    format!("{sold} were sold of {initial}."),
                    format!("库存 {initial} 件，却卖出了 {sold} 件。"),
                ));
            }
            if books.lost_updates > 0 {
                let lost = books.lost_updates;
                faults.push(Text::made(
                    format!("{lost} sale(s) wrote over another that they had not seen."),
                    format!("有 {lost} 次销售覆盖了它没有读到的写入。"),
                ));
            }
        }
        figures.add(&figures::REFUSED, timeline.count(MarkKind::Refused) as i64);
        figures.add(&figures::OVERLAP, ms(timeline.overlap()));
        figures.add(&figures::WAITED, ms(timeline.longest_wait()));
        let held = faults.is_empty();
        let found = match held {
            true => vec![well(&timeline)],
            false => faults,
        };
        Ok((Verdict { held, found }, timeline))
    }
}

/// Whole milliseconds; what is not nothing is at least one.
fn ms(us: u64) -> i64 {
    us.div_ceil(1000) as i64
}

fn overlapped(timeline: &Timeline) -> impl Iterator<Item = Text> {
    timeline.overlaps.iter().map(|overlap| {
        let [one, other] = overlap.lanes.map(|lane| &timeline.lanes[lane].name);
        let lasted = ms(overlap.to - overlap.from);
        Text::made(
            format!("{one} and {other} both believed that they held the lock, for {lasted} ms."),
            format!("{one} 和 {other} 同时认为自己持有锁，持续 {lasted} 毫秒。"),
        )
    })
}

fn stuck(timeline: &Timeline) -> impl Iterator<Item = Text> {
    let gave_up = timeline.marks.iter();
    let gave_up = gave_up.filter(|mark| mark.kind == MarkKind::GaveUp);
    gave_up.map(|mark| {
        let name = &timeline.lanes[mark.lane].name;
        let mut waits = timeline.spans.iter().rev();
        let wait = waits.find(|span| {
            span.lane == mark.lane && span.doing == Doing::Waits && span.from <= mark.at
        });
        let lasted = ms(wait.map_or(0, |span| mark.at - span.from));
        Text::made(
            format!("{name} waited {lasted} ms for the lock in vain."),
            format!("{name} 等了 {lasted} 毫秒，始终没有拿到锁。"),
        )
    })
}

fn well(timeline: &Timeline) -> Text {
    let holds = timeline.spans.iter().filter(|s| s.doing == Doing::Holds);
    let holds = holds.count();
    Text::made(
        format!(
            "{holds} holds, one at a time; everyone who waited got the lock, and the books are right."
        ),
        format!("共 {holds} 次持锁，任何时刻只有一个持有者；等待者都拿到了锁，账目正确。"),
    )
}
