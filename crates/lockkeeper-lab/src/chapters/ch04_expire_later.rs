//! `SETNX`, then `EXPIRE`.

use std::time::Duration;

use anyhow::Result;
use lockkeeper_testkit::servers::proxy::Proxy;

use super::{ABOUT_THE_LOCK, Chapter, Needs, by_way_of, naive, ours, until_held_up};
use crate::scene::Scene;
use crate::scene::actor::SOON;
use crate::scene::orders::{Event, Order};
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 4,
    slug: "expire-later",
    title: Text::new(
        "SETNX then EXPIRE, killed between",
        "先 SETNX 再 EXPIRE，在两步之间被杀",
    ),
    why: Text::new(
        "An expiry helps only if it is there from the start. SETNX and EXPIRE are two requests, and a process can die \
         between them: the key then has no end, as before. Taking a lock and giving it an end must be one step on \
         the server: SET with NX and PX, or a script.",
        "过期时间只有一开始就在才有用。SETNX 和 EXPIRE 是两个请求，进程可能死在两者之间：键又没有了终点，和没设一样。\
         加锁和设定期限必须是服务器上的一步：带 NX 和 PX 的 SET，或者一个脚本。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "expire-later",
        LEASE,
        Text::new("SETNX, then PEXPIRE", "先 SETNX，再 PEXPIRE"),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let server = scene.redis().await?;
    scene.stock(5).await?;
    let mut b = scene.actor("B").await?;
    let proxy = Proxy::to(server.port());
    scene.locks_at(by_way_of(&proxy));
    let mut a = scene.actor("A").await?;
    scene
        .step("B sells one: all is well.", "B 先卖出一件，一切正常。")
        .await;
    b.sells(SOON).await?;
    scene
        .step(
            "A takes the lock. Its first request arrives; the next one is still on its way.",
            "A 加锁。第一个请求到了，下一个还在路上。",
        )
        .await;
    proxy.hold_after(ABOUT_THE_LOCK, 1);
    let within_ms = SOON.as_millis() as u64;
    a.tell(Order::Acquire { within_ms })?;
    let acquired = |event: &Event| matches!(event, Event::Acquired { .. });
    until_held_up(&mut a, &proxy, acquired).await?;
    scene
        .step(
            "A is killed (kill -9), and what was on its way is lost.",
            "A 被杀（kill -9），还在路上的请求也丢了。",
        )
        .await;
    a.kill()?;
    proxy.cut();
    proxy.heal();
    let patience = LEASE * 3;
    scene
        .step(
            "B wants to sell another. It waits three times as long as a lease.",
            "B 还要再卖一件，愿意等三个租期。",
        )
        .await;
    b.sells(patience).await.map(drop)
}
