//! The write of a holder that slept.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, ours, renewed};
use crate::scene::Scene;
use crate::scene::actor::{SOON, is_written};
use crate::scene::orders::{Event, Order};
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 15,
    slug: "paused-holder",
    title: Text::new(
        "The holder paused past its lease: the fence refuses its late write",
        "持有者停顿超过租期：栅栏拒绝迟到的写入",
    ),
    why: Text::new(
        "A looks at its lock, sees that it holds, and is paused before it writes: a garbage collection, a swapped-out \
         page, a suspended laptop. No lock can stop the write that follows when it wakes up. The stock can: every \
         grant has a token, higher than all before it, and the stock refuses a token lower than one it has seen.",
        "A 看了一眼锁，确实还在手里，却在写入之前停顿了：垃圾回收、换页、笔记本休眠。醒来之后的那次写入，任何锁都拦不住。\
         库存自己可以：每次授予都带一个令牌，比以前的都大；库存见过更大的令牌，就拒绝更小的。",
    ),
    needs: Needs::Redis,
    naive: renewed(
        "unfenced",
        LEASE,
        Text::new(
            "SET NX PX, renewed, no token shown",
            "SET NX PX，自动续期，写入时不带令牌",
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
    a.tell(Order::Look)?;
    a.says(|event| matches!(event, Event::Looked { held: true }))
        .await?;
    scene
        .step(
            "A has read the stock, has seen that it holds the lock, and is paused (SIGSTOP) before it writes.",
            "A 读了库存，确认自己持有锁，却在写入之前被暂停（SIGSTOP）。",
        )
        .await;
    a.pause()?;
    scene
        .step(
            "B waits for the lease to end, and sells one.",
            "B 等到租期结束，卖出一件。",
        )
        .await;
    b.sells(SOON).await?;
    scene
        .step(
            "A wakes up (SIGCONT), and writes what it had in mind.",
            "A 醒来（SIGCONT），照原来的打算写入。",
        )
        .await;
    a.tell(Order::WriteBlindly)?;
    a.resume()?;
    a.says(is_written).await?;
    a.releases().await
}
