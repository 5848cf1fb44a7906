//! What a node of ours says of its claim: one JSON object, for people and for other keepers.

use std::time::Duration;

pub use crate::store::common::json::{Fields, number, text};
use crate::store::{ClaimId, Mode, Process};
use crate::{Label, Token};

/// What a node says.
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
    /// The transaction whose place it keeps, if that is not the one that created it.
    pub place: Option<i64>,
}

/// Where its tokens begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// So much above what its transaction says.
    Base(u64),
    /// Exactly here.
    Token(Token),
    /// At the number of its transaction.
    Native,
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
            Fence::Native => {}
        }
        number(&mut json, "tokens", u64::from(self.tokens));
        if let Some(place) = self.place {
            number(&mut json, "place", place as u64);
        }
        if let Some(label) = &self.label {
            text(&mut json, "label", label.as_str());
        }
        json.push('}');
        json.into_bytes()
    }

    /// Reads what a node says; `None` if it is of another client.
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
        let fence = match (fields.number("base"), fields.number("token")) {
            (Some(base), _) => Fence::Base(base),
            (None, Some(token)) => Fence::Token(Token::new(token)),
            (None, None) => Fence::Native,
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
            place: fields
                .number("place")
                .and_then(|place| i64::try_from(place).ok()),
        })
    }
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
            process: Process {
                host: "h\"\\\u{1}键".into(),
                pid: 9,
                program: "p".into(),
            },
            mode: Mode::Permit { limit: 5, count: 2 },
            lease: Duration::from_millis(30_000),
            fence: Fence::Token(Token::new(u64::MAX)),
            tokens: 4,
            label: Label::new("order \"7\"").ok(),
            place: Some(1 << 40),
        };
        assert_eq!(Data::read(&data.write()), Some(data.clone()));
        for mode in [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write] {
            let data = Data {
                mode,
                fence: Fence::Base(1),
                label: None,
                place: None,
                ..data.clone()
            };
            assert_eq!(Data::read(&data.write()), Some(data));
        }
    }

    #[test]
    fn what_others_write_is_not_ours() {
        for text in [
            "",
            "10.0.0.1",
            "{}",
            "{",
            "{\"claim\":",
            "{\"claim\":1}",
            "{\"a\":\"\\uD800\"}",
            "[1]",
        ] {
            assert_eq!(Data::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Data::read(&[0xFF, 0, 0, 1]), None);
    }
}
