//! `DEL` without a look at the holder.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, naive, ours};
use crate::scene::Scene;
use crate::scene::actor::SOON;
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 5,
    slug: "del-by-anyone",
    title: Text::new("DEL without owner check", "不检查持有者就 DEL"),
    why: Text::new(
        "A was held up until its lease had ended, and B has the lock now. A knows nothing of it, comes to its \
         `finally` and deletes the key: B's key. C walks in beside B. Every hold needs an id of its own, and only \
         the one with that id may end it. Ours tells A that it held nothing, and changes nothing.",
        "A 卡顿到租期结束，锁已经归 B。A 毫不知情，走到 finally 里删除了键：那是 B 的键。于是 C 也进来了，和 B 同时。\
         每次持锁都要有自己的标识，只有它能结束这次持锁。我们的锁告诉 A 它并不持有，什么也不会改变。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "del-by-anyone",
        LEASE,
        Text::new("SET NX PX, and DEL", "SET NX PX 加 DEL"),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let _server = scene.redis().await?;
    scene.stock(5).await?;
    let [mut a, mut b, mut c] = scene.actors(["A", "B", "C"]).await?;
    a.acquires(SOON).await?;
    a.reads().await?;
    a.writes().await?;
    scene
        .step(
            "A has sold one. Before it releases, it is paused for longer than its lease.",
            "A 卖出一件，还没释放锁就停顿了，停得比租期还久。",
        )
        .await;
    a.pause()?;
    b.acquires(SOON).await?;
    b.reads().await?;
    scene
        .step(
            "B has the lock. A goes on, and releases.",
            "锁已归 B。A 恢复运行，执行释放。",
        )
        .await;
    a.resume()?;
    a.releases().await?;
    c.tries_to_sell().await?;
    scene
        .step(
            "B, who has not finished, writes and releases.",
            "B 还没做完：此时写回并释放。",
        )
        .await;
    b.writes().await?;
    b.releases().await?;
    c.ends_its_sale(SOON).await.map(drop)
}
