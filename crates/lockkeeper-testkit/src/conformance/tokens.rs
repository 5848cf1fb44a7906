//! Fencing tokens: they only grow.

use lockkeeper::clock::Clock;
use lockkeeper::store::{Grant, Mode};

use super::Subject;
use super::client::SHORT;

/// The first token after a run.
fn end(grant: Grant) -> u64 {
    grant.token.get() + u64::from(grant.tokens)
}

pub(super) async fn tokens_grow_with_every_release(s: Subject) {
    let (a, b) = s.clients();
    let mut highest = 0;
    for round in 0..20 {
        let client = if round % 2 == 0 { &a } else { &b };
        let claim = client.claim("growing");
        let grant = client.granted(&claim).await;
        assert!(grant.token.get() >= highest, "round {round}");
        highest = end(grant);
        assert!(client.release(&claim).await);
    }
}

pub(super) async fn tokens_grow_over_an_expiry(s: Subject) {
    let (a, b) = s.clients();
    let first = a.granted(&a.with_lease("expired", SHORT)).await;
    let second = b.eventually(&b.claim("expired")).await;
    assert!(second.token.get() >= end(first));
}

pub(super) async fn tokens_grow_over_a_break(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("broken");
    let first = a.granted(&claim).await;
    b.break_lock(&claim.name, "stuck").await;
    let second = b.granted(&b.claim("broken")).await;
    assert!(second.token.get() >= end(first));
}

pub(super) async fn reserved_runs_do_not_overlap(s: Subject) {
    let (a, b) = s.clients();
    let mut highest = 0;
    for round in 0..10u32 {
        let client = if round % 2 == 0 { &a } else { &b };
        let reserve = 1 + round * 7;
        let claim = client.claim("runs").with_reserve(reserve);
        let grant = client.granted(&claim).await;
        assert!((1..=reserve).contains(&grant.tokens), "{grant:?}");
        assert!(grant.token.get() >= highest, "round {round}");
        highest = end(grant);
        assert!(client.release(&claim).await);
    }
}

pub(super) async fn tokens_grow_past_a_long_run(s: Subject) {
    let (a, b) = s.clients();
    // The run ends ahead of the clock, so that only memory of it keeps the next token above.
    let long = a.claim("ahead").with_reserve(900_000);
    let first = a.granted(&long).await;
    assert!(a.release(&long).await);
    let second = b.granted(&b.claim("ahead")).await;
    assert!(second.token.get() >= end(first));
}

pub(super) async fn names_have_tokens_of_their_own(s: Subject) {
    let (a, b) = s.clients();
    let one = a.granted(&a.claim("one")).await;
    let two = b.granted(&b.claim("two")).await;
    let info = a.inspect(&a.claim("one").name).await.expect("it is held");
    assert_eq!(info.last_token, Some(one.token));
    let info = a.inspect(&a.claim("two").name).await.expect("it is held");
    assert_eq!(info.last_token, Some(two.token));
}

pub(super) async fn tokens_are_at_least_the_wall_clock(s: Subject) {
    let (a, b) = s.clients();
    for client in [&a, &b] {
        // A little slack: a server's clock is not this machine's.
        let now = Clock::real().unix_micros().saturating_sub(5_000_000);
        let claim = client.claim("clock");
        let grant = client.granted(&claim).await;
        assert!(grant.token.get() >= now);
        assert!(client.release(&claim).await);
    }
}

pub(super) async fn tokens_grow_across_modes(s: Subject) {
    let (a, b) = s.clients();
    let mut highest = 0;
    for mode in [
        Mode::Write,
        Mode::Read,
        Mode::Exclusive,
        Mode::Read,
        Mode::Write,
    ] {
        for client in [&a, &b] {
            let claim = client.with_mode("modes", mode);
            let grant = client.granted(&claim).await;
            assert!(grant.token.get() >= highest, "{mode}");
            highest = end(grant);
            assert!(client.release(&claim).await);
        }
    }
}

pub(super) async fn a_waiter_gets_the_run_it_asked_for(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("run");
    let first = a.granted(&holding).await;
    let wish = b.claim("run").with_reserve(8);
    let waiting = b.queued(wish).await;
    assert!(a.release(&holding).await);
    let grant = b.granted(&waiting).await;
    assert!(grant.token.get() >= end(first));
    assert_eq!(grant.tokens, 8);
    assert!(b.release(&waiting).await);
    let next = a.granted(&a.claim("run")).await;
    assert!(next.token.get() >= end(grant));
}
