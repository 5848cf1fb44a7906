//! Where a reply ends, and what it says.
//!
//! The `redis` crate reads a reply that is there in full. Where one ends is found here, each byte looked at once: a server may
//! send a byte at a time, or a reply without an end. Numbers and lists of them are read here as well, as nearly all replies are such.

use std::io;

use ::redis::{RedisError, RedisResult, Value};

/// How deep lists are in lists: deeper than any answer.
const DEEPEST: usize = 16;
/// How an answer may begin.
const KINDS: &[u8] = b"+-:_#,($=!*~>%";

/// The first answer, and how long it is; `None` if not all of it is there.
#[cfg(any(test, feature = "internals"))]
pub(in crate::store) fn first(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    Scan::default().first(bytes)
}

/// How far an answer is known that has not come in full. What was looked at is not looked at again: a server may send a byte
/// at a time.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Where the part begins that is looked at, of the parts of the answer.
    at: usize,
    /// How far the end of its first line was looked for.
    looked: usize,
    /// How many bytes there have to be before it is worth to look again.
    needed: usize,
    /// How many parts are missing of each list around it.
    open: Vec<i64>,
    /// How many bytes were looked at.
    #[cfg(test)]
    steps: usize,
}

impl Scan {
    /// The first answer, and how long it is, of bytes that begin with those of the last time. When there is an answer, the next is for another scan.
    pub fn first(&mut self, bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
        if bytes.len() < self.needed || !self.is_whole(bytes)? {
            return Ok(None);
        }
        let frame = &bytes[..self.at];
        let value = match numbers(frame) {
            Some(value) => value,
            None => ::redis::parse_redis_value(frame)?,
        };
        Ok(Some((value, frame.len())))
    }

    /// Goes on to the end of the answer, if that is there.
    fn is_whole(&mut self, bytes: &[u8]) -> RedisResult<bool> {
        loop {
            let part = &bytes[self.at..];
            // At once: who speaks something else may never end the line.
            if part.first().is_some_and(|kind| !KINDS.contains(kind)) {
                return Err(strange(part));
            }
            // The last byte again: it may be the first half of the end.
            let from = self.looked.saturating_sub(1).max(1);
            let rest = part.get(from..).unwrap_or_default();
            let end = rest.windows(2).position(|two| two == b"\r\n");
            #[cfg(test)]
            {
                self.steps += end.unwrap_or(rest.len());
            }
            let Some(end) = end.map(|end| from + end) else {
                self.looked = part.len();
                return Ok(false);
            };
            let head = &part[1..end];
            let many = || number(head).ok_or_else(|| strange(part));
            let (mut next, mut parts) = (self.at + end + 2, 0);
            match part[0] {
                b'$' | b'=' | b'!' => {
                    // A negative length is RESP's null.
                    if let Ok(many) = u64::try_from(many()?) {
                        let many = usize::try_from(many).unwrap_or(usize::MAX);
                        next = many.saturating_add(next + 2);
                    }
                }
                b'*' | b'~' | b'>' => parts = many()?,
                b'%' => parts = many()?.checked_mul(2).ok_or_else(|| strange(part))?,
                _ => {}
            }
            if next > bytes.len() {
                // Nothing else is looked at until then.
                self.looked = end;
                self.needed = next;
                return Ok(false);
            }
            (self.at, self.looked) = (next, 0);
            if parts > 0 {
                if self.open.len() == DEEPEST {
                    return Err(strange(part));
                }
                self.open.push(parts);
                continue;
            }
            // The last part of a list is the last of what the list is a part of.
            while let Some(missing) = self.open.last_mut() {
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                self.open.pop();
            }
            if self.open.is_empty() {
                return Ok(true);
            }
        }
    }
}

/// A line without its first character and its end, and where the next begins.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = 1 + bytes.get(1..)?.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[1..end], end + 2))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A number, or a list of numbers.
fn numbers(frame: &[u8]) -> Option<Value> {
    let (head, mut at) = line(frame)?;
    match frame[0] {
        b':' => number(head).map(Value::Int),
        b'*' => {
            let mut values = Vec::with_capacity(usize::try_from(number(head)?).ok()?.min(1024));
            while at < frame.len() {
                let (digits, next) = line(&frame[at..])?;
                let value = (frame[at] == b':').then(|| number(digits)).flatten()?;
                values.push(Value::Int(value));
                at += next;
            }
            Some(Value::Array(values))
        }
        _ => None,
    }
}

fn strange(bytes: &[u8]) -> RedisError {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the server answered something strange: {start:?}"),
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: [&str; 13] = [
        ":1731700000000000\r\n",
        ":-1\r\n",
        "*0\r\n",
        "*4\r\n:0\r\n:-1\r\n:0\r\n:1731700000000000\r\n",
        "*2\r\n*2\r\n:1\r\n:2\r\n:3\r\n",
        "+OK\r\n",
        "+PONG\r\n",
        "+a\nb\r\n",
        "-NOSCRIPT No matching script.\r\n",
        "_\r\n",
        "$-1\r\n",
        "$7\r\na\r\nb\r\nc\r\n",
        "*3\r\n:1\r\n-ERR one of several\r\n$1\r\nx\r\n",
    ];

    #[test]
    fn answers_are_what_the_library_reads() {
        for answer in ANSWERS {
            let read = first(answer.as_bytes()).expect(answer);
            let theirs = ::redis::parse_redis_value(answer.as_bytes()).expect(answer);
            assert_eq!(read, Some((theirs, answer.len())), "{answer:?}");
        }
    }

    #[test]
    fn an_answer_that_has_not_come_in_full_is_waited_for() {
        for answer in ANSWERS {
            for cut in 0..answer.len() {
                let part = first(&answer.as_bytes()[..cut]);
                assert_eq!(part.expect(answer), None, "{answer:?} up to {cut}");
            }
        }
    }

    #[test]
    fn an_answer_that_comes_byte_by_byte_is_looked_at_once() {
        const MANY: usize = 20_000;
        let nested = format!("{}{}", "*2\r\n:7\r\n".repeat(DEEPEST), ":7\r\n");
        for answer in [
            format!("*{MANY}\r\n{}", ":7\r\n".repeat(MANY)),
            format!("${MANY}\r\n{}\r\n", "x".repeat(MANY)),
            format!("+{}\r\n", "\r".repeat(MANY)),
            format!(":{}7\r\n", "0".repeat(MANY)),
            format!("${}7\r\n1234567\r\n", "0".repeat(MANY)),
            nested,
        ] {
            let mut scan = Scan::default();
            for cut in 0..answer.len() {
                let part = scan.first(&answer.as_bytes()[..cut]).expect("no error");
                assert_eq!(part, None);
            }
            let read = scan.first(answer.as_bytes()).expect("an answer");
            let whole = first(answer.as_bytes()).expect("an answer");
            assert_eq!(read, whole);
            assert_eq!(read.map(|(_, length)| length), Some(answer.len()));
            // Each byte, and the one before it, which may be half an end.
            let (steps, most) = (scan.steps, 3 * answer.len());
            assert!(steps <= most, "{steps} of {most}: {answer:.20}");
        }
    }

    #[test]
    fn the_next_answer_is_left_alone() {
        let two = format!("{}{}", ANSWERS[3], ANSWERS[0]);
        let (_, length) = first(two.as_bytes()).expect("read").expect("whole");
        assert_eq!(length, ANSWERS[3].len());
    }

    #[test]
    fn a_line_ends_with_both_characters() {
        for line in [":5x\n", ":5\n", "*1x\n:5\r\n"] {
            let read = first(line.as_bytes());
            assert!(!matches!(read, Ok(Some(_))), "{line:?}: {read:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let deep = "*1\r\n".repeat(100_000);
        let many = format!("%{}\r\n", i64::MAX);
        for nonsense in [
            "HTTP/1.1 400 Bad Request\r\n",
            "HTTP",
            "\r\n",
            "\n",
            "$x\r\n",
            "*?\r\n",
            &deep,
            &many,
        ] {
            assert!(first(nonsense.as_bytes()).is_err(), "{nonsense:.20?}");
        }
    }
}
