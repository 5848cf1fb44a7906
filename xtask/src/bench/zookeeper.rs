//! A ZooKeeper server of our own, and how much its clients sent to it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::machine::pinned;
use super::redis::Watch;
use super::server::{Calls, Running, Server, free_port};

/// Debian's. The first brings the others along; the last writes what is wrong to standard error.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

/// A running server.
#[derive(Debug)]
pub struct ZooKeeper {
    port: u16,
    process: Running,
}

impl ZooKeeper {
    /// Starts it with nothing in it. All is as by default: each transaction is on the disk before it is answered.
    pub fn start(folder: &Path) -> Result<ZooKeeper, String> {
        let port = free_port()?;
        let config = folder.join("zoo.cfg");
        let failed = |error| format!("{folder:?}: {error}");
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(failed)?;
        }
        fs::create_dir_all(folder).map_err(failed)?;
        let lines = [
            "tickTime=2000".to_owned(),
            format!("dataDir={}", folder.join("data").display()),
            format!("clientPort={port}"),
            "clientPortAddress=127.0.0.1".into(),
            "admin.enableServer=false".into(),
        ];
        fs::write(&config, lines.join("\n") + "\n").map_err(failed)?;
        let log = fs::File::create(folder.join("log")).map_err(failed)?;
        let mut command = pinned("java");
        command
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(["-Dzookeeper.jmx.log4j.disable=true", "-cp", CLASS_PATH])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&config)
            .stderr(Stdio::from(log));
        let process = Running::start(&mut command)?;
        let server = ZooKeeper { port, process };
        server.process.serves(|| server.says("Mode: ").is_ok())?;
        Ok(server)
    }

    /// What a line of its report says behind these words.
    fn says(&self, what: &str) -> Result<String, String> {
        let lost = |error: std::io::Error| format!("the server: {error}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(lost)?;
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).map_err(lost)?;
        stream.write_all(b"srvr").map_err(lost)?;
        stream.shutdown(Shutdown::Write).map_err(lost)?;
        let mut report = String::new();
        stream.read_to_string(&mut report).map_err(lost)?;
        let line = report.lines().find_map(|line| line.strip_prefix(what));
        let line = line.ok_or_else(|| format!("the server says {report:.200?}"))?;
        Ok(line.trim().to_owned())
    }
}

impl Server for ZooKeeper {
    fn url(&self) -> String {
        format!("zk://127.0.0.1:{}", self.port)
    }

    /// Without the build: `3.8.0-…, built on …`.
    fn version(&self) -> Result<String, String> {
        let version = self.says("Zookeeper version: ")?;
        let number = version.split(['-', ',']).next().unwrap_or_default();
        Ok(format!("ZooKeeper {number}"))
    }

    /// A ping says nothing of a transaction, which has to come to the disk.
    fn ping(&self) -> Result<Option<Duration>, String> {
        Ok(None)
    }

    /// Every peer has names of its own in every scenario, and leaves no node but their folders, which the server sweeps.
    fn clear(&self) -> Result<(), String> {
        Ok(())
    }

    /// All that it was sent, pings included. A transaction of several operations is one request.
    fn calls(&self) -> Result<Calls, String> {
        let received = self.says("Received: ")?;
        let count = received.parse().map_err(|_| format!("{received:?}"))?;
        Ok(Calls::from([("request".to_owned(), count)]))
    }

    fn watch(&self) -> Result<Option<Watch>, String> {
        Ok(None)
    }

    fn process(&self) -> &Running {
        &self.process
    }
}
