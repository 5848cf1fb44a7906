//! A process that takes locks, so that tests can kill it, stop it and let it go on.
//!
//! It is the `lock-taker` program of this crate; see there for what it can be told.

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running `lock-taker`. Dropping it kills it.
#[derive(Debug)]
pub struct Taker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All it said, for when it fails to say more.
    said: RefCell<Vec<String>>,
}

impl Taker {
    /// Starts the program. In tests of this crate its path is `env!("CARGO_BIN_EXE_lock-taker")`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: impl AsRef<Path>, arguments: &[&str]) -> io::Result<Taker> {
        Taker::start_in(program, arguments, Vec::new())
    }

    /// [`Taker::start`] with more in its environment, such as
    /// [a clock](crate::servers::wall_clock::WallClock::environment).
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_in(
        program: impl AsRef<Path>,
        arguments: &[&str],
        environment: Vec<(String, String)>,
    ) -> io::Result<Taker> {
        let mut child = Command::new(program.as_ref())
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Taker {
            stdin: child.stdin.take(),
            child,
            lines,
            said: RefCell::default(),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints, or `None` if none comes in time.
    ///
    /// # Panics
    /// When it has ended without another line.
    pub fn line_within(&self, time: Duration) -> Option<String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => {
                self.said.borrow_mut().push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!(
                "process {} has ended; it said {:?}",
                self.pid(),
                self.said.borrow()
            ),
        }
    }

    /// What follows `word` on the next line that starts with it; other lines are passed over.
    ///
    /// # Panics
    /// When none comes within a minute.
    pub fn expect(&self, word: &str) -> String {
        self.expect_one(&[word])[word.len()..].trim().to_owned()
    }

    /// The next line that starts with one of the words; other lines are passed over.
    ///
    /// # Panics
    /// When none comes within a minute.
    pub fn expect_one(&self, words: &[&str]) -> String {
        loop {
            let Some(line) = self.line_within(Duration::from_secs(60)) else {
                let (pid, said) = (self.pid(), self.said.borrow());
                panic!("{pid} never says {words:?}; it said {said:?}");
            };
            if words.iter().any(|word| line.starts_with(word)) {
                return line;
            }
        }
    }

    /// Tells it something.
    ///
    /// # Errors
    /// When it no longer listens.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Stops it (SIGSTOP), and waits until all its threads stand: one that is in a system call ends that first.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let end = Instant::now() + Duration::from_secs(10);
        while self.moves() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether a thread of it may still do something, where the system tells.
    fn moves(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid())) else {
            return false;
        };
        let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).ok();
        let mut stats = threads.flatten().filter_map(stat);
        // `PID (NAME) STATE …`: T is stopped, Z and X are over.
        stats.any(|stat| match stat.rsplit_once(") ") {
            Some((_, rest)) => !rest.starts_with(['T', 't', 'Z', 'X']),
            None => false,
        })
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// When the system refuses to tell.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end and answers whether it was a success.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn wait(&mut self) -> io::Result<bool> {
        self.stdin = None;
        Ok(self.child.wait()?.success())
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
