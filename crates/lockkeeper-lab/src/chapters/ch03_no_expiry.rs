//! `SETNX` alone.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, naive, ours};
use crate::scene::Scene;
use crate::scene::actor::SOON;
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 3,
    slug: "no-expiry",
    title: Text::new(
        "SETNX without expiry, the holder killed",
        "SETNX 不设过期时间，持有者被杀",
    ),
    why: Text::new(
        "SETNX gives the lock to the first who asks, and DEL gives it back. No `finally` block runs in a process that \
         was killed, so the key stays, and everybody waits for the dead. A lock needs a lease: an end of its own, \
         which a living holder moves on by renewing it.",
        "SETNX 把锁交给第一个请求者，DEL 把它还回去。被杀死的进程不会执行 finally，键一直留着，所有人都在等一个死者。\
         锁需要租期：到期自行结束，活着的持有者靠续期把它往后推。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "no-expiry",
        LEASE,
        Text::new("SETNX and DEL on Redis", "Redis 的 SETNX 和 DEL"),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let _server = scene.redis().await?;
    scene.stock(5).await?;
    let [mut a, mut b] = scene.actors(["A", "B"]).await?;
    a.acquires(SOON).await?;
    a.reads().await?;
    scene
        .step(
            "A holds the lock, and its process is killed (kill -9).",
            "A 持锁期间，进程被杀（kill -9）。",
        )
        .await;
    a.kill()?;
    let patience = LEASE * 3;
    scene
        .step(
            "B wants to sell. It waits three times as long as a lease.",
            "B 要卖货，愿意等三个租期。",
        )
        .await;
    b.sells(patience).await.map(drop)
}
