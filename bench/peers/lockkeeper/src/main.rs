//! Locks with Lockkeeper, for `cargo xtask bench peers`. See ../../README.md.
//!
//! The variants are `default`, `off` (without hand-off), and of Redis `plain` and `plain-off`.

#[path = "../../rust/src/harness.rs"]
mod harness;

use harness::{Failure, Library};
use lockkeeper::{Guard, HandOff, Lock, Lockkeeper, ReleaseOutcome};

struct Ours(Lockkeeper);

impl Library for Ours {
    type Lock = Lock;
    type Guard = Guard;

    fn lock(&self, name: &str) -> Result<Lock, Failure> {
        Ok(self.0.lock(name)?)
    }

    async fn acquire(&self, lock: &Lock) -> Result<Guard, Failure> {
        Ok(lock.acquire().await?)
    }

    async fn release(&self, guard: Guard) -> Result<(), Failure> {
        match guard.release().await? {
            ReleaseOutcome::Released => Ok(()),
            other => Err(format!("lost: {other:?}").into()),
        }
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("give the server's URL")?;
    let variant = arguments.next().unwrap_or_else(|| "default".into());
    let (dialect, hand_off) = match variant.as_str() {
        "default" => ("redisson", HandOff::default()),
        "off" => ("redisson", HandOff::OFF),
        "plain" => ("plain", HandOff::default()),
        "plain-off" => ("plain", HandOff::OFF),
        other => return Err(format!("{other:?} is no variant").into()),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let url = if url.starts_with("zk:") {
        url
    } else if url.contains(',') {
        // Several servers are a quorum. They are as old as the run, so that quarantine would only delay it.
        let hosts = url.replace("redis://", "").replace("/0", "");
        format!("redlock://{hosts}?quarantine=off&dialect={dialect}")
    } else {
        format!("{url}?dialect={dialect}")
    };
    let keeper = Lockkeeper::builder().url(&url).hand_off(hand_off);
    let keeper = runtime.block_on(keeper.connect())?;
    let ready = format!("lockkeeper {}", env!("CARGO_PKG_VERSION"));
    harness::obey(&runtime, &ready, Ours(keeper))
}
