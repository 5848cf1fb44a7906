//! What stores write beside a claim: a JSON object that has only texts and whole numbers.
#![allow(dead_code, reason = "a build without such a store calls none of it")]

use std::fmt::Write;

/// Appends a field with a text.
pub fn text(json: &mut String, key: &str, value: &str) {
    begin(json, key);
    json.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => {
                json.push('\\');
                json.push(c);
            }
            c if c.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

/// Appends a field with a number.
pub fn number(json: &mut String, key: &str, value: u64) {
    begin(json, key);
    let _ = write!(json, "{value}");
}

fn begin(json: &mut String, key: &str) {
    if json.len() > 1 {
        json.push(',');
    }
    let _ = write!(json, "\"{key}\":");
}

/// The fields of a JSON object that has only texts and whole numbers.
#[derive(Debug)]
pub struct Fields(Vec<(String, Value)>);

#[derive(Debug)]
enum Value {
    Text(String),
    Number(u64),
}

impl Fields {
    pub fn read(bytes: &[u8]) -> Option<Fields> {
        let mut rest = std::str::from_utf8(bytes)
            .ok()?
            .trim()
            .strip_prefix('{')?
            .trim_start();
        let mut fields = Vec::new();
        if let Some(rest) = rest.strip_prefix('}') {
            return rest.is_empty().then_some(Fields(fields));
        }
        loop {
            let (key, after) = string(rest)?;
            let after = after.trim_start().strip_prefix(':')?.trim_start();
            let (value, after) = if after.starts_with('"') {
                let (text, after) = string(after)?;
                (Value::Text(text), after)
            } else {
                let end = after.find(|c: char| !c.is_ascii_digit())?;
                (Value::Number(after[..end].parse().ok()?), &after[end..])
            };
            fields.push((key, value));
            let after = after.trim_start();
            match after.strip_prefix(',') {
                Some(next) => rest = next.trim_start(),
                None => return (after == "}").then_some(Fields(fields)),
            }
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            Value::Number(_) => None,
        }
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

/// A text in quotes at the beginning, and what follows it.
fn string(json: &str) -> Option<(String, &str)> {
    let inside = json.strip_prefix('"')?;
    let mut text = String::new();
    let mut chars = inside.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((text, &inside[at + 1..])),
            (_, '\\') => match chars.next()?.1 {
                'u' => {
                    let mut code = 0;
                    for _ in 0..4 {
                        code = code * 16 + chars.next()?.1.to_digit(16)?;
                    }
                    text.push(char::from_u32(code)?);
                }
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                c @ ('"' | '\\' | '/') => text.push(c),
                _ => return None,
            },
            (_, c) => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_odd_is_not() {
        let mut json = String::from("{");
        text(&mut json, "text", "a\"\\\u{1}键");
        number(&mut json, "number", u64::MAX);
        json.push('}');
        let fields = Fields::read(json.as_bytes()).expect("an object");
        assert_eq!(fields.text("text"), Some("a\"\\\u{1}键"));
        assert_eq!(fields.number("number"), Some(u64::MAX));
        assert_eq!((fields.number("text"), fields.text("none")), (None, None));
        for odd in [
            "",
            "{",
            "[1]",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":-1}",
            "{\"a\":\"\\uD800\"}",
        ] {
            assert!(Fields::read(odd.as_bytes()).is_none(), "{odd}");
        }
    }
}
