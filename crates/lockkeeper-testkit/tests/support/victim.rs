//! A process that holds while something happens to it.

use lockkeeper_testkit::checker::{Demands, FaultKind, Rule};
use lockkeeper_testkit::history::Event;
use lockkeeper_testkit::process::Taker;

use crate::crew::{Crew, demands, grants, judged};

/// A process that holds, and has read the resource.
pub fn victim(crew: &Crew, url: &str, lease: &str, more: &[&str]) -> Taker {
    let mut victim = crew.holder("victim", url, lease, more);
    victim.expect("held");
    told(&mut victim, "read", "read");
    victim
}

/// Tells it to do something, and hears how that went.
#[track_caller]
pub fn told(taker: &mut Taker, line: &str, answer: &str) {
    taker.tell(line).expect("listens");
    taker.expect(answer);
}

/// When a look of it at its guard last said yes.
pub fn last_held(victim: &mut Taker) -> u64 {
    victim.tell("last-held").expect("listens");
    victim.expect("last-held").parse().expect("a moment")
}

/// It holds, writes, lets go and ends, as if nothing had happened.
#[track_caller]
pub fn ends_well(victim: &mut Taker) {
    told(victim, "is-held", "is-held true");
    told(victim, "write", "accepted");
    told(victim, "release", "released");
    assert!(victim.wait().expect("ends"));
}

/// It was cut off, and may not be connected yet: its release is in doubt then. It never says that it freed the lock.
#[track_caller]
pub fn frees_nothing(victim: &mut Taker) {
    victim.tell("release").expect("listens");
    let said = victim.expect_one(&["not-held", "release-unknown", "released"]);
    assert!(!said.starts_with("released"), "{said}");
    assert!(victim.wait().expect("ends"));
}

/// What is demanded where the victim lost its hold and wrote in vain.
pub fn refused() -> Demands {
    demands()
        .fault(FaultKind::HoldExpired, 1)
        .fault(FaultKind::WriteRefused, 1)
}

/// Two held at the same time, and the checker sees it; but tokens grew and no update was lost.
#[track_caller]
pub fn shown_unsafe_but_fenced(events: &[Event]) {
    assert!(grants(events) >= 100, "{} grants", grants(events));
    let verdict = judged(events, &demands());
    assert!(verdict.breaks(Rule::S1), "it was safe: {verdict}");
    // That it was gone before its deadline is the same thing, seen by its holder.
    let expected = [Rule::S1, Rule::S4].into();
    assert!(verdict.rules().is_subset(&expected), "{verdict}");
}
