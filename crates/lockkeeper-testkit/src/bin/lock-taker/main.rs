//! A process that takes locks, for tests to kill and to stop.
//!
//! ```text
//! lock-taker hold  --store URL --name N --lease D [--lock KIND] [--fixed yes] [--patience D]
//!                  [--resource FILE] [--history FILE --process ID]
//! lock-taker count --store URL --name N --lease D [--lock KIND] [--patience D]
//!                  --resource FILE --history FILE --process ID
//!                  --tasks N [--for D] [--rounds N] [--seed N] [--broken no-lock]
//! lock-taker mix   --store URL --lease D [--patience D] --resource FILE --history FILE --process ID
//!                  --tasks N [--seed N] [--broken MISTAKE]
//! lock-taker visit as mix
//! ```
//!
//! The lock is `ours` unless KIND names a naive one. `--fixed` leases are not renewed.
//!
//! `hold` waits for the lock, prints `held <token> <deadline ns>` and obeys lines on its standard input:
//! `is-held`, `deadline` (in ns), `last-held` (when a look at the guard last said yes, in ns), `read` the resource, `write` one more
//! than was read, `write-unfenced` (without the resource's look at the token), `again` (for the same owner),
//! `leave` (what `again` took), `release`, `acquire`. It prints `lost` when the lock is, and `failed` and why when there
//! is no store. The end of input releases as well.
//!
//! `count` has tasks that add one to the resource under the lock, again and again, until it is told `stop`, and writes
//! a history. With `--broken no-lock` each believes that it holds whenever it likes: what the tests have to notice.
//!
//! `mix` has tasks that take locks in every mode that the store has, on a few names, until it is told `stop`, or `exit`:
//! then it ends right after a guard was dropped. `latch NAME COUNT` has it count a latch down and wait for it. MISTAKE
//! is a sabotaged store's, or `reentry-off-by-one` or `multi-keeps-a-part`. `visit` takes one lock and ends.

mod count;
mod hold;
mod mix;

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use lockkeeper::clock::Clock;
use lockkeeper_testkit::fenced::FencedFile;
use lockkeeper_testkit::history::Recorder;
use lockkeeper_testkit::taking::{AnyLock, Failure, Wanted};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let options = Options::read(arguments)?;
    match command.as_str() {
        "hold" => hold::hold(&options).await,
        "count" => count::count(&options).await,
        "mix" => mix::mix(&options).await,
        "visit" => mix::visit(&options).await,
        other => Err(format!("{other:?} is none of hold, count, mix and visit").into()),
    }
}

/// `--name value` pairs.
struct Options(HashMap<String, String>);

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
        let mut options = HashMap::new();
        while let Some(name) = arguments.next() {
            let name = name.strip_prefix("--").ok_or("options start with --")?;
            let value = arguments.next().ok_or("an option has no value")?;
            options.insert(name.to_owned(), value);
        }
        Ok(Options(options))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn need(&self, name: &str) -> Result<&str, Failure> {
        self.get(name)
            .ok_or_else(|| format!("--{name} is missing").into())
    }

    fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("--{name} {text:?} is no number").into()),
        }
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let duration = self.get(name).map(lockkeeper::duration::parse);
        Ok(duration.transpose()?)
    }

    /// How long to wait for the lock.
    fn patience(&self) -> Result<Duration, Failure> {
        Ok(self.duration("patience")?.unwrap_or(FOR_EVER))
    }

    async fn lock(&self) -> Result<AnyLock, Failure> {
        AnyLock::open(&Wanted {
            kind: self.get("lock").unwrap_or("ours"),
            url: self.need("store")?,
            name: self.need("name")?,
            lease: self.duration("lease")?.ok_or("--lease is missing")?,
            renewed: self.get("fixed").is_none(),
        })
        .await
    }

    fn resource(&self) -> Result<Option<FencedFile>, Failure> {
        let file = self
            .get("resource")
            .map(|path| FencedFile::open(Path::new(path)));
        Ok(file.transpose()?)
    }

    /// Writes the history to its file, or forgets it.
    fn recorder(&self) -> Result<Recorder, Failure> {
        let process = self.get("process").unwrap_or("p");
        Ok(match self.get("history") {
            Some(path) => Recorder::to_file(process, Path::new(path))?,
            None => Recorder::in_memory(process, Clock::real()),
        })
    }
}
