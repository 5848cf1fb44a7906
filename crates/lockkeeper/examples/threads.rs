//! Threads without a runtime: one runs the job, the others see who does.
//!
//! `cargo run -p lockkeeper --example threads`

use lockkeeper::blocking::Lockkeeper;

fn main() -> Result<(), lockkeeper::Error> {
    let keeper = Lockkeeper::connect("memory:")?;
    let guard = keeper.lock("nightly")?.acquire()?;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| -> Result<(), lockkeeper::Error> {
                if keeper.lock("nightly")?.try_acquire()?.is_none() {
                    let info = keeper.inspect("nightly")?;
                    let holder = info.as_ref().and_then(|info| info.holders.first());
                    println!(
                        "held by {}",
                        holder.map_or("nobody".into(), |h| h.process.to_string())
                    );
                }
                Ok(())
            });
        }
    });
    println!("{:?}", guard.release()?);
    Ok(())
}
