//! Runs steps, shows their output, and sums up.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

/// How a line starts that the summary repeats.
const FIGURE: &str = "figure: ";

/// The environment variable that names the file of `lockkeeper_testkit::retries`.
const RETRIES: &str = "LOCKKEEPER_RETRIES";

/// Parts of a step that take less are left out of the summary.
const LONG: Duration = Duration::from_secs(5);

/// What was run so far.
#[derive(Debug)]
pub struct Steps {
    done: Vec<Done>,
    tests: Counts,
    figures: Vec<String>,
    retries: NamedTempFile,
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

/// What a command said of its tests.
#[derive(Debug, Default)]
struct Said {
    counts: Counts,
    figures: Vec<String>,
}

impl Said {
    fn see(&mut self, line: &str) {
        self.counts.read(line);
        self.figures
            .extend(line.strip_prefix(FIGURE).map(str::to_owned));
    }
}

/// Takes steps until one fails, then sums up.
pub fn run(all: impl FnOnce(&mut Steps) -> Result<(), String>) -> Result<(), String> {
    let retries = NamedTempFile::new().map_err(|e| format!("no file to count retries in: {e}"))?;
    let mut steps = Steps {
        done: Vec::new(),
        tests: Counts::default(),
        figures: Vec::new(),
        retries,
    };
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
        self.finished(title, start.elapsed(), result)
    }

    /// Runs a command as a step and counts the tests that it reports.
    pub fn command(&mut self, title: &str, command: &mut Command) -> Result<(), String> {
        command.env(RETRIES, self.retries.path());
        let mut said = Said::default();
        let result = self.step(title, || stream(command, |line| said.see(line)));
        self.add(said);
        result
    }

    /// Runs a command as a step, and returns what it writes to its standard output.
    pub fn output(&mut self, title: &str, command: &mut Command) -> Result<String, String> {
        let mut text = Vec::new();
        self.step(title, || {
            let output = command
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output();
            let output = output.map_err(|e| did_not_start(command, &e))?;
            text = output.stdout;
            succeeded(output.status)
        })?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs commands as one step, `at_once` of them at a time. The output of each is shown once it has ended.
    pub fn several(
        &mut self,
        title: &str,
        at_once: usize,
        mut commands: Vec<(String, Command)>,
    ) -> Result<(), String> {
        println!("\n==> {title}");
        for (_, command) in &mut commands {
            command.env(RETRIES, self.retries.path());
        }
        let start = Instant::now();
        let mut failed = Vec::new();
        let (waiting, together) = (
            Mutex::new(commands.into_iter()),
            Mutex::new((self, &mut failed)),
        );
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let Some((part, mut command)) = lock(&waiting).next() else {
                            break;
                        };
                        let start = Instant::now();
                        let ended = run_aside(&mut command);
                        let took = start.elapsed();
                        let (steps, failed) = &mut *lock(&together);
                        if steps.part(&part, took, ended).is_err() {
                            failed.push(part);
                        }
                    }
                });
            }
        });
        let (steps, _) = together
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let result = match failed.is_empty() {
            true => Ok(()),
            false => Err(failed.join(", ")),
        };
        steps.finished(title, start.elapsed(), result)
    }

    /// Shows what a part of a step printed, and counts its tests.
    fn part(
        &mut self,
        title: &str,
        took: Duration,
        ended: Result<(File, ExitStatus), String>,
    ) -> Result<(), String> {
        println!("\n==> {title}");
        let mut said = Said::default();
        let result = ended.and_then(|(mut printed, status)| {
            printed.rewind().map_err(|e| e.to_string())?;
            pass_on(printed, |line| said.see(line));
            succeeded(status)
        });
        self.add(said);
        if took < LONG && result.is_ok() {
            return Ok(());
        }
        self.finished(&format!("  {title}"), took, result)
    }

    fn finished(
        &mut self,
        title: &str,
        took: Duration,
        result: Result<(), String>,
    ) -> Result<(), String> {
        self.done.push(Done {
            title: title.to_owned(),
            took,
            failed: result.is_err(),
        });
        result.map_err(|reason| format!("{title}: {reason}"))
    }

    fn add(&mut self, said: Said) {
        self.tests.add(said.counts);
        self.figures.extend(said.figures);
    }

    /// Prints what was run, how long it took, what was done again, and last of all `N passed, N failed`.
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
            let ignored = self.tests.ignored;
            println!("{ignored} tests were not run: `cargo xtask nightly` runs them");
        }
        let noted = std::fs::read_to_string(self.retries.path()).unwrap_or_default();
        println!("{}", retries(&noted));
        // A step that failed without a failing test must not read as "0 failed".
        let broken = self.done.iter().any(|done| done.failed) && self.tests.failed == 0;
        let failed = self.tests.failed + u64::from(broken);
        println!("{} passed, {failed} failed", self.tests.passed);
    }
}

/// How often tests did something again by themselves, by what they noted, a line for each time.
fn retries(noted: &str) -> String {
    let mut kinds = BTreeMap::<&str, usize>::new();
    for line in noted.lines() {
        *kinds.entry(line).or_default() += 1;
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    match kinds.is_empty() {
        true => "0 retries".into(),
        false => format!("{} retries: {}", noted.lines().count(), kinds.join(", ")),
    }
}

/// Runs a command, passes its output on line by line, and shows each line to `see`.
fn stream(command: &mut Command, mut see: impl FnMut(&str)) -> Result<(), String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| did_not_start(command, &e))?;
    if let Some(output) = child.stdout.take() {
        pass_on(output, &mut see);
    }
    succeeded(child.wait().map_err(|e| e.to_string())?)
}

/// Runs a command, and returns what it printed and how it ended.
fn run_aside(command: &mut Command) -> Result<(File, ExitStatus), String> {
    let aside = tempfile::tempfile().map_err(|e| format!("no file to print to: {e}"))?;
    let command = command.stdin(Stdio::null());
    let command = command.stdout(clone(&aside)?).stderr(clone(&aside)?);
    let status = command.status().map_err(|e| did_not_start(command, &e))?;
    Ok((aside, status))
}

fn succeeded(status: ExitStatus) -> Result<(), String> {
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}

fn did_not_start(command: &Command, error: &std::io::Error) -> String {
    format!("{:?} did not start: {error}", command.get_program())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn retries_are_counted_by_kind() {
        assert_eq!(retries(""), "0 retries");
        let noted = "a port was taken\na server did not start\na port was taken\n";
        let expected = "3 retries: 2 × a port was taken, 1 × a server did not start";
        assert_eq!(retries(noted), expected);
    }

    #[test]
    fn a_failed_command_among_several_fails_the_step_and_the_others_run() {
        let mut counted = None;
        let result = run(|steps| {
            let shell = |script: &str| {
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                (script.to_owned(), command)
            };
            let noted = "echo 'a port was taken' >> $LOCKKEEPER_RETRIES";
            let all = vec![shell("exit 3"), shell(noted), shell(noted)];
            let result = steps.several("all", 2, all);
            assert!(result.as_ref().is_err_and(|e| e.contains("exit 3")));
            let noted = std::fs::read_to_string(steps.retries.path());
            counted = noted.ok().map(|noted| noted.lines().count());
            result
        });
        assert!(result.is_err());
        assert_eq!(counted, Some(2));
    }
}
