//! A server that has forgotten.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, ours_on_quorum};
use crate::scene::actor::SOON;
use crate::scene::{Lives, LockKind, Scene};
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(2);

pub const CHAPTER: Chapter = Chapter {
    id: 14,
    slug: "quorum-restart",
    title: Text::new("Quorum: a restart without data", "多数派：重启后数据丢失"),
    why: Text::new(
        "A holds the lock on servers 1 and 2; it could not reach server 3. Server 2 restarts with nothing in it: \
         2 and 3 are a majority that knows nothing of A, and B is granted the lock. The description of Redlock asks operators to delay the restart. Ours does it by itself: a server votes only once it has \
         been up for longer than any lease, so what it may have forgotten has ended.",
        "A 在 1、2 两台上持有锁，3 号联系不上。2 号重启，数据全丢：2、3 两台合起来又是一个多数派，\
         却对 A 一无所知，于是把锁给了 B。Redlock 要求运维人员延迟重启；我们自动做到：节点运行得比任何租期都久，才有投票权，\
         它可能忘掉的锁到那时早已结束。",
    ),
    needs: Needs::Redis,
    naive: LockKind {
        kind: "restarted-at-once",
        // Long enough for a server to restart in it, however busy the machine is.
        lease: Duration::from_secs(6),
        renewed: false,
        lives: Lives::Quorum,
        about: Text::new(
            "Redlock whose servers vote at once",
            "节点一启动就投票的 Redlock",
        ),
    },
    ours: ours_on_quorum(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    scene.stock(5).await?;
    let nodes = scene.nodes(LEASE).await?;
    scene.locks_at(nodes.url(Some(2)));
    let mut a = scene.actor("A").await?;
    scene
        .step(
            "A cannot reach node 3. Nodes 1 and 2 grant it the lock.",
            "A 联系不上 3 号节点，从 1、2 号拿到锁。",
        )
        .await;
    a.acquires(SOON).await?;
    a.reads().await?;
    scene
        .step(
            "Node 2 restarts and has forgotten everything. B, who can reach all three, asks.",
            "2 号重启，什么都不记得了。B 三台都能联系上，来请求锁。",
        )
        .await;
    let nodes = nodes.restart_empty(scene, 1).await?;
    scene.locks_at(nodes.url(None));
    let mut b = scene.actor("B").await?;
    b.tries_to_sell().await?;
    scene.step("A writes and releases.", "A 写回并释放。").await;
    a.writes().await?;
    a.releases_somehow().await?;
    b.ends_its_sale(SOON).await.map(drop)
}
