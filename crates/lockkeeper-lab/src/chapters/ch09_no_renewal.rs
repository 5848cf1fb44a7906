//! A lease that is too short.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, naive, ours};
use crate::scene::Scene;
use crate::scene::actor::{SOON, is_written};
use crate::scene::orders::{Event, Order};
use crate::text::Text;

pub(super) const LEASE: Duration = Duration::from_secs(1);
/// What A has to do between its read and its write.
const WORK: Duration = Duration::from_millis(2600);

pub const CHAPTER: Chapter = Chapter {
    id: 9,
    slug: "no-renewal",
    title: Text::new(
        "A lease shorter than the work, no renewal",
        "租期比业务短，没有续期",
    ),
    why: Text::new(
        "A slow payment, and the lease ends in the middle of the sale. The key is gone, B takes the lock, and both \
         sell. No lease is long enough for every day, and a long one leaves everybody waiting after a crash. Ours \
         has a short lease and renews it, at a third of it, for as long as the holder lives.",
        "支付慢了一点，租期在交易中途就结束了。键没了，B 拿到锁，两边都在卖。没有哪个租期总是够长，而租期太长，\
         崩溃之后所有人都得干等。我们用短租期，每过三分之一续一次，持有者活多久就续多久。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "right",
        LEASE,
        Text::new("SET NX PX, not renewed", "SET NX PX，不续期"),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

/// A works for longer than its lease; B would like to sell meanwhile.
pub(super) async fn play(scene: &mut Scene) -> Result<()> {
    let _server = scene.redis().await?;
    scene.stock(5).await?;
    let [mut a, mut b] = scene.actors(["A", "B"]).await?;
    a.acquires(SOON).await?;
    a.reads().await?;
    scene
        .step(
            "A has read the stock. Its payment takes almost three leases.",
            "A 读了库存，它的支付要花将近三个租期。",
        )
        .await;
    let ms = WORK.as_millis() as u64;
    a.tell(Order::Work { ms })?;
    scene.step("B asks for the lock.", "B 请求加锁。").await;
    b.tell_to_sell(SOON)?;
    a.says(|event| matches!(event, Event::Worked | Event::Stopped))
        .await?;
    a.tell(Order::Write)?;
    a.says(is_written).await?;
    a.releases().await?;
    b.ends_its_sale(SOON).await.map(drop)
}
