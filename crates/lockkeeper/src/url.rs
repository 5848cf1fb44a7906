//! Store URLs: which store, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;
#[cfg(feature = "internals")]
pub use crate::state_folder::state_folder;
#[cfg(not(feature = "internals"))]
use crate::state_folder::state_folder;

/// The environment variable that names the store when the program does not.
pub const STORE_VARIABLE: &str = "LOCKKEEPER_STORE";

/// The environment variable that has the name of the lock, in a command of `lockkeeper run`.
const NAME_VARIABLE: &str = "LOCKKEEPER_NAME";

/// A store's address: `scheme:rest`. Its `Debug` and `Display` never show a password.
///
/// ```
/// use lockkeeper::url::StoreUrl;
/// let url = StoreUrl::parse("sqlite:/var/lib/app/locks.db")?;
/// assert_eq!(url.scheme(), "sqlite");
/// assert_eq!("memory:".parse::<StoreUrl>()?.scheme(), "memory");
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    rest: String,
}

impl StoreUrl {
    /// Splits a URL into scheme and rest.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when there is no scheme, or what stands for it is not a scheme.
    pub fn parse(url: &str) -> Result<StoreUrl, Error> {
        let refuse = |reason: String| Err(Error::InvalidUrl { reason });
        if url.is_empty() {
            return refuse("it is empty; write for instance sqlite:/var/lib/app/locks.db".into());
        }
        if url.chars().any(char::is_control) {
            return refuse("it has a control character, perhaps a line end; remove it".into());
        }
        let advice = "write for instance redis://HOST:PORT for a server, or sqlite:PATH for a file";
        let Some((scheme, rest)) = url.split_once(':') else {
            return refuse(format!("it has no scheme; {advice}"));
        };
        let mut letters = scheme.chars();
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if !letters.next().is_some_and(|c| c.is_ascii_alphabetic()) || !letters.all(plain) {
            return refuse(format!(
                "what stands before the first colon is not a scheme; {advice}"
            ));
        }
        Ok(StoreUrl {
            scheme: scheme.to_ascii_lowercase(),
            rest: rest.to_owned(),
        })
    }

    /// The URL of the embedded default: what `LOCKKEEPER_STORE` says, else a SQLite file in the user's
    /// state folder (`$XDG_STATE_HOME/lockkeeper/locks.db`, by default under `~/.local/state`; on macOS
    /// `~/Library/Application Support/lockkeeper/locks.db`). Without a home folder, as in some services of systemd, below
    /// `$STATE_DIRECTORY`.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when the variable is not usable, or no home folder is known. Also in a command of `lockkeeper run`
    /// that was not given the URL of its store because it has a password: the default would be another store.
    pub fn from_environment() -> Result<StoreUrl, Error> {
        match std::env::var(STORE_VARIABLE) {
            Ok(url) if !url.is_empty() => return StoreUrl::parse(&url),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Error::InvalidUrl {
                    reason: format!("{STORE_VARIABLE} is not text"),
                });
            }
            _ => {}
        }
        // If the default is another store than that of `run`, one lock would quietly have two holders.
        if std::env::var_os(NAME_VARIABLE).is_some_and(|name| !name.is_empty()) {
            return Err(Error::InvalidUrl {
                reason: format!(
                    "this runs inside `lockkeeper run`, which did not hand down its store because the URL holds a password; \
                     name a store with {STORE_VARIABLE} or --store, or have the password in a file (password_file=PATH), \
                     and the URL is handed down"
                ),
            });
        }
        let folder = state_folder().ok_or_else(|| Error::InvalidUrl {
            reason: format!(
                "there is no home folder for the default store; set {STORE_VARIABLE} or name a store"
            ),
        })?;
        let path = folder.join("lockkeeper").join("locks.db");
        match path.to_str() {
            Some(path) => StoreUrl::parse(&format!("sqlite:{path}")),
            None => Err(Error::InvalidUrl {
                reason: format!("the home folder's path is not text; set {STORE_VARIABLE}"),
            }),
        }
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What follows the scheme's colon.
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The rest as a file path. `//` before an absolute path is dropped, as in `sqlite:///srv/locks.db`.
    pub fn path(&self) -> Result<PathBuf, Error> {
        let refuse = |reason: &str| {
            Err(Error::InvalidUrl {
                reason: reason.into(),
            })
        };
        let scheme = &self.scheme;
        let path = match self.rest.strip_prefix("//") {
            None => self.rest.as_str(),
            Some(path) if path.starts_with('/') => path,
            Some(_) => {
                return refuse(
                    "after two slashes comes a host, and a file has none; write one slash or three",
                );
            }
        };
        if path.is_empty() {
            return refuse(&format!("it names no file; write {scheme}:PATH"));
        }
        if path.contains('?') {
            // As part of the name it would quietly make another file, and so another set of locks.
            return refuse(&format!(
                "{scheme}: takes no options; remove the question mark and what follows"
            ));
        }
        if path == "~" || path.starts_with("~/") {
            return refuse(&format!(
                "~ is not expanded within a URL; write the whole path, as in \"{scheme}:$HOME/locks.db\""
            ));
        }
        if path == ":memory:" {
            return refuse("a SQLite database in memory excludes nobody; use memory: instead");
        }
        Ok(Path::new(path).to_owned())
    }

    /// Whether the URL carries a password, which then must not appear on a command line.
    pub fn has_password(&self) -> bool {
        self.user_info().is_some_and(|user| user.contains(':'))
    }

    fn user_info(&self) -> Option<&str> {
        let host = self.rest.strip_prefix("//")?;
        if host.starts_with('/') {
            return None;
        }
        // Up to the last @ of all: a password may have a slash in it that should have been encoded.
        Some(host.rsplit_once('@')?.0)
    }
}

impl std::str::FromStr for StoreUrl {
    type Err = Error;
    fn from_str(url: &str) -> Result<StoreUrl, Error> {
        StoreUrl::parse(url)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user_info() {
            None => write!(f, "{}:{}", self.scheme, self.rest),
            Some(user) => {
                let name = user.split(':').next().unwrap_or_default();
                let rest = &self.rest[2 + user.len()..];
                write!(f, "{}://{name}:***{rest}", self.scheme)
            }
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_with_one_slash_or_three() {
        for (url, path) in [
            ("sqlite:locks.db", "locks.db"),
            ("sqlite:/srv/locks.db", "/srv/locks.db"),
            ("SQLITE:///srv/a b.db", "/srv/a b.db"),
            ("sqlite:./~/a~b.db", "./~/a~b.db"),
        ] {
            let url = StoreUrl::parse(url).expect(url);
            assert_eq!(url.scheme(), "sqlite");
            assert_eq!(url.path().expect("a path"), Path::new(path));
        }
        for url in [
            "sqlite:",
            "sqlite://srv/locks.db",
            "sqlite::memory:",
            "sqlite:/srv/locks.db?mode=ro",
            "sqlite:~/locks.db",
        ] {
            assert!(StoreUrl::parse(url).expect(url).path().is_err(), "{url}");
        }
    }

    #[test]
    fn text_that_is_no_url_is_refused_with_an_example() {
        for url in [
            "",
            "locks.db",
            "/srv/x",
            ":x",
            "1a:b",
            "a b:c",
            "sqlite:x\n",
        ] {
            assert!(StoreUrl::parse(url).is_err(), "{url}");
        }
        let host = StoreUrl::parse("127.0.0.1:6379").expect_err("no scheme");
        assert!(host.to_string().contains("redis://HOST:PORT"), "{host}");
    }

    #[test]
    fn passwords_are_never_shown() {
        let url = StoreUrl::parse("redis://me:hun@ter2@host:1/0").expect("a URL");
        assert!(url.has_password());
        for text in [format!("{url}"), format!("{url:?}")] {
            assert_eq!(text, "redis://me:***@host:1/0");
        }
        // Not encoded as it should be, and still not shown.
        for secret in ["hun/ter2", "hun?ter2", "hun#ter2", "h@n/ter2"] {
            let url = StoreUrl::parse(&format!("redis://me:{secret}@host:1/0")).expect("a URL");
            assert!(url.has_password(), "{secret}");
            assert_eq!(url.to_string(), "redis://me:***@host:1/0");
        }
        let file = StoreUrl::parse("sqlite:///home/me@work/a:b.db").expect("a URL");
        assert!(!file.has_password());
        assert_eq!(file.to_string(), "sqlite:///home/me@work/a:b.db");
        let plain = StoreUrl::parse("redis://host/0").expect("a URL");
        assert!(!plain.has_password());
        assert_eq!(plain.to_string(), "redis://host/0");
    }
}
