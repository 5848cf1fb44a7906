//! A `redis-server` of our own, and what its clients sent to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::machine::pinned;

/// How often each command was called.
pub type Calls = BTreeMap<String, u64>;

/// What we ask while we measure.
const OURS: [&str; 3] = ["info", "monitor", "flushall"];

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    port: u16,
    child: Child,
}

impl Server {
    /// Starts it without persistence.
    pub fn start(folder: &Path) -> Result<Server, String> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{folder:?}: {error}"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0));
        let port = listener.and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let child = pinned("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server: {error}"))?;
        let server = Server { port, child };
        let end = Instant::now() + Duration::from_secs(20);
        while server.info("server").is_err() {
            if Instant::now() > end {
                return Err("redis-server does not answer within 20 s".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub fn version(&self) -> Result<String, String> {
        let info = self.info("server")?;
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").to_owned())
    }

    pub fn clear(&self) -> Result<(), String> {
        self.ask("FLUSHALL").map(drop)
    }

    /// How often each command was called so far, by clients and by their scripts.
    pub fn calls(&self) -> Result<Calls, String> {
        let info = self.info("commandstats")?;
        let mut calls = Calls::new();
        for line in info.lines() {
            let Some((command, rest)) = line
                .strip_prefix("cmdstat_")
                .and_then(|line| line.split_once(":calls="))
            else {
                continue;
            };
            let count = rest.split(',').next().and_then(|text| text.parse().ok());
            // `config|get` is `config` to MONITOR.
            let command = command.split('|').next().unwrap_or(command);
            *calls.entry(command.to_owned()).or_default() += count.unwrap_or(0);
        }
        Ok(calls)
    }

    /// The round trip of a PING, the median of many.
    pub fn ping(&self) -> Result<Duration, String> {
        let mut client = self.connect()?;
        let mut times = Vec::new();
        for _ in 0..1000 {
            let start = Instant::now();
            client
                .get_mut()
                .write_all(b"PING\r\n")
                .map_err(|e| e.to_string())?;
            client
                .read_line(&mut String::new())
                .map_err(|e| e.to_string())?;
            times.push(start.elapsed());
        }
        times.sort();
        Ok(times[times.len() / 2])
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_raw(self.child.id() as i32).ok_or("the server has no process")?;
        kill_process(pid, signal).map_err(|error| format!("the server: {error}"))
    }

    fn info(&self, section: &str) -> Result<String, String> {
        self.ask(&format!("INFO {section}"))
    }

    /// A command without arguments that need quotes; answers a simple or a bulk string.
    fn ask(&self, command: &str) -> Result<String, String> {
        let lost = |error: std::io::Error| format!("the server: {error}");
        let mut client = self.connect()?;
        let request = format!("{command}\r\n");
        client
            .get_mut()
            .write_all(request.as_bytes())
            .map_err(lost)?;
        let mut head = String::new();
        client.read_line(&mut head).map_err(lost)?;
        let head = head.trim_end();
        let Some(length) = head.strip_prefix('$') else {
            return Ok(head.to_owned());
        };
        let length = length.parse().map_err(|_| format!("{head:?}"))?;
        let mut text = vec![0; length];
        client.read_exact(&mut text).map_err(lost)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .map_err(|e| e.to_string())?;
        Ok(BufReader::new(stream))
    }

    /// Begins to watch who calls what. It slows the server down: not for a window that counts.
    pub fn watch(&self) -> Result<Watch, String> {
        let mut client = self.connect()?;
        let stream = client.get_ref().try_clone().map_err(|e| e.to_string())?;
        client
            .get_mut()
            .write_all(b"MONITOR\r\n")
            .map_err(|e| e.to_string())?;
        let reader = std::thread::spawn(move || {
            let mut origin = Origin::default();
            let mut line = Vec::new();
            while client.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
                origin.see(&String::from_utf8_lossy(&line));
                line.clear();
            }
            origin
        });
        Ok(Watch { stream, reader })
    }
}

/// Servers that stand still for as long as this lives.
#[derive(Debug)]
pub struct Stopped<'s>(&'s [Server]);

impl Stopped<'_> {
    pub fn stop(servers: &[Server]) -> Result<Stopped<'_>, String> {
        let stopped = Stopped(servers);
        for server in servers {
            server.signal(Signal::STOP)?;
        }
        Ok(stopped)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for server in self.0 {
            let _ = server.signal(Signal::CONT);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A MONITOR under way.
#[derive(Debug)]
pub struct Watch {
    stream: TcpStream,
    reader: JoinHandle<Origin>,
}

impl Watch {
    pub fn end(self) -> Result<Origin, String> {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.reader.join().map_err(|_| "the watch failed".into())
    }
}

/// Where the calls of each command came from: clients, or scripts inside the server. The server's own counters do not tell the two
/// apart, `total_commands_processed` included.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    clients: Calls,
    scripts: Calls,
}

impl Origin {
    /// Takes a line such as `1.5 [0 127.0.0.1:1] "set" "a" "1"` or `1.5 [0 lua] "get" "a"`.
    fn see(&mut self, line: &str) {
        let Some((head, rest)) = line.split_once("] \"") else {
            return;
        };
        let Some((command, _)) = rest.split_once('"') else {
            return;
        };
        let calls = match head.ends_with(" lua") {
            true => &mut self.scripts,
            false => &mut self.clients,
        };
        *calls.entry(command.to_lowercase()).or_default() += 1;
    }

    /// How many of these calls clients sent. Exact for a command that only the ones or only the others use, else
    /// by the share that was seen.
    pub fn sent_by_clients(&self, before: &Calls, after: &Calls) -> f64 {
        let count = |calls: &Calls, command: &str| calls.get(command).copied().unwrap_or(0) as f64;
        after
            .keys()
            .filter(|command| !OURS.contains(&command.as_str()))
            .map(|command| {
                let calls = count(after, command) - count(before, command);
                let clients = count(&self.clients, command);
                let scripts = count(&self.scripts, command);
                match clients + scripts {
                    0.0 => calls,
                    seen => calls * clients / seen,
                }
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_scripts_are_told_from_those_of_clients() {
        let mut origin = Origin::default();
        for line in [
            "+OK\r\n",
            "1.0 [0 127.0.0.1:5] \"EVALSHA\" \"x\" \"1\" \"[] \\\"get\\\"\"",
            "1.0 [0 lua] \"get\" \"a\"",
            "1.0 [0 lua] \"del\" \"a\"",
            "1.0 [0 unix:/a b] \"del\" \"a\"",
        ] {
            origin.see(line);
        }
        let before = Calls::from([("evalsha".into(), 5), ("info".into(), 1)]);
        let after = Calls::from([
            ("evalsha".into(), 15),
            ("get".into(), 10),
            ("del".into(), 10),
            ("ping".into(), 1),
            ("info".into(), 9),
        ]);
        // evalsha all, get none, del half of them, and ping, which was not seen while watching.
        assert_eq!(origin.sent_by_clients(&before, &after), 10.0 + 5.0 + 1.0);
    }
}
