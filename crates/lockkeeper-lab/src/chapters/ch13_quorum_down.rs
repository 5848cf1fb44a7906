//! Servers that are down.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Chapter, Needs, naive, ours_on_quorum};
use crate::scene::actor::{Actor, SOON};
use crate::scene::orders::{Event, Order};
use crate::scene::{Lives, Scene};
use crate::text::Text;
use crate::words;

const LEASE: Duration = Duration::from_secs(1);

pub const CHAPTER: Chapter = Chapter {
    id: 13,
    slug: "quorum-down",
    title: Text::new(
        "Quorum: one of three down, two of three down",
        "多数派：三台挂一台，三台挂两台",
    ),
    why: Text::new(
        "A lock on one server is as available as that server: it dies, and nobody sells until somebody gets up at \
         night. Of three servers any one may be down, and sales go on. With two of three down no majority can be \
         had, and ours says so, naming the servers, instead of granting a lock that protects nothing. When one \
         comes back, so do the sales.",
        "单台服务器上的锁，和那台服务器一样可用：它一死，半夜有人起来修好之前谁也卖不了。三台里任意挂一台，销售照常。\
         挂两台就凑不成多数派，我们会明确报错并列出哪些服务器不通，而不是授予一把什么都保护不了的锁。恢复一台，销售就恢复。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "right",
        LEASE,
        Text::new("SET NX PX on one server", "单台服务器上的 SET NX PX"),
    ),
    ours: ours_on_quorum(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    scene.stock(5).await?;
    match scene.lives() {
        Lives::Quorum => three_servers(scene).await,
        _ => one_server(scene).await,
    }
}

async fn one_server(scene: &mut Scene) -> Result<()> {
    let mut server = scene.redis().await?;
    let mut a = scene.actor("A").await?;
    sells(scene, &mut a, "with every server up").await?;
    one_dies(scene).await;
    server.kill();
    sells(scene, &mut a, "with one server down").await
}

async fn three_servers(scene: &mut Scene) -> Result<()> {
    let mut nodes = scene.nodes(LEASE).await?;
    let mut a = scene.actor("A").await?;
    sells(scene, &mut a, "with every server up").await?;
    one_dies(scene).await;
    nodes.kill(scene, 0);
    sells(scene, &mut a, "with one server down").await?;
    scene
        .step(
            "A second server cannot be reached.",
            "第二台服务器也联系不上了。",
        )
        .await;
    nodes.pause(scene, 1);
    if asks(&mut a).await? {
        scene.faults.push(Text::new(
            "A was granted the lock by one server of three.",
            "三台里只有一台应答，A 却拿到了锁。",
        ));
        a.releases().await?;
    }
    scene.step("It answers again.", "它恢复应答。").await;
    nodes.resume(scene, 1);
    sells(scene, &mut a, "with two of three servers up again").await
}

async fn one_dies(scene: &Scene) {
    scene.step("A server dies.", "一台服务器死了。").await;
}

/// Asks for the lock for two leases; answers whether it was granted.
async fn asks(actor: &mut Actor) -> Result<bool> {
    let within_ms = (LEASE * 2).as_millis() as u64;
    actor.tell(Order::Acquire { within_ms })?;
    let answer = actor.says_within(SOON, |event| {
        matches!(
            event,
            Event::Acquired { .. } | Event::Busy | Event::Failed { .. }
        )
    });
    match answer.await? {
        Some(event) => Ok(matches!(event, Event::Acquired { .. })),
        None => bail!(words::takes_too_long(
            actor.name(),
            &Text::new("to be told anything", "等不到答复")
        )),
    }
}

/// A sale that is to succeed now.
async fn sells(scene: &mut Scene, actor: &mut Actor, when: &str) -> Result<()> {
    if asks(actor).await? {
        actor.reads().await?;
        actor.writes().await?;
        return actor.releases().await;
    }
    let name = actor.name();
    scene.faults.push(Text::made(
        format!("{name} could not sell {when}."),
        format!("{name} 卖不了货：服务器没有应答。"),
    ));
    Ok(())
}
