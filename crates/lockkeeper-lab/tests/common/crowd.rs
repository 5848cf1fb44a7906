//! Clients that no server would wish for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// A program that may have so many files open and no more.
pub fn with_files(most: u32, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
    limited.args(["-c", &script]).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// So many connections, of which every second begins to say something, and none ends.
pub fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |at: usize| {
        let mut stream = TcpStream::connect(address).expect("there is a queue at least");
        if at.is_multiple_of(2) {
            stream.write_all(b"GET / HT").expect("it is taken");
        }
        stream
    };
    (0..count).map(connect).collect()
}

/// Sends something, and answers what comes back until the end, or until nothing comes for long.
pub fn said(address: SocketAddr, what: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a timeout");
    // It may have heard enough before the end.
    let _ = stream.write_all(what);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// How much memory a process has, in KiB.
pub fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.expect("a number")
}

/// Requests that are none, and the status that each is worth; nothing for an answer that need not come.
pub fn nonsense(host: &str) -> Vec<(Vec<u8>, &'static [u16])> {
    let get_at = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n")
    };
    let get = |more: &str| get_at("/", more);
    let many: String = (0..500).map(|at| format!("X{at}: a\r\n")).collect();
    vec![
        (
            get(&format!("X: {}\r\n", "a".repeat(2 << 20))).into(),
            &[431],
        ),
        (get(&many).into(), &[431]),
        (
            format!("GET /{} HTTP/1.1\r\n", "a".repeat(100_000)).into(),
            &[414, 431],
        ),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n".to_vec(), &[400]),
        (
            b"\x16\x03\x01\x02\x00\x01\x00 a TLS greeting\r\n\r\n".to_vec(),
            &[400],
        ),
        (get("Content-Length: -3\r\n").into(), &[400]),
        (
            get("Content-Length: 1\r\nContent-Length: 2\r\n").into(),
            &[400],
        ),
        (get("X: a\r\n\x00: b\r\n").into(), &[400]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), &[]),
        (get_at("/../../../etc/passwd", "").into(), &[404]),
        (get_at("/%2e%2e/%2e%2e/etc/passwd", "").into(), &[404]),
    ]
}

/// The status of an answer, if there is one.
pub fn status(answer: &str) -> Option<u16> {
    answer.split(' ').nth(1)?.parse().ok()
}

/// Reads nothing, for as long as the other side bears it; answers whether it lost patience in time.
pub fn is_dropped(stream: &TcpStream, within: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        // Writing tells of a reset, and is nothing to a server that is not listening.
        if stream.take_error().is_ok_and(|error| error.is_some())
            || (&mut &*stream).write(b" ").is_err()
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    false
}
