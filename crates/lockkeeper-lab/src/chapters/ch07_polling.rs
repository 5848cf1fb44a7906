//! Asking again and again.

use std::time::Duration;

use anyhow::Result;
use lockkeeper_testkit::servers::redis::RedisServer;

use super::{Chapter, Needs, ours, renewed};
use crate::scene::Scene;
use crate::scene::actor::{Actor, SOON};
use crate::scene::figures::{COMMANDS, WOKEN};
use crate::scene::orders::{Event, Order};
use crate::scene::timeline::Doing;
use crate::text::{Text, grouped};

const LEASE: Duration = Duration::from_secs(3);
/// For how long nothing happens but waiting.
const QUIET: Duration = Duration::from_secs(1);
/// How many requests a process may send while nothing happens: a renewal, a look at times.
const FAIR_SHARE: u64 = 3;

pub const CHAPTER: Chapter = Chapter {
    id: 7,
    slug: "polling",
    title: Text::new(
        "Retry by polling or recursion, against waiting",
        "轮询或递归重试，对比等待唤醒",
    ),
    why: Text::new(
        "Who does not get the lock tries again after a few milliseconds, in a loop, or by calling itself until the \
         stack is full. While nothing at all happens, each waiter keeps the server busy, and when the lock comes \
         free everybody asks at once, late by half a pause. Ours asks once, subscribes, and sleeps; the release \
         wakes one waiter.",
        "拿不到锁就隔几毫秒再试，用循环，或者递归调用自己直到栈溢出。什么都没发生的时候，每个等待者也在不停地打扰服务器；\
         锁一释放，大家又同时来抢，平均还要晚半个间隔。我们只问一次，订阅，然后睡眠；释放时只唤醒一个等待者。",
    ),
    needs: Needs::Redis,
    naive: renewed(
        "right",
        LEASE,
        Text::new(
            "SET NX PX, tried every 15 ms",
            "每 15 毫秒重试一次 SET NX PX",
        ),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let server = scene.redis().await?;
    scene.stock(5).await?;
    let mut holder = scene.actor("A").await?;
    let mut waiters = scene.actors(["B", "C", "D", "E"]).await?;
    holder.acquires(SOON).await?;
    scene
        .step(
            "A holds the lock. Four others wait for it.",
            "A 持有锁，另外四个实例在等。",
        )
        .await;
    for waiter in &mut waiters {
        let (within_ms, thinks_ms) = (SOON.as_millis() as u64, 20);
        waiter.tell(Order::Sell {
            within_ms,
            thinks_ms,
        })?;
        waiter.says(|event| *event == Event::Asked).await?;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    scene
        .step(
            "For a second nothing happens, and the server counts the requests.",
            "接下来一秒什么都不发生，服务器记录收到的请求数。",
        )
        .await;
    let before = commands(&server);
    tokio::time::sleep(QUIET).await;
    let asked = commands(&server).saturating_sub(before);
    scene
        .step(
            "A releases; the others follow one after the other.",
            "A 释放锁，其余实例依次获得。",
        )
        .await;
    holder.releases().await?;
    for waiter in &mut waiters {
        waiter.ends_its_sale(SOON).await?;
    }
    scene.figures.add(&COMMANDS, asked as i64);
    scene.figures.add(&WOKEN, handed_over(scene, &holder));
    let fair = FAIR_SHARE * (waiters.len() as u64 + 1);
    if asked > fair {
        let asked = grouped(asked);
        scene.faults.push(Text::made(
            format!("{asked} requests were sent in a second in which nothing happened."),
            format!("在什么都没发生的一秒里，发出了 {asked} 个请求。"),
        ));
    }
    Ok(())
}

/// How many requests clients have sent about locks. What scripts do on the server is not counted.
fn commands(server: &RedisServer) -> u64 {
    let asked = ["eval", "evalsha", "subscribe", "unsubscribe"];
    asked.into_iter().map(|asked| server.calls_of(asked)).sum()
}

/// How long the lock was free on average before the next had it, in milliseconds.
fn handed_over(scene: &Scene, first: &Actor) -> i64 {
    let timeline = scene.board.timeline();
    let mut holds: Vec<_> = timeline.spans.iter().collect();
    holds.retain(|span| span.doing == Doing::Holds);
    holds.sort_by_key(|span| span.from);
    debug_assert_eq!(holds.first().map(|span| span.lane), Some(first.lane()));
    let gaps = holds.windows(2);
    let gaps: Vec<u64> = gaps
        .map(|pair| pair[1].from.saturating_sub(pair[0].to.unwrap_or(0)))
        .collect();
    let sum: u64 = gaps.iter().sum();
    (sum / gaps.len().max(1) as u64).div_ceil(1000) as i64
}
