//! Drives a Redisson client: the Java program in `interop/redisson`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::redis::RedisServer;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// How long Java may take for anything that it is not meant to wait for.
const PATIENCE: Duration = Duration::from_secs(60);

/// For a quick start on a busy machine.
const FLAGS: [&str; 3] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
];

fn jar() -> String {
    let folder = std::env::var_os("LOCKKEEPER_INTEROP_REDISSON");
    let folder = folder.expect("run this test by `cargo xtask interop redisson`");
    let path = PathBuf::from(folder).join("redisson-peer.jar");
    assert!(
        path.exists(),
        "{path:?} is missing; run `cargo xtask interop redisson`"
    );
    path.display().to_string()
}

fn address(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

fn addresses(servers: &[RedisServer]) -> String {
    let addresses: Vec<String> = servers.iter().map(address).collect();
    addresses.join(",")
}

/// A running Java process with one Redisson client. Dropping it kills it.
pub struct Peer {
    child: Child,
    stdin: Mutex<ChildStdin>,
    calls: Calls,
    next: AtomicU64,
}

type Calls = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

impl Peer {
    /// Starts one whose locks without a lease are renewed for `watchdog`.
    pub async fn start(server: &RedisServer, watchdog: Duration) -> Peer {
        Peer::launch(&["--address", &address(server)], watchdog).await
    }

    /// Starts one that finds its server through Sentinels.
    pub async fn through(sentinels: &[RedisServer], service: &str, watchdog: Duration) -> Peer {
        let addresses = addresses(sentinels);
        let place = ["--mode", "sentinel", "--service", service];
        let place = [&place[..], &["--address", &addresses]].concat();
        Peer::launch(&place, watchdog).await
    }

    /// Starts one on a cluster with nodes at these ports.
    pub async fn in_cluster(ports: &[u16], watchdog: Duration) -> Peer {
        let addresses = ports.iter().map(|port| format!("redis://127.0.0.1:{port}"));
        let addresses = addresses.collect::<Vec<String>>().join(",");
        let place = ["--mode", "cluster", "--address", &addresses];
        Peer::launch(&place, watchdog).await
    }

    /// Starts one with a client for each of these servers, which know nothing of each other.
    pub async fn over(nodes: &[RedisServer], watchdog: Duration) -> Peer {
        let addresses = addresses(nodes);
        let place = ["--mode", "redlock", "--address", &addresses];
        Peer::launch(&place, watchdog).await
    }

    async fn launch(place: &[&str], watchdog: Duration) -> Peer {
        let mut child = Command::new("java")
            .args(FLAGS)
            .args(["-jar", &jar(), "serve"])
            .args(place)
            .args(["--watchdog", &watchdog.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java is installed");
        let stdin = Mutex::new(child.stdin.take().expect("piped"));
        let stdout = child.stdout.take().expect("piped");
        let calls = Calls::default();
        let (ready, is_ready) = oneshot::channel();
        calls.lock().expect("sound").insert(0, ready);
        let open = calls.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&line).expect("an answer is JSON");
                let id = answer["id"].as_u64().unwrap_or(0);
                let call = open.lock().expect("sound").remove(&id);
                if let Some(call) = call {
                    let _ = call.send(answer);
                }
            }
            // A caller that still waits for an answer learns that there will be none.
            open.lock().expect("sound").clear();
        });
        let peer = Peer {
            child,
            stdin,
            calls,
            next: AtomicU64::new(1),
        };
        let ready = tokio::time::timeout(PATIENCE, is_ready).await;
        ready.expect("Java starts in time").expect("Java starts");
        peer
    }

    /// An object of Redisson's, as one thread of the process uses it.
    pub fn object<'p>(&'p self, thread: &'p str, kind: &'p str, name: &'p str) -> Object<'p> {
        Object {
            peer: self,
            about: json!({ "worker": thread, "kind": kind, "name": name }),
        }
    }

    /// Several locks as one.
    pub fn multi<'p>(&'p self, thread: &'p str, names: &[&str]) -> Object<'p> {
        Object {
            peer: self,
            about: json!({ "worker": thread, "kind": "multi", "names": names }),
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("Java runs");
        self.child.wait().expect("Java ends");
    }

    fn send(&self, mut command: Value) -> Call {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.calls.lock().expect("sound").insert(id, sender);
        command["id"] = id.into();
        let line = command.to_string();
        let mut stdin = self.stdin.lock().expect("sound");
        writeln!(stdin, "{line}").expect("Java listens");
        stdin.flush().expect("Java listens");
        Call { line, answer }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A lock, semaphore or latch of Redisson's.
pub struct Object<'p> {
    peer: &'p Peer,
    about: Value,
}

impl Object<'_> {
    /// Asks for something and does not wait for the answer.
    pub fn ask(&self, verb: &str, more: Value) -> Call {
        let mut command = self.about.clone();
        command["do"] = verb.into();
        for (name, value) in more.as_object().into_iter().flatten() {
            command[name] = value.clone();
        }
        self.peer.send(command)
    }

    /// Does something that is not meant to take long.
    pub async fn does(&self, verb: &str) -> Value {
        self.does_with(verb, json!({})).await
    }

    /// The same, with arguments.
    pub async fn does_with(&self, verb: &str, more: Value) -> Value {
        self.ask(verb, more).value().await
    }

    /// Does something that has to fail, and answers how.
    pub async fn fails(&self, verb: &str) -> String {
        self.ask(verb, json!({})).error().await
    }

    /// `tryLock()`, which does not wait.
    pub async fn gets_it(&self) -> bool {
        self.does("tryLock").await == true
    }
}

/// Something Java was asked for.
pub struct Call {
    line: String,
    answer: oneshot::Receiver<Value>,
}

impl Call {
    /// Whether Java is still at it, after it had `time` for it.
    pub async fn waits_for(&mut self, time: Duration) -> bool {
        let answer = tokio::time::timeout(time, &mut self.answer).await;
        match answer {
            Err(_) => true,
            Ok(answer) => panic!("{}: should wait, but {answer:?}", self.line),
        }
    }

    /// The whole answer, also if something is wrong.
    pub async fn answer(self) -> Value {
        let answer = tokio::time::timeout(PATIENCE, self.answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("{}: no answer", self.line));
        answer.unwrap_or_else(|_| panic!("{}: Java ended", self.line))
    }

    /// What it says.
    pub async fn value(self) -> Value {
        let line = self.line.clone();
        let answer = self.answer().await;
        assert!(answer["error"].is_null(), "{line}: {answer}");
        answer["value"].clone()
    }

    /// What is wrong.
    pub async fn error(self) -> String {
        let line = self.line.clone();
        let answer = self.answer().await;
        let error = answer["error"].as_str();
        error.unwrap_or_else(|| panic!("{line}: {answer}")).into()
    }
}

/// A Java process that works on its own: `add` or `contend`.
pub fn java(server: &RedisServer, arguments: &[&str]) -> Taker {
    java_at(&["--address", &address(server)], arguments)
}

/// The same over several servers.
pub fn java_over(nodes: &[RedisServer], arguments: &[&str]) -> Taker {
    let addresses = addresses(nodes);
    java_at(&["--mode", "redlock", "--address", &addresses], arguments)
}

fn java_at(place: &[&str], arguments: &[&str]) -> Taker {
    let jar = jar();
    let mut all = vec!["-XX:+UseSerialGC", "-jar", &jar];
    all.extend(&arguments[..1]);
    all.extend(place);
    all.extend(&arguments[1..]);
    Taker::start("java", &all).expect("java is installed")
}

/// A Rust process that does the same.
pub fn rust(server: &RedisServer, arguments: &[&str]) -> Taker {
    rust_over(&server.url(), arguments)
}

/// The same on a store of this URL.
pub fn rust_over(url: &str, arguments: &[&str]) -> Taker {
    let mut all = arguments[..1].to_vec();
    all.extend(["--store", url]);
    all.extend(&arguments[1..]);
    Taker::start(env!("CARGO_BIN_EXE_interop-taker"), &all).expect("it starts")
}
