//! Runs steps one after the other, shows their output as it comes, and sums up.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a line starts that the summary repeats.
const FIGURE: &str = "figure: ";

/// What was run so far.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<Done>,
    tests: Counts,
    figures: Vec<String>,
}

#[derive(Debug)]
struct Done {
    title: String,
    took: Duration,
    failed: bool,
}

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that succeeded.
    pub passed: u64,
    /// Tests that did not.
    pub failed: u64,
    /// Tests that were not run.
    pub ignored: u64,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
    }

    /// Adds what a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …` says.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            let mut words = part.split_whitespace();
            let number = words.next().and_then(|n| n.parse::<u64>().ok());
            match (number, words.next()) {
                (Some(n), Some("passed")) => self.passed += n,
                (Some(n), Some("failed")) => self.failed += n,
                (Some(n), Some("ignored")) => self.ignored += n,
                _ => {}
            }
        }
    }
}

/// Takes steps until one fails, then sums up.
pub fn run(all: impl FnOnce(&mut Steps) -> Result<(), String>) -> Result<(), String> {
    let mut steps = Steps::default();
    let result = all(&mut steps);
    if let Err(reason) = &result {
        println!("\n{reason}");
    }
    steps.summary();
    result.map_err(|_| "a step failed".into())
}

impl Steps {
    /// Runs something of our own as a step.
    pub fn step(
        &mut self,
        title: &str,
        work: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        println!("\n==> {title}");
        let start = Instant::now();
        let result = work();
        self.done.push(Done {
            title: title.to_owned(),
            took: start.elapsed(),
            failed: result.is_err(),
        });
        result.map_err(|reason| format!("{title}: {reason}"))
    }

    /// Runs a command as a step and counts the tests that it reports.
    pub fn command(&mut self, title: &str, command: &mut Command) -> Result<(), String> {
        let mut counts = Counts::default();
        let mut figures = Vec::new();
        let see = |line: &str| {
            counts.read(line);
            figures.extend(line.strip_prefix(FIGURE).map(str::to_owned));
        };
        let result = self.step(title, || stream(command, see));
        self.figures.extend(figures);
        self.tests.add(counts);
        result
    }

    /// Runs two commands at once: most tests wait more than they work. What the second prints follows what the first
    /// does.
    pub fn both(
        &mut self,
        first: (&str, &mut Command),
        second: (&str, &mut Command),
    ) -> Result<(), String> {
        let start = Instant::now();
        let aside = tempfile::tempfile().map_err(|e| format!("no file to print to: {e}"))?;
        let mut child = second
            .1
            .stdin(Stdio::null())
            .stdout(clone(&aside)?)
            .stderr(clone(&aside)?)
            .spawn()
            .map_err(|e| format!("{:?} did not start: {e}", second.1.get_program()))?;
        let first = self.command(first.0, first.1);
        let ended = child.wait().map_err(|e| e.to_string());
        let took = start.elapsed();
        let mut printed = aside;
        printed.rewind().map_err(|e| e.to_string())?;
        let mut counts = Counts::default();
        let result = self.step(second.0, || {
            pass_on(printed, |line| counts.read(line));
            match ended? {
                status if status.success() => Ok(()),
                status => Err(status.to_string()),
            }
        });
        if let Some(done) = self.done.last_mut() {
            done.took = took;
        }
        self.tests.add(counts);
        first.and(result)
    }

    /// Prints what was run, how long it took, and last of all `N passed, N failed`.
    fn summary(&self) {
        let width = self.done.iter().map(|done| done.title.len()).max();
        let width = width.unwrap_or(0);
        println!("\n==> summary");
        for done in &self.done {
            let result = if done.failed { "FAILED" } else { "ok" };
            let seconds = done.took.as_secs_f64();
            println!("{:width$}  {seconds:>7.1} s  {result}", done.title);
        }
        for figure in &self.figures {
            println!("{figure}");
        }
        if self.tests.ignored > 0 {
            println!("{} tests were not run", self.tests.ignored);
        }
        // A step that failed without a failing test must not read as "0 failed".
        let broken = self.done.iter().any(|done| done.failed) && self.tests.failed == 0;
        let failed = self.tests.failed + u64::from(broken);
        println!("{} passed, {failed} failed", self.tests.passed);
    }
}

/// Runs a command, passes its output on line by line, and shows each line to `see`.
fn stream(command: &mut Command, mut see: impl FnMut(&str)) -> Result<(), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{:?} did not start: {e}", command.get_program()))?;
    if let Some(output) = child.stdout.take() {
        pass_on(output, &mut see);
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(e) => Err(e.to_string()),
    }
}

fn pass_on(output: impl Read, mut see: impl FnMut(&str)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
        let _ = std::io::stdout().write_all(&line);
        see(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

fn clone(file: &File) -> Result<File, String> {
    file.try_clone().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_are_counted() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1s",
            "test result: nonsense",
        ] {
            counts.read(line);
        }
        let expected = Counts {
            passed: 5,
            failed: 5,
            ignored: 1,
        };
        assert_eq!(counts, expected);
    }
}
