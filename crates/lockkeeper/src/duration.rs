//! Reads and writes durations as people type them: `500ms`, `30s`, `1h30m`.

use std::time::Duration;

use crate::Error;
use crate::error::excerpt;

/// Reads a duration: one or more of a number and a unit (`ms`, `s`, `m`, `h`, `d`), such as `90s` or `1m30s`.
///
/// A number without a unit is refused: `30` may be seconds or minutes.
///
/// # Errors
/// [`Error::InvalidArgument`] that says what was expected.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let refuse = |reason: &str| Error::InvalidArgument {
        what: "duration",
        reason: format!(
            "{} {reason}; write it like 500ms, 30s or 1h30m",
            excerpt(text)
        ),
    };
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(refuse("is empty"));
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len()
            - tail
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let (unit, tail) = tail.split_at(letters);
        if number.is_empty() {
            return Err(refuse("has something else where a whole number should be"));
        }
        let number: u64 = number.parse().map_err(|_| refuse("is too long"))?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" => return Err(refuse("has a number without a unit")),
            _ => return Err(refuse("has an unknown unit")),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| refuse("is too long"))?;
        rest = tail;
    }
    Ok(total)
}

/// A duration as people type it, in its largest units up to hours: `25h`, `1m30s`, `99ms`.
pub(crate) fn typed(duration: Duration) -> String {
    let millis = duration.as_millis();
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        // There is no unit below a millisecond to type.
        return format!("{duration:?}");
    }
    let parts = [
        (millis / 3_600_000, "h"),
        (millis / 60_000 % 60, "m"),
        (millis / 1_000 % 60, "s"),
        (millis % 1_000, "ms"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let text: String = parts
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_type_them() {
        for text in ["0s", "99ms", "30s", "1m30s", "24h", "25h", "1h500ms"] {
            assert_eq!(typed(parse(text).expect(text)), text);
        }
        assert_eq!(typed(Duration::from_micros(50)), "50µs");
    }

    #[test]
    fn typed_durations_are_read() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            (" 2d ", 172_800_000),
        ] {
            assert_eq!(parse(text).expect(text), Duration::from_millis(millis));
        }
    }

    #[test]
    fn unclear_durations_are_refused_with_an_example() {
        for text in [
            "",
            " ",
            "30",
            "s",
            "-1s",
            "1.5s",
            "5y",
            "1s 2",
            "99999999999999999999s",
            "18446744073709551615d",
            "１s",
            "\0",
        ] {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.contains("500ms"), "{message}");
        }
    }
}
