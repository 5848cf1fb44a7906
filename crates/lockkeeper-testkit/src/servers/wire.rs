//! What a Redis server says, as it is on the wire (RESP2).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What is published on a channel.
#[derive(Debug)]
pub struct Listener {
    stream: BufReader<UnixStream>,
}

impl Listener {
    /// Subscribes to a channel with this command.
    pub(super) fn open(mut stream: UnixStream, verb: &str, channel: &str) -> Listener {
        stream.write_all(&encode(&[verb, channel])).expect("writes");
        let mut listener = Listener {
            stream: BufReader::new(stream),
        };
        let confirmed = listener.next(Duration::from_secs(10));
        assert!(confirmed.is_some(), "the subscription is confirmed");
        listener
    }

    /// The next message; `None` if none comes in time.
    ///
    /// # Panics
    /// When the server is gone.
    pub fn next(&mut self, within: Duration) -> Option<String> {
        self.stream
            .get_ref()
            .set_read_timeout(Some(within))
            .expect("a timeout");
        // Three parts: what it is, the channel, and the message or, for a confirmation, a number.
        let mut last = None;
        let _array = self.line()?;
        for _ in 0..3 {
            let head = self.line()?;
            last = match head.strip_prefix(':') {
                Some(number) => Some(number.to_owned()),
                None => Some(self.line()?),
            };
        }
        last
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => panic!("the server is gone"),
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(_) => None,
        }
    }
}

/// Whether a server answers PING there; also one that asks for a password first.
pub(super) fn socket_answers(path: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(path) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut answer = [0; 64];
    let asked = stream.write_all(&encode(&["PING"]));
    match (asked, stream.read(&mut answer)) {
        (Ok(()), Ok(length)) => {
            let answer = String::from_utf8_lossy(&answer[..length]);
            answer.starts_with("+PONG") || answer.starts_with("-NOAUTH")
        }
        _ => false,
    }
}

/// Sends a command, and answers what comes back.
pub(super) fn exchange(stream: &mut BufReader<UnixStream>, parts: &[&str]) -> String {
    let written = stream.get_mut().write_all(&encode(parts));
    written.expect("writes");
    let mut answer = Vec::new();
    // How many parts are still to come: a list announces more.
    let mut missing = 1;
    while missing > 0 {
        let start = answer.len();
        let read = stream.read_until(b'\n', &mut answer).expect("reads");
        assert!(read > 0, "the server closed the connection");
        let head = String::from_utf8_lossy(&answer[start..])
            .trim_end()
            .to_owned();
        let count = head[1..].parse::<i64>().unwrap_or(-1);
        missing -= 1;
        match head.as_bytes()[0] {
            b'*' => missing += count.max(0),
            b'$' if count >= 0 => {
                let mut text = vec![0; count as usize + 2];
                stream.read_exact(&mut text).expect("reads");
                answer.extend(text);
            }
            _ => {}
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

pub(super) fn encode(parts: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend(format!("${}\r\n{part}\r\n", part.len()).into_bytes());
    }
    bytes
}
