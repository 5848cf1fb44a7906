//! The user and the password for a server, from the URL or from a file.

use std::fmt;
use std::io::Read;

use super::StoreKind;
use super::url::{decode, refuse};
use crate::{Error, SETUP_TARGET};

/// How much of a password file is read. A password is one line.
const MAX_PASSWORD_FILE: u64 = 64 * 1024;

/// A password. Its `Debug` does not show it.
///
/// ```
/// use lockkeeper::store::common::Secret;
///
/// let password = Secret::new("hunter2");
/// assert_eq!(format!("{password:?}"), "***");
/// assert_eq!(password.reveal(), "hunter2");   // to send it
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(password.into())
    }

    /// Reads a password: the first line of a file.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when the file cannot be read, or its first line is empty.
    pub fn from_file(path: &str) -> Result<Secret, Error> {
        let mut text = String::new();
        let read = std::fs::File::open(path).and_then(|file| {
            warn_if_world_readable(path, &file);
            file.take(MAX_PASSWORD_FILE).read_to_string(&mut text)
        });
        if let Err(error) = read {
            return refuse(format!(
                "the password file {path:?} cannot be read: {error}"
            ));
        }
        match text.lines().next() {
            Some(password) if !password.is_empty() => Ok(Secret::new(password)),
            _ => refuse(format!(
                "the first line of the password file {path:?} is empty"
            )),
        }
    }

    /// The password, to send it to the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Warns of a password file that every user of this machine can read.
fn warn_if_world_readable(path: &str, file: &std::fs::File) {
    use std::os::unix::fs::PermissionsExt;
    let mode = file
        .metadata()
        .map_or(0, |found| found.permissions().mode());
    if mode & 0o004 != 0 {
        tracing::warn!(
            target: SETUP_TARGET,
            file = path,
            "every user of this machine can read the password in this file; take that right away (chmod o-r)"
        );
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A user and a password. Its `Debug` shows no password.
///
/// Both come from the URL, or the password comes from a file that an option of the URL names:
/// [`Options::password_file`](super::Options::password_file).
///
/// ```
/// use lockkeeper::store::common::{Credentials, Secret};
///
/// let mut credentials = Credentials::default();
/// credentials.user = Some("me".into());
/// credentials.password = Some(Secret::new("hunter2"));
/// assert_eq!(credentials.password(), Some("hunter2"));
/// assert!(!format!("{credentials:?}").contains("hunter2"));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Credentials {
    /// The user, if one is named.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<Secret>,
}

impl Credentials {
    /// Reads `USER`, `USER:PASSWORD` or `:PASSWORD`, each with %XX.
    pub(super) fn parse(user_info: &str) -> Result<Credentials, Error> {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let given =
            |text: &str| Ok::<_, Error>(Some(decode(text)?).filter(|text| !text.is_empty()));
        Ok(Credentials {
            user: given(user)?,
            password: given(password)?.map(Secret),
        })
    }

    /// The password, to send it to the server.
    pub fn password(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::reveal)
    }
}

/// Warns that the password for this server crosses the network in plain text.
pub fn warn_of_plain_text(server: &dyn fmt::Display, kind: &StoreKind) {
    tracing::warn!(
        target: SETUP_TARGET,
        %server,
        "the password crosses the network in plain text; for TLS {}",
        kind.use_tls
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_are_read_and_the_password_is_not_shown() {
        for (text, user, password) in [
            ("", None, None),
            (":", None, None),
            ("me", Some("me"), None),
            ("me:", Some("me"), None),
            (":canary", None, Some("canary")),
            ("m%3Ae:can%40ary:x", Some("m:e"), Some("can@ary:x")),
        ] {
            let credentials = Credentials::parse(text).expect(text);
            assert_eq!(credentials.user.as_deref(), user, "{text}");
            assert_eq!(credentials.password(), password, "{text}");
            let shown = format!("{credentials:?}");
            assert!(!shown.contains("can"), "{shown}");
        }
        let error = Credentials::parse("me:canary%f").expect_err("half a byte");
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn a_password_is_the_first_line_of_its_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("secret");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("writes");
            Secret::from_file(path.to_str().expect("text"))
        };
        for text in ["canary", "canary\n", "canary\r\nmore\n"] {
            assert_eq!(read(text).expect("a password").reveal(), "canary");
        }
        for text in ["", "\ncanary"] {
            let error = read(text).expect_err("no password").to_string();
            assert!(
                error.contains("empty") && !error.contains("canary"),
                "{error}"
            );
        }
        let error = Secret::from_file("/no/such/file").expect_err("no file");
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
}
