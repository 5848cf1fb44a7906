//! No lock at all.

use std::time::Duration;

use super::{Chapter, Needs, last_piece, naive, ours};
use crate::text::Text;

pub const CHAPTER: Chapter = Chapter {
    id: 1,
    slug: "no-lock",
    title: Text::new("No lock, two instances", "没有锁，两个实例"),
    why: Text::new(
        "A sale reads the stock, decides, and writes one less. Between its read and its write the world goes on: a \
         second instance reads the same number and sells the same piece again. A lock makes the three steps one, so \
         that the second instance reads what the first has written.",
        "一次销售要读库存、判断、再写回减一。从读到写之间，世界并没有停下：另一个实例读到同样的数，把同一件商品又卖了一次。\
         加锁让这三步成为一步，第二个实例读到的就是第一个写回的结果。",
    ),
    needs: Needs::Nothing,
    naive: naive(
        "none",
        Duration::from_secs(2),
        Text::new("no lock at all", "完全不加锁"),
    ),
    ours: ours(Duration::from_secs(2)),
    play: |scene| Box::pin(last_piece(scene)),
};
