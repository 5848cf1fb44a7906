//! A flash sale.

use std::time::Duration;

use anyhow::Result;

use super::{Chapter, Needs, naive, ours};
use crate::scene::Scene;
use crate::scene::figures::{ANSWERED, P99, REQUESTS, SOLD};
use crate::scene::update::Update;
use crate::text::{Text, grouped};

const LEASE: Duration = Duration::from_secs(5);
const STOCK: u32 = 5_000;
const CUSTOMERS: u64 = 20_000;
const PATH: &str = "/inventory/sale";

pub const CHAPTER: Chapter = Chapter {
    id: 18,
    slug: "flash-sale",
    title: Text::new(
        "Flash sale: 5,000 in stock, 20,000 requests, four instances",
        "秒杀：库存 5000，请求 20000，四个实例",
    ),
    why: Text::new(
        "Each instance has a mutex, so inside it all is in order; between the four, sales overwrite each other by the \
         thousand, and the stock falls so slowly that almost everybody gets one. With one lock among all instances \
         the ledger has 5,000 sales and the stock is 0. Waiting customers of one instance hand the lock to each \
         other, for a few milliseconds at a time, so that most sales cost no round trip for the lock.",
        "每个实例里都有互斥锁，实例内部井然有序；四个实例之间却成千上万次互相覆盖，库存降得太慢，几乎人人有份。\
         所有实例共用一把锁，账上恰好 5000 笔，库存为 0。同一实例里排队的顾客每次有几毫秒可以直接交接锁，\
         大多数销售不必为锁多跑一趟。",
    ),
    needs: Needs::Nothing,
    naive: naive(
        "mutex",
        LEASE,
        Text::new("a mutex in each instance", "每个实例各自的互斥锁"),
    ),
    ours: ours(LEASE),
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    let shop = scene.shop(4, STOCK, false).await?;
    scene
        .step(
            "The sale opens: 20,000 requests, 64 at a time, spread over four instances.",
            "秒杀开始：20000 个请求，每次 64 个并发，分到四个实例。",
        )
        .await;
    let board = scene.board.clone();
    let report = scene.crowd(&shop, CUSTOMERS, PATH, |tally| {
        // A running count; the last word is the ledger's.
        board.tell(Update::Figure(SOLD.figure(tally.sold as i64)));
    });
    let report = report.await?;
    let tally = report.tally;
    scene.figures.add(&REQUESTS, report.requests as i64);
    scene
        .figures
        .add(&ANSWERED, report.requests_per_second as i64);
    scene.figures.add(&P99, report.latency_ms.p99.ceil() as i64);
    // A customer who was fenced off was told so, and nothing was sold: the lock and the stock did their work.
    let unserved = tally.unserved();
    if unserved > 0 {
        let mut instances = report.instances.iter();
        let why = instances.find_map(|instance| instance.trouble.clone());
        let why = why.unwrap_or(Text::new("no instance was left", "没有实例留下来"));
        scene.faults.push(Text::made(
            match unserved {
                1 => format!("1 customer was not served: {}.", why.en),
                _ => format!(
                    "{} customers were not served, the first of them: {}.",
                    grouped(unserved),
                    why.en
                ),
            },
            format!(
                "有 {} 位顾客没有得到服务，第一位的原因：{}。",
                grouped(unserved),
                why.zh
            ),
        ));
    }
    scene.take_books(&shop, PATH).await
}
