//! A replica that had not heard.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, ours_on_quorum};
use crate::scene::actor::SOON;
use crate::scene::{Lives, LockKind, Scene};
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(4);
const SHORT: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 12,
    slug: "fail-over",
    title: Text::new(
        "A fail-over loses the lock, the quorum keeps it",
        "故障转移丢了锁，多数派留住了锁",
    ),
    why: Text::new(
        "Redis answers first and replicates afterwards. The master dies in between, its replica takes over without \
         the key, and B is granted what A holds. Sentinel and Cluster do not change that. With a quorum the lock is \
         granted by most of several independent servers; one may die, and the others still know who holds.",
        "Redis 先应答，后复制。主节点恰好死在中间，从节点带着没有这个键的数据接管，于是 B 拿到了 A 正持有的锁。\
         哨兵和集群都改变不了这一点。多数派由多个互不相干的节点共同授予：死掉一个，其余的仍然知道锁在谁手里。",
    ),
    needs: Needs::Redis,
    naive: LockKind {
        kind: "right",
        lease: LEASE,
        renewed: false,
        lives: Lives::WithReplica,
        about: Text::new(
            "SET NX PX on a master with a replica",
            "主从 Redis 上的 SET NX PX",
        ),
    },
    ours: ours_on_quorum(SHORT),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    scene.stock(5).await?;
    if scene.lives() == Lives::WithReplica {
        let mut pair = scene.pair().await?;
        pair.in_step().await?;
        pair.lags();
        return both_want(scene, |scene| pair.fails_over(scene)).await;
    }
    let mut nodes = scene.nodes(SHORT).await?;
    both_want(scene, |scene| nodes.kill(scene, 0)).await
}

/// A holds, a server dies, and B would like to sell.
async fn both_want(scene: &Scene, dies: impl FnOnce(&Scene)) -> Result<()> {
    let [mut a, mut b] = scene.actors(["A", "B"]).await?;
    a.acquires(SOON).await?;
    a.reads().await?;
    scene
        .step(
            "A holds the lock. The server that granted it dies.",
            "A 持有锁。授予这把锁的服务器死了。",
        )
        .await;
    dies(scene);
    b.tries_to_sell().await?;
    scene.step("A writes and releases.", "A 写回并释放。").await;
    a.writes().await?;
    a.releases_somehow().await?;
    b.ends_its_sale(SOON).await.map(drop)
}
