//! A fixed lease, and the unlock that comes too late.

use anyhow::Result;

use super::ch09_no_renewal::{LEASE, play as works_longer_than_its_lease};
use super::{Chapter, Needs, naive};
use crate::scene::figures::LEARNED;
use crate::scene::timeline::{Doing, MarkKind};
use crate::scene::{Lives, LockKind, Scene};
use crate::text::Text;

pub const CHAPTER: Chapter = Chapter {
    id: 11,
    slug: "expired-unlock",
    title: Text::new(
        "Unlock of an expired lock: a fixed lease",
        "解锁一把已过期的锁：固定租期",
    ),
    why: Text::new(
        "Redisson's lock(30, SECONDS) is not renewed. When the work takes longer, unlock() throws \"attempt to unlock \
         lock, not locked by current thread\": the right message at the wrong end, when both have sold. Asking \
         isHeldByCurrentThread() first only hides it. With the same fixed lease, ours knows its deadline: the work \
         is stopped before the lease ends, nothing is written, and the release says who has the lock now.",
        "Redisson 的 lock(30, SECONDS) 不会续期。业务超时后 unlock() 抛出 “attempt to unlock lock, not locked by current \
         thread”：话没说错，但说得太晚，两边都已经卖了。先判断 isHeldByCurrentThread() 只是把问题藏起来。同样的固定租期，\
         我们的锁知道自己的期限：租期结束之前就中止业务，什么也不写，释放时还会说明锁现在归谁。",
    ),
    needs: Needs::Redis,
    naive: naive(
        "right",
        LEASE,
        Text::new(
            "a fixed lease, checked at the unlock",
            "固定租期，解锁时才检查",
        ),
    ),
    ours: LockKind {
        kind: "ours",
        lease: LEASE,
        renewed: false,
        lives: Lives::Anywhere,
        about: Text::new("Lockkeeper with a fixed lease", "Lockkeeper，固定租期"),
    },
    play: |scene| Box::pin(play(scene)),
};

async fn play(scene: &mut Scene) -> Result<()> {
    works_longer_than_its_lease(scene).await?;
    let timeline = scene.board.timeline();
    let hold = timeline
        .spans
        .iter()
        .find(|span| span.lane == 0 && span.doing == Doing::Holds);
    let told = timeline
        .marks
        .iter()
        .find(|mark| mark.lane == 0 && matches!(mark.kind, MarkKind::Lost | MarkKind::NotHeld));
    if let (Some(hold), Some(told)) = (hold, told) {
        let lease_end = hold.from + LEASE.as_micros() as u64;
        let late = told.at.cast_signed() - lease_end.cast_signed();
        scene.figures.add(&LEARNED, late / 1000);
    }
    Ok(())
}
