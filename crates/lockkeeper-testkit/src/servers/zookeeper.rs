//! Real ZooKeeper servers for one test: one alone, or an ensemble. With `LOCKKEEPER_ZOOKEEPER=FOLDER`, of the jars in that folder.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::leash::Leash;
use super::ports::free_port;
use super::proxy::{Proxy, Way};
use crate::retries;

/// How long after its election a leader may take until it listens to its followers.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may take to serve, on the slowest machine.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

/// Debian's, with what speaks TLS. The first brings the others along.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:\
                          /usr/share/java/netty-transport-native-unix-common.jar:/usr/share/java/slf4j-simple.jar";

/// Debian's, unless another one is named.
fn class_path() -> String {
    let named = std::env::var_os("LOCKKEEPER_ZOOKEEPER").map(PathBuf::from);
    named.map_or_else(
        || CLASS_PATH.to_owned(),
        |folder| folder.join("*").display().to_string(),
    )
}

/// Whether Java and Debian's ZooKeeper are on this machine.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_java = std::env::split_paths(&path).any(|folder| folder.join("java").is_file());
    let mut jars = CLASS_PATH.split(':');
    has_java && jars.next().is_some_and(|jar| Path::new(jar).is_file())
}

/// How a server is to be started.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    /// The unit of time of a server's: sessions are looked at once in it.
    pub tick: Duration,
    /// Servers wait for each other for so many ticks.
    pub sync_limit: u32,
    /// More lines for the configuration file.
    pub lines: Vec<String>,
    /// More properties of the Java machine.
    pub properties: Vec<(String, String)>,
    /// More variables of its environment.
    pub environment: Vec<(String, String)>,
}

impl Default for ZooKeeperOptions {
    fn default() -> ZooKeeperOptions {
        ZooKeeperOptions {
            tick: Duration::from_millis(100),
            sync_limit: 100,
            lines: Vec::new(),
            properties: Vec::new(),
            environment: Vec::new(),
        }
    }
}

/// A running server. Dropping it kills it, also when the test panics; it does not outlive the process either.
#[derive(Debug)]
pub struct ZooKeeperServer {
    folder: tempfile::TempDir,
    port: u16,
    options: ZooKeeperOptions,
    child: Option<(Leash, Child)>,
}

impl ZooKeeperServer {
    /// A server alone.
    pub fn start() -> ZooKeeperServer {
        ZooKeeperServer::start_with(ZooKeeperOptions::default())
    }

    /// A server alone, with these options.
    ///
    /// # Panics
    /// When ZooKeeper is not installed or does not start.
    pub fn start_with(options: ZooKeeperOptions) -> ZooKeeperServer {
        let mut server = ZooKeeperServer::prepare(options);
        for _ in 0..5 {
            server.launch();
            if server.serves_soon() {
                return server;
            }
            retries::count("a server did not start");
            server.kill();
            server.port = free_port();
        }
        panic!("ZooKeeper does not start: {}", server.log());
    }

    fn prepare(options: ZooKeeperOptions) -> ZooKeeperServer {
        ZooKeeperServer {
            folder: tempfile::tempdir().expect("a folder"),
            port: free_port(),
            options,
            child: None,
        }
    }

    /// The URL of the server, with a session that outlives every case and a chroot of this name.
    pub fn url(&self, chroot: &str) -> String {
        format!("zk://127.0.0.1:{}/{chroot}?session_timeout=200s", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where all its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where its data is.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
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

    /// Starts it again with its data, on the same port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
        assert!(self.serves_soon(), "it does not start: {}", self.log());
    }

    /// Appends a line to its configuration, for the next start.
    pub fn add_line(&mut self, line: &str) {
        self.options.lines.push(line.to_owned());
    }

    /// Starts it again with its data, and does not wait for it.
    pub fn relaunch(&mut self) {
        self.kill();
        self.launch();
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

    /// What it answers to one of its words of four letters; empty if it does not.
    pub fn word(&self, word: &str) -> String {
        self.ask(word).map(|(_, answer)| answer).unwrap_or_default()
    }

    /// The same, and the address that it was asked from.
    fn ask(&self, word: &str) -> io::Result<(SocketAddr, String)> {
        let mut answer = String::new();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let from = stream.local_addr()?;
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.write_all(word.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_string(&mut answer);
        Ok((from, answer))
    }

    /// What it is in its ensemble: `leader`, `follower` or `standalone`; `None` while it does not serve.
    pub fn mode(&self) -> Option<String> {
        let said = self.word("srvr");
        let mode = said.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(|mode| mode.trim().to_owned())
    }

    /// The last transaction that it knows of.
    pub fn zxid(&self) -> String {
        let said = self.word("srvr");
        let last = said.lines().find_map(|line| line.strip_prefix("Zxid: "));
        last.map(str::to_owned).unwrap_or_default()
    }

    /// How many watches it keeps for clients.
    pub fn watches(&self) -> u64 {
        self.monitored("zk_watch_count")
    }

    /// How many ephemeral nodes it has.
    pub fn ephemerals(&self) -> u64 {
        self.monitored("zk_ephemerals_count")
    }

    /// How many sessions it knows of.
    pub fn sessions(&self) -> u64 {
        self.monitored("zk_global_sessions")
    }

    /// What it says of each connection that it has, but for the one that asks; nothing while it does not serve.
    pub fn connections(&self) -> Vec<String> {
        let Ok((from, said)) = self.ask("cons") else {
            return Vec::new();
        };
        let own = format!("/{from}[");
        let lines = said.lines().map(str::trim);
        let others = lines.filter(|line| line.starts_with('/') && !line.starts_with(&own));
        others.map(str::to_owned).collect()
    }

    /// One of the numbers that it tells; 0 while it does not serve.
    fn monitored(&self, what: &str) -> u64 {
        let said = self.word("mntr");
        let count = said.lines().find_map(|line| line.strip_prefix(what));
        count.map_or(0, |count| count.trim().parse().expect("a number"))
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn serves_soon(&mut self) -> bool {
        let end = Instant::now() + STARTS_WITHIN;
        while Instant::now() < end {
            if let Some((_, child)) = &mut self.child
                && matches!(child.try_wait(), Ok(Some(_)))
            {
                return false;
            }
            if self.mode().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn launch(&mut self) {
        fs::create_dir_all(self.data()).expect("a folder");
        let config = self.folder.path().join("zoo.cfg");
        fs::write(&config, self.config()).expect("writes");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let properties = self.options.properties.iter();
        let child = Command::new("java")
            .args([
                "-Xmx96m",
                "-Xss256k",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xshare:auto",
            ])
            .args([
                "-Dzookeeper.forceSync=no",
                "-Dznode.container.checkIntervalMs=1000",
            ])
            .args([
                "-Dzookeeper.jmx.log4j.disable=true",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            ])
            .args([
                "-Dzookeeper.extendedTypesEnabled=true",
                "-Djava.net.preferIPv4Stack=true",
            ])
            .args(properties.map(|(name, value)| format!("-D{name}={value}")))
            .args([
                "-cp",
                &class_path(),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            ])
            .arg(&config)
            .envs(self.options.environment.iter().cloned())
            // Ctrl-C means us; a server that went first would be missed. Its leash ends it after us.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
            .expect("Java and ZooKeeper are installed; see `cargo xtask test`");
        self.child = Some((Leash::on(child.id(), self.folder.path()), child));
    }

    fn config(&self) -> String {
        let mut lines = vec![
            format!("tickTime={}", self.options.tick.as_millis()),
            "initLimit=600".into(),
            format!("syncLimit={}", self.options.sync_limit),
            format!("dataDir={}", self.data().display()),
            "clientPortAddress=127.0.0.1".into(),
            "maxClientCnxns=0".into(),
            "maxSessionTimeout=600000".into(),
            "admin.enableServer=false".into(),
            "4lw.commands.whitelist=*".into(),
        ];
        lines.push(format!("clientPort={}", self.port));
        lines.extend(self.options.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Servers that elect a leader.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<ZooKeeperServer>,
    /// The ways between two servers, by their numbers; none if nothing is to happen there.
    ways: Vec<(usize, usize, Proxy)>,
}

impl Ensemble {
    /// Three servers.
    pub fn start() -> Ensemble {
        Ensemble::start_with(ZooKeeperOptions::default())
    }

    /// Three servers with these options.
    ///
    /// # Panics
    /// When they do not elect a leader.
    pub fn start_with(options: ZooKeeperOptions) -> Ensemble {
        Ensemble::launch([options.clone(), options.clone(), options], false)
    }

    /// Three servers, each of which can be cut off from the others.
    ///
    /// # Panics
    /// When they do not elect a leader.
    pub fn start_apart(options: [ZooKeeperOptions; 3]) -> Ensemble {
        Ensemble::launch(options, true)
    }

    fn launch(options: [ZooKeeperOptions; 3], apart: bool) -> Ensemble {
        let mut servers: Vec<ZooKeeperServer> =
            options.into_iter().map(ZooKeeperServer::prepare).collect();
        let ports: Vec<[u16; 2]> = (0..3).map(|_| [free_port(), free_port()]).collect();
        let ways = if apart {
            ways_between(&ports)
        } else {
            Vec::new()
        };
        for (number, server) in servers.iter_mut().enumerate() {
            for (other, ports) in ports.iter().enumerate() {
                let between = ways
                    .iter()
                    .filter(|way| (way.0, way.1) == (number, other))
                    .map(|(_, _, proxy)| proxy.port())
                    .collect::<Vec<_>>();
                let [quorum, election] = *between.first_chunk().unwrap_or(ports);
                let line = format!("server.{}=127.0.0.1:{quorum}:{election}", other + 1);
                server.options.lines.push(line);
            }
            fs::create_dir_all(server.data()).expect("a folder");
            fs::write(server.data().join("myid"), format!("{}\n", number + 1)).expect("writes");
            server.launch();
        }
        let ensemble = Ensemble { servers, ways };
        ensemble.wait_until_all_serve();
        ensemble
    }

    fn ways_of(&self, server: usize) -> impl Iterator<Item = &Proxy> {
        let touches = move |way: &&(usize, usize, Proxy)| way.0 == server || way.1 == server;
        self.ways.iter().filter(touches).map(|(_, _, proxy)| proxy)
    }

    /// Cuts a server off from the others. It does not notice before its time, and neither do they; clients reach all. Nothing
    /// passes, also no end of a connection.
    ///
    /// # Panics
    /// When they were not started apart.
    pub fn cut_off(&self, server: usize) {
        assert!(!self.ways.is_empty(), "there is nothing between them");
        for way in self.ways_of(server) {
            way.requests(Way::Frozen);
            way.replies(Way::Frozen);
        }
    }

    /// Keeps what one server says to another until [`Ensemble::let_speak`]. Neither notices before its time.
    ///
    /// # Panics
    /// When they were not started apart.
    pub fn silence(&self, speaker: usize, listener: usize) {
        self.says(speaker, listener, Way::Frozen);
    }

    /// Lets the other hear what was kept from it, and what comes.
    ///
    /// # Panics
    /// When they were not started apart.
    pub fn let_speak(&self, speaker: usize, listener: usize) {
        self.says(speaker, listener, Way::Open);
    }

    fn says(&self, speaker: usize, listener: usize, how: Way) {
        assert!(!self.ways.is_empty(), "there is nothing between them");
        for (from, to, way) in &self.ways {
            match (*from, *to) {
                ends if ends == (speaker, listener) => way.requests(how),
                ends if ends == (listener, speaker) => way.replies(how),
                _ => {}
            }
        }
    }

    /// Connects a server with the others again.
    pub fn heal(&self, server: usize) {
        for way in self.ways_of(server) {
            way.cut();
            way.heal();
        }
    }

    /// Has this server elected.
    ///
    /// # Panics
    /// When it never is.
    pub fn elect(&mut self, wanted: usize) {
        for _ in 0..20 {
            let leader = self.leader();
            if leader == wanted {
                self.wait_until_all_serve();
                return;
            }
            self.servers[leader].kill();
            self.leader();
            self.servers[leader].relaunch();
            self.wait_until_all_serve();
        }
        panic!("it is never elected");
    }

    /// Waits until every server serves.
    ///
    /// # Panics
    /// When one does not.
    pub fn wait_until_all_serve(&self) {
        let end = Instant::now() + STARTS_WITHIN;
        for server in &self.servers {
            while server.mode().is_none() {
                assert!(Instant::now() < end, "no leader: {}", server.log());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The addresses of all servers, as a URL has them.
    pub fn hosts(&self) -> String {
        let host = |one: &ZooKeeperServer| format!("127.0.0.1:{}", one.port);
        let hosts: Vec<String> = self.servers.iter().map(host).collect();
        hosts.join(",")
    }

    /// The URL of all servers, with a session that outlives every case and a chroot of this name.
    pub fn url(&self, chroot: &str) -> String {
        format!("zk://{}/{chroot}?session_timeout=200s", self.hosts())
    }

    /// Its servers, to look at.
    pub fn all(&self) -> &[ZooKeeperServer] {
        &self.servers
    }

    /// Its servers.
    pub fn servers(&mut self) -> &mut [ZooKeeperServer] {
        &mut self.servers
    }

    /// Whether this one believes to lead.
    pub fn leads(&self, server: usize) -> bool {
        self.servers[server]
            .mode()
            .is_some_and(|mode| mode == "leader")
    }

    /// Which of them leads.
    ///
    /// # Panics
    /// When none does for a long time.
    pub fn leader(&self) -> usize {
        let end = Instant::now() + STARTS_WITHIN;
        loop {
            if let Some(leader) = (0..self.servers.len()).find(|server| self.leads(*server)) {
                return leader;
            }
            assert!(Instant::now() < end, "no leader");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Proxies between all servers with these ports for followers and for elections, two for each that reaches another.
fn ways_between(ports: &[[u16; 2]]) -> Vec<(usize, usize, Proxy)> {
    let mut ways: Vec<(usize, usize, Proxy)> = Vec::new();
    let pairs = (0..ports.len()).flat_map(|one| (0..ports.len()).map(move |other| (one, other)));
    for (one, other) in pairs.filter(|(one, other)| one != other) {
        let [quorum, election] = ports[other];
        // A follower that comes before its leader listens tries again if it is refused. If it is let in and then cut off, it holds
        // another election, and the leader waits for it in vain: round after round, ten seconds each.
        let quorum = Proxy::to_one_that_comes(quorum, LISTENS_WITHIN);
        ways.extend([quorum, Proxy::to(election)].map(|proxy| (one, other, proxy)));
    }
    // A server says where it is reached for elections, and the other may connect to it there, past the proxies.
    let of_elections = || ways.iter().skip(1).step_by(2);
    for (one, other, proxy) in of_elections() {
        let back = of_elections().find(|way| (way.0, way.1) == (*other, *one));
        let back = back.map_or(0, |way| way.2.port());
        proxy.rewrite(&format!(":{}", ports[*one][1]), &format!(":{back}"));
    }
    ways
}
