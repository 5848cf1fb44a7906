//! The checker itself: good histories pass, and every way to spoil one is caught.

#[path = "support/author.rs"]
mod author;
#[path = "support/mutations.rs"]
mod mutations;

use std::time::Duration;

use author::{Author, MS, turns};
use lockkeeper_testkit::checker::{Demands, FaultKind, Rule, Verdict, check};
use lockkeeper_testkit::history::{Answer, Call, Event, Fault, Mode, What};
use proptest::prelude::*;

fn demands() -> Demands {
    Demands::none().linger(Duration::from_millis(200))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]

    #[test]
    fn good_histories_pass(turns in turns(), books in any::<bool>()) {
        let author = Author::write(&turns, books);
        let verdict = check(&author.events, &demands());
        prop_assert!(matches!(verdict, Verdict::Valid(_)), "{verdict}");
    }

    #[test]
    fn every_spoilt_history_is_caught(turns in turns(), books in any::<bool>(), place in any::<usize>()) {
        for (name, rule, mutation) in mutations::ALL {
            let mut author = Author::write(&turns, books);
            prop_assert!(mutation(&mut author, place), "{name} found no place");
            let verdict = check(&author.events, &demands());
            prop_assert!(verdict.breaks(*rule), "{name} went unseen: {verdict}");
        }
    }
}

#[test]
fn a_run_that_proves_nothing_is_not_a_pass() {
    let invalid = |events: &[Event], demands: &Demands| match check(events, demands) {
        Verdict::Invalid(reason) => reason,
        other => panic!("{other}"),
    };
    assert!(invalid(&[], &Demands::default()).contains("0 grants"));

    // Many grants, but nobody ever met another.
    let mut lonely = Author::default();
    for turn in 0..200 {
        lonely.token += 1;
        let at = turn * 200 * MS;
        lonely.acquire(at, at + MS, "me", Mode::Exclusive, 1);
    }
    assert!(invalid(&lonely.events, &Demands::default()).contains("contended"));

    let process = || "p".to_owned();
    for (fault, kind) in [
        (
            Fault::Killed { process: process() },
            FaultKind::HolderKilled,
        ),
        (
            Fault::Stopped { process: process() },
            FaultKind::HolderStopped,
        ),
    ] {
        let demands = Demands::none().fault(kind, 1);
        let mut author = Author::default();
        author.acquire(10 * MS, 11 * MS, "me", Mode::Exclusive, 1);
        assert!(invalid(&author.events, &demands).contains("Holder"));
        // Not while it held anything: its lease had ended.
        author.push(300 * MS, What::Fault(fault.clone()));
        assert!(invalid(&author.events, &demands).contains("Holder"));
        author.events.pop();
        author.push(50 * MS, What::Fault(fault));
        check(&author.events, &demands).expect_valid();
    }
}

#[test]
fn a_killed_process_holds_nothing() {
    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "killed", Mode::Exclusive, 1);
    let process = "p".to_owned();
    author.push(20 * MS, What::Fault(Fault::Killed { process }));
    author.token += 1;
    author.acquire(15 * MS, 21 * MS, "next", Mode::Exclusive, 1);
    author.events[4].process = "q".into();
    author.events[3].process = "q".into();
    check(&author.events, &Demands::none()).expect_valid();
    author.events[2].at = 30 * MS;
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
}

#[test]
fn a_crashed_holder_holds_until_its_deadline_and_no_longer() {
    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "crashed", Mode::Exclusive, 1);
    author.token += 1;
    author.acquire(20 * MS, 111 * MS, "next", Mode::Exclusive, 1);
    let stats = check(&author.events, &Demands::none()).expect_valid();
    assert_eq!(stats.faults.get(&FaultKind::HoldExpired), Some(&1));

    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "crashed", Mode::Exclusive, 1);
    author.token += 1;
    author.acquire(20 * MS, 110 * MS, "next", Mode::Exclusive, 1);
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
}

#[test]
fn a_break_ends_what_was_held_and_nothing_later() {
    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "broken", Mode::Exclusive, 1);
    let broken = author.call(20 * MS, Call::Break { lock: "a".into() });
    author.answer(21 * MS, broken, Answer::Broken);
    author.token += 1_000;
    author.acquire(22 * MS, 23 * MS, "next", Mode::Exclusive, 1);
    check(&author.events, &Demands::none()).expect_valid();
    author.token += 1_000;
    author.acquire(30 * MS, 32 * MS, "third", Mode::Exclusive, 1);
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
}

/// The end of an operation that was told no answer.
fn without_answer(op: u64, known: bool) -> What {
    let reason = String::new();
    match known {
        true => What::Fail { op, reason },
        false => What::Unknown { op, reason },
    }
}

#[test]
fn a_break_without_an_answer_ends_nothing_later() {
    for known in [false, true] {
        let mut author = Author::default();
        let hold = author.acquire(10 * MS, 11 * MS, "broken", Mode::Exclusive, 1);
        let broken = author.call(20 * MS, Call::Break { lock: "a".into() });
        author.push(21 * MS, without_answer(broken, known));
        // It may have ended what was there.
        author.token += 1_000;
        author.acquire(22 * MS, 23 * MS, "next", Mode::Exclusive, 1);
        check(&author.events, &Demands::none()).expect_valid();
        author.token += 1_000;
        author.acquire(30 * MS, 32 * MS, "third", Mode::Exclusive, 1);
        assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
        // And may not have: then the hold goes on.
        author.events.truncate(4);
        let renew = author.call(30 * MS, Call::Renew { hold });
        let deadline = 140 * MS;
        author.answer(31 * MS, renew, Answer::Renewed { deadline });
        check(&author.events, &Demands::none()).expect_valid();
    }
}

#[test]
fn what_a_broken_hold_is_handed_on_to_is_broken_too() {
    let mut author = Author::default();
    let first = author.acquire(10 * MS, 11 * MS, "first", Mode::Exclusive, 1);
    let broken = author.call(20 * MS, Call::Break { lock: "a".into() });
    author.answer(21 * MS, broken, Answer::Broken);
    let token = author.token;
    author.token += 1_000;
    author.acquire(22 * MS, 23 * MS, "elsewhere", Mode::Exclusive, 1);
    for event in author.events.iter_mut().rev().take(2) {
        event.process = "q".into();
    }
    let release = author.release(24 * MS, first, "first");
    author.answer(25 * MS, release, Answer::Released);
    // The process has not heard of the break yet, and gives its next task the next token.
    author.token = token + 1;
    author.acquire(24 * MS, 25 * MS, "second", Mode::Exclusive, 1);
    check(&author.events, &Demands::none()).expect_valid();
    // One that asked the store itself is another matter, and so is a break that was over before.
    author.token = token + 2_000;
    author.acquire(26 * MS, 27 * MS, "third", Mode::Exclusive, 1);
    let verdict = check(&author.events, &Demands::none());
    assert!(verdict.breaks(Rule::S1), "{verdict}");
}

#[test]
fn a_writer_may_become_a_reader_beside_nobody_else() {
    let mut author = Author::default();
    let writer = author.acquire(10 * MS, 11 * MS, "me", Mode::Exclusive, 1);
    author.token += 1;
    author.acquire(12 * MS, 13 * MS, "me", Mode::Read, 1);
    let release = author.release(14 * MS, writer, "me");
    author.answer(15 * MS, release, Answer::Released);
    author.token += 1;
    author.acquire(12 * MS, 16 * MS, "other", Mode::Read, 1);
    check(&author.events, &Demands::none()).expect_valid();
    author.acquire(12 * MS, 13 * MS, "too early", Mode::Read, 1);
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
}

#[test]
fn a_grant_that_came_too_late_counts_for_tokens_but_not_as_a_hold() {
    let mut author = Author::default();
    let late = author.acquire(10 * MS, 200 * MS, "late", Mode::Exclusive, 1);
    for event in &mut author.events {
        if let What::Ok {
            op,
            answer: Answer::Granted { deadline, .. },
        } = &mut event.what
            && *op == late
        {
            *deadline = 110 * MS;
        }
    }
    author.token += 1;
    author.acquire(20 * MS, 120 * MS, "next", Mode::Exclusive, 1);
    check(&author.events, &Demands::none()).expect_valid();
    author.acquire(201 * MS, 220 * MS, "same token", Mode::Exclusive, 1);
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S2));
}

#[test]
fn a_history_that_contradicts_itself_is_a_failure() {
    let mut author = Author::default();
    author.answer(10 * MS, 77, Answer::Released);
    assert!(check(&author.events, &Demands::none()).breaks(Rule::History));
}

#[test]
fn a_hundred_thousand_events_are_judged_in_no_time() {
    let mut author = Author::default();
    for turn in 0..25_000u64 {
        author.token += 1;
        let at = turn * 10 * MS;
        let owner = format!("o{}", turn % 64);
        let op = author.acquire(
            at.saturating_sub(50 * MS),
            at + MS,
            &owner,
            Mode::Exclusive,
            1,
        );
        let release = author.release(at + 2 * MS, op, &owner);
        author.answer(at + 3 * MS, release, Answer::Released);
    }
    let began = std::time::Instant::now();
    let stats = check(&author.events, &Demands::default()).expect_valid();
    assert_eq!(stats.grants, 25_000);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_look_that_says_yes_too_late_is_a_violation() {
    let mut author = Author::default();
    let hold = author.acquire(10 * MS, 11 * MS, "me", Mode::Exclusive, 1);
    let look = |asked, deadline| What::Look {
        hold,
        asked,
        deadline,
    };
    // Written late, because its process was stopped in between: what counts is when it was asked.
    author.push(500 * MS, look(100 * MS, 110 * MS));
    check(&author.events, &Demands::none()).expect_valid();
    author.push(501 * MS, look(115 * MS, 110 * MS));
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
    author.events.pop();
    // The same after it was told.
    author.push(90 * MS, What::Lost { hold });
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
    author.events.pop();
    // It believes for longer than was granted: what others are granted meanwhile overlaps.
    author.push(105 * MS, look(105 * MS, 300 * MS));
    author.token += 1;
    author.acquire(20 * MS, 120 * MS, "next", Mode::Exclusive, 1);
    assert!(check(&author.events, &Demands::none()).breaks(Rule::S1));
}

#[test]
fn the_next_grant_comes_soon_after_faults_are_over() {
    let demands = Demands::none().recovery(Duration::from_millis(100));
    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "before", Mode::Exclusive, 1);
    author.push(200 * MS, What::Healed);
    assert!(check(&author.events, &demands).breaks(Rule::L2));
    author.token += 1;
    author.acquire(150 * MS, 290 * MS, "after", Mode::Exclusive, 1);
    check(&author.events, &demands).expect_valid();
    author.events[2].at = 180 * MS;
    assert!(check(&author.events, &demands).breaks(Rule::L2));
}

#[test]
fn a_holder_is_told_of_its_loss() {
    let demands = Demands::none().notice(Duration::from_millis(50));
    let mut author = Author::default();
    let hold = author.acquire(10 * MS, 11 * MS, "me", Mode::Exclusive, 1);
    author.push(400 * MS, What::Healed);
    assert!(check(&author.events, &demands).breaks(Rule::L3));
    author.push(150 * MS, What::Lost { hold });
    check(&author.events, &demands).expect_valid();
    author.events.pop();
    author.push(170 * MS, What::Lost { hold });
    assert!(check(&author.events, &demands).breaks(Rule::L3));
    // A stopped process cannot be told anything.
    let process = "p".into();
    author.push(50 * MS, What::Fault(Fault::Stopped { process }));
    check(&author.events, &demands).expect_valid();
}

#[test]
fn what_is_left_behind_is_a_violation() {
    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "me", Mode::Exclusive, 1);
    check(&author.events, &Demands::none()).expect_valid();
    let what = "a key".into();
    author.push(400 * MS, What::Left { what });
    assert!(check(&author.events, &Demands::none()).breaks(Rule::L4));
}

#[test]
fn a_killed_holder_keeps_nobody_out_for_longer_than_it_may_linger() {
    let mut author = Author::default();
    author.acquire(10 * MS, 11 * MS, "killed", Mode::Exclusive, 1);
    // It believed that it holds for ever.
    for event in &mut author.events {
        if let What::Ok {
            answer: Answer::Granted { deadline, .. },
            ..
        } = &mut event.what
        {
            *deadline = u64::MAX;
        }
    }
    let process = "p".to_owned();
    author.push(20 * MS, What::Fault(Fault::Killed { process }));
    let busy = |author: &mut Author, at| {
        let call = Call::Acquire {
            lock: "a".into(),
            owner: "next".into(),
            mode: Mode::Exclusive,
            together: None,
        };
        let asked = author.call(at, call);
        author.answer(at + MS, asked, Answer::Busy);
        for event in author.events.iter_mut().rev().take(2) {
            event.process = "q".into();
        }
    };
    busy(&mut author, 200 * MS);
    check(&author.events, &demands()).expect_valid();
    busy(&mut author, 230 * MS);
    assert!(check(&author.events, &demands()).breaks(Rule::L1));
}
