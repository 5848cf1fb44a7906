//! Runs programs to their end, or to the end of our patience: a program that hangs must not hang us.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a program may run that does not say otherwise.
pub const LIMIT: Duration = Duration::from_secs(40 * 60);

/// How long to wait between two looks at a program.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a program until it ends, and calls `meanwhile` again and again.
///
/// # Errors
/// When it does not start, when it fails, and when it takes longer than the limit: it is then killed, with all that it
/// started.
pub fn run(
    command: &mut Command,
    limit: Duration,
    mut meanwhile: impl FnMut(),
) -> Result<(), String> {
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{:?} did not start: {error}", command.get_program()))?;
    let start = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        meanwhile();
        match ended {
            Some(status) => return succeeded(status),
            None if start.elapsed() < limit => thread::sleep(PAUSE),
            None => {
                kill(&mut child);
                meanwhile();
                return Err(format!("not done after {}, so it was killed", show(limit)));
            }
        }
    }
}

/// `40 min`, or `2.5 s` when it is short.
pub fn show(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 120 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min", seconds / 60),
    }
}

fn succeeded(status: ExitStatus) -> Result<(), String> {
    if status.success() {
        Ok(())
    } else {
        Err(status.to_string())
    }
}

/// Kills a program and what it started, also what has left its process group. All are stopped first, since one that runs
/// may start another, and since the children of one that is gone are no longer known.
fn kill(child: &mut Child) {
    let signal = |all: &BTreeSet<u32>, signal| {
        for pid in all
            .iter()
            .filter_map(|pid| Pid::from_raw(pid.cast_signed()))
        {
            let _ = kill_process(pid, signal);
        }
    };
    let mut all = BTreeSet::new();
    let mut more = BTreeSet::from([child.id()]);
    while !more.is_empty() {
        signal(&more, Signal::STOP);
        all.append(&mut more);
        let children =
            processes().filter(|(pid, parent)| all.contains(parent) && !all.contains(pid));
        more = children.map(|(pid, _)| pid).collect();
    }
    signal(&all, Signal::KILL);
    let _ = child.wait();
}

/// Every process, with its parent.
fn processes() -> impl Iterator<Item = (u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // `4711 (name) S 4710 …`; the name may itself have spaces and parentheses.
        let (_, rest) = stat.rsplit_once(") ")?;
        let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
}

/// What a program prints, in a file: a pipe stays open for as long as anything that the program left behind has it.
#[derive(Debug)]
pub struct Printed {
    file: File,
    read: u64,
    line: Vec<u8>,
}

impl Printed {
    /// Nothing yet.
    pub fn new() -> Result<Printed, String> {
        let file = tempfile::tempfile().map_err(|e| format!("no file to print to: {e}"))?;
        Ok(Printed {
            file,
            read: 0,
            line: Vec::new(),
        })
    }

    /// Where a program is to print to.
    pub fn to(&self) -> Result<File, String> {
        self.file.try_clone().map_err(|e| e.to_string())
    }

    /// Shows the whole lines that are new, also to `see`.
    pub fn show(&mut self, mut see: impl FnMut(&str)) {
        for byte in self.news() {
            self.line.push(byte);
            if byte == b'\n' {
                self.show_line(&mut see);
            }
        }
    }

    /// Shows what is left, also a line that has no end.
    pub fn show_rest(mut self, mut see: impl FnMut(&str)) {
        self.show(&mut see);
        if !self.line.is_empty() {
            self.line.push(b'\n');
            self.show_line(see);
        }
    }

    /// All of it.
    pub fn text(mut self) -> String {
        self.read = 0;
        String::from_utf8_lossy(&self.news()).into_owned()
    }

    fn show_line(&mut self, mut see: impl FnMut(&str)) {
        let _ = std::io::stdout().write_all(&self.line);
        see(String::from_utf8_lossy(&self.line).trim_end());
        self.line.clear();
    }

    fn news(&mut self) -> Vec<u8> {
        let mut news = Vec::new();
        let mut buffer = [0; 16 << 10];
        // The place is our own: the program's is where the file ends.
        while let Ok(count @ 1..) = self.file.read_at(&mut buffer, self.read) {
            news.extend_from_slice(&buffer[..count]);
            self.read += count as u64;
        }
        news
    }
}
