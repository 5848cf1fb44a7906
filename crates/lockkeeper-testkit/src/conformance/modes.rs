//! Which holds stand beside which: readers, writers, fair locks.

use lockkeeper::store::{Attempt, Claim, ClaimId, Mode};

use super::Subject;
use super::client::Client;

/// A wish of a writer to go on as a reader.
fn reader_beside(client: &Client, text: &str, beside: ClaimId) -> Claim {
    client
        .with_mode(text, Mode::Read)
        .with_beside(Some(beside))
        .with_label(None)
}

pub(super) async fn readers_share_and_a_writer_does_not(s: Subject) {
    let (a, b) = s.clients();
    let [one, two] = [&a, &b].map(|client| client.with_mode("book", Mode::Read));
    a.granted(&one).await;
    b.granted(&two).await;
    b.busy(&b.with_mode("book", Mode::Write)).await;
    b.busy(&b.with_mode("book", Mode::Exclusive)).await;
    assert!(a.release(&one).await);
    b.busy(&b.with_mode("book", Mode::Write)).await;
    assert!(b.release(&two).await);
    let writer = b.with_mode("book", Mode::Write);
    b.granted(&writer).await;
    a.busy(&a.with_mode("book", Mode::Read)).await;
    a.busy(&a.with_mode("book", Mode::Write)).await;
    assert!(b.release(&writer).await);
    a.granted(&a.with_mode("book", Mode::Read)).await;
}

pub(super) async fn a_waiting_writer_is_not_starved(s: Subject) {
    let (a, b) = s.clients();
    let reader = a.with_mode("starved", Mode::Read);
    a.granted(&reader).await;
    let writer = b.queued(b.with_mode("starved", Mode::Write)).await;
    // A reader could stand beside the reader that holds, but the writer was there first.
    a.busy(&a.with_mode("starved", Mode::Read)).await;
    let later = a.queued(a.with_mode("starved", Mode::Read)).await;
    assert!(a.release(&reader).await);
    b.granted(&writer).await;
    a.busy(&later).await;
    assert!(b.release(&writer).await);
    a.granted(&later).await;
}

pub(super) async fn readers_behind_a_writer_are_granted_together(s: Subject) {
    let (a, _) = s.clients();
    let writer = a.with_mode("together", Mode::Write);
    a.granted(&writer).await;
    let mut readers = Vec::new();
    for client in s.crowd(4) {
        let claim = client
            .queued(client.with_mode("together", Mode::Read))
            .await;
        readers.push((client, claim));
    }
    assert!(a.release(&writer).await);
    for (client, claim) in readers.iter().rev() {
        client.granted(claim).await;
    }
    let info = a.inspect(&writer.name).await.expect("it is held");
    assert_eq!(info.holders.len(), 4);
}

pub(super) async fn readers_do_not_pass_a_writer_in_the_queue(s: Subject) {
    let (a, b) = s.clients();
    let first = a.with_mode("mixed", Mode::Read);
    a.granted(&first).await;
    let writer1 = b.queued(b.with_mode("mixed", Mode::Write)).await;
    let reader2 = a.queued(a.with_mode("mixed", Mode::Read)).await;
    let writer2 = b.queued(b.with_mode("mixed", Mode::Write)).await;
    let reader3 = a.queued(a.with_mode("mixed", Mode::Read)).await;
    let order = [
        (&a, first),
        (&b, writer1),
        (&a, reader2),
        (&b, writer2),
        (&a, reader3),
    ];
    for pair in order.windows(2) {
        let [(client, claim), (next_client, next)] = pair else {
            continue;
        };
        next_client.busy(next).await;
        client.granted(claim).await;
        assert!(client.release(claim).await);
        next_client.granted(next).await;
    }
}

pub(super) async fn a_writer_becomes_a_reader_without_letting_go(s: Subject) {
    let (a, b) = s.clients();
    let writer = a.with_mode("downgrade", Mode::Write);
    let grant = a.granted(&writer).await;
    for mode in [Mode::Write, Mode::Exclusive] {
        let mut other = a.with_mode("downgrade", mode);
        other.beside = Some(writer.id);
        a.busy(&other).await;
    }
    let reader = reader_beside(&a, "downgrade", writer.id);
    let as_reader = a.granted(&reader).await;
    assert!(as_reader.token > grant.token);
    // Both stand; nobody else may.
    b.busy(&b.with_mode("downgrade", Mode::Read)).await;
    assert!(a.release(&writer).await);
    b.busy(&b.with_mode("downgrade", Mode::Write)).await;
    let other = b.with_mode("downgrade", Mode::Read);
    b.granted(&other).await;
    assert!(a.release(&reader).await);
    assert!(b.release(&other).await);
    b.granted(&b.with_mode("downgrade", Mode::Write)).await;
}

pub(super) async fn becoming_a_reader_does_not_wait_in_the_queue(s: Subject) {
    let (a, b) = s.clients();
    let writer = a.with_mode("first", Mode::Write);
    a.granted(&writer).await;
    let next = b.queued(b.with_mode("first", Mode::Write)).await;
    let reader = reader_beside(&a, "first", writer.id);
    a.granted(&reader).await;
    assert!(a.release(&writer).await);
    b.busy(&next).await;
    assert!(a.release(&reader).await);
    b.granted(&next).await;
}

pub(super) async fn standing_beside_a_foreign_hold_is_refused(s: Subject) {
    let (a, b) = s.clients();
    let theirs = b.with_mode("foreign", Mode::Write);
    b.granted(&theirs).await;
    // What it names is gone, or never was: it excuses nothing, and does not queue.
    let reader = reader_beside(&a, "foreign", a.id()).with_enqueue(true);
    let attempt = a.attempt(&reader).await;
    assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
    assert_eq!(a.waiters(&reader.name).await, 0);
    assert!(b.release(&theirs).await);
    b.granted(&b.with_mode("foreign", Mode::Write)).await;
}

pub(super) async fn fair_and_exclusive_claims_exclude_each_other(s: Subject) {
    let (a, b) = s.clients();
    for (mine, theirs) in [
        (Mode::Fair, Mode::Exclusive),
        (Mode::Exclusive, Mode::Fair),
        (Mode::Fair, Mode::Fair),
    ] {
        let claim = a.with_mode("fair", mine);
        a.granted(&claim).await;
        b.busy(&b.with_mode("fair", theirs)).await;
        assert!(a.release(&claim).await);
        let claim = b.with_mode("fair", theirs);
        b.granted(&claim).await;
        assert!(b.release(&claim).await);
    }
}

/// A claim that stands beside nothing is like any other: it does not pass a writer that waits.
pub(super) async fn standing_beside_nothing_waits_its_turn(s: Subject) {
    let (a, b) = s.clients();
    let reader = a.with_mode("turn", Mode::Read);
    a.granted(&reader).await;
    b.queued(b.with_mode("turn", Mode::Write)).await;
    let late = a
        .with_mode("turn", Mode::Read)
        .with_beside(Some(a.id()))
        .with_label(None);
    a.busy(&late).await;
}
