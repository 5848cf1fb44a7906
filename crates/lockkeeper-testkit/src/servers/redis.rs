//! A real `redis-server` for one test.

use std::fs;
use std::io::BufReader;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::certificates::Identity;
use super::leash::Leash;
use super::ports::free_port;
use super::wire::{Listener, exchange, socket_answers};
use crate::retries;

/// How long a server may take to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// How a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Whether data survives a restart: every change is written to disk before it is answered.
    pub durable: bool,
    /// The password that clients need.
    pub password: Option<String>,
    /// Speak TLS on the port, as this server.
    pub tls: Option<Identity>,
    /// With TLS: clients need a certificate of this authority.
    pub clients_of: Option<PathBuf>,
    /// Be a Sentinel instead.
    pub sentinel: bool,
    /// More lines for the configuration file.
    pub lines: Vec<String>,
    /// More for its environment, such as [a clock](super::wall_clock::WallClock::environment).
    pub environment: Vec<(String, String)>,
}

/// A running server. Dropping it kills it, also when the test panics; it does not outlive the process either.
#[derive(Debug)]
pub struct RedisServer {
    folder: tempfile::TempDir,
    port: u16,
    options: RedisOptions,
    child: Option<(Leash, Child)>,
}

impl RedisServer {
    /// A server that keeps nothing on disk.
    pub fn start() -> RedisServer {
        RedisServer::start_with(RedisOptions::default())
    }

    /// A server with these options.
    ///
    /// # Panics
    /// When `redis-server` is not installed or does not start.
    pub fn start_with(options: RedisOptions) -> RedisServer {
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = RedisServer {
            folder,
            port: 0,
            options,
            child: None,
        };
        // Another program may take the port between our look and the server's start.
        for _ in 0..20 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
            retries::count("a server did not start");
        }
        panic!("redis-server does not start: {}", server.log());
    }

    /// The URL of the server over TCP.
    pub fn url(&self) -> String {
        let scheme = match self.options.tls {
            Some(_) => "rediss",
            None => "redis",
        };
        match &self.options.password {
            Some(password) => format!("{scheme}://:{password}@127.0.0.1:{}/0", self.port),
            None => format!("{scheme}://127.0.0.1:{}/0", self.port),
        }
    }

    /// The URL of the server over its socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Where all its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|(_, child)| child.id())
    }

    /// Kills it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some((_leash, mut child)) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port after [`RedisServer::kill`]; with its data if it is durable.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let end = Instant::now() + STARTS_WITHIN;
        while !self.launch() {
            assert!(Instant::now() < end, "it does not start: {}", self.log());
            retries::count("a server did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, removes its data, and starts it again.
    pub fn restart_empty(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(self.data());
        self.restart();
    }

    /// Stops it from running, without ending it.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it run again.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends one command and answers what the server says, as it is on the wire (RESP2).
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub fn command(&self, parts: &[&str]) -> String {
        let mut stream = self.dial();
        if let Some(password) = &self.options.password {
            exchange(&mut stream, &["AUTH", password]);
        }
        exchange(&mut stream, parts)
    }

    /// The same, as a user of the server's.
    ///
    /// # Panics
    /// When the server cannot be reached, or does not know the user.
    pub fn command_as(&self, user: &str, password: &str, parts: &[&str]) -> String {
        let mut stream = self.dial();
        let known = exchange(&mut stream, &["AUTH", user, password]);
        assert_eq!(known, "+OK\r\n");
        exchange(&mut stream, parts)
    }

    fn dial(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.socket()).expect("the server listens");
        let wait = Some(Duration::from_secs(10));
        stream.set_read_timeout(wait).expect("a timeout");
        BufReader::new(stream)
    }

    /// Sends one command, and answers the strings in what comes back.
    pub fn strings(&self, parts: &[&str]) -> Vec<String> {
        let answer = self.command(parts);
        let mut lines = answer.split("\r\n");
        let mut strings = Vec::new();
        while let Some(line) = lines.next() {
            match line.chars().next() {
                Some('$') if line != "$-1" => strings.extend(lines.next().map(str::to_owned)),
                Some(':' | '+') => strings.push(line[1..].to_owned()),
                _ => {}
            }
        }
        strings
    }

    /// Subscribes to a channel, as a client of another library does.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub fn listen(&self, channel: &str) -> Listener {
        self.listen_by("SUBSCRIBE", channel)
    }

    /// Subscribes to a channel with this command.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub fn listen_by(&self, verb: &str, channel: &str) -> Listener {
        let stream = UnixStream::connect(self.socket()).expect("the server listens");
        Listener::open(stream, verb, channel)
    }

    /// One field of what it says about itself.
    pub fn info(&self, field: &str) -> Option<String> {
        let info = self.command(&["INFO"]);
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| *name == field);
        found.map(|(_, value)| value.to_owned())
    }

    /// How often a command was called, by clients and scripts.
    pub fn calls_of(&self, command: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]);
        let rest = stats.split_once(&format!("cmdstat_{command}:calls="));
        let calls = rest.and_then(|(_, rest)| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// Every key there is, in order.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.strings(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the process and waits until it answers. `false` if it ended instead.
    fn launch(&mut self) -> bool {
        fs::create_dir_all(self.data()).expect("a folder");
        let config = self.folder.path().join("redis.conf");
        fs::write(&config, self.config()).expect("writes");
        let sentinel = self.options.sentinel.then_some("--sentinel");
        let child = Command::new("redis-server")
            .arg(&config)
            .args(sentinel)
            // A Ctrl-C means us; a server that went first would be missed. Its leash ends it after us.
            .process_group(0)
            .envs(self.options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed; see `cargo xtask test`");
        self.child = Some((Leash::on(child.id(), self.folder.path()), child));
        let end = Instant::now() + STARTS_WITHIN;
        while Instant::now() < end {
            if let Some((_, child)) = &mut self.child
                && matches!(child.try_wait(), Ok(Some(_)))
            {
                self.child = None;
                return false;
            }
            if self.answers() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        false
    }

    /// Whether it answers on both ways in, and has loaded its data.
    fn answers(&self) -> bool {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        tcp && socket_answers(&self.socket())
    }

    fn config(&self) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".into(),
            format!("unixsocket {}", self.socket().display()),
            format!("dir {}", self.data().display()),
            format!("logfile {}", self.folder.path().join("log").display()),
            "daemonize no".into(),
        ];
        if !self.options.sentinel {
            lines.push("save \"\"".into());
            lines.push("enable-debug-command local".into());
        }
        match &self.options.tls {
            None => lines.push(format!("port {}", self.port)),
            Some(Identity { cert, key }) => {
                lines.push("port 0".into());
                lines.push(format!("tls-port {}", self.port));
                lines.push(format!("tls-cert-file {}", cert.display()));
                lines.push(format!("tls-key-file {}", key.display()));
            }
        }
        match &self.options.clients_of {
            Some(ca) => lines.push(format!("tls-ca-cert-file {}", ca.display())),
            None => lines.push("tls-auth-clients no".into()),
        }
        if self.options.durable {
            lines.push("appendonly yes".into());
            lines.push("appendfsync always".into());
        }
        if let Some(password) = &self.options.password {
            lines.push(format!("requirepass {password}"));
        }
        lines.extend(self.options.lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.expect("the server runs");
        kill_process(pid, signal).expect("the server can be signalled");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
