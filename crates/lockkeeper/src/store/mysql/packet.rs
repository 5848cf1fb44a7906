//! Packets of the client protocol: a length of three bytes, a number that counts up, and what they carry.
//!
//! The numbers of an exchange follow each other. One that does not means that an answer belongs to another request, and
//! the connection is given up.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// A payload of this length goes on in the next packet.
const FULL: usize = 0xff_ffff;
/// More than any answer to a request of ours has: a server that sends more is none, or not ours.
const LONGEST: usize = 64 * 1024 * 1024;

/// A stream to a server, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Reads and writes packets.
pub(super) struct Packets {
    stream: BufReader<Box<dyn Stream>>,
    next: u8,
}

impl Packets {
    pub fn new(stream: Box<dyn Stream>) -> Packets {
        Packets {
            stream: BufReader::new(stream),
            next: 0,
        }
    }

    /// The stream, and the number of the next packet: for what goes on over TLS.
    pub fn into_parts(self) -> (Box<dyn Stream>, u8) {
        (self.stream.into_inner(), self.next)
    }

    /// Goes on where others were.
    pub fn go_on(stream: Box<dyn Stream>, next: u8) -> Packets {
        Packets {
            next,
            ..Packets::new(stream)
        }
    }

    /// Begins a request: its packets are numbered from 0.
    pub fn begin(&mut self) {
        self.next = 0;
    }

    pub async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head).await?;
            let length =
                usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
            if head[3] != self.next {
                return Err(broken("a packet of another exchange came"));
            }
            self.next = self.next.wrapping_add(1);
            if payload.len() + length > LONGEST {
                return Err(broken("an answer is too long"));
            }
            let at = payload.len();
            payload.resize(at + length, 0);
            self.stream.read_exact(&mut payload[at..]).await?;
            if length < FULL {
                return Ok(payload);
            }
        }
    }

    pub async fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 4);
        let mut rest = payload;
        loop {
            let (now, later) = rest.split_at(rest.len().min(FULL));
            bytes.extend_from_slice(&(now.len() as u32).to_le_bytes()[..3]);
            bytes.push(self.next);
            bytes.extend_from_slice(now);
            self.next = self.next.wrapping_add(1);
            rest = later;
            if now.len() < FULL {
                break;
            }
        }
        let stream = self.stream.get_mut();
        stream.write_all(&bytes).await?;
        stream.flush().await
    }

    /// Waits until the server says something that nobody asked for, or goes. It can be dropped at any time: it takes nothing.
    pub async fn unasked(&mut self) {
        let _ = self.stream.fill_buf().await;
    }

    /// Why the server ends the connection, if it says so.
    pub async fn parting(&mut self) -> String {
        match self.stream.fill_buf().await {
            Ok([]) => return "the server closed the connection".into(),
            Ok(_) => self.begin(),
            Err(error) => return error.to_string(),
        }
        match self.read().await {
            Ok(payload) if payload.first() == Some(&0xff) => String::from_utf8_lossy(&payload[1..])
                .chars()
                .take(200)
                .collect(),
            _ => "the server said something that nobody asked for".into(),
        }
    }
}

/// What a server must not say.
pub(super) fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Takes a payload apart. Each method fails if there is too little left.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, length: usize) -> io::Result<&'a [u8]> {
        if self.0.len() < length {
            return Err(broken("a packet is too short"));
        }
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }

    /// A number of this many bytes, the lowest first.
    pub fn number(&mut self, length: usize) -> io::Result<u64> {
        let bytes = self.bytes(length)?.iter().rev();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Up to a zero byte, or to the end.
    pub fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let taken = &self.0[..end.unwrap_or(self.0.len())];
        self.0 = &self.0[(taken.len() + 1).min(self.0.len())..];
        taken
    }

    /// A number that says its own length. `None` is NULL.
    pub fn length(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(match self.number(1)? {
            0xfb => return Ok(None),
            0xfc => self.number(2)?,
            0xfd => self.number(3)?,
            0xfe => self.number(8)?,
            0xff => return Err(broken("a length is none")),
            small => small,
        }))
    }

    /// A number that says its own length, and is one.
    pub fn count(&mut self) -> io::Result<u64> {
        self.length()?.ok_or_else(|| broken("a number is NULL"))
    }

    /// A value of a row.
    pub fn value(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| broken("a value is too long"))?;
        Ok(Some(self.bytes(length)?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_values_are_read_and_a_short_packet_is_refused() {
        let mut reader = Reader(&[
            0xfa, 0xfc, 1, 2, 0xfd, 1, 2, 3, 0xfb, 2, b'h', b'i', b'x', 0,
        ]);
        assert_eq!(reader.count().expect("one"), 250);
        assert_eq!(reader.count().expect("two"), 0x201);
        assert_eq!(reader.count().expect("three"), 0x3_0201);
        assert_eq!(reader.value().expect("null"), None);
        assert_eq!(reader.value().expect("text"), Some(b"hi".to_vec()));
        assert_eq!(reader.text(), b"x");
        assert!(reader.0.is_empty());
        for short in [&[0xfc, 1][..], &[0xfe, 1, 2], &[5, 1], &[0xff], &[]] {
            assert!(Reader(short).value().is_err(), "{short:?}");
        }
    }

    #[tokio::test]
    async fn a_parting_word_that_comes_in_halves_is_read_whole() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut ours = Packets::new(Box::new(ours));
        let said = b"\x03\0\0\0\xffHi";
        theirs.write_all(&said[..5]).await.expect("writes");
        // It is asked for something else before the rest comes.
        for _ in 0..2 {
            tokio::select! {
                biased;
                () = ours.unasked() => {}
                () = std::future::ready(()) => panic!("there is something to read"),
            }
        }
        theirs.write_all(&said[5..]).await.expect("writes");
        assert_eq!(ours.parting().await, "Hi");
    }

    #[tokio::test]
    async fn a_packet_of_another_exchange_is_refused() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (mut ours, mut theirs) = (Packets::new(Box::new(ours)), Packets::new(Box::new(theirs)));
        ours.write(b"first").await.expect("writes");
        assert_eq!(theirs.read().await.expect("reads"), b"first");
        theirs.write(b"answer").await.expect("writes");
        assert_eq!(ours.read().await.expect("reads"), b"answer");
        // An answer to the request before this one.
        theirs.write(b"late").await.expect("writes");
        ours.begin();
        ours.write(b"second").await.expect("writes");
        let error = ours.read().await.expect_err("it is not ours");
        assert!(error.to_string().contains("another exchange"), "{error}");
    }
}
