//! Jute, ZooKeeper's encoding: numbers are big endian, texts and buffers have their length before them.

use std::fmt;

/// What a server sent cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbled(pub &'static str);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its answer cannot be read ({})", self.0)
    }
}

/// Appends values to a frame.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Appends to these bytes.
    pub fn onto(bytes: Vec<u8>) -> Writer {
        Writer(bytes)
    }

    /// All bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    pub fn int(&mut self, value: i32) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn long(&mut self, value: i64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn bool(&mut self, value: bool) -> &mut Writer {
        self.0.push(u8::from(value));
        self
    }

    pub fn buffer(&mut self, value: &[u8]) -> &mut Writer {
        self.int(value.len() as i32);
        self.0.extend_from_slice(value);
        self
    }

    pub fn text(&mut self, value: &str) -> &mut Writer {
        self.buffer(value.as_bytes())
    }

    /// Writes a frame: its length, then what `body` writes.
    pub fn frame(&mut self, body: impl FnOnce(&mut Writer)) {
        let start = self.0.len();
        self.int(0);
        body(self);
        let length = (self.0.len() - start - 4) as i32;
        self.0[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Takes values from a frame.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Garbled("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    pub fn int(&mut self) -> Result<i32, Garbled> {
        Ok(i32::from_be_bytes(self.bytes()?))
    }

    pub fn long(&mut self) -> Result<i64, Garbled> {
        Ok(i64::from_be_bytes(self.bytes()?))
    }

    pub fn bool(&mut self) -> Result<bool, Garbled> {
        Ok(self.bytes::<1>()?[0] != 0)
    }

    /// A buffer; one of length -1 is none, and so empty.
    pub fn buffer(&mut self) -> Result<&'a [u8], Garbled> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Garbled("a negative length"))?),
        }
    }

    pub fn text(&mut self) -> Result<String, Garbled> {
        let text = std::str::from_utf8(self.buffer()?).map_err(|_| Garbled("no UTF-8"))?;
        Ok(text.to_owned())
    }

    /// A list of texts. It allocates no more than what was sent is worth.
    pub fn texts(&mut self) -> Result<Vec<String>, Garbled> {
        let count = self.int()?.max(0);
        let mut texts = Vec::with_capacity((count as usize).min(self.0.len() / 4));
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.frame(|w| {
            w.int(-7)
                .long(1 << 40)
                .bool(true)
                .buffer(&[1, 2])
                .text("键");
        });
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.int(), Ok(bytes.len() as i32 - 4));
        assert_eq!(reader.int(), Ok(-7));
        assert_eq!(reader.long(), Ok(1 << 40));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.buffer(), Ok(&[1, 2][..]));
        assert_eq!(reader.text(), Ok("键".to_owned()));
        assert!(reader.is_empty());
        assert!(reader.int().is_err());
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error() {
        for bytes in [&[0x7F, 0xFF, 0xFF, 0xFF][..], &[0x80, 0, 0, 0], &[0, 0]] {
            assert!(Reader::new(bytes).text().is_err());
            assert!(Reader::new(bytes).texts().is_err() || bytes[0] == 0x80);
        }
    }
}
