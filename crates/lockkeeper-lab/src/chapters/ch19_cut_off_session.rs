//! A session that is pinged where nobody else hears it.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, ours, renewed};
use crate::scene::Scene;
use crate::scene::actor::{SOON, is_read};
use crate::scene::figures::TOLD;
use crate::scene::servers::ZooKeepers;
use crate::scene::timeline::{Doing, MarkKind};
use crate::text::Text;

/// Two thirds of a session are the most that there is.
const LEASE: Duration = Duration::from_secs(2);

pub const CHAPTER: Chapter = Chapter {
    id: 19,
    slug: "cut-off-session",
    title: Text::new(
        "ZooKeeper: the holder's server is cut off from the quorum",
        "ZooKeeper：持有者连接的服务器与多数派失联",
    ),
    why: Text::new(
        "A holds an ephemeral node by way of a follower, and trusts its session. The follower is cut off from the leader \
         and goes on answering pings and reads for as long as it waits. The leader hears nothing of the session, ends it, \
         and grants the lock to B. A's client library says nothing. Only a committed write proves that the quorum knows the \
         session. Ours renews by such writes, its lease is at most two thirds of the session, and A is told before the \
         leader can have ended it.",
        "A 通过一台 follower 持有临时节点，并且相信自己的会话。follower 与 leader 失联，在等待期间照样应答心跳和读请求。\
         leader 听不到这个会话的消息，把它结束，锁给了 B；A 的客户端库却什么也不说。只有提交了的写入才能证明多数派还认得这个会话。\
         我们用这样的写入续期，租期最多是会话的三分之二：leader 还没来得及结束会话，A 就已经得知锁丢了。",
    ),
    needs: Needs::ZooKeeper,
    naive: renewed(
        "trusts-pings",
        ZooKeepers::SESSION,
        Text::new(
            "an ephemeral node, believed in as long as pings are answered",
            "临时节点，只要心跳有应答就认为自己持有锁",
        ),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let servers = scene.zookeepers().await?;
    scene.stock(5).await?;
    scene.locks_at(servers.follower());
    let mut a = scene.actor("A").await?;
    scene.locks_at(servers.leader());
    let mut b = scene.actor("B").await?;
    a.acquires(SOON).await?;
    a.reads().await?;
    scene
        .step(
            "A has the lock by way of a follower, and has read the stock. The follower is cut off from the other servers.",
            "A 通过一台 follower 拿到锁，读了库存。这台 follower 与其他服务器失联。",
        )
        .await;
    servers.cut_off(scene);
    scene
        .step(
            "B asks the leader. It is granted the lock when the leader ends A's session.",
            "B 请求 leader。leader 结束 A 的会话后，把锁给了 B。",
        )
        .await;
    b.tell_to_sell(SOON)?;
    b.says(is_read).await?;
    a.writes().await?;
    b.ends_its_sale(SOON).await?;
    scene
        .step(
            "The follower is connected again, and A lets go.",
            "follower 恢复连接，A 放手。",
        )
        .await;
    servers.heal(scene);
    a.releases_somehow().await?;
    told(scene, [a.lane(), b.lane()]);
    Ok(())
}

/// When A learned of its loss, beside when B was granted the lock.
fn told(scene: &mut Scene, [a, b]: [usize; 2]) {
    let timeline = scene.board.timeline();
    let granted = timeline
        .spans
        .iter()
        .find(|span| span.lane == b && span.doing == Doing::Holds);
    let learned = timeline.marks.iter().find(|mark| {
        let tells = [MarkKind::Lost, MarkKind::NotHeld, MarkKind::Failed];
        mark.lane == a && tells.contains(&mark.kind)
    });
    if let (Some(granted), Some(learned)) = (granted, learned) {
        let late = learned.at.cast_signed() - granted.from.cast_signed();
        scene.figures.add(&TOLD, late / 1000);
    }
}
