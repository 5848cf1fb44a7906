//! Servers that know nothing of each other: the nodes of a quorum.

use std::time::{Duration, Instant};

use super::redis::{RedisOptions, RedisServer};

/// Several masters, each on a port of its own. They go with the test, and with the process.
#[derive(Debug)]
pub struct Independent {
    servers: Vec<RedisServer>,
}

impl Independent {
    /// This many servers that keep nothing on disk.
    pub fn start(count: usize) -> Independent {
        Independent::start_with(count, &RedisOptions::default())
    }

    /// This many servers, all with these options.
    pub fn start_with(count: usize, options: &RedisOptions) -> Independent {
        Independent::of((0..count).map(|_| RedisServer::start_with(options.clone())))
    }

    /// These servers.
    pub fn of(servers: impl IntoIterator<Item = RedisServer>) -> Independent {
        Independent {
            servers: servers.into_iter().collect(),
        }
    }

    /// The URL of the quorum, with `max_lease` and whatever options follow it, as in `"30s&dialect=plain"`.
    pub fn url(&self, max_lease: &str) -> String {
        format!("{}?max_lease={max_lease}", self.plain_url())
    }

    /// The same, with nodes that vote as soon as they are up. Nothing may restart while locks are held.
    pub fn url_at_once(&self, max_lease: &str) -> String {
        format!("{}?quarantine=off&max_lease={max_lease}", self.plain_url())
    }

    /// The URL of the quorum without options.
    pub fn plain_url(&self) -> String {
        Independent::url_of(self.servers.iter().map(RedisServer::port))
    }

    /// The URL of nodes on these ports of this machine, such as those of proxies in front of them.
    pub fn url_of(ports: impl IntoIterator<Item = u16>) -> String {
        let ports = ports.into_iter();
        let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redlock://{}", hosts.join(","))
    }

    /// All of them.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// One of them, to kill, restart, empty, pause or resume.
    pub fn server(&mut self, at: usize) -> &mut RedisServer {
        &mut self.servers[at]
    }

    /// Kills all of them, and starts them again at the same time; with their data if they are durable.
    pub fn restart_all(&mut self) {
        self.servers.iter_mut().for_each(RedisServer::kill);
        std::thread::scope(|scope| {
            for server in &mut self.servers {
                scope.spawn(|| server.restart());
            }
        });
    }

    /// Waits until each has been up for longer than any lease of at most `max_lease`, so that all of them vote.
    ///
    /// # Panics
    /// When one is not up.
    pub fn wait_out_quarantine(&self, max_lease: Duration) {
        let enough = max_lease.mul_f64(1.01) + Duration::from_secs(1);
        let end = Instant::now() + enough + Duration::from_secs(20);
        for server in &self.servers {
            loop {
                let uptime = server.info("uptime_in_seconds");
                let uptime = uptime.and_then(|text| text.trim().parse().ok());
                if Duration::from_secs(uptime.expect("a server says how long it is up")) >= enough {
                    break;
                }
                assert!(Instant::now() < end, "a server does not grow older");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// On how many of them this key exists.
    pub fn count_key(&self, key: &str) -> usize {
        let has = |server: &&RedisServer| server.command(&["EXISTS", key]).starts_with(":1");
        self.servers.iter().filter(has).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_apart_and_each_can_be_emptied() {
        let mut nodes = Independent::start(3);
        for server in nodes.servers() {
            server.command(&["SET", "x", "1"]);
        }
        assert_eq!(nodes.count_key("x"), 3);
        nodes.server(1).restart_empty();
        assert_eq!(nodes.count_key("x"), 2);
        let ports: Vec<u16> = nodes.servers().iter().map(RedisServer::port).collect();
        let expected = format!(
            "redlock://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}?max_lease=2s",
            ports[0], ports[1], ports[2]
        );
        assert_eq!(nodes.url("2s"), expected);
    }
}
