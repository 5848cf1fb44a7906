//! What `run` has to say beside the command's own output.

use std::io::Write;

/// Short remarks: printed to standard error as they come, or kept for the JSON report.
#[derive(Debug)]
pub struct Notes(Option<Vec<String>>);

impl Notes {
    pub fn new(kept: bool) -> Notes {
        Notes(kept.then(Vec::new))
    }

    /// Whether remarks are kept instead of printed.
    pub fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    pub fn add(&mut self, text: &str) {
        match &mut self.0 {
            Some(kept) => kept.push(text.to_owned()),
            // Nobody to tell is no reason to fail.
            None => drop(writeln!(std::io::stderr(), "lockkeeper: {text}")),
        }
    }

    /// Those that were kept.
    pub fn take(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }
}
