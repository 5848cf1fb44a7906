//! A nested call.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, ours, renewed};
use crate::scene::Scene;
use crate::scene::actor::SOON;
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(2);

pub const CHAPTER: Chapter = Chapter {
    id: 8,
    slug: "not-reentrant",
    title: Text::new(
        "Not re-entrant: a nested call deadlocks",
        "不可重入：嵌套调用死锁",
    ),
    why: Text::new(
        "Submitting an order takes the lock, and calls something that takes the same lock. SETNX sees a key and says \
         no, though it is the caller's own: the call waits for itself, and renewal keeps the lock alive meanwhile. \
         Ours knows its owner, counts how often it has entered, and lets go with the last leaving, no sooner.",
        "下单时加了锁，又调用另一个要加同一把锁的方法。SETNX 只看到键已存在就拒绝，哪怕键正是调用者自己的：它在等自己，\
         续期还让锁一直活着。我们的锁认得持有者，记录进入的次数，最后一次离开才真正释放，不早不晚。",
    ),
    needs: Needs::Redis,
    naive: renewed(
        "right",
        LEASE,
        Text::new(
            "SET NX PX, compare and delete, renewed",
            "SET NX PX，比较后删除，自动续期",
        ),
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
            "A holds the lock and calls something that takes it once more.",
            "A 持有锁，又调用了一个要加同一把锁的方法。",
        )
        .await;
    if a.enters_again(Duration::from_secs(2)).await? {
        scene
            .step(
                "The nested call comes back. A still holds the lock: B has to wait.",
                "嵌套调用返回。A 仍然持有锁：B 必须等。",
            )
            .await;
        a.leaves().await?;
    }
    b.tries_to_sell().await?;
    scene.step("A writes and releases.", "A 写回并释放。").await;
    a.writes().await?;
    a.releases().await?;
    b.ends_its_sale(SOON).await.map(drop)
}
