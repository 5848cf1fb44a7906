//! What a waiting user sees: a bar on the terminal's error stream, nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// Shows how far a scenario is.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(scenario: &str, steps: u64) -> Progress {
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("{msg:12} {bar:30} {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(scenario.to_owned());
        Progress(bar)
    }

    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
