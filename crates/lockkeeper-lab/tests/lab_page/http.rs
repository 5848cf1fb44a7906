//! Requests by hand, with whatever headers: no browser would send some of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    body: String,
}

impl Response {
    pub fn text(&self) -> &str {
        &self.body
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim())
}

/// Asks, and reads the answer to its end.
pub fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut stream = send(port, method, path, headers, body);
    let (head, mut body) = read_head(&mut stream);
    let length = header(&head, "Content-Length").and_then(|length| length.parse().ok());
    let mut left = length.unwrap_or(0_usize).saturating_sub(body.len());
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        let read = stream.read(&mut buffer).expect("an answer in time");
        assert_ne!(read, 0, "the answer breaks off: {head}");
        body.extend_from_slice(&buffer[..read]);
        left = left.saturating_sub(read);
    }
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Response {
        status: status.unwrap_or_else(|| panic!("no status: {head}")),
        head,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

/// Sends a request; the answer is still to be read.
pub fn send(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut request = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request += &format!("Host: 127.0.0.1:{port}\r\n");
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    let length = body.len();
    request += &format!("Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// Everything up to the empty line, and what came with it.
fn read_head(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut all = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        if let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = all.split_off(at + 4);
            return (String::from_utf8_lossy(&all).into_owned(), body);
        }
        let read = stream.read(&mut buffer).expect("an answer in time");
        let so_far = String::from_utf8_lossy(&all);
        assert_ne!(read, 0, "no answer, only {so_far:?}");
        all.extend_from_slice(&buffer[..read]);
    }
}
