//! What a key of ours says of its claim: one JSON object, for people and for other keepers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::store::common::json::{Fields, number, text};
use crate::store::{ClaimId, Mode, Process};
use crate::{Label, Token};

/// What a key says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    pub claim: ClaimId,
    pub process: Process,
    pub mode: Mode,
    pub lease: Duration,
    pub fence: Fence,
    /// How many tokens in a row it has.
    pub tokens: u32,
    pub label: Option<Label>,
    /// When it was written, by its process's wall clock: etcd keeps no times.
    pub since_millis: u64,
}

/// Where its tokens begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// So much above what its revision says.
    Base(u64),
    /// Exactly here.
    Token(Token),
}

impl Data {
    pub fn write(&self) -> Vec<u8> {
        let mut json = String::from("{");
        text(&mut json, "claim", &self.claim.to_string());
        text(&mut json, "host", &self.process.host);
        number(&mut json, "pid", u64::from(self.process.pid));
        text(&mut json, "program", &self.process.program);
        text(&mut json, "mode", word(self.mode));
        if let Mode::Permit { limit, count } = self.mode {
            number(&mut json, "limit", u64::from(limit));
            number(&mut json, "count", u64::from(count));
        }
        number(&mut json, "lease_us", self.lease.as_micros() as u64);
        match self.fence {
            Fence::Base(base) => number(&mut json, "base", base),
            Fence::Token(token) => number(&mut json, "token", token.get()),
        }
        number(&mut json, "tokens", u64::from(self.tokens));
        number(&mut json, "since_ms", self.since_millis);
        if let Some(label) = &self.label {
            text(&mut json, "label", label.as_str());
        }
        json.push('}');
        json.into_bytes()
    }

    /// Reads what a key says; `None` if it is of another client.
    pub fn read(bytes: &[u8]) -> Option<Data> {
        let fields = Fields::read(bytes)?;
        let mode = match fields.text("mode")? {
            "exclusive" => Mode::Exclusive,
            "fair" => Mode::Fair,
            "read" => Mode::Read,
            "write" => Mode::Write,
            "permit" => Mode::Permit {
                limit: u32::try_from(fields.number("limit")?).ok()?,
                count: u32::try_from(fields.number("count")?).ok()?,
            },
            _ => return None,
        };
        let fence = match fields.number("base") {
            Some(base) => Fence::Base(base),
            None => Fence::Token(Token::new(fields.number("token")?)),
        };
        Some(Data {
            claim: fields.text("claim")?.parse().ok()?,
            process: Process {
                host: fields.text("host")?.to_owned(),
                pid: u32::try_from(fields.number("pid")?).ok()?,
                program: fields.text("program")?.to_owned(),
            },
            mode,
            lease: Duration::from_micros(fields.number("lease_us")?),
            fence,
            tokens: u32::try_from(fields.number("tokens")?).ok()?,
            label: fields
                .text("label")
                .and_then(|label| Label::new(label).ok()),
            since_millis: fields.number("since_ms")?,
        })
    }

    /// When it was written.
    pub fn since(&self) -> SystemTime {
        millis(self.since_millis)
    }
}

/// A time of the wall clock.
pub fn millis(since_1970: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(since_1970.min(1 << 53))
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Fair => "fair",
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Permit { .. } => "permit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeeperId;

    #[test]
    fn what_is_written_is_read() {
        let data = Data {
            claim: ClaimId {
                keeper: KeeperId::from_bits(7),
                number: 3,
            },
            process: Process::new("h\"\\\u{1}键", 9, "p"),
            mode: Mode::Permit { limit: 5, count: 2 },
            lease: Duration::from_millis(30_000),
            fence: Fence::Token(Token::new(u64::MAX)),
            tokens: 4,
            label: Label::new("order \"7\"").ok(),
            since_millis: 1_800_000_000_000,
        };
        assert_eq!(Data::read(&data.write()), Some(data.clone()));
        for mode in [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write] {
            let data = Data {
                mode,
                fence: Fence::Base(1),
                label: None,
                ..data.clone()
            };
            assert_eq!(Data::read(&data.write()), Some(data));
        }
        assert_eq!(Data::read(b""), None);
        assert_eq!(Data::read(b"a proposal"), None);
    }
}
