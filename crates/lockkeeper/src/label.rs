//! Labels: what a caller calls its claim, for people who inspect a lock.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// The longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;

/// A short text of the caller's that is shown with a holder or a waiter, such as "order 42" or a command line: 1 to 256 bytes
/// without control characters.
///
/// A label is shown to people and means nothing to the lock. Everybody who can read the store can read it, so it is no
/// place for a secret.
///
/// ```
/// use lockkeeper::Label;
/// assert_eq!(Label::new("order 42")?.as_str(), "order 42");
/// assert!(Label::new("two\nlines").is_err());
/// assert_eq!(Label::shortened("two\nlines").expect("not empty").as_str(), "two lines");
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Arc<str>);

impl Label {
    /// Checks a label.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty label, one over [`MAX_LABEL_BYTES`], or one with a control character.
    pub fn new(label: &str) -> Result<Label, Error> {
        let refuse = |reason: String| {
            let what = "label";
            Err(Error::InvalidArgument { what, reason })
        };
        if label.is_empty() {
            return refuse("it is empty; leave it out instead".into());
        }
        if label.len() > MAX_LABEL_BYTES {
            return refuse(format!(
                "it has {} bytes and the limit is {MAX_LABEL_BYTES}; shorten it",
                label.len()
            ));
        }
        if let Some((at, c)) = label.char_indices().find(|(_, c)| c.is_control()) {
            return refuse(format!(
                "it has the control character {c:?} at byte {at}; use printable text"
            ));
        }
        Ok(Label(label.into()))
    }

    /// Makes a label of any text: control characters become spaces, and a text that is too long is cut and ends with `…`.
    /// Returns `None` for an empty text.
    pub fn shortened(text: &str) -> Option<Label> {
        const CUT: &str = "…";
        if text.is_empty() {
            return None;
        }
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let mut label: String = text.chars().map(printable).collect();
        if label.len() > MAX_LABEL_BYTES {
            let fits = MAX_LABEL_BYTES - CUT.len();
            let end = (0..=fits).rev().find(|&at| label.is_char_boundary(at));
            label.truncate(end.unwrap_or(0));
            label.push_str(CUT);
        }
        Some(Label(label.into()))
    }

    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::str::FromStr for Label {
    type Err = Error;
    fn from_str(label: &str) -> Result<Label, Error> {
        Label::new(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_labels_say_why() {
        let long = "x".repeat(MAX_LABEL_BYTES + 1);
        for (label, word) in [("", "empty"), ("a\nb", "control"), (long.as_str(), "257")] {
            let text = Label::new(label).expect_err(label).to_string();
            assert!(text.contains(word), "{text}");
        }
        assert!(Label::new(&long[1..]).is_ok());
    }

    #[test]
    fn any_text_becomes_a_label() {
        for text in ["a", "a\u{1b}[2Jb", &"é".repeat(300), &"键".repeat(300)] {
            let label = Label::shortened(text).expect("not empty");
            assert!(Label::new(label.as_str()).is_ok(), "{label:?}");
        }
        assert_eq!(Label::shortened(""), None);
        let cut = Label::shortened(&"x".repeat(300)).expect("not empty");
        assert_eq!(cut.as_str().len(), MAX_LABEL_BYTES);
    }
}
