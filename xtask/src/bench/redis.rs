//! A `redis-server` of our own, and what its clients sent to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::machine::pinned;
use super::server::{Calls, Running, Server, free_port};

/// What we ask while we measure.
const OURS: [&str; 3] = ["info", "monitor", "flushall"];

/// A running server.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    process: Running,
}

impl Redis {
    /// Starts it without persistence.
    pub fn start(folder: &Path) -> Result<Redis, String> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{folder:?}: {error}"))?;
        let port = free_port()?;
        let mut command = pinned("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(folder);
        let process = Running::start(&mut command)?;
        let server = Redis { port, process };
        server.process.serves(|| server.info("server").is_ok())?;
        Ok(server)
    }
}

impl Server for Redis {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn version(&self) -> Result<String, String> {
        let info = self.info("server")?;
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        Ok(format!("Redis {}", version.unwrap_or("unknown")))
    }

    fn clear(&self) -> Result<(), String> {
        self.ask("FLUSHALL").map(drop)
    }

    /// By clients and by their scripts.
    fn calls(&self) -> Result<Calls, String> {
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

    fn ping(&self) -> Result<Option<Duration>, String> {
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
        Ok(Some(times[times.len() / 2]))
    }

    fn watch(&self) -> Result<Option<Watch>, String> {
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
        Ok(Some(Watch { stream, reader }))
    }

    fn process(&self) -> &Running {
        &self.process
    }
}

impl Redis {
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
        let calls = if head.ends_with(" lua") {
            &mut self.scripts
        } else {
            &mut self.clients
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
