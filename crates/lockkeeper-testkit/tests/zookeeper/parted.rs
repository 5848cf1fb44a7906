//! An ensemble of three with one server cut off from the others. It goes on answering pings and reads. A holder of ours is told
//! in time; a lock that trusts its session's pings is not, and two hold it.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperOptions};
use lockkeeper_testkit::servers::zookeeper_session::{Node, ZooKeeperSession};

use super::claims::claim_for;
use super::common::{granted, in_the_end, open, soon};

const SESSION: Duration = Duration::from_secs(4);

/// A server that waits for the others for so many seconds.
pub fn patient(seconds: u32) -> ZooKeeperOptions {
    ZooKeeperOptions {
        sync_limit: seconds * 10,
        // One that is cut off may seem to lead: nobody waits for it for long.
        lines: vec!["initLimit=100".into()],
        ..ZooKeeperOptions::default()
    }
}

async fn keeper(servers: &Ensemble, server: usize) -> Lockkeeper {
    let port = servers.all()[server].port();
    let options = "session_timeout=4s&timeout=700ms&connect_timeout=700ms";
    let url = format!("zk://127.0.0.1:{port}/x?{options}");
    Lockkeeper::connect(&url).await.expect("connects")
}

fn session(servers: &Ensemble, server: usize) -> ZooKeeperSession {
    ZooKeeperSession::open(servers.all()[server].port(), SESSION)
}

/// Holds at one server, waits at another, and cuts the first off.
async fn told_in_time(servers: &Ensemble, cut_off: usize, other: usize) {
    let (far, near) = (keeper(servers, cut_off).await, keeper(servers, other).await);
    let naive = session(servers, cut_off);
    naive.folders("/naive");
    let node = naive.create("/naive/lock-", b"", Node::Sequential);
    let node = node.expect("creates");
    let guard = far.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let lock = near.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move {
        // While there is no leader, nobody answers.
        loop {
            match lock.acquire().await {
                Ok(guard) => return (Moment::now(), guard),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    });
    let look = session(servers, cut_off);
    soon("a waiter", async {
        while look.children("/x/a").len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    servers.cut_off(cut_off);
    soon("the loss", guard.lost()).await;
    let lost = Moment::now();
    let won = tokio::time::timeout(Duration::from_secs(90), waiting).await;
    let Ok(won) = won else {
        let look = session(servers, other);
        let nodes = look.children("/x/a").into_iter().map(|node| {
            let read = look.data(&format!("/x/a/{node}"));
            let (data, stat) = read.expect("reads");
            format!("{node} {stat:?} {}", String::from_utf8_lossy(&data))
        });
        let nodes: Vec<String> = nodes.collect();
        panic!("nobody holds: {nodes:#?}, leader {}", servers.leader());
    };
    let (won, next) = won.expect("no panic");
    assert!(lost <= won, "told {:?} late", lost.since(won));
    assert!(!guard.is_held() && next.is_held());
    assert!(next.token() > guard.token());
    // The one that renews by ping believes to hold what others hold by now.
    let rival = session(servers, other);
    let first = rival
        .create("/naive/lock-", b"", Node::Sequential)
        .expect("creates");
    soon("the naive lock", async {
        while rival
            .children("/naive")
            .first()
            .map(|node| format!("/naive/{node}"))
            != Some(first.clone())
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(naive.is_answered(), "its pings are answered");
    assert!(naive.data(&node).is_ok(), "and its node is there");
    next.release().await.expect("releases");
    servers.heal(cut_off);
}

pub async fn started(options: [ZooKeeperOptions; 3], leader: Option<usize>) -> Ensemble {
    let starting = tokio::task::spawn_blocking(move || {
        let mut servers = Ensemble::start_apart(options);
        if let Some(leader) = leader {
            servers.elect(leader);
        }
        servers
    });
    starting.await.expect("no panic")
}

/// curator#985, #727, at a follower that has lost its leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_at_a_follower_that_is_cut_off_is_told_in_time() {
    let servers = started([patient(60), patient(60), patient(60)], None).await;
    let leader = servers.leader();
    told_in_time(&servers, (leader + 1) % 3, leader).await;
}

/// The same at a leader whose followers have elected another.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_at_a_leader_that_was_deposed_is_told_in_time() {
    let servers = started([patient(6), patient(6), patient(90)], Some(2)).await;
    told_in_time(&servers, 2, 0).await;
    assert_ne!(servers.leader(), 2, "the others have one of their own");
}

/// What the leader says is kept from its follower for nearly as long as a session lives. The follower answers pings and hands a
/// write on, which is committed and answered; but the leader has heard of the session too long ago, and ends it soon after.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_proves_nothing_where_the_leader_was_not_heard() {
    let servers = started([patient(60), patient(60), patient(60)], None).await;
    let leader = servers.leader();
    let follower = (leader + 1) % 3;
    let store = async |server: usize| {
        let port = servers.all()[server].port();
        open(&format!(
            "zk://127.0.0.1:{port}/x?session_timeout=4s&timeout=5s"
        ))
        .await
    };
    let (far, near) = (store(follower).await, store(leader).await);
    // A folder that is not swept, and what both know of tokens.
    let look = session(&servers, leader);
    look.folders("/x/a");
    let lease = Duration::from_millis(2_600);
    for store in [&far, &near] {
        let claim = claim_for(lease, "warm", Mode::Exclusive);
        granted(store, &claim).await;
        assert!(
            super::claims::release(store, &claim)
                .await
                .expect("releases")
        );
    }
    // The first byte of a session's number is that of the server that opened it.
    let theirs = format!("0x{}0", follower + 1);
    let lives = || servers.all()[leader].word("dump").contains(&theirs);
    assert!(lives());
    servers.silence(leader, follower);
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    let claim = claim_for(lease, "a", Mode::Exclusive);
    let asked = Moment::now();
    let trying = {
        let claim = claim.clone();
        tokio::spawn(async move { (far.try_acquire(&claim).await, far) })
    };
    // The write, if there is one, is committed.
    let end = Moment::now() + Duration::from_millis(500);
    while look.children("/x/a").is_empty() && Moment::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Its answer comes; what the follower knows of the session does not.
    servers.silence(follower, leader);
    servers.let_speak(leader, follower);
    soon("the end of the session", async {
        while lives() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let next = claim_for(lease, "a", Mode::Exclusive);
    in_the_end(&near, &next).await;
    let granted_again = Moment::now();
    servers.let_speak(follower, leader);
    let (tried, _far) = soon("an answer", trying).await.expect("no panic");
    let believes = matches!(tried, Ok(Attempt::Granted(_))) && granted_again < asked + lease;
    assert!(!believes, "two hold it");
}

/// One of the servers hangs. The store gives it up in time to go on holding at another.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_takes_no_hold_along() {
    let servers = started([patient(60), patient(60), patient(60)], None).await;
    let port = |server: usize| servers.all()[server].port();
    let proxies = [Proxy::to(port(0)), Proxy::to(port(1))];
    let url = format!(
        "zk://127.0.0.1:{},127.0.0.1:{}/x?session_timeout=6s",
        proxies[0].port(),
        proxies[1].port()
    );
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    let guard = keeper.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    // It goes back and forth between the two.
    for _ in 0..2 {
        let hung = usize::from(proxies[0].connections() == 0);
        proxies[hung].black_hole();
        soon("a connection elsewhere", async {
            while proxies[1 - hung].connections() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        proxies[hung].heal();
        proxies[hung].cut();
        let lease = guard.deadline();
        soon("a renewal", async {
            while guard.is_held() && guard.deadline() == lease {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert!(guard.is_held(), "one server took it along");
    }
    guard.release().await.expect("releases");
}
