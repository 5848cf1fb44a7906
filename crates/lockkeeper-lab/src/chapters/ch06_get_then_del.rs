//! `GET`, compare, `DEL`.

use std::time::Duration;

use anyhow::Result;
use lockkeeper_testkit::servers::proxy::Proxy;

use super::{ABOUT_THE_LOCK, Chapter, Needs, by_way_of, naive, ours, until_held_up};
use crate::scene::Scene;
use crate::scene::actor::{SOON, is_released};
use crate::scene::orders::Order;
use crate::text::Text;

const LEASE: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 6,
    slug: "get-then-del",
    title: Text::new(
        "GET, compare, DEL: not atomic",
        "先 GET 比较再 DEL：不是原子操作",
    ),
    why: Text::new(
        "A looks whether the key is its own, sees that it is, and deletes it. Those are two requests, and the lease \
         may end between them: what the second one deletes is somebody else's. Looking and deleting must be one \
         step on the server. Ours is one script, which names the hold that it ends.",
        "A 先看键是不是自己的，是，就删除。这是两个请求，租期可能恰好在两者之间结束：第二个请求删掉的是别人的锁。\
         检查和删除必须是服务器上的一步。我们只发一个脚本，并指明要结束的是哪一次持锁。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "get-then-del",
        LEASE,
        Text::new("SET NX PX; GET, compare, DEL", "SET NX PX；GET、比较、DEL"),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let server = scene.redis().await?;
    scene.stock(5).await?;
    let [mut b, mut c] = scene.actors(["B", "C"]).await?;
    let proxy = Proxy::to(server.port());
    scene.locks_at(by_way_of(&proxy));
    let mut a = scene.actor("A").await?;
    scene
        .step("B sells one: all is well.", "B 先卖出一件，一切正常。")
        .await;
    b.sells(SOON).await?;
    a.acquires(SOON).await?;
    a.reads().await?;
    a.writes().await?;
    scene
        .step(
            "A has sold one and releases. Its first request arrives; the next one is slow.",
            "A 卖出一件，开始释放。第一个请求到了，下一个在网络上慢了。",
        )
        .await;
    proxy.hold_after(ABOUT_THE_LOCK, 1);
    a.tell(Order::Release)?;
    until_held_up(&mut a, &proxy, is_released).await?;
    b.acquires(SOON).await?;
    b.reads().await?;
    scene
        .step(
            "B has the lock. Whatever of A's was still on its way arrives now.",
            "锁已归 B。这时 A 还在路上的请求才到。",
        )
        .await;
    proxy.heal();
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
