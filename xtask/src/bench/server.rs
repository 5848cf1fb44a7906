//! A server that all take turns on, whatever it is.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::redis::Watch;

/// How long a server may take to serve.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// How often each command was called.
pub type Calls = BTreeMap<String, u64>;

pub trait Server {
    /// As the peers are told.
    fn url(&self) -> String;

    /// What it is, with its version.
    fn version(&self) -> Result<String, String>;

    /// The round trip of a PING, the median of many, where there is such a thing.
    fn ping(&self) -> Result<Option<Duration>, String>;

    /// Forgets all locks.
    fn clear(&self) -> Result<(), String>;

    /// How often each command was called so far.
    fn calls(&self) -> Result<Calls, String>;

    /// Begins to watch who calls what, where the calls are not those of clients alone. It slows the server down: not for a window
    /// that counts.
    fn watch(&self) -> Result<Option<Watch>, String>;

    /// What runs.
    fn process(&self) -> &Running;
}

/// The process of a server. Dropping it kills it.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Result<Running, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        let child = child.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        Ok(Running(child))
    }

    /// Waits until the server answers.
    pub fn serves(&self, answers: impl Fn() -> bool) -> Result<(), String> {
        let end = Instant::now() + STARTS_WITHIN;
        while !answers() {
            if Instant::now() > end {
                return Err(format!(
                    "the server does not answer within {STARTS_WITHIN:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_raw(self.0.id() as i32).ok_or("the server has no process")?;
        kill_process(pid, signal).map_err(|error| format!("the server: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Servers that stand still for as long as this lives.
pub struct Stopped<'s>(&'s [Box<dyn Server>]);

impl Stopped<'_> {
    pub fn stop(servers: &[Box<dyn Server>]) -> Result<Stopped<'_>, String> {
        let stopped = Stopped(servers);
        for server in servers {
            server.process().signal(Signal::STOP)?;
        }
        Ok(stopped)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for server in self.0 {
            let _ = server.process().signal(Signal::CONT);
        }
    }
}

pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(|error| error.to_string())?.port())
}
