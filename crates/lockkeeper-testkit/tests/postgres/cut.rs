//! A verb that is cut off: its connection ends at any byte of its request or of the reply, or its caller goes away.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::postgres::PostgresStore;
use lockkeeper::store::{Attempt, Claim, ClaimId, KeeperId, Mode, Release, Store};
use lockkeeper::{Error, Name};
use lockkeeper_testkit::servers::postgres::PostgresServer;

use crate::claims::until;
use crate::common::open;
use crate::cutting::{Left, way_to};

/// From one place of a cut to the next. A prime, so that no field always ends there.
const STEP: usize = 13;

fn claim(keeper: KeeperId, number: u64, text: &str) -> Claim {
    let name = Name::new(text).expect("a name");
    let id = ClaimId { keeper, number };
    let lease = Duration::from_secs(30);
    Claim::new(id, name, Mode::Exclusive, lease).with_not_after(Moment::NEVER)
}

async fn granted(store: &PostgresStore, claim: &Claim) -> bool {
    matches!(store.try_acquire(claim).await, Ok(Attempt::Granted(_)))
}

async fn holds(store: &PostgresStore, claim: &Claim) -> bool {
    let info = store.inspect(&claim.name).await.expect("looks");
    let holders = info.map(|info| info.holders).unwrap_or_default();
    holders.iter().any(|holder| holder.claim == claim.id)
}

/// Two stores on tables of their own: one whose way can be cut, and one by which to see what is true.
async fn stores() -> (Arc<Left>, PostgresStore, PostgresStore) {
    let server = PostgresServer::shared();
    let (port, left) = way_to(server.port()).await;
    let schema = PostgresServer::fresh_schema();
    let url = |port: u16| format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}");
    let (store, straight) = (open(&url(port)).await, open(&url(server.port())).await);
    (left, store, straight)
}

/// A verb that fails changed nothing, unless it says that nobody knows; and nothing stays behind.
#[tokio::test]
async fn a_connection_may_end_at_any_byte_of_a_verb() {
    let (left, store, straight) = stores().await;
    let (me, other) = (KeeperId::new(), KeeperId::new());
    // The keeper has said who it is before the first cut.
    assert!(granted(&store, &claim(me, 1, "before")).await);
    let mut unknown = 0;
    for way in [0, 1] {
        for round in 0.. {
            let (number, name) = (10 + 2 * round as u64, format!("way {way}, {round}"));
            let (mine, theirs) = (claim(me, number, &name), claim(other, number, &name));
            left.cut(way, round * STEP);
            let outcome = store.try_acquire(&mine).await;
            let whole = !left.is_cut(way);
            left.heal();
            match &outcome {
                Ok(Attempt::Granted(_)) => assert!(holds(&straight, &mine).await),
                Err(Error::OutcomeUnknown { .. }) => unknown += 1,
                Err(_) => assert!(!holds(&straight, &mine).await, "{outcome:?}"),
                Ok(attempt) => panic!("{attempt:?}"),
            }
            until("it is taken back", async || {
                store.withdraw(&mine.name, mine.id).await.is_ok()
            })
            .await;
            assert!(granted(&straight, &theirs).await, "{name}: {outcome:?}");

            left.cut(way, round * STEP);
            let release = Release::new(theirs.name.clone(), theirs.id);
            let outcome = store.release(&release).await;
            left.heal();
            let held = holds(&straight, &theirs).await;
            match outcome {
                Ok(done) => assert!(done.was_held && !held, "{name}: {done:?}"),
                Err(Error::OutcomeUnknown { .. }) => unknown += 1,
                Err(error) => assert!(held, "{name}: {error}"),
            }
            until("it is let go of", async || {
                store.release(&release).await.is_ok()
            })
            .await;
            let last = claim(me, number + 1, &name);
            assert!(granted(&straight, &last).await, "{name}");
            if whole {
                // Longer than the request or the reply: all has been cut.
                assert!(round > 3, "{round}");
                break;
            }
        }
    }
    assert!(unknown > 4, "{unknown}");
}

/// A caller that goes away in the middle of a verb leaves nothing behind that a withdrawal does not undo, and the answer is nobody else's.
#[tokio::test]
async fn a_caller_may_go_away_at_any_time() {
    let (_, store, straight) = stores().await;
    let (me, other) = (KeeperId::new(), KeeperId::new());
    let mut done = 0;
    for round in 0..100_u32 {
        let name = format!("round {}", round % 7);
        let mine = claim(me, (2 * round).into(), &name).with_enqueue(true);
        let theirs = claim(other, round.into(), &name);
        let held = round % 2 == 0 && granted(&straight, &theirs).await;
        let time = Duration::from_micros(50 * u64::from(round));
        done += u32::from(
            tokio::time::timeout(time, store.try_acquire(&mine))
                .await
                .is_ok(),
        );
        // The next verb on the same connection is answered by its own answer.
        let free = claim(me, (2 * round + 1).into(), &format!("free {round}"));
        assert!(granted(&store, &free).await);
        assert!(store.withdraw(&mine.name, mine.id).await.is_ok());
        if held {
            let release = Release::new(theirs.name.clone(), theirs.id);
            assert!(store.release(&release).await.is_ok());
        }
        let last = claim(other, 1_000 + u64::from(round), &name);
        assert!(granted(&straight, &last).await, "{round}");
        let release = Release::new(last.name.clone(), last.id);
        assert!(straight.release(&release).await.is_ok());
    }
    assert!(done < 100, "nobody went away");
}
