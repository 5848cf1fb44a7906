//! What `run` has to say beside the command's own output.

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::lang::{Lang, Text};
use crate::output::plain;

/// How long a note may take. Its reader may have stopped reading.
const PATIENCE: Duration = Duration::from_millis(20);

/// Short remarks: printed to standard error as they come, kept for the JSON report (in English), or neither.
#[derive(Debug)]
pub struct Notes {
    kept: Option<Vec<String>>,
    quiet: bool,
    lang: Lang,
}

impl Notes {
    /// No remarks yet. With `kept` they are not printed, and if they are `quiet` only the last word is.
    pub fn new(kept: bool, quiet: bool, lang: Lang) -> Notes {
        let kept = kept.then(Vec::new);
        Notes { kept, quiet, lang }
    }

    /// The language in which they are printed.
    pub fn lang(&self) -> Lang {
        self.lang
    }

    /// Whether they are kept instead of printed.
    pub fn are_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether none is printed as it comes.
    pub fn are_silent(&self) -> bool {
        self.are_kept() || self.quiet
    }

    /// Adds one.
    pub fn add(&mut self, text: &Text) {
        if self.are_kept() || !self.quiet {
            self.warn(text);
        }
    }

    /// Adds one that is printed even if they are `quiet`: somebody has to know it.
    pub fn warn(&mut self, text: &Text) {
        match &mut self.kept {
            Some(kept) => kept.push(text.en.clone().into_owned()),
            None => say(text.get(self.lang)),
        }
    }

    /// The last word, once nothing depends on us any more.
    pub fn conclude(&self, text: &Text) {
        if self.kept.is_none() {
            write_line(&format!("lockkeeper: {}", text.get(self.lang)));
        }
    }

    /// Those that were kept.
    pub fn take(self) -> Vec<String> {
        self.kept.unwrap_or_default()
    }
}

/// Writes to standard error, but does not wait for the reader: the lock must be kept, and the
/// command ended, in time.
pub fn say(text: &str) {
    say_line(format!("lockkeeper: {text}"));
}

/// The same, of a line that is not begun with our name.
pub fn say_line(line: String) {
    let (done, written) = mpsc::channel();
    let speak = move || {
        write_line(&line);
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(speak).is_ok() {
        let _ = written.recv_timeout(PATIENCE);
    }
}

/// Writes to standard error. A server has a say in what is wrong with it.
pub fn write_line(line: &str) {
    // In one piece, as others write there too. Nobody to tell is no reason to fail.
    let line = format!("{}\n", plain(line));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
