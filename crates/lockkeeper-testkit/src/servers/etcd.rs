//! Real members of etcd for one test: one alone, or a cluster. With `LOCKKEEPER_ETCD=PROGRAM`, of that program.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::leash::Leash;
use super::ports::free_port;
use crate::retries;

/// How long a member may take to serve, on the slowest machine.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

fn program() -> OsString {
    std::env::var_os("LOCKKEEPER_ETCD").unwrap_or_else(|| "etcd".into())
}

/// A running member. Dropping it kills it, also when the test panics; it does not outlive the process either.
#[derive(Debug)]
pub struct EtcdServer {
    folder: tempfile::TempDir,
    data: PathBuf,
    name: String,
    client_port: u16,
    peer_port: u16,
    /// All members, as they are named at the first start.
    cluster: String,
    options: Vec<String>,
    /// Whether its clients have to use TLS.
    tls: bool,
    child: Option<(Leash, Child)>,
}

impl EtcdServer {
    /// A member alone.
    pub fn start() -> EtcdServer {
        EtcdServer::start_with(&[])
    }

    /// A member alone, with more options.
    ///
    /// # Panics
    /// When etcd is not installed or does not start.
    pub fn start_with(options: &[&str]) -> EtcdServer {
        for _ in 0..5 {
            let mut server = EtcdServer::prepare("one", options);
            server.cluster = server.peer();
            server.launch();
            if server.serves_soon() {
                return server;
            }
            retries::count("a server did not start");
        }
        panic!("etcd does not start");
    }

    fn prepare(name: &str, options: &[&str]) -> EtcdServer {
        let folder = tempfile::tempdir().expect("a folder");
        EtcdServer {
            data: folder.path().join("data"),
            folder,
            name: name.to_owned(),
            client_port: free_port(),
            peer_port: free_port(),
            cluster: String::new(),
            tls: options
                .iter()
                .any(|option| option.starts_with("--cert-file")),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            child: None,
        }
    }

    /// It as a member, as a cluster is named.
    fn peer(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer_port)
    }

    /// Its port for clients.
    pub fn port(&self) -> u16 {
        self.client_port
    }

    /// Where it is for clients.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// The URL of a store below these words.
    pub fn url(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.host())
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

    /// Starts it again with its data, on the same ports.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
        assert!(self.serves_soon(), "it does not start: {}", self.log());
    }

    /// Starts it again with its data, and does not wait for it.
    pub fn relaunch(&mut self) {
        self.kill();
        self.launch();
    }

    /// Starts it again with a copy of its data that was saved before: revisions go back to what they were.
    ///
    /// # Panics
    /// When the copy cannot be restored, or it does not start.
    pub fn restart_from(&mut self, copy: &Path) {
        self.kill();
        fs::remove_dir_all(&self.data).expect("its data goes");
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let restored = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(copy)
            .args(["--name", &self.name, "--initial-cluster", &self.cluster])
            .args(["--initial-advertise-peer-urls", &peer, "--data-dir"])
            .arg(&self.data)
            .output()
            .expect("etcdctl is installed; see `cargo xtask test`");
        assert!(restored.status.success(), "{restored:?}");
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

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(pid.expect("the server runs"), signal).expect("the server can be signalled");
    }

    /// `etcdctl` for this member, with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.host()])
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Runs `etcdctl` with these arguments.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        output.expect("etcdctl is installed; see `cargo xtask test`")
    }

    /// What `etcdctl` prints with these arguments.
    ///
    /// # Panics
    /// When it fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The keys that begin so, in their order.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let printed = self.ctl(&["get", "--prefix", "--keys-only", prefix]);
        let lines = printed.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }

    /// The numbers of all leases, as `etcdctl` prints them.
    pub fn leases(&self) -> Vec<String> {
        let printed = self.ctl(&["lease", "list"]);
        printed.lines().skip(1).map(str::to_owned).collect()
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Whether it serves, as it says itself: it has a leader then.
    pub fn serves(&self) -> bool {
        if self.tls {
            return TcpStream::connect(("127.0.0.1", self.client_port)).is_ok();
        }
        self.page("/health").contains("\"health\":\"true\"")
    }

    /// Its number, as `etcdctl` writes it.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn id(&self) -> String {
        let listed = self.ctl(&["member", "list"]);
        let own = format!(", {}, ", self.name);
        let line = listed.lines().find(|line| line.contains(&own));
        let id = line.and_then(|line| line.split(',').next());
        id.expect("it is a member").to_owned()
    }

    /// The revision of its data.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn revision(&self) -> i64 {
        let printed = self.ctl(&["get", "no such key", "-w", "json"]);
        let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        let revision = printed["header"]["revision"].as_i64();
        revision.expect("a revision")
    }

    /// One of its pages.
    pub fn page(&self, path: &str) -> String {
        let mut answer = String::new();
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.client_port)) else {
            return answer;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let ask = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.host());
        let _ = stream.write_all(ask.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Whether it believes to lead.
    pub fn leads(&self) -> bool {
        self.page("/metrics")
            .lines()
            .any(|line| line == "etcd_server_is_leader 1")
    }

    fn serves_soon(&mut self) -> bool {
        let end = Instant::now() + STARTS_WITHIN;
        while Instant::now() < end {
            if let Some((_, child)) = &mut self.child
                && matches!(child.try_wait(), Ok(Some(_)))
            {
                return false;
            }
            if self.serves() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn launch(&mut self) {
        let scheme = if self.tls { "https" } else { "http" };
        let client = format!("{scheme}://{}", self.host());
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let child = Command::new(program())
            .args(["--name", &self.name, "--data-dir"])
            .arg(&self.data)
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.cluster])
            .args([
                "--unsafe-no-fsync",
                "--logger",
                "zap",
                "--log-level",
                "warn",
            ])
            .args(&self.options)
            // etcd warns of variables that mean the same as an option.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // Ctrl-C means us; a server that went first would be missed. Its leash ends it after us.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
            .expect("etcd is installed; see `cargo xtask test`");
        self.child = Some((Leash::on(child.id(), self.folder.path()), child));
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Members that elect a leader.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdServer>,
}

impl EtcdCluster {
    /// Three members.
    ///
    /// # Panics
    /// When they do not elect a leader.
    pub fn start() -> EtcdCluster {
        EtcdCluster::start_on(None)
    }

    /// Three members, the first of which has its data on this disk.
    ///
    /// # Panics
    /// When they do not elect a leader.
    pub fn start_on(disk: Option<&Path>) -> EtcdCluster {
        let names = ["one", "two", "three"];
        let mut members: Vec<EtcdServer> = names
            .iter()
            .map(|name| EtcdServer::prepare(name, &[]))
            .collect();
        if let Some(disk) = disk {
            members[0].data = disk.join("data");
        }
        let peers: Vec<String> = members.iter().map(EtcdServer::peer).collect();
        for member in &mut members {
            member.cluster = peers.join(",");
            member.launch();
        }
        let cluster = EtcdCluster { members };
        cluster.wait_until_all_serve();
        cluster
    }

    /// Waits until every member serves.
    ///
    /// # Panics
    /// When one does not.
    pub fn wait_until_all_serve(&self) {
        let end = Instant::now() + STARTS_WITHIN;
        for member in &self.members {
            while !member.serves() {
                assert!(Instant::now() < end, "no leader: {}", member.log());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The addresses of all members, as a URL has them.
    pub fn hosts(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(EtcdServer::host).collect();
        hosts.join(",")
    }

    /// The URL of a store below these words.
    pub fn url(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.hosts())
    }

    /// Its members.
    pub fn members(&mut self) -> &mut [EtcdServer] {
        &mut self.members
    }

    /// Its members, to look at.
    pub fn all(&self) -> &[EtcdServer] {
        &self.members
    }

    /// Has this member lead.
    ///
    /// # Panics
    /// When it never does.
    pub fn elect(&self, wanted: usize) {
        let end = Instant::now() + STARTS_WITHIN;
        loop {
            let leader = self.leader();
            if leader == wanted {
                return;
            }
            assert!(Instant::now() < end, "it is never elected");
            let id = self.members[wanted].id();
            // It may refuse while it does not hear of the other yet.
            self.members[leader].run(&["move-leader", &id]);
        }
    }

    /// Which of them leads.
    ///
    /// # Panics
    /// When none does for a long time.
    pub fn leader(&self) -> usize {
        let end = Instant::now() + STARTS_WITHIN;
        loop {
            let running = |member: &&EtcdServer| member.child.is_some();
            let leads = self
                .members
                .iter()
                .position(|member| running(&member) && member.leads());
            if let Some(leader) = leads {
                return leader;
            }
            assert!(Instant::now() < end, "no leader");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
