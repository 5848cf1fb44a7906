//! What a task of `mix` wants next, by chance.

use std::time::Duration;

use lockkeeper::store::{Capabilities, Mode};
use lockkeeper::{Error, Guard};
use lockkeeper_testkit::random::Random;

use super::{Mixer, Who};

/// How many permits there are.
const PERMITS: u32 = 3;

/// One lock, and how to take it.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub name: &'static str,
    pub mode: Mode,
    /// A lease that is not renewed.
    pub fixed: Option<Duration>,
    /// Asks once, and does not wait.
    pub impatient: bool,
    /// Given up after so long.
    pub cancelled: Option<Duration>,
}

impl Wish {
    /// `a` has readers and writers, `b` is locked together with it, `s` is a semaphore, `m` has all modes. `None` is both
    /// of `a` and `b`.
    pub fn draw(random: &mut Random, can: Capabilities) -> Option<Wish> {
        let (name, mode) = loop {
            let drawn = match random.below(100) {
                0..14 => ("a", Mode::Exclusive),
                14..24 => ("b", Mode::Exclusive),
                24..40 => ("a", Mode::Read),
                40..54 => ("a", Mode::Write),
                54..70 => ("s", permits(random)),
                70..90 => ("m", any(random)),
                _ => return None,
            };
            if supported(drawn.1, can) {
                break drawn;
            }
        };
        let fixed = random.chance(0.05);
        let cancelled = random.chance(0.04);
        Some(Wish {
            name,
            mode,
            fixed: fixed.then_some(Duration::from_millis(300)),
            impatient: random.chance(0.15),
            cancelled: cancelled.then(|| random.between(Duration::ZERO, Duration::from_millis(20))),
        })
    }

    /// A place in the line of `f`, which is fair and nothing else.
    pub fn in_line() -> Wish {
        Wish {
            name: "f",
            mode: Mode::Fair,
            fixed: None,
            impatient: false,
            cancelled: None,
        }
    }

    /// One that is waited for, whatever its mode, with the keeper's own lease.
    pub fn draw_lasting(random: &mut Random, can: Capabilities) -> Wish {
        let mut drawn = std::iter::repeat_with(|| Wish::draw(random, can)).flatten();
        let drawn = drawn
            .next()
            .unwrap_or_else(|| unreachable!("there is no end"));
        Wish {
            fixed: None,
            impatient: false,
            cancelled: None,
            ..drawn
        }
    }

    /// What its owner may enter within it, if anything.
    pub fn inner(&self, random: &mut Random) -> Option<Wish> {
        let mode = match self.mode {
            Mode::Permit { .. } => return None,
            Mode::Write if random.chance(0.5) => Mode::Read,
            mode => mode,
        };
        Some(Wish {
            mode,
            fixed: None,
            impatient: true,
            cancelled: None,
            ..*self
        })
    }
}

fn permits(random: &mut Random) -> Mode {
    Mode::Permit {
        limit: PERMITS,
        count: 1 + random.below(2) as u32,
    }
}

fn any(random: &mut Random) -> Mode {
    match random.below(5) {
        0 => Mode::Exclusive,
        1 => Mode::Fair,
        2 => Mode::Read,
        3 => Mode::Write,
        _ => permits(random),
    }
}

fn supported(mode: Mode, can: Capabilities) -> bool {
    match mode {
        Mode::Fair => can.fair,
        Mode::Read | Mode::Write => can.read_write,
        Mode::Permit { .. } => can.permits,
        _ => true,
    }
}

impl Mixer {
    /// Takes one lock as it is wanted.
    pub async fn try_take(&self, wish: &Wish, who: &Who) -> Result<Option<Guard>, Error> {
        let (keeper, within) = (&self.keeper, self.patience);
        match wish.mode {
            Mode::Permit { limit, count } => {
                let mut semaphore = keeper.semaphore(wish.name, limit)?;
                if let Some(lease) = wish.fixed {
                    semaphore = semaphore.fixed_lease(lease)?;
                }
                match wish.impatient {
                    true => semaphore.try_acquire(count).await,
                    false => semaphore.acquire_within(count, within).await,
                }
            }
            Mode::Read | Mode::Write => {
                let mut lock = keeper.rwlock(wish.name)?.as_owner(&who.owner);
                if let Some(lease) = wish.fixed {
                    lock = lock.fixed_lease(lease)?;
                }
                Ok(match (wish.mode, wish.impatient) {
                    (Mode::Read, true) => lock.try_read().await?.map(Guard::from),
                    (Mode::Read, false) => lock.read_within(within).await?.map(Guard::from),
                    (_, true) => lock.try_write().await?.map(Guard::from),
                    (_, false) => lock.write_within(within).await?.map(Guard::from),
                })
            }
            mode => {
                let mut lock = keeper.lock(wish.name)?.as_owner(&who.owner);
                if mode == Mode::Fair {
                    lock = lock.fair()?;
                }
                if let Some(lease) = wish.fixed {
                    lock = lock.fixed_lease(lease)?;
                }
                match wish.impatient {
                    true => lock.try_acquire().await,
                    false => lock.acquire_within(within).await,
                }
            }
        }
    }
}
