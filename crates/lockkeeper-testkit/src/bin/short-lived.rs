//! A program that takes a lock and ends: what it leaves behind in the store is for tests to see.
//!
//! ```text
//! short-lived END URL NAME
//! ```
//!
//! END says how it ends, with the lock held until then:
//! `return` and `return-single` from an asynchronous `main` with several threads and with one, `panic`, `blocking` from a
//! `main` of the blocking API, `close` after the keeper was closed, `release` after the lock was released, `busy` after
//! many locks, `task` with the guard in a task that the runtime drops,
//! `static` with a keeper that nobody drops, `exit` by `exit(0)` right after the drop, `abort` by a signal then.
//!
//! It prints `held` once it has the lock, and waits for the end of its input if it is a pipe that somebody keeps open.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use lockkeeper::{Error, Guard, Lockkeeper, blocking};
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [end, url, name] = arguments.as_slice() else {
        eprintln!("usage: short-lived END URL NAME");
        return ExitCode::from(2);
    };
    // The panic is meant to be.
    std::panic::set_hook(Box::new(|_| {}));
    let ended = match end.as_str() {
        "blocking" => in_threads(url, name),
        "return-single" => {
            runtime(Builder::new_current_thread()).block_on(in_tasks(end, url, name))
        }
        _ => runtime(Builder::new_multi_thread()).block_on(in_tasks(end, url, name)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("short-lived: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(mut builder: Builder) -> Runtime {
    builder.worker_threads(2).enable_all();
    builder.build().expect("a runtime")
}

/// Says that the lock is held, and waits to be told to end.
fn held() {
    println!("held");
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn in_threads(url: &str, name: &str) -> Result<(), Error> {
    let keeper = blocking::Lockkeeper::connect(url)?;
    let lock = keeper.lock(name)?;
    let _guard = lock.acquire()?;
    held();
    Ok(())
}

async fn in_tasks(end: &str, url: &str, name: &str) -> Result<(), Error> {
    static KEEPER: OnceLock<Lockkeeper> = OnceLock::new();
    let keeper = Lockkeeper::connect(url).await?;
    let lock = keeper.lock(name)?;
    if end == "busy" {
        for _ in 0..40 {
            lock.acquire().await?.release().await?;
        }
    }
    let guard = lock.acquire().await?;
    held();
    match end {
        "return" | "return-single" | "busy" => {}
        "panic" => panic!("as it was told"),
        "close" => {
            drop(guard);
            keeper.close().await;
            std::process::exit(0);
        }
        "release" => {
            guard.release().await?;
        }
        "task" => {
            tokio::spawn(keeps(guard));
            tokio::task::yield_now().await;
        }
        "static" => drop(KEEPER.set(keeper)),
        "exit" => {
            drop(guard);
            std::process::exit(0);
        }
        // No destructor runs, and no thread goes on.
        "abort" => {
            drop(guard);
            std::process::abort();
        }
        other => panic!("{other:?} is no end"),
    }
    Ok(())
}

async fn keeps(_guard: Guard) {
    std::future::pending().await
}
