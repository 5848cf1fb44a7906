//! Runs steps, shows their output, and sums up.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::running::{self, LIMIT, Printed};

/// How a line starts that the summary repeats.
const FIGURE: &str = "figure: ";

/// The environment variable that names the file of `lockkeeper_testkit::retries`.
const RETRIES: &str = "LOCKKEEPER_RETRIES";

/// Parts of a step that take less are left out of the summary.
const LONG: Duration = Duration::from_secs(5);

/// How often to say which of several commands still run: a log that is cut off then tells which one it was.
const REPORT: Duration = Duration::from_secs(120);

/// What was run so far.
#[derive(Debug)]
pub struct Steps {
    done: Vec<Done>,
    tests: Counts,
    figures: Vec<String>,
    retries: NamedTempFile,
    /// How long a command may take.
    limit: Duration,
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
        limit: LIMIT,
    };
    let result = all(&mut steps);
    if let Err(reason) = &result {
        println!("\n{reason}");
    }
    steps.summary();
    result.map_err(|_| "a step failed".into())
}

impl Steps {
    /// Says how long each command may take from now on. One that takes longer is killed, and its step fails.
    pub fn limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

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
        let limit = self.limit;
        let mut said = Said::default();
        let result = self.step(title, || {
            let mut printed = Printed::new()?;
            command.stdout(printed.to()?);
            let result = running::run(command, limit, || printed.show(|line| said.see(line)));
            printed.show_rest(|line| said.see(line));
            result
        });
        self.add(said);
        result
    }

    /// Runs a command as a step, and returns what it writes to its standard output.
    pub fn output(&mut self, title: &str, command: &mut Command) -> Result<String, String> {
        let limit = self.limit;
        let mut text = String::new();
        self.step(title, || {
            let printed = Printed::new()?;
            running::run(command.stdout(printed.to()?), limit, || ())?;
            text = printed.text();
            Ok(())
        })?;
        Ok(text)
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
        let (start, limit) = (Instant::now(), self.limit);
        let mut failed = Vec::new();
        let (waiting, running, together) = (
            Mutex::new(commands.into_iter()),
            Mutex::new(BTreeMap::new()),
            Mutex::new((self, &mut failed)),
        );
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| {
                let ended = ended;
                while ended.recv_timeout(REPORT) == Err(RecvTimeoutError::Timeout) {
                    // Not in the middle of what another one printed.
                    let _alone = lock(&together);
                    println!("{}", still_running(start.elapsed(), &lock(&running)));
                }
            });
            for _ in 0..at_once {
                let end = end.clone();
                let (waiting, running, together) = (&waiting, &running, &together);
                scope.spawn(move || {
                    let _end = end;
                    loop {
                        let Some((part, mut command)) = lock(waiting).next() else {
                            break;
                        };
                        let start = Instant::now();
                        lock(running).insert(part.clone(), start);
                        let ended = run_aside(&mut command, limit);
                        lock(running).remove(&part);
                        let (steps, failed) = &mut *lock(together);
                        if steps.part(&part, start.elapsed(), ended).is_err() {
                            failed.push(part);
                        }
                    }
                });
            }
            drop(end);
        });
        let (steps, _) = together
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let result = if failed.is_empty() {
            Ok(())
        } else {
            Err(failed.join(", "))
        };
        steps.finished(title, start.elapsed(), result)
    }

    /// Shows what a part of a step printed, and counts its tests.
    fn part(
        &mut self,
        title: &str,
        took: Duration,
        (printed, result): (Option<Printed>, Result<(), String>),
    ) -> Result<(), String> {
        println!("\n==> {title}");
        let mut said = Said::default();
        if let Some(printed) = printed {
            printed.show_rest(|line| said.see(line));
        }
        self.add(said);
        if let Err(reason) = &result {
            println!("{title}: {reason}");
        }
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
    if kinds.is_empty() {
        "0 retries".into()
    } else {
        format!("{} retries: {}", noted.lines().count(), kinds.join(", "))
    }
}

/// `still running after 4 min: a (4 min), b (12.5 s)`
fn still_running(after: Duration, running: &BTreeMap<String, Instant>) -> String {
    let each = running
        .iter()
        .map(|(title, since)| format!("{title} ({})", running::show(since.elapsed())));
    let each: Vec<String> = each.collect();
    format!(
        "still running after {}: {}",
        running::show(after),
        each.join(", ")
    )
}

/// Runs a command, and returns what it printed and how it ended.
fn run_aside(command: &mut Command, limit: Duration) -> (Option<Printed>, Result<(), String>) {
    let started = Printed::new().and_then(|printed| {
        command.stdout(printed.to()?).stderr(printed.to()?);
        Ok(printed)
    });
    match started {
        Ok(printed) => (Some(printed), running::run(command, limit, || ())),
        Err(reason) => (None, Err(reason)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn shell(script: &str) -> (String, Command) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (script.to_owned(), command)
    }

    /// Whether a process runs; one that is dead may wait for its parent.
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = folder.path().join("started");
        // One of the same process group, and one that has left it.
        let hangs = format!(
            "sleep 600 & echo $! >> {0}; setsid sh -c 'echo $$ >> {0}; exec sleep 600' & echo begun; wait",
            started.display()
        );
        let pids = || std::fs::read_to_string(&started).unwrap_or_default();
        let limit = Duration::from_secs(5);
        for single in [false, true] {
            let _ = std::fs::remove_file(&started);
            let result = run(|steps| {
                steps.limit(limit);
                let result = if single {
                    steps.command("one", &mut shell(&hangs).1)
                } else {
                    steps.several("all", 2, vec![shell(&hangs), shell("true")])
                };
                assert!(
                    steps
                        .done
                        .iter()
                        .any(|done| done.failed && done.took >= limit)
                );
                result
            });
            assert!(result.is_err());
            assert_eq!(pids().lines().count(), 2, "it came so far");
            for pid in pids().lines() {
                let end = Instant::now() + Duration::from_secs(60);
                while runs(pid) {
                    assert!(Instant::now() < end, "{pid} was left");
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
        let (printed, result) = run_aside(&mut shell(&hangs).1, limit);
        assert!(result.is_err_and(|told| told.contains("not done after 5.0 s")));
        let mut lines = Vec::new();
        let printed = printed.expect("it printed");
        printed.show_rest(|line| lines.push(line.to_owned()));
        assert_eq!(lines, ["begun"], "what it said is shown");
    }

    #[test]
    fn what_still_runs_is_told() {
        let now = Instant::now();
        let all = BTreeMap::from([("a".to_owned(), now), ("b".to_owned(), now)]);
        let told = still_running(Duration::from_secs(240), &all);
        assert!(
            told.starts_with("still running after 4 min: a (0."),
            "{told}"
        );
        assert!(told.contains(", b ("), "{told}");
    }

    #[test]
    fn a_failed_command_among_several_fails_the_step_and_the_others_run() {
        let mut counted = None;
        let result = run(|steps| {
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
