//! Count-down latches.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::LatchOp::{CountDown, Open, Read, Set};
use lockkeeper::store::{Interest, LatchRequest, LatchState};

use super::Subject;
use super::client::{hinted, name};

fn state(count: u32, changed: bool) -> LatchState {
    LatchState::new(count, changed)
}

pub(super) async fn an_unset_latch_is_open(s: Subject) {
    let (a, b) = s.clients();
    assert_eq!(a.latch("unset", Read).await, state(0, false));
    assert_eq!(b.latch("unset", CountDown).await, state(0, false));
    assert_eq!(b.latch("unset", Open).await, state(0, false));
    assert_eq!(a.latch("unset", Set(0)).await, state(0, false));
}

pub(super) async fn a_latch_counts_down_to_open(s: Subject) {
    let (a, b) = s.clients();
    assert_eq!(a.latch("count", Set(3)).await, state(3, true));
    assert_eq!(b.latch("count", Read).await, state(3, false));
    for left in [2, 1, 0] {
        assert_eq!(b.latch("count", CountDown).await, state(left, true));
        assert_eq!(a.latch("count", Read).await, state(left, false));
    }
    assert_eq!(a.latch("count", CountDown).await, state(0, false));
}

pub(super) async fn a_closed_latch_is_not_set_again(s: Subject) {
    let (a, b) = s.clients();
    a.latch("closed", Set(2)).await;
    assert_eq!(b.latch("closed", Set(9)).await, state(2, false));
    assert_eq!(a.latch("closed", CountDown).await, state(1, true));
    assert_eq!(b.latch("closed", Set(9)).await, state(1, false));
}

pub(super) async fn counting_down_twice_with_one_id_counts_once(s: Subject) {
    let (a, b) = s.clients();
    a.latch("once", Set(3)).await;
    let id = b.id();
    assert_eq!(b.latch_as("once", id, CountDown).await, state(2, true));
    for _ in 0..3 {
        let repeated = b.latch_as("once", id, CountDown).await;
        assert_eq!(repeated, state(2, false));
    }
    assert_eq!(a.latch("once", CountDown).await, state(1, true));
}

pub(super) async fn an_opened_latch_can_be_set_again(s: Subject) {
    let (a, b) = s.clients();
    a.latch("reset", Set(5)).await;
    let id = a.id();
    a.latch_as("reset", id, CountDown).await;
    assert_eq!(b.latch("reset", Open).await, state(0, true));
    assert_eq!(a.latch("reset", Read).await, state(0, false));
    assert_eq!(a.latch("reset", Set(2)).await, state(2, true));
    assert_eq!(b.latch("reset", Read).await, state(2, false));
}

pub(super) async fn a_late_request_leaves_the_latch_alone(s: Subject) {
    let (a, _) = s.clients();
    a.latch("late", Set(2)).await;
    for op in [CountDown, Open, Set(7)] {
        let request = LatchRequest::new(
            name("late"),
            a.id(),
            op,
            Moment::now() - Duration::from_millis(10),
        );
        let answer = a.store.latch(&request).await.expect("latch answers");
        assert_eq!(answer, state(2, false), "{op:?}");
    }
}

pub(super) async fn a_latch_and_a_lock_of_one_name_are_apart(s: Subject) {
    let (a, b) = s.clients();
    a.latch("both", Set(2)).await;
    let claim = b.claim("both");
    b.granted(&claim).await;
    assert_eq!(a.latch("both", CountDown).await, state(1, true));
    assert!(b.release(&claim).await);
    assert_eq!(a.latch("both", Read).await, state(1, false));
    a.break_lock(&claim.name, "stuck").await;
    assert_eq!(a.latch("both", Read).await, state(1, false));
    assert!(a.list("").await.is_empty(), "a latch is no lock");
}

pub(super) async fn a_crowd_counts_down_exactly(s: Subject) {
    let (a, _) = s.clients();
    a.latch("crowd", Set(50)).await;
    let mut tasks = Vec::new();
    for client in s.crowd(10) {
        tasks.push(tokio::spawn(async move {
            let mut changed = 0;
            for _ in 0..6 {
                let answer = client.latch("crowd", CountDown).await;
                changed += u32::from(answer.changed);
            }
            changed
        }));
    }
    let mut changed = 0;
    for task in tasks {
        changed += task.await.expect("a client finishes");
    }
    // Sixty tries on a count of fifty.
    assert_eq!(changed, 50);
    assert_eq!(a.latch("crowd", Read).await, state(0, false));
}

pub(super) async fn a_latch_hints_when_it_opens(s: Subject) {
    let (a, b) = s.clients();
    for op in [CountDown, Open] {
        a.latch("hints", Set(1)).await;
        let interest = Interest::Latch(name("hints"));
        let subscription = b.subscribe(interest).await;
        assert_eq!(b.latch("hints", Read).await.count, 1);
        assert!(a.latch("hints", op).await.changed);
        hinted(&subscription).await;
        assert_eq!(b.latch("hints", Read).await.count, 0);
    }
}
