//! Names of locks: what is allowed, checked once.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::Error;

/// The longest name, in bytes. Every store can index it.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of a lock, semaphore or latch: 1 to 512 bytes of text without control characters.
///
/// Names are compared byte by byte: case, accents and spaces all count, and nothing in a name is special.
/// A `Lock`, a `RwLock` and a `Semaphore` of one name keep each other out; a `Latch` stands apart from them.
///
/// ```
/// use lockkeeper::Name;
/// assert_eq!(Name::new("order:42")?.as_str(), "order:42");
/// assert_eq!("order:42".parse::<Name>()?, Name::new("order:42")?);
/// assert!(Name::new("").is_err());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for an empty name, one over [`MAX_NAME_BYTES`], or one with a control character.
    pub fn new(name: &str) -> Result<Name, Error> {
        let refuse = |reason: String| Err(Error::InvalidName { reason });
        if name.is_empty() {
            return refuse("it is empty; give the lock a name".into());
        }
        if name.len() > MAX_NAME_BYTES {
            return refuse(format!(
                "it has {} bytes and the limit is {MAX_NAME_BYTES}; shorten it or use a hash of it",
                name.len()
            ));
        }
        if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return refuse(format!(
                "it has the control character {c:?} at byte {at}; use printable text"
            ));
        }
        Ok(Name(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::str::FromStr for Name {
    type Err = Error;
    fn from_str(name: &str) -> Result<Name, Error> {
        Name::new(name)
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;
    fn try_from(name: &str) -> Result<Name, Error> {
        Name::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_and_odd_names_pass_unchanged() {
        for name in [
            "a",
            "订单:42",
            "{tag}:x",
            "../../etc/passwd",
            "'; DROP TABLE lease; --",
            " ",
            "%_*?[x]",
        ] {
            assert_eq!(Name::new(name).expect(name).as_str(), name);
        }
        assert!(Name::new(&"x".repeat(MAX_NAME_BYTES)).is_ok());
    }

    #[test]
    fn unusable_names_say_why() {
        for (name, word) in [
            ("", "empty"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            ("\u{85}", "control"),
        ] {
            let text = Name::new(name).expect_err(name).to_string();
            assert!(text.contains(word), "{text}");
        }
        let text = Name::new(&"x".repeat(1 << 20))
            .expect_err("1 MB")
            .to_string();
        assert!(text.contains("1048576") && text.len() < 200, "{text}");
    }
}
