//! A `lockkeeper` inside the command of `lockkeeper run`: it works on the same store. Where that was not handed down,
//! [`StoreUrl::from_environment`] refuses to take the default instead.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{env, io};

use lockkeeper::Error;
use lockkeeper::store::{LockInfo, Mode};
use lockkeeper::url::StoreUrl;

use crate::exit::Failure;

/// Tells a command of `run` the name of its lock.
pub const NAME_VARIABLE: &str = "LOCKKEEPER_NAME";
/// Tells a command of `run` the id of its hold.
pub const OWNER_VARIABLE: &str = "LOCKKEEPER_OWNER";

/// The options that name files.
const FILES: &[&str] = &[
    "password_file",
    "sentinel_password_file",
    "ca",
    "cert",
    "key",
];

/// The URL that a command of `run` finds in its environment: one that names the same store from any folder. `None` if it has
/// a password.
///
/// # Errors
/// When a path depends on the current folder, and that is not known or not text.
pub fn handed_down(url: &StoreUrl) -> Result<Option<String>, Failure> {
    let (scheme, rest) = (url.scheme(), url.rest());
    if url.has_password() {
        return Ok(None);
    }
    if scheme == "sqlite" {
        let path = std::path::absolute(url.path()?)?;
        let path = path
            .to_str()
            .ok_or_else(|| Error::invalid_url("the current folder's path is not text"))?;
        return Ok(Some(format!("{scheme}:{path}")));
    }
    let Some((rest, options)) = rest.split_once('?') else {
        return Ok(Some(format!("{scheme}:{rest}")));
    };
    let options: io::Result<Vec<String>> = options.split('&').map(from_any_folder).collect();
    Ok(Some(format!("{scheme}:{rest}?{}", options?.join("&"))))
}

/// An option of a URL, with an absolute path if it names a file.
fn from_any_folder(option: &str) -> io::Result<String> {
    let is_relative = |path: &str| {
        !path.is_empty() && !path.starts_with('/') && !path.to_ascii_lowercase().starts_with("%2f")
    };
    match option.split_once('=') {
        Some((name, path)) if FILES.contains(&name) && is_relative(path) => {
            let folder = encoded(&env::current_dir()?);
            Ok(format!("{name}={folder}/{path}"))
        }
        _ => Ok(option.to_owned()),
    }
}

/// A path as an option of a URL has it.
fn encoded(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    let encode = |&byte: &u8| {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    bytes.map(encode).collect()
}

/// Whether the command of the `run` that this process is inside has to end before this lock can be had: then waiting for it has no
/// end.
pub fn waits_for_itself(info: &LockInfo, wanted: Manner) -> bool {
    let owner = env::var(OWNER_VARIABLE).unwrap_or_default();
    let ours = info
        .holders
        .iter()
        .find(|holder| holder.claim.to_string() == owner);
    let Some(ours) = ours else { return false };
    match wanted {
        Manner::Alone => true,
        Manner::Shared => ours.mode != Mode::Read,
        // There is another permit, or others may give theirs back.
        Manner::Permit(permits) => permits == 1 || !matches!(ours.mode, Mode::Permit { .. }),
    }
}

/// How a lock is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Without anybody else.
    Alone,
    /// With others who share it.
    Shared,
    /// One of so many permits.
    Permit(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Option<String> {
        handed_down(&StoreUrl::parse(url).expect(url)).expect(url)
    }

    #[test]
    fn a_url_that_is_handed_down_works_in_any_folder() {
        let folder = env::current_dir().expect("a folder");
        let encoded = encoded(&folder);
        let folder = folder.to_str().expect("text");
        assert_eq!(of("sqlite:a/b.db"), Some(format!("sqlite:{folder}/a/b.db")));
        assert_eq!(
            of("sqlite:///srv/b.db").as_deref(),
            Some("sqlite:/srv/b.db")
        );
        for same in [
            "redis://host:1/2",
            "redis://host?dialect=plain&ca=/srv/ca.pem",
            "redis://me@host?password_file=/run/secret",
            "redis+unix:///run/redis.sock?db=1",
        ] {
            assert_eq!(of(same).as_deref(), Some(same));
        }
        assert_eq!(
            of("rediss://host?ca=ca.pem&replicas=1&password_file=../pw"),
            Some(format!(
                "rediss://host?ca={encoded}/ca.pem&replicas=1&password_file={encoded}/../pw"
            ))
        );
        assert_eq!(encoded_text("/a b/é?&"), "/a%20b/%C3%A9%3F%26");
    }

    fn encoded_text(path: &str) -> String {
        encoded(Path::new(path))
    }

    #[test]
    fn a_password_is_not_handed_down() {
        for url in [
            "redis://:pw@host",
            "postgres://me:pw@host/locks",
            "redis://me:p/w@host?ca=x",
        ] {
            assert_eq!(of(url), None, "{url}");
        }
    }
}
