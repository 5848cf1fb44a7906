//! What went wrong on a side, from its timeline and its books. Both sides are judged alike.

use anyhow::{Context, Result, ensure};

use super::Scene;
use super::figures;
use super::timeline::{Doing, MarkKind, Timeline};
use super::update::Verdict;
use crate::shop::Item;
use crate::shop::stock::{self, Account};
use crate::text::{Text, grouped};
use crate::words;

impl Scene {
    /// Ends the side: adds the numbers that every side has, and judges.
    pub async fn judge(&mut self) -> Result<(Verdict, Timeline)> {
        let timeline = self.board.timeline();
        if let Some(url) = &self.stock {
            self.books = Some(account(url).await?);
        }
        let mut faults = std::mem::take(&mut self.faults);
        faults.extend(overlapped(&timeline));
        faults.extend(stuck(&timeline));
        let figures = &mut self.figures;
        if let Some(books) = &self.books {
            faults.extend(missold(books));
            figures.add(&figures::STOCK, books.opening);
            figures.add(&figures::SOLD, books.sales);
            figures.add(&figures::OVERSOLD, books.oversold());
            figures.add(&figures::LOST_UPDATES, books.lost_updates());
            figures.add(&figures::LEFT, books.stock);
        }
        let does = |doing| timeline.spans.iter().any(|span| span.doing == doing);
        if does(Doing::Holds) {
            figures.add(&figures::REFUSED, timeline.count(MarkKind::Refused) as i64);
            figures.add(&figures::OVERLAP, ms(timeline.overlap()));
        }
        if does(Doing::Waits) {
            figures.add(&figures::WAITED, ms(timeline.longest_wait()));
        }
        let held = faults.is_empty();
        let found = if held {
            well(&timeline, self.books.as_ref())
        } else {
            faults
        };
        // Where nobody did anything, nothing is proved.
        ensure!(!found.is_empty(), words::NOTHING_HAPPENED);
        Ok((Verdict { held, found }, timeline))
    }
}

/// What the books of a stock say about what actors sell.
async fn account(url: &str) -> Result<Account> {
    let stock = stock::open(url, 0).await?;
    let item = Item::Inventory.to_string();
    let mut accounts = stock.accounts().await?.into_iter();
    let account = accounts.find(|account| account.item == item);
    account.context(words::STOCK_WITHOUT_BOOKS)
}

fn missold(books: &Account) -> Vec<Text> {
    let (opening, sales) = (books.opening, grouped(books.sales));
    let mut faults = Vec::new();
    if books.oversold() > 0 {
        faults.push(Text::made(
            match opening {
                1 => format!("{sales} were handed out, and there was only 1."),
                _ => format!(
                    "{sales} were handed out, and there were only {}.",
                    grouped(opening)
                ),
            },
            format!("只有 {} 件，却给出了 {sales} 件。", grouped(opening)),
        ));
    }
    if books.lost_updates() > 0 {
        let lost = grouped(books.lost_updates());
        faults.push(Text::made(
            match books.lost_updates() {
                1 => "The stock does not know of 1 sale: another wrote over it.".to_owned(),
                _ => format!("The stock does not know of {lost} sales: others wrote over them."),
            },
            format!("有 {lost} 次销售没有反映在库存里：被别的写入覆盖了。"),
        ));
    }
    faults
}

/// Whole milliseconds, as the page rounds them; what is not nothing is at least one.
fn ms(us: u64) -> i64 {
    ((us + 500) / 1000).max(u64::from(us > 0)) as i64
}

fn overlapped(timeline: &Timeline) -> impl Iterator<Item = Text> {
    timeline.overlaps.iter().map(|overlap| {
        let [one, other] = overlap.lanes.map(|lane| &timeline.lanes[lane].name);
        let lasted = grouped(ms(overlap.to - overlap.from));
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
        let lasted = grouped(ms(wait.map_or(0, |span| mark.at - span.from)));
        Text::made(
            format!("{name} waited {lasted} ms for the lock in vain."),
            format!("{name} 等了 {lasted} 毫秒，始终没有拿到锁。"),
        )
    })
}

/// Waits that an error ended: the lock may have been free, but nobody could grant it.
fn refused(timeline: &Timeline) -> impl Iterator<Item = Text> {
    let failed = timeline.marks.iter();
    let failed = failed.filter(|mark| mark.kind == MarkKind::Failed);
    failed.filter_map(|mark| {
        let note = mark.note.as_ref()?;
        let mut spans = timeline.spans.iter();
        let wait = spans.find(|span| {
            span.lane == mark.lane && span.doing == Doing::Waits && span.to == Some(mark.at)
        })?;
        let name = &timeline.lanes[mark.lane].name;
        let lasted = grouped(ms(mark.at - wait.from));
        Some(Text::made(
            format!("{name} got an error after {lasted} ms: {note}"),
            format!("{name} 等了 {lasted} 毫秒，得到一个错误：{note}"),
        ))
    })
}

/// What can be said of a side on which nothing went wrong.
fn well(timeline: &Timeline, books: Option<&Account>) -> Vec<Text> {
    let holds = timeline.spans.iter().filter(|s| s.doing == Doing::Holds);
    let holds = holds.count();
    let refused: Vec<Text> = refused(timeline).collect();
    let (waits_en, waits_zh) = if refused.is_empty() {
        (
            "; everyone who waited for the lock got it",
            "；等锁的都等到了",
        )
    } else {
        ("", "")
    };
    let held = (holds > 0).then(|| {
        let holds = grouped(holds as i64);
        Text::made(
            format!("{holds} holds, one at a time{waits_en}."),
            format!("共 {holds} 次持锁，任何时刻只有一个持有者{waits_zh}。"),
        )
    });
    let sold = books.filter(|books| books.sales > 0).map(|books| {
        let [opening, sales, left] = [books.opening, books.sales, books.stock].map(grouped);
        Text::made(
            format!("The books are right: {opening} in stock, {sales} sold, {left} left."),
            format!("账目正确：库存 {opening}，售出 {sales}，剩余 {left}。"),
        )
    });
    held.into_iter().chain(refused).chain(sold).collect()
}

#[cfg(test)]
mod tests {
    use lockkeeper::clock::Moment;

    use super::super::board::Board;
    use super::super::orders::{Event, Said};
    use super::*;

    #[test]
    fn a_time_is_rounded_as_the_page_rounds_it() {
        let rounded = [0, 1, 499, 136_400, 136_500, 156_999].map(ms);
        assert_eq!(rounded, [0, 1, 1, 136, 137, 157]);
    }

    /// The first waits for 2 ms and holds; the second waits for 3 ms and is told why it cannot.
    #[test]
    fn a_wait_that_an_error_ended_is_told_with_the_error() {
        let (updates, _) = tokio::sync::mpsc::unbounded_channel();
        let board = Board::new(updates);
        let lanes = ["A", "B"].map(|name| board.lane(name, false));
        let start = Moment::now().as_nanos();
        let said = |lane: usize, at: u64, event| {
            let at = start + at * 1_000_000;
            board.heard(lane, Said { at, event });
        };
        let acquired = Event::Acquired {
            token: None,
            until: None,
        };
        said(lanes[0], 0, Event::Asked);
        said(lanes[0], 2, acquired);
        said(lanes[0], 4, Event::Released);
        let found = |board: &Board| well(&board.timeline(), None);
        let en = |found: &[Text]| -> Vec<String> {
            found.iter().map(|text| text.en.to_string()).collect()
        };
        let all = "1 holds, one at a time; everyone who waited for the lock got it.";
        assert_eq!(en(&found(&board)), [all]);
        let message = "no majority".to_owned();
        said(lanes[1], 5, Event::Asked);
        said(lanes[1], 8, Event::Failed { message });
        let told = [
            "1 holds, one at a time.",
            "B got an error after 3 ms: no majority",
        ];
        assert_eq!(en(&found(&board)), told);
    }
}
