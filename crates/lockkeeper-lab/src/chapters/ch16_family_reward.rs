//! One reward a family.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, naive, ours};
use crate::scene::Scene;
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(5);

pub const CHAPTER: Chapter = Chapter {
    id: 16,
    slug: "family-reward",
    title: Text::new(
        "A family reward, five members at once",
        "家庭奖励，五位成员同时领取",
    ),
    why: Text::new(
        "Each family may have one reward. Five of its members press the button at once; each request looks whether \
         the family has a reward yet, finds none, and adds one. The lock is on the family, so other families do not \
         wait, and it covers the look as well as the insert: a lock around the insert alone changes nothing.",
        "每个家庭只能领一份奖励。五位成员同时点击，每个请求都先查有没有领过，都没查到，于是各插入一条。\
         锁加在家庭上，别的家庭不受影响；而且要把查询和插入一起锁住，只锁插入等于没锁。",
    ),
    needs: Needs::Nothing,
    naive: naive("none", LEASE, Text::new("no lock at all", "完全不加锁")),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let path = if scene.is_without_lock() {
        "/redisLock/receiveAward"
    } else {
        "/redisLock/receiveAwardLock"
    };
    let mut shop = scene.shop(2, 1, true).await?;
    scene
        .step(
            "Five members of one family ask for its reward, at two instances of the shop.",
            "同一家庭的五位成员同时向两个商店实例领取奖励。",
        )
        .await;
    scene.customers(&mut shop, 5, path).await?;
    scene.take_books(&shop, path).await
}
