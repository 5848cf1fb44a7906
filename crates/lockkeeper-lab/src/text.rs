//! Words in the languages of our readers.

use std::borrow::Cow;

use serde::Serialize;

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
