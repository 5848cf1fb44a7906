//! Instances on one stock, and requests to them by hand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use lockkeeper_lab::shop::load::{self, LoadOptions, Report, Tally};
use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_lab::shop::{Instance, ServeOptions};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a stock and a store for locks in it, both in SQLite.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub fn stock(&self) -> String {
        format!("sqlite:{}", self.path("shop.db").display())
    }

    pub fn store(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    pub fn lock(&self) -> LockKind {
        LockKind::Ours(self.store())
    }

    /// Options of instances here.
    pub fn options(&self, lock: LockKind) -> ServeOptions {
        ServeOptions::new(lock, self.stock())
    }
}

pub fn start(options: &ServeOptions) -> Instance {
    let program = Path::new(crate::common::PROGRAM);
    Instance::start(program, options).expect("the shop opens")
}

pub fn start_many(count: usize, options: &ServeOptions) -> Vec<Instance> {
    (0..count).map(|_| start(options)).collect()
}

pub fn urls(instances: &[Instance]) -> Vec<String> {
    instances.iter().map(|one| one.url().to_owned()).collect()
}

/// So many customers, all at once.
pub fn crowd(instances: &[Instance], path: &str, customers: u64) -> Report {
    let mut options = LoadOptions::new(urls(instances), customers);
    options.path = path.into();
    options.concurrency = customers as usize;
    run(&options, |_| {})
}

pub fn run(options: &LoadOptions, watch: impl FnMut(&Tally)) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let report = runtime.block_on(load::run(options, watch));
    report.expect("the books are read")
}

/// What an instance answers.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub text: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }
}

/// One request on a connection of its own.
pub fn ask(instance: &Instance, method: &str, path: &str, body: &str) -> Response {
    ask_with(instance, method, path, &[], body)
}

/// The same with more headers, or another `Host`.
pub fn ask_with(
    instance: &Instance,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let address = instance.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a timeout");
    let length = body.len();
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status");
    Response {
        status: status.parse().expect("a number"),
        head: head.to_owned(),
        text: text.to_owned(),
    }
}

/// What the books say about an item.
pub fn account(instance: &Instance, item: &str) -> Value {
    let stats = ask(instance, "GET", "/stats", "").json();
    let accounts = stats["accounts"].as_array().expect("accounts").clone();
    let found = accounts.into_iter().find(|found| found["item"] == item);
    found.unwrap_or_else(|| panic!("{item} in {stats}"))
}
