//! A watchdog that renews whatever is there.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, ours, renewed};
use crate::scene::Scene;
use crate::scene::actor::SOON;
use crate::text::Text;

const LEASE: Duration = Duration::from_millis(800);

pub const CHAPTER: Chapter = Chapter {
    id: 10,
    slug: "renew-anyones",
    title: Text::new("Renewal without owner check", "续期时不检查持有者"),
    why: Text::new(
        "A watchdog that calls EXPIRE prolongs whatever it finds. A slept through the end of its lease; its watchdog \
         wakes up, prolongs B's lock and reports success, so A goes on as if nothing had happened. Then B dies, \
         and A keeps the dead holder's lock alive for ever. Ours renews only its own hold, and after a pause it \
         knows by the clock, without asking, that the lock is lost.",
        "看门狗只会 EXPIRE，遇到什么就给什么续期。A 睡过了租期，醒来后它的看门狗给 B 的锁续了期，还报告成功，\
         于是 A 若无其事地继续。随后 B 死了，A 却让死者的锁永远活着。我们只为自己的那次持锁续期；停顿之后不用问服务器，\
         看时钟就知道锁已经丢了。",
    ),
    needs: Needs::Redis,
    naive: renewed(
        "renew-anyones",
        LEASE,
        Text::new(
            "SET NX PX, renewed by PEXPIRE",
            "SET NX PX，用 PEXPIRE 续期",
        ),
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
    scene
        .step(
            "A has read the stock and is paused for longer than its lease.",
            "A 读了库存，随后停顿，停得比租期还久。",
        )
        .await;
    a.pause()?;
    b.acquires(SOON).await?;
    b.reads().await?;
    scene
        .step(
            "B has the lock. A goes on, and its watchdog with it.",
            "锁已归 B。A 恢复运行，看门狗也醒了。",
        )
        .await;
    a.resume()?;
    // Time for a renewal, which is due at a third of the lease.
    tokio::time::sleep(LEASE / 2).await;
    b.writes().await?;
    a.writes().await?;
    scene
        .step(
            "B is killed before it releases. C waits for its lease to end.",
            "B 还没释放就被杀了。C 在等 B 的租期结束。",
        )
        .await;
    b.kill()?;
    let patience = LEASE * 5 / 2;
    c.sells(patience).await?;
    a.releases().await
}
