//! Processes of several languages on one counter: no update is lost.

use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::peer::{PATIENCE, Peer, keeper_with};

const EACH: usize = 4;
const ROUNDS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn four_and_four_lose_no_update() {
    let server = ZooKeeperServer::start();
    let mut peers = Vec::new();
    for _ in 0..EACH {
        peers.push(Peer::start(server.port()).await);
    }
    count_together(&server, "", &peers, "mutex", EACH).await;
}

/// These with a recipe of theirs, and so many of ours with these options, count under one lock.
pub async fn count_together(
    server: &ZooKeeperServer,
    options: &str,
    peers: &[Peer],
    recipe: &str,
    of_ours: usize,
) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("counter");
    std::fs::write(&file, "0").expect("writes");
    let line = format!("add a /shared {} {ROUNDS} {recipe}", file.display());
    let theirs: Vec<_> = peers.iter().map(|peer| peer.begin(&line)).collect();
    let mut ours = Vec::new();
    for _ in 0..of_ours {
        // Each has a session of its own, as a process has.
        let (keeper, file) = (keeper_with(server.port(), options).await, file.clone());
        ours.push(tokio::spawn(async move {
            let lock = keeper.lock("shared").expect("a lock");
            for _ in 0..ROUNDS {
                let guard = lock.acquire().await.expect("acquires");
                let number: usize = std::fs::read_to_string(&file)
                    .expect("reads")
                    .trim()
                    .parse()
                    .expect("a number");
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                std::fs::write(&file, (number + 1).to_string()).expect("writes");
                guard.release().await.expect("releases");
            }
        }));
    }
    let all = async {
        for task in ours {
            task.await.expect("a task finishes");
        }
        for peer in theirs {
            peer.await.expect("it goes on").expect("it finishes");
        }
    };
    tokio::time::timeout(PATIENCE * 4, all)
        .await
        .expect("all finish");
    let number = std::fs::read_to_string(&file).expect("reads");
    assert_eq!(
        number.trim(),
        ((peers.len() + of_ours) * ROUNDS).to_string()
    );
}
