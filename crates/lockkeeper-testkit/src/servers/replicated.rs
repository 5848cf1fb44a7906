//! A master with replicas, and the Sentinels that watch over them.

use std::time::{Duration, Instant};

use super::redis::{RedisOptions, RedisServer};

/// What the Sentinels call the master.
pub const SERVICE: &str = "locks";

/// Several servers, one of which is the master. They go with the test, and with the process.
#[derive(Debug)]
pub struct Replicated {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl Replicated {
    /// A master and this many replicas, which nobody watches over. The master is the first.
    pub fn start(replicas: usize) -> Replicated {
        Replicated::start_with(replicas, 0, &RedisOptions::default())
    }

    /// A master, two replicas and three Sentinels.
    pub fn with_sentinels() -> Replicated {
        Replicated::start_with(2, 3, &RedisOptions::default())
    }

    /// As many replicas and Sentinels as wanted, all with these options. Sentinels take two seconds of silence for
    /// death: less happens by itself on a machine that is busy.
    pub fn start_with(replicas: usize, sentinels: usize, options: &RedisOptions) -> Replicated {
        let start = |sentinel: bool, more: Vec<String>| {
            let mut options = options.clone();
            options.sentinel = sentinel;
            options.lines.extend(more);
            if options.tls.is_some() {
                options.lines.push("tls-replication yes".into());
            }
            RedisServer::start_with(options)
        };
        let server = |more: Option<String>| {
            let mut lines = vec![
                "repl-diskless-sync-delay 0".to_owned(),
                "repl-ping-replica-period 1".to_owned(),
            ];
            lines.extend(more);
            start(false, lines)
        };
        let master = server(None);
        let port = master.port();
        let replica = |_| server(Some(format!("replicaof 127.0.0.1 {port}")));
        let mut all = Replicated {
            servers: std::iter::once(master)
                .chain((0..replicas).map(replica))
                .collect(),
            sentinels: Vec::new(),
        };
        all.wait_until_complete(0);
        for _ in 0..sentinels {
            let lines = vec![
                format!(
                    "sentinel monitor {SERVICE} 127.0.0.1 {port} {}",
                    sentinels / 2 + 1
                ),
                format!("sentinel down-after-milliseconds {SERVICE} 2000"),
                format!("sentinel failover-timeout {SERVICE} 5000"),
            ];
            let sentinel = start(true, lines);
            // Redis 7 has a way to make them look more often than every ten seconds; older ones take their time.
            sentinel.command(&["SENTINEL", "DEBUG", "INFO-PERIOD", "500"]);
            sentinel.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "300"]);
            // A Sentinel that was held up itself does nothing for a while.
            sentinel.command(&["SENTINEL", "DEBUG", "TILT-PERIOD", "1000"]);
            all.sentinels.push(sentinel);
        }
        all.wait_until_watched();
        all
    }

    /// The URL by which the master is found.
    pub fn url(&self) -> String {
        let ports = self.sentinels.iter().map(RedisServer::port);
        let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// All servers, whatever they are just now.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// One of them, to kill and restart.
    pub fn server(&mut self, at: usize) -> &mut RedisServer {
        &mut self.servers[at]
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// One of them, to kill and restart.
    pub fn sentinel(&mut self, at: usize) -> &mut RedisServer {
        &mut self.sentinels[at]
    }

    /// Which server is the master, by what most Sentinels say.
    ///
    /// # Panics
    /// When they do not agree for half a minute.
    pub fn master(&self) -> usize {
        let mut master = None;
        self.wait_for("the Sentinels agree on a master", || {
            let named: Vec<usize> = self
                .sentinels
                .iter()
                .filter_map(|s| self.named(s))
                .collect();
            let most = named.iter().find(|&one| {
                let votes = named.iter().filter(|other| *other == one).count();
                2 * votes > self.sentinels.len()
            });
            master = most.copied();
            master.is_some()
        });
        master.expect("they agree")
    }

    /// Has the Sentinels make another server the master, while the old one is well. Answers which it is, once all of
    /// them say so.
    pub fn fail_over(&self) -> usize {
        let old = self.master();
        self.wait_for("a fail-over begins", || {
            let asked = self.sentinels[0].command(&["SENTINEL", "FAILOVER", SERVICE]);
            asked.starts_with("+OK") || asked.contains("INPROG")
        });
        self.wait_for_another(old)
    }

    /// Kills the master. Answers which server it was; see [`Replicated::wait_for_another`].
    pub fn kill_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].kill();
        master
    }

    /// Waits until every Sentinel that runs names another master than this one, and that says it is one.
    pub fn wait_for_another(&self, old: usize) -> usize {
        let mut master = None;
        self.wait_for("every Sentinel names another master", || {
            let running = self.sentinels.iter().filter(|one| one.pid().is_some());
            let named: Vec<Option<usize>> = running.map(|one| self.named(one)).collect();
            let first = named[0].filter(|&named| named != old);
            let same = first.is_some() && named.iter().all(|&named| named == first);
            master = first.filter(|&new| same && self.role(new).as_deref() == Some("master"));
            master.is_some()
        });
        master.expect("there is one")
    }

    /// Waits until the replicas follow this server and have all that it has.
    pub fn wait_until_complete(&self, master: usize) {
        let port = self.servers[master].port().to_string();
        let running = || self.servers.iter().filter(|server| server.pid().is_some());
        let others = || running().filter(|server| server.port().to_string() != port);
        self.wait_for("every replica follows the master", || {
            // Online is not enough: the master counts a replica once that has acknowledged something.
            let info = self.servers[master].command(&["INFO", "replication"]);
            let acknowledged = info.matches("state=online,offset=").count()
                - info.matches("state=online,offset=0,").count();
            let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
            let written = number(self.servers[master].info("master_repl_offset"));
            acknowledged == others().count()
                && others().all(|replica| {
                    replica.info("master_port").as_deref() == Some(&port)
                        && replica.info("master_link_status").as_deref() == Some("up")
                        && number(replica.info("slave_repl_offset")) >= written
                })
        });
    }

    /// Waits for something that the servers have to reach by themselves.
    fn wait_for(&self, what: &str, mut check: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !check() {
            if Instant::now() > end {
                for server in self.servers.iter().chain(&self.sentinels) {
                    eprintln!("--- {}:\n{}", server.port(), server.log());
                }
                panic!("never: {what}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until every Sentinel knows the others and every replica.
    fn wait_until_watched(&self) {
        let replicas = (self.servers.len() - 1).to_string();
        let others = self.sentinels.len().saturating_sub(1).to_string();
        self.wait_for("every Sentinel knows all others", || {
            self.sentinels.iter().all(|sentinel| {
                let known = sentinel.strings(&["SENTINEL", "MASTER", SERVICE]);
                let field = |name: &str| {
                    let at = known.iter().position(|field| field == name)?;
                    known.get(at + 1)
                };
                field("num-slaves") == Some(&replicas)
                    && field("num-other-sentinels") == Some(&others)
            })
        });
    }

    /// Which server a Sentinel names as the master.
    fn named(&self, sentinel: &RedisServer) -> Option<usize> {
        sentinel.pid()?;
        let named = sentinel.strings(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
        let port: u16 = named.get(1)?.parse().ok()?;
        self.servers.iter().position(|server| server.port() == port)
    }

    fn role(&self, at: usize) -> Option<String> {
        self.servers[at].pid()?;
        self.servers[at].info("role")
    }
}
