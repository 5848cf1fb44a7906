//! A verb that is cut off: its connection ends at any byte of its request or of the reply, or its caller goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::postgres::PostgresStore;
use lockkeeper::store::{Attempt, Claim, ClaimId, KeeperId, Mode, Release, Store};
use lockkeeper::{Error, Name};
use lockkeeper_testkit::servers::postgres::PostgresServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::claims::until;
use crate::common::open;

const NEVER: i64 = i64::MAX;
/// From one place of a cut to the next. A prime, so that no field always ends there.
const STEP: usize = 13;

/// How many bytes still pass, of requests and of replies.
#[derive(Debug)]
struct Left([AtomicI64; 2]);

impl Left {
    fn cut(&self, way: usize, after: usize) {
        self.0[way].store(after as i64, SeqCst);
    }

    fn is_cut(&self, way: usize) -> bool {
        self.0[way].load(SeqCst) <= 0
    }

    fn heal(&self) {
        self.0.iter().for_each(|left| left.store(NEVER, SeqCst));
    }
}

/// A way to the server whose connections end once so many bytes have passed.
async fn way_to(server: u16) -> (u16, Arc<Left>) {
    let left = Arc::new(Left([AtomicI64::new(NEVER), AtomicI64::new(NEVER)]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let shared = left.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
                continue;
            };
            let left = shared.clone();
            tokio::spawn(async move {
                let (client_read, client_write) = client.into_split();
                let (server_read, server_write) = server.into_split();
                // The first that ends takes the other with it: the connection is closed.
                tokio::select! {
                    () = pass(client_read, server_write, &left.0[0]) => {}
                    () = pass(server_read, client_write, &left.0[1]) => {}
                }
            });
        }
    });
    (port, left)
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: &AtomicI64) {
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let before = match left.load(SeqCst) {
            NEVER => NEVER,
            _ => left.fetch_sub(read as i64, SeqCst),
        };
        let passes = usize::try_from(before).unwrap_or(0).min(read);
        if to.write_all(&buffer[..passes]).await.is_err() || passes < read || read == 0 {
            return;
        }
    }
}

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
