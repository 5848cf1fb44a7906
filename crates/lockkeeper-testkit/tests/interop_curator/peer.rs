//! Drives a client of another project: the Java program in `interop/curator`, or those in `interop/zookeeper`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Lockkeeper;
use tokio::sync::oneshot;

/// How long anything may take, on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

type Calls = Arc<Mutex<HashMap<u64, oneshot::Sender<Result<String, String>>>>>;

/// A running process with one client. Dropping it kills it.
pub struct Peer {
    child: Child,
    stdin: Mutex<ChildStdin>,
    calls: Calls,
    next: AtomicU64,
}

fn jar() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.push("../../interop/curator/target/curator-peer.jar");
    assert!(
        path.exists(),
        "{path:?} is not there; `cargo xtask interop curator` builds it and runs these tests"
    );
    path
}

/// A client of another language than Java.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Other {
    Kazoo,
    Go,
}

impl Other {
    fn command(self) -> Command {
        let built = std::env::var_os("LOCKKEEPER_INTEROP_ZOOKEEPER")
            .map(PathBuf::from)
            .expect("`cargo xtask interop curator` builds the peers and runs these tests");
        match self {
            Other::Kazoo => {
                let mut command = Command::new(built.join("python/bin/python"));
                let script = "../../interop/zookeeper/python/peer.py";
                command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(script));
                command
            }
            Other::Go => Command::new(built.join("go/peer")),
        }
    }
}

impl Peer {
    /// Starts one with Curator on the server at this port.
    pub async fn start(port: u16) -> Peer {
        let mut java = Command::new("java");
        java.args([
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Xmx128m",
            "-jar",
        ]);
        java.arg(jar());
        Peer::run(java, port).await
    }

    /// Starts one of another language.
    pub async fn other(other: Other, port: u16) -> Peer {
        Peer::run(other.command(), port).await
    }

    async fn run(mut command: Command, port: u16) -> Peer {
        let mut child = command
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is installed");
        let stdin = Mutex::new(child.stdin.take().expect("piped"));
        let stdout = child.stdout.take().expect("piped");
        let calls = Calls::default();
        let (ready, is_ready) = oneshot::channel();
        calls.lock().expect("sound").insert(0, ready);
        let open = calls.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut words = line.splitn(3, ' ');
                let id = words
                    .next()
                    .and_then(|id| id.parse().ok())
                    .expect("an answer has a number");
                let (is_ok, value) = (
                    words.next() == Some("ok"),
                    words.next().unwrap_or_default().to_owned(),
                );
                let call = open.lock().expect("sound").remove(&id);
                if let Some(call) = call {
                    let _ = call.send(if is_ok { Ok(value) } else { Err(value) });
                }
            }
            open.lock().expect("sound").clear();
        });
        let peer = Peer {
            child,
            stdin,
            calls,
            next: AtomicU64::new(1),
        };
        let ready = tokio::time::timeout(PATIENCE, is_ready).await;
        ready
            .expect("it starts in time")
            .expect("it starts")
            .expect("it is ready");
        peer
    }

    /// Begins what a line says, and answers what became of it.
    pub fn begin(&self, line: &str) -> oneshot::Receiver<Result<String, String>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.calls.lock().expect("sound").insert(id, answer);
        let mut stdin = self.stdin.lock().expect("sound");
        writeln!(stdin, "{id} {line}").expect("it listens");
        stdin.flush().expect("it listens");
        answered
    }

    /// Does what a line says.
    pub async fn ask(&self, line: &str) -> String {
        finish(self.begin(line)).await
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for what was begun.
pub async fn finish(begun: oneshot::Receiver<Result<String, String>>) -> String {
    let answer = tokio::time::timeout(PATIENCE, begun)
        .await
        .expect("it answers in time");
    answer.expect("it goes on").expect("it does it")
}

/// A keeper of ours on the same server.
pub async fn keeper(port: u16) -> Lockkeeper {
    keeper_with(port, "").await
}

/// A keeper of ours with these options, such as `?also=rw`.
pub async fn keeper_with(port: u16, options: &str) -> Lockkeeper {
    let url = format!("zk://127.0.0.1:{port}{options}");
    Lockkeeper::connect(&url).await.expect("connects")
}

/// Waits for something of ours.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.unwrap_or_else(|_| panic!("never came: {what}"))
}
