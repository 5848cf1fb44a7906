//! A resource that refuses late writers: a number in a file.
//!
//! The file is the resource's own book: one line of fixed width for every accepted write, the last one being
//! its state. A writer that is killed in the middle leaves at most a cut last line, which the next writer removes.
//! The books are complete whatever became of the writers, so they show a lost update for certain.
//!
//! A holder that changes a resource by what it has read must show its token with the *read* as well. Otherwise a sleeper
//! can still write between the read and the first write of its successor, who then overwrites it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use lockkeeper::Token;
use rustix::fs::{FlockOperation, flock};

use crate::history::{Answer, Entry};

/// Four numbers of twenty digits, three spaces, a line end.
const LINE: u64 = 84;

/// A fenced number in a file, for any number of processes.
#[derive(Clone, Debug)]
pub struct FencedFile {
    path: PathBuf,
    /// Holds the highest token that a reader has shown.
    fence: PathBuf,
    /// Not the file itself: the lock outlives whatever happens to that.
    lock: PathBuf,
}

/// What the file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// How many writes were accepted.
    pub seq: u64,
    /// The highest token seen.
    pub token: u64,
    /// The number.
    pub value: u64,
}

impl FencedFile {
    /// The resource in this file; it starts at 0.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(path: &Path) -> io::Result<FencedFile> {
        let file = FencedFile {
            path: path.to_owned(),
            fence: path.with_extension("fence"),
            lock: path.with_extension("flock"),
        };
        file.locked()?;
        file.file()?;
        Ok(file)
    }

    /// What the file holds now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn state(&self) -> io::Result<State> {
        let _lock = self.locked()?;
        Ok(self.current(&mut self.file()?)?.0)
    }

    /// Reads the number in order to change it: lower tokens are refused from now on. `None` when this one is.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, token: Token) -> io::Result<Option<u64>> {
        let _lock = self.locked()?;
        let (state, _) = self.current(&mut self.file()?)?;
        if token.get() < state.token {
            return Ok(None);
        }
        // One write of fixed width: a kill leaves the old number or the new one.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let mut fence = options.open(&self.fence)?;
        fence.write_all(format!("{:020}", token.get()).as_bytes())?;
        Ok(Some(state.value))
    }

    /// Changes the number from `base`, read before, to `value`, unless a higher token was here. The base is
    /// noted and *not* compared: that a wrong one never comes is what the lock is for.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, token: Token, base: u64, value: u64) -> io::Result<Answer> {
        self.enter(token, base, value, true)
    }

    /// [`FencedFile::write`] without a look at the token: for tests that have to go red.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_unfenced(&self, token: Token, base: u64, value: u64) -> io::Result<Answer> {
        self.enter(token, base, value, false)
    }

    fn enter(&self, token: Token, base: u64, value: u64, fenced: bool) -> io::Result<Answer> {
        let _lock = self.locked()?;
        let mut file = self.file()?;
        let (state, end) = self.current(&mut file)?;
        if fenced && token.get() < state.token {
            return Ok(Answer::Refused {
                highest: state.token,
            });
        }
        let seq = state.seq + 1;
        let line = format!("{seq:020} {:020} {base:020} {value:020}\n", token.get());
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        file.write_all(line.as_bytes())?;
        Ok(Answer::Accepted { seq })
    }

    /// Every accepted write, under the resource's file name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let _lock = self.locked()?;
        let text = std::fs::read_to_string(&self.path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| self.entry(line)).collect()
    }

    /// The name that [`FencedFile::entries`] gives the resource.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn entry(&self, line: &str) -> io::Result<Entry> {
        let [seq, token, base, value] = numbers(line)?;
        Ok(Entry {
            resource: self.name(),
            seq,
            token,
            base,
            value,
        })
    }

    /// The state, with the highest token of writers and readers, and where the books end.
    fn current(&self, file: &mut File) -> io::Result<(State, u64)> {
        let (mut state, end) = last(file)?;
        if let Ok(shown) = std::fs::read_to_string(&self.fence) {
            let shown = shown.parse().map_err(|_| not_numbers(&shown))?;
            state.token = state.token.max(shown);
        }
        Ok((state, end))
    }

    fn file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(&self.path)
    }

    fn locked(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let lock = options.create(true).append(true).open(&self.lock)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }
}

/// The last whole line, and where it ends.
fn last(file: &mut File) -> io::Result<(State, u64)> {
    let end = file.metadata()?.len() / LINE * LINE;
    if end == 0 {
        return Ok((State::default(), 0));
    }
    file.seek(SeekFrom::Start(end - LINE))?;
    let mut line = [0; LINE as usize];
    file.read_exact(&mut line)?;
    let [seq, token, _, value] = numbers(std::str::from_utf8(&line).unwrap_or_default())?;
    Ok((State { seq, token, value }, end))
}

fn numbers(line: &str) -> io::Result<[u64; 4]> {
    let numbers: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|number| number.parse().ok())
        .collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| not_numbers(line))
}

fn not_numbers(text: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not in order: {text:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, FencedFile) {
        let dir = tempfile::tempdir().expect("a folder");
        let file = FencedFile::open(&dir.path().join("stock")).expect("opens");
        (dir, file)
    }

    #[test]
    fn later_tokens_write_and_earlier_ones_are_refused() {
        let (_dir, file) = file();
        let write = |token, base| {
            let answer = file.write(Token::new(token), base, base + 1);
            answer.expect("writes")
        };
        assert_eq!(file.state().expect("reads"), State::default());
        assert_eq!(write(5, 0), Answer::Accepted { seq: 1 });
        assert_eq!(write(5, 1), Answer::Accepted { seq: 2 });
        assert_eq!(write(9, 2), Answer::Accepted { seq: 3 });
        assert_eq!(write(8, 3), Answer::Refused { highest: 9 });
        let state = State {
            seq: 3,
            token: 9,
            value: 3,
        };
        assert_eq!(file.state().expect("reads"), state);
        let entries = file.entries().expect("reads");
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[1].base, 1);
    }

    #[test]
    fn a_reader_shuts_out_the_sleeper_before_it_writes() {
        let (_dir, file) = file();
        assert_eq!(file.read(Token::new(5)).expect("reads"), Some(0));
        // The sleeper wakes up after its successor has read, and before that one writes.
        assert_eq!(file.read(Token::new(6)).expect("reads"), Some(0));
        let late = file.write(Token::new(5), 0, 1).expect("writes");
        assert_eq!(late, Answer::Refused { highest: 6 });
        assert_eq!(file.read(Token::new(5)).expect("reads"), None);
        let in_time = file.write(Token::new(6), 0, 1).expect("writes");
        assert_eq!(in_time, Answer::Accepted { seq: 1 });
    }

    #[test]
    fn a_writer_killed_half_way_leaves_no_trace() {
        let (dir, file) = file();
        file.write(Token::new(1), 0, 1).expect("writes");
        let path = dir.path().join("stock");
        let mut raw = OpenOptions::new().append(true).open(path).expect("opens");
        raw.write_all(b"00000000000000000002 0000").expect("writes");
        assert_eq!(file.state().expect("reads").seq, 1);
        assert_eq!(file.entries().expect("reads").len(), 1);
        file.write(Token::new(2), 1, 2).expect("writes");
        assert_eq!(file.entries().expect("reads").len(), 2);
    }
}
