//! A process that holds while something happens to it.

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, FaultKind, Rule};
use lockkeeper_testkit::history::{Event, Fault};
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

/// Its late write is refused, and no look of it at its guard has said yes since.
#[track_caller]
pub fn is_fenced_off(victim: &mut Taker, since: Moment) {
    told(victim, "write", "refused");
    victim.tell("last-held").expect("listens");
    let last: u64 = victim.expect("last-held").parse().expect("a moment");
    assert!(last < since.as_nanos(), "it believes again");
}

/// A process that holds is stopped while others work. It knows that it lost, is fenced off, and its release says so.
pub fn oversleeps(crew: &mut Crew) {
    let url = crew.url();
    crew.busy(2, 30);
    let mut victim = victim(crew, &url, "1s", &[]);
    victim.stop().expect("is stopped");
    let process = "victim".into();
    crew.driver.fault(Fault::Stopped { process });
    crew.work(60);
    let resumed = Moment::now();
    victim.go_on().expect("goes on");
    crew.healed();
    victim.expect("lost");
    told(&mut victim, "is-held", "is-held false");
    is_fenced_off(&mut victim, resumed);
    told(&mut victim, "release", "not-held");
    assert!(victim.wait().expect("ends"));
    crew.work(30);
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
