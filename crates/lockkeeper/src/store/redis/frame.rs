//! Where an answer ends, and what it says. Numbers and lists of them are read here, as nearly all answers are such; the
//! rest is the library's.

use std::io;

use ::redis::{RedisError, RedisResult, Value};

/// How deep lists are in lists: deeper than any answer.
const DEEPEST: usize = 16;
/// How an answer may begin.
const KINDS: &[u8] = b"+-:_#,($=!*~>%";

/// The first answer, and how long it is; `None` if not all of it is there.
pub(super) fn first(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    let Some(length) = length(bytes, DEEPEST)? else {
        return Ok(None);
    };
    let frame = &bytes[..length];
    let value = match numbers(frame) {
        Some(value) => value,
        None => ::redis::parse_redis_value(frame)?,
    };
    Ok(Some((value, length)))
}

/// A line without its first character and its end, and where the next begins.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = 1 + bytes.get(1..)?.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[1..end], end + 2))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn length(bytes: &[u8], deep: usize) -> RedisResult<Option<usize>> {
    // At once: who speaks something else may never end the line.
    if bytes.first().is_some_and(|kind| !KINDS.contains(kind)) {
        return Err(strange(bytes));
    }
    let Some((head, mut at)) = line(bytes) else {
        return Ok(None);
    };
    let many = || number(head).ok_or_else(|| strange(bytes));
    let mut parts = match bytes[0] {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
        b'$' | b'=' | b'!' => {
            // Less than nothing is how none at all is said.
            let end = match many()? {
                ..0 => at,
                many => {
                    usize::try_from(many).map_or(usize::MAX, |many| many.saturating_add(at + 2))
                }
            };
            return Ok((end <= bytes.len()).then_some(end));
        }
        b'*' | b'~' | b'>' => many()?,
        b'%' => many()?.checked_mul(2).ok_or_else(|| strange(bytes))?,
        _ => return Err(strange(bytes)),
    };
    if parts > 0 && deep == 0 {
        return Err(strange(bytes));
    }
    while parts > 0 {
        match length(&bytes[at..], deep - 1)? {
            Some(length) => at += length,
            None => return Ok(None),
        }
        parts -= 1;
    }
    Ok(Some(at))
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
