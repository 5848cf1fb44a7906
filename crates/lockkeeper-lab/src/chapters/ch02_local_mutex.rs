//! A mutex that other processes do not see.

use std::time::Duration;

use super::{Chapter, Needs, last_piece, naive, ours};
use crate::text::Text;

pub const CHAPTER: Chapter = Chapter {
    id: 2,
    slug: "local-mutex",
    title: Text::new(
        "A process-local mutex, two instances",
        "进程内互斥锁，两个实例",
    ),
    why: Text::new(
        "A mutex lives in the memory of one process. It orders the threads of that process and nothing else: as soon \
         as the service runs twice behind a load balancer, each instance has a mutex of its own, and both are free. \
         The lock has to live where all instances can see it.",
        "互斥锁活在一个进程的内存里，只能约束这个进程的线程。服务一旦在负载均衡后面部署两份，每个实例各有一把锁，两把都空着。\
         锁必须放在所有实例都看得见的地方。",
    ),
    needs: Needs::Nothing,
    naive: naive(
        "mutex",
        Duration::from_secs(2),
        Text::new("a mutex in each process", "每个进程各自的互斥锁"),
    ),
    ours: ours(Duration::from_secs(2)),
    play: |scene| Box::pin(last_piece(scene)),
};
