//! The options of a URL, which follow its `?`.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::Secret;
use super::url::{decode, refuse};
use crate::error::excerpt;
use crate::{Error, duration};

/// The range of a time-out. Less is shorter than usual delays of a network, and more outlives a lease.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);

/// The options of a URL. A store takes each option that it knows by one of the methods here, and then calls
/// [`finish`](Options::finish), which refuses the others.
///
/// Errors do not repeat values, as a password may be given in the wrong place. For the same reason `Debug` shows no option.
///
/// ```
/// use lockkeeper::store::common::{ServerUrl, StoreKind};
/// use lockkeeper::url::StoreUrl;
///
/// let url = StoreUrl::parse("toy://localhost?shards=4&color=red")?;
/// let mut options = ServerUrl::parse(&url, StoreKind::new("toy", "toy://localhost"))?.options()?;
/// let shards = options.read("shards", "shards is a number, such as 4", |text| text.parse::<u32>().ok())?;
/// assert_eq!(shards, Some(4));
/// let refused = options.finish().unwrap_err();
/// assert!(refused.to_string().contains("color"));
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    scheme: String,
    given: Vec<(String, String)>,
    /// The options that the store has taken, given or not: all that it knows.
    known: Vec<&'static str>,
}

impl Options {
    pub(super) fn parse(scheme: &str, query: &str) -> Result<Options, Error> {
        let mut given: Vec<(String, String)> = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if given.iter().any(|(before, _)| before == name) {
                return refuse_twice(name);
            }
            given.push((name.to_owned(), decode(value)?));
        }
        Ok(Options {
            scheme: scheme.to_owned(),
            given,
            known: Vec::new(),
        })
    }

    /// Whether the URL has this option.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The first of these options that the URL has.
    pub fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.is_given(name))
    }

    /// Refuses an option whose value the URL has elsewhere, as in its path.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when the URL has the option.
    pub fn is_said_elsewhere(&self, name: &str) -> Result<(), Error> {
        if self.is_given(name) {
            return refuse_twice(name);
        }
        Ok(())
    }

    /// Takes an option as it is.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let mut given = self.given.iter();
        let found = given.find(|(given, _)| given == name);
        found.map(|(_, value)| value.clone())
    }

    /// Takes an option that `read` understands.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] with `expected`, a sentence that says what the option has to be, if `read` returns `None`.
    pub fn read<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.text(name) {
            None => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => refuse(expected),
            },
        }
    }

    /// Takes an option that has this one value, or is left out.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] with `expected`, as of [`read`](Options::read).
    pub fn flag(&mut self, name: &'static str, value: &str, expected: &str) -> Result<bool, Error> {
        let given = self.read(name, expected, |given| (given == value).then_some(()))?;
        Ok(given.is_some())
    }

    /// Takes the time that a server has for something: 10 ms to 10 s.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when it is no duration, or out of range.
    pub fn timeout(&mut self, name: &'static str) -> Result<Option<Duration>, Error> {
        let expected = format!("{name} is a duration from 10ms to 10s, such as 500ms");
        let within = |time: &Duration| TIMEOUTS.contains(time);
        self.read(name, &expected, |value| {
            duration::parse(value).ok().filter(within)
        })
    }

    /// Takes the path of a PEM file.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when it is empty.
    pub fn pem_file(&mut self, name: &'static str) -> Result<Option<PathBuf>, Error> {
        let expected = format!("{name} names a file: {name}=/PATH/TO/FILE.pem");
        self.read(name, &expected, |value| {
            (!value.is_empty()).then(|| value.into())
        })
    }

    /// Takes the path of a file whose first line is a password, and reads it.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], as of [`Secret::from_file`].
    pub fn password_file(&mut self, name: &'static str) -> Result<Option<Secret>, Error> {
        self.text(name)
            .map(|path| Secret::from_file(&path))
            .transpose()
    }

    /// Refuses the options that were not taken.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] names the first of them, and all that the store knows.
    pub fn finish(self) -> Result<(), Error> {
        let mut unknown = self.given.iter().map(|(name, _)| name.as_str());
        let unknown = unknown.find(|name| !self.known.contains(name));
        match (unknown, self.known.as_slice()) {
            (None, _) => Ok(()),
            (Some("password" | "pass" | "auth"), known) => {
                let file = if known.contains(&"password_file") {
                    ", or name a file with password_file=PATH"
                } else {
                    ""
                };
                refuse(format!(
                    "a password is no option, as it would be shown; write {}://USER:PASSWORD@HOST in \
                     LOCKKEEPER_STORE{file}",
                    self.scheme
                ))
            }
            (Some(name), []) => refuse(format!(
                "there is no option {}, nor any other",
                excerpt(name)
            )),
            (Some(name), [one]) => refuse(format!(
                "there is no option {}; there is {one}",
                excerpt(name)
            )),
            (Some(name), [most @ .., last]) => refuse(format!(
                "there is no option {}; there are {} and {last}",
                excerpt(name),
                most.join(", ")
            )),
        }
    }
}

fn refuse_twice<T>(name: &str) -> Result<T, Error> {
    refuse(format!("{} is given twice", excerpt(name)))
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Options {
        Options::parse("toy", query).expect(query)
    }

    fn error_text<T: fmt::Debug>(result: Result<T, Error>) -> String {
        result.expect_err("a mistake").to_string()
    }

    #[test]
    fn options_are_read_by_type() {
        let mut given = options("wait=500ms&&label=a%26b&ca=/x%20y.pem&trust=all&odd=7");
        assert!(given.is_given("wait") && !given.is_given("wai"));
        assert_eq!(given.first_of(&["key", "trust", "ca"]), Some("trust"));
        let wait = given.timeout("wait").expect("valid");
        assert_eq!(wait, Some(Duration::from_millis(500)));
        assert_eq!(given.text("label").as_deref(), Some("a&b"));
        assert_eq!(
            given.pem_file("ca").expect("valid"),
            Some("/x y.pem".into())
        );
        assert!(given.flag("trust", "all", "").expect("valid"));
        let odd = given.read("odd", "", |odd| odd.parse::<u32>().ok());
        assert_eq!(odd.expect("valid"), Some(7));
        // What is not given is no mistake.
        assert_eq!(given.timeout("rest").expect("valid"), None);
        assert!(!given.flag("quiet", "yes", "").expect("valid"));
        given.finish().expect("all known");
    }

    #[test]
    fn each_mistake_has_an_error_that_shows_no_value() {
        let twice = Options::parse("toy", "a=canary&b=1&a=canary");
        assert!(error_text(twice).contains("\"a\" is given twice"));
        assert!(error_text(Options::parse("toy", "a=canary%")).contains("%25"));
        for value in ["canary", "5", "9ms", "11s", ""] {
            let error = error_text(options(&format!("wait={value}")).timeout("wait"));
            assert!(
                error.contains("wait is a duration from 10ms to 10s"),
                "{error}"
            );
            assert!(!error.contains("canary"), "{error}");
        }
        let error = error_text(options("ca=").pem_file("ca"));
        assert!(error.contains("ca=/PATH"), "{error}");
        let error =
            error_text(options("quiet=canary").flag("quiet", "yes", "quiet=yes, or nothing"));
        assert!(error.ends_with("quiet=yes, or nothing"), "{error}");
        assert!(!format!("{:?}", options("a=canary&canary=1")).contains("canary"));
    }

    #[test]
    fn the_error_for_an_unknown_option_names_the_known_ones() {
        let refusal = |query: &str, known: &[&'static str]| {
            let mut options = options(query);
            known.iter().for_each(|name| drop(options.text(name)));
            error_text(options.finish())
        };
        let error = refusal("b=1&colour=canary", &["a", "b", "c"]);
        assert!(
            error.ends_with("no option \"colour\"; there are a, b and c"),
            "{error}"
        );
        assert!(refusal("colour", &["a"]).ends_with("there is a"));
        assert!(refusal("colour", &[]).ends_with("nor any other"));
        let long = refusal(&"x".repeat(1000), &["a"]);
        assert!(long.len() < 200, "{long}");
        for query in ["password=canary", "pass=canary", "auth=canary"] {
            let error = refusal(query, &["password_file"]);
            assert!(error.contains("toy://USER:PASSWORD@HOST"), "{error}");
            assert!(error.contains("password_file=PATH"), "{error}");
            assert!(!error.contains("canary"), "{error}");
            assert!(!refusal(query, &["a"]).contains("password_file"));
        }
    }
}
