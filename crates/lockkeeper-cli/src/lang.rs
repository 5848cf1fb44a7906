//! The languages that the programs speak to people. What programs read (JSON, exit codes) is the same in all.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// The variables that say which language messages have: the first that is set and not empty counts.
const VARIABLES: [&str; 3] = ["LC_ALL", "LC_MESSAGES", "LANG"];

/// A language.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Lang {
    /// English.
    En,
    /// 中文.
    Zh,
}

impl Lang {
    /// The language of this process's environment: Chinese where that asks for it, English everywhere else.
    pub fn of_environment() -> Lang {
        Lang::of(|name| env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Lang {
        let mut values = VARIABLES.into_iter().filter_map(variable);
        let locale = values.find(|value| !value.is_empty()).unwrap_or_default();
        // The rest of a locale is the country, the encoding and a variant: zh_CN.UTF-8@pinyin.
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        let (place, encoding) = locale.split_once('.').unwrap_or((&locale, "utf-8"));
        let language = place.split(['_', '-', '@']).next();
        let encoding = encoding.split('@').next();
        // A terminal of another encoding shows nothing that can be read, and English as ever.
        if language == Some("zh") && matches!(encoding, Some("utf-8" | "utf8")) {
            Lang::Zh
        } else {
            Lang::En
        }
    }

    /// As `--lang` has it.
    pub fn name(self) -> &'static str {
        match self {
            Lang::En => "en",
            Lang::Zh => "zh",
        }
    }

    /// The language of this name. A program of ours said it, so any other name is English.
    pub fn named(name: &OsStr) -> Lang {
        if name == Lang::Zh.name() {
            Lang::Zh
        } else {
            Lang::En
        }
    }
}

/// The same in each language.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Text {
    /// English; programs read this one.
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

    /// The words in a language.
    pub fn get(&self, lang: Lang) -> &str {
        match lang {
            Lang::En => &self.en,
            Lang::Zh => &self.zh,
        }
    }
}

/// What is not translated, such as an error of the library.
impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::made(text.clone(), text)
    }
}

/// What is not translated.
impl From<&'static str> for Text {
    fn from(text: &'static str) -> Text {
        Text::new(text, text)
    }
}

/// In English, so that an error that holds a text reads as others do.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.en)
    }
}

/// An error may say no more than this.
impl std::error::Error for Text {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_says_something_decides() {
        let lang = |values: [Option<&str>; 3]| {
            Lang::of(|name| {
                let at = VARIABLES.iter().position(|known| *known == name);
                values[at.expect("one of them")].map(OsString::from)
            })
        };
        for chinese in [
            "zh_CN.UTF-8",
            "zh_TW.utf8",
            "zh",
            "zh-Hans",
            "zh.UTF-8",
            "zh@pinyin",
            "ZH_cn",
        ] {
            assert_eq!(lang([None, None, Some(chinese)]), Lang::Zh, "{chinese}");
        }
        for other in [
            "C",
            "C.UTF-8",
            "POSIX",
            "en_US.UTF-8",
            "zhuang",
            "",
            "zh_CN.GBK",
            "zh_TW.Big5",
            "zh_CN.GB18030@pinyin",
        ] {
            assert_eq!(lang([None, None, Some(other)]), Lang::En, "{other}");
        }
        let (zh, c, none) = (Some("zh_CN.UTF-8"), Some("C"), Some(""));
        assert_eq!(lang([None; 3]), Lang::En);
        assert_eq!(lang([zh, c, c]), Lang::Zh);
        assert_eq!(lang([c, zh, zh]), Lang::En);
        assert_eq!(lang([none, zh, c]), Lang::Zh);
        assert_eq!(lang([none, none, zh]), Lang::Zh);
    }

    #[test]
    fn a_language_is_found_by_its_name() {
        for lang in Lang::value_variants() {
            assert_eq!(Lang::named(lang.name().as_ref()), *lang);
            assert_eq!(Lang::from_str(lang.name(), false).as_ref(), Ok(lang));
        }
    }
}
