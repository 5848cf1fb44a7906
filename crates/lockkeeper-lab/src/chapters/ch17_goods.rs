//! Five goods, ten buyers.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, naive, ours};
use crate::scene::Scene;
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(5);

pub const CHAPTER: Chapter = Chapter {
    id: 17,
    slug: "goods",
    title: Text::new(
        "Goods: five in stock, ten buyers",
        "商品：库存五件，十位买家",
    ),
    why: Text::new(
        "The shop looks whether there is one left and then runs `good_counts = good_counts - 1`. The update itself is \
         atomic, and still the stock falls to -5: what all ten had looked at was out of date when they took theirs \
         off. Deciding and acting belong under one lock.",
        "商店先看还有没有货，再执行 good_counts = good_counts - 1。更新本身是原子的，库存照样跌到 -5：\
         十个请求扣减时，当初看到的库存早已过时。判断和动作必须在同一把锁里。",
    ),
    needs: Needs::Nothing,
    naive: naive("none", LEASE, Text::new("no lock at all", "完全不加锁")),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let path = if scene.is_without_lock() {
        "/redisLock/saleGoods"
    } else {
        "/redisLock/saleGoodsLock"
    };
    let mut shop = scene.shop(2, 5, true).await?;
    scene
        .step(
            "Ten buyers come to two instances of the shop at once. There are five pieces.",
            "十位买家同时涌向两个商店实例，库存只有五件。",
        )
        .await;
    scene.customers(&mut shop, 10, path).await?;
    scene.take_books(&shop, path).await
}
