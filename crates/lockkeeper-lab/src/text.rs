//! Words in the languages of our readers.

use std::borrow::Cow;

use serde::Serialize;

/// A number with its thousands apart, which both languages write alike.
pub fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The same in English and in Chinese.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Text {
    /// English.
    pub en: Cow<'static, str>,
    /// 中文.
    pub zh: Cow<'static, str>,
}

impl Text {
    /// Words that are known beforehand.
    pub const fn new(en: &'static str, zh: &'static str) -> Text {
        Text {
            en: Cow::Borrowed(en),
            zh: Cow::Borrowed(zh),
        }
    }

    /// Words made of what happened.
    pub fn made(en: String, zh: String) -> Text {
        Text {
            en: Cow::Owned(en),
            zh: Cow::Owned(zh),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let shown = [0, 999, 1_000, -12_682, 5_000_000].map(|number: i64| grouped(number));
        assert_eq!(shown, ["0", "999", "1,000", "-12,682", "5,000,000"]);
    }
}
