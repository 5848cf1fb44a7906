//! A Galera cluster: MariaDB servers with the same data, each of which takes writes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::mariadb::{MariaDbOptions, MariaDbServer};
use super::ports::free_port;

/// Where Debian's `galera-4`, without which there is no `mariadb-server`, has the library.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// A running cluster.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<MariaDbServer>,
    _scripts: tempfile::TempDir,
}

impl Galera {
    /// A cluster of so many nodes. The death of one is not taken for a split: the others go on.
    ///
    /// # Panics
    /// When the servers do not start.
    pub fn start(nodes: usize) -> Galera {
        let scripts = tempfile::tempdir().expect("a folder");
        let handed = scripts.path().join("wsrep_sst_handed");
        fs::write(&handed, include_str!("wsrep_sst_handed.sh")).expect("writes");
        fs::set_permissions(&handed, fs::Permissions::from_mode(0o755)).expect("may be run");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", scripts.path().display());
        let ports: Vec<u16> = (0..nodes).map(|_| free_port()).collect();
        let first = ports.first().expect("a node");
        let start = |number: usize| {
            let mut options = vec![
                format!("--server-id={}", number + 1),
                "--binlog-format=ROW".into(),
                "--innodb-autoinc-lock-mode=2".into(),
                "--wsrep-on=ON".into(),
                format!("--wsrep-provider={PROVIDER}"),
                format!("--wsrep-cluster-name=tests-{first}"),
                "--wsrep-node-address=127.0.0.1".into(),
                "--wsrep-sst-method=handed".into(),
                "--wsrep-sst-receive-address=127.0.0.1:1".into(),
                format!(
                    "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{};ist.recv_addr=127.0.0.1:{};pc.ignore_sb=true;gcache.size=8M",
                    ports[number],
                    free_port()
                ),
            ];
            if number == 0 {
                options.push("--wsrep-cluster-address=gcomm://".into());
                options.push("--wsrep-new-cluster".into());
            } else {
                options.push(format!("--wsrep-cluster-address=gcomm://127.0.0.1:{first}"));
            }
            MariaDbServer::start_with(MariaDbOptions {
                options,
                environment: vec![("PATH".into(), path.clone())],
                ..MariaDbOptions::default()
            })
        };
        Galera {
            nodes: (0..nodes).map(start).collect(),
            _scripts: scripts,
        }
    }

    /// One of its nodes.
    ///
    /// # Panics
    /// When it has fewer.
    pub fn node(&self, number: usize) -> &MariaDbServer {
        &self.nodes[number]
    }

    /// Kills one of its nodes at once.
    ///
    /// # Panics
    /// When it has fewer.
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].kill();
    }
}
