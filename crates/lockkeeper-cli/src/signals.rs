//! The signals that `run` hears: they end it while it waits, and go on to the command while it runs.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What is forwarded. The rest cannot be caught, is about ourselves (CHLD, PIPE), or is a fault.
const FORWARDED: &[Signal] = &[
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// Signals as they arrive, none lost from [`Signals::listen`] on.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// One bit a signal.
    ignored: u64,
}

impl Signals {
    /// Starts to listen. What the caller had us ignore, as `nohup` does, stays ignored, also in the command.
    pub fn listen() -> io::Result<Signals> {
        let mut signals = Signals {
            streams: Vec::new(),
            ignored: ignored_at_start(),
        };
        for &signal in FORWARDED {
            signals.add(signal)?;
        }
        Ok(signals)
    }

    /// Listens to one more, unless it is ignored.
    pub fn add(&mut self, signal: Signal) -> io::Result<()> {
        if self.ignored & mask(signal) != 0 {
            return Ok(());
        }
        let stream = unix::signal(SignalKind::from_raw(signal as i32))?;
        self.streams.push((signal, stream));
        Ok(())
    }

    /// The next signal. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a program which does not know it. Cancel safe.
    pub async fn next_fatal(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGWINCH | Signal::SIGCONT => {}
                signal => return signal,
            }
        }
    }
}

fn mask(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

/// Which signals were ignored when we started, one bit each; none where this system does not tell.
fn ignored_at_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
