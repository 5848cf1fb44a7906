//! Which processes have SQLite's locks on a file just now, and whether they run, by the kernel's table of locks
//! (`/proc/locks`).
//!
//! A process that is stopped inside a transaction keeps all others from writing. Nothing can take its lock away, but an error
//! can name it. Where the kernel has no such table, no process is named.
//!
//! The files themselves are never opened here: to close `-shm` again would drop this process's own locks on it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::file::sibling;

/// SQLite's locks, as bytes of the `-shm` file (`walformat.html` of its documentation).
const SHARED_LOCKS: RangeInclusive<u64> = 120..=128;
const WRITE_LOCK: u64 = 120;
const CHECKPOINT_LOCK: u64 = 121;
const READ_MARKS: RangeInclusive<u64> = 123..=127;
/// The bytes of the database file that SQLite locks: a process that locks them to write keeps all others out.
const DATABASE_LOCKS: RangeInclusive<u64> = 0x4000_0000..=0x4000_01ff;

/// How often to read the table. The kernel gives it out page by page, and while other processes lock and unlock, a line may be
/// missed between two pages. So one sample does not prove that a lock is free.
const SAMPLES: u32 = 20;
/// How long to wait between two samples.
const SAMPLE_PAUSE: Duration = Duration::from_millis(8);
/// In how many samples a running process has to be seen to count as one that keeps a lock. Fewer are enough for one that only
/// reads: a busy store writes as well.
const LASTING_WRITES: u32 = 14;
const LASTING_READS: u32 = 7;

/// A SQLite file in use, as the operating system sees it.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("locks.db");
/// # let store = lockkeeper::store::sqlite::SqliteStore::open(&path)?;
/// use lockkeeper::store::sqlite::FileStatus;
///
/// let status = FileStatus::of(&path);
/// println!("the log has {} bytes", status.log_bytes);
/// assert!(status.writer.is_none() && status.readers.is_empty());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileStatus {
    /// The size of the log (`-wal`).
    pub log_bytes: u64,
    /// The process that keeps all others from writing, if it is stopped or goes on writing.
    pub writer: Option<FileUser>,
    /// The process that copies the log back, if it is stopped or goes on copying: no other can meanwhile, and the log grows.
    pub checkpointer: Option<FileUser>,
    /// The processes that have a read transaction open and stay in it: the log cannot start over, and grows.
    pub readers: Vec<FileUser>,
}

/// A process that has a lock of SQLite's on the file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileUser {
    /// Its process id.
    pub pid: u32,
    /// Its name, if that can be read.
    pub program: Option<String>,
    /// Whether it runs.
    pub state: UserState,
}

/// Whether a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UserState {
    /// It runs, or waits for something.
    Runs,
    /// It is stopped: by a signal, Ctrl-Z or a debugger.
    Stopped,
    /// Its control group is frozen, as `docker pause` does.
    Frozen,
}

impl FileStatus {
    /// Inspects the file at `path` without opening it. It takes a fifth of a second if any process uses the file.
    pub fn of(path: &Path) -> FileStatus {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut writers: BTreeMap<u32, u32> = BTreeMap::new();
        let mut checkpointers: BTreeMap<u32, u32> = BTreeMap::new();
        let mut readers: BTreeMap<u32, u32> = BTreeMap::new();
        for _ in 0..SAMPLES {
            let seen = Locks::sample(&path);
            for (pids, all) in [
                (seen.writers, &mut writers),
                (seen.checkpointers, &mut checkpointers),
                (seen.readers, &mut readers),
            ] {
                for pid in pids {
                    *all.entry(pid).or_default() += 1;
                }
            }
            if !(writers.is_empty() && checkpointers.is_empty() && readers.is_empty()) {
                std::thread::sleep(SAMPLE_PAUSE);
            }
        }
        // A writer reads as well, and may have every lock.
        checkpointers.retain(|pid, _| !writers.contains_key(pid));
        readers.retain(|pid, _| !writers.contains_key(pid));
        let writers = lasting_users(writers, LASTING_WRITES);
        let checkpointers = lasting_users(checkpointers, LASTING_WRITES);
        let readers = lasting_users(readers, LASTING_READS);
        FileStatus {
            log_bytes: fs::metadata(sibling(&path, "-wal")).map_or(0, |log| log.len()),
            writer: writers.into_iter().next(),
            checkpointer: checkpointers.into_iter().next(),
            readers,
        }
    }
}

/// Of these processes, each with the number of samples that saw it: those that are stopped, and those in enough samples.
fn lasting_users(seen: BTreeMap<u32, u32>, enough: u32) -> Vec<FileUser> {
    let users = seen
        .into_iter()
        .map(|(pid, times)| (FileUser::of(pid), times));
    let stay = users.filter(|(user, times)| user.state != UserState::Runs || *times >= enough);
    stay.map(|(user, _)| user).collect()
}

impl FileUser {
    fn of(pid: u32) -> FileUser {
        let comm = fs::read(format!("/proc/{pid}/comm")).ok();
        FileUser {
            pid,
            program: comm.map(|comm| String::from_utf8_lossy(&comm).trim_end().to_owned()),
            state: state(pid),
        }
    }

    /// A sentence that says how it keeps the file at `path` locked, and what can be done about it.
    fn keeps_locked(&self, path: &Path) -> String {
        let remedy = self.remedy();
        match self.state {
            UserState::Runs if self.pid == std::process::id() => format!(
                "this process keeps {path:?} locked by another connection; end its transaction"
            ),
            UserState::Runs => {
                format!("another program keeps {path:?} locked, just now {self}; {remedy}")
            }
            state => {
                format!("{self} {state} inside a transaction and keeps {path:?} locked; {remedy}")
            }
        }
    }

    /// What to do so that it goes on or ends.
    pub(super) fn remedy(&self) -> String {
        match self.state {
            UserState::Runs => "let it finish, or end it".to_owned(),
            UserState::Stopped => format!("continue it (kill -CONT {}) or kill it", self.pid),
            UserState::Frozen => "thaw it or kill it".to_owned(),
        }
    }
}

/// `process 4711 (lockkeeper)`
impl fmt::Display for FileUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            // A program can give itself any name, also one with control characters.
            Some(program) => write!(f, "process {} ({})", self.pid, program.escape_debug()),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// `is stopped (…)`
impl fmt::Display for UserState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UserState::Runs => "runs",
            UserState::Stopped => "is stopped (by a signal, Ctrl-Z or a debugger)",
            UserState::Frozen => "is frozen (as by `docker pause`)",
        })
    }
}

/// Which process keeps all others from writing just now, and what to do about it.
pub(super) fn describe_writer(path: &Path) -> Option<String> {
    writer(path).map(|user| user.keeps_locked(path))
}

/// The same, if that process is stopped and will not finish by itself.
pub(super) fn describe_stuck_writer(path: &Path) -> Option<String> {
    let stuck = writer(path).filter(|user| user.state != UserState::Runs);
    stuck.map(|user| user.keeps_locked(path))
}

fn writer(path: &Path) -> Option<FileUser> {
    let pid = (0..SAMPLES).find_map(|_| Locks::sample(path).writers.first().copied());
    pid.map(FileUser::of)
}

/// The processes that have locks of the file. This one may be among them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Locks {
    writers: Vec<u32>,
    checkpointers: Vec<u32>,
    readers: Vec<u32>,
}

impl Locks {
    fn sample(path: &Path) -> Locks {
        let Ok(table) = fs::read_to_string("/proc/locks") else {
            return Locks::default();
        };
        let file = |path: &Path| fs::metadata(path).map_or((0, 0), |file| (file.dev(), file.ino()));
        Locks::find_in(&table, file(path), file(&sibling(path, "-shm")))
    }

    /// Finds the locks of the database and of its `-shm`, given by device and inode, in the kernel's table.
    fn find_in(table: &str, database: (u64, u64), shared: (u64, u64)) -> Locks {
        let lines: Vec<LockLine> = table.lines().filter_map(LockLine::read).collect();
        let mut locks = Locks::default();
        for line in of_file(&lines, shared, SHARED_LOCKS) {
            if line.writes && line.covers(WRITE_LOCK) {
                locks.writers.push(line.pid);
            } else if line.writes && line.covers(CHECKPOINT_LOCK) {
                locks.checkpointers.push(line.pid);
            } else if !line.writes && READ_MARKS.clone().any(|mark| line.covers(mark)) {
                locks.readers.push(line.pid);
            }
        }
        let database = of_file(&lines, database, DATABASE_LOCKS);
        let exclusive = database.filter(|line| line.writes);
        locks.writers.extend(exclusive.map(|line| line.pid));
        locks.readers.sort_unstable();
        locks.readers.dedup();
        locks
    }
}

/// SQLite's locks of one file, which lie in this range of bytes. Some file systems tell `stat` another device than this
/// table. Then the inode alone decides: a file of another device may have the same one, but hardly with locks in this range.
fn of_file<'l>(
    lines: &'l [LockLine<'l>],
    (device, inode): (u64, u64),
    range: RangeInclusive<u64>,
) -> impl Iterator<Item = &'l LockLine<'l>> {
    let device = device_name(device);
    let same = move |line: &&LockLine<'_>| {
        let inside = range.contains(&line.first) && range.contains(&line.last);
        inside && inode > 0 && line.inode == inode
    };
    let known = lines.iter().filter(&same).any(|line| line.device == device);
    let here = move |line: &&LockLine<'_>| !known || line.device == device;
    lines.iter().filter(same).filter(here)
}

/// A device as Linux writes it here: major and minor number, which `stat` gives in one.
fn device_name(device: u64) -> String {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
    let minor = (device & 0xff) | ((device >> 12) & 0xfff_ff00);
    format!("{major:02x}:{minor:02x}")
}

/// A line of `/proc/locks`, such as `1: POSIX  ADVISORY  WRITE 4711 fe:00:12345 120 120`. One of a process that waits for its
/// lock has an arrow after the number, and is not read.
struct LockLine<'l> {
    writes: bool,
    pid: u32,
    device: &'l str,
    inode: u64,
    first: u64,
    last: u64,
}

impl LockLine<'_> {
    fn read(line: &str) -> Option<LockLine<'_>> {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next()? != "POSIX" {
            return None;
        }
        let writes = fields.nth(1)? == "WRITE";
        let pid = fields.next()?.parse().ok().filter(|pid| *pid > 0)?;
        let (device, inode) = fields.next()?.rsplit_once(':')?;
        let first = fields.next()?.parse().ok()?;
        let last = match fields.next()? {
            "EOF" => u64::MAX,
            last => last.parse().ok()?,
        };
        Some(LockLine {
            writes,
            pid,
            device,
            inode: inode.parse().ok()?,
            first,
            last,
        })
    }

    fn covers(&self, byte: u64) -> bool {
        (self.first..=self.last).contains(&byte)
    }
}

fn state(pid: u32) -> UserState {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name stands in parentheses and may itself have spaces and parentheses.
    let letter = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    match letter {
        Some('T' | 't') => UserState::Stopped,
        _ if is_frozen(pid) => UserState::Frozen,
        _ => UserState::Runs,
    }
}

/// Whether the control group of a process is frozen, of either version.
fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            return false;
        };
        let has = |folder: &str, file: &str, word: &str| {
            let text = fs::read_to_string(format!("{folder}{group}/{file}")).unwrap_or_default();
            text.lines().any(|line| line == word)
        };
        match controllers {
            "" => has("/sys/fs/cgroup", "cgroup.events", "frozen 1"),
            "freezer" => has("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN"),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
1: FLOCK  ADVISORY  WRITE 10 fe:00:77 0 EOF
2: POSIX  ADVISORY  WRITE 11 fe:00:77 120 121
2: -> POSIX  ADVISORY  WRITE 12 fe:00:77 120 120
3: POSIX  ADVISORY  READ  13 fe:00:77 123 123
4: POSIX  ADVISORY  READ  13 fe:00:77 125 128
5: POSIX  ADVISORY  READ  14 fe:00:77 128 128
6: OFDLCK ADVISORY  WRITE -1 fe:00:77 120 120
7: POSIX  ADVISORY  WRITE 15 00:1f:77 120 120
8: POSIX  ADVISORY  READ  16 fe:00:76 1073741826 1073742335
9: POSIX  ADVISORY  WRITE 17 fe:00:75 1073741824 1073742335
10: POSIX  ADVISORY  WRITE 0 fe:00:77 120 120
11: LEASE  ACTIVE    WRITE 18 fe:00:77 0 EOF
12: POSIX  ADVISORY  WRITE 19 00:1f:74 0 EOF
13: POSIX  ADVISORY  WRITE 20 00:1f:73 0 EOF
14: POSIX  ADVISORY  WRITE 21 fe:00:72 121 121
15: POSIX  ADVISORY  WRITE 21 fe:00:72 123 123
nonsense
";

    #[test]
    fn the_kernels_table_says_which_processes_write_and_read() {
        let device = 0xfe00;
        let read = |database, shared| Locks::find_in(TABLE, (device, database), (device, shared));
        let locks = |writers: &[u32], readers: &[u32]| Locks {
            writers: writers.to_vec(),
            checkpointers: vec![],
            readers: readers.to_vec(),
        };
        assert_eq!(read(76, 77), locks(&[11], &[13]));
        // The whole database is locked, as by a program in the mode `EXCLUSIVE`.
        assert_eq!(read(75, 70), locks(&[17], &[]));
        assert_eq!(read(0, 0), locks(&[], &[]));
        // A file system whose device has two numbers.
        let other = 0x0909;
        let others = Locks::find_in(TABLE, (other, 75), (other, 77));
        assert_eq!(others, locks(&[11, 15, 17], &[13]));
        // A file of another device that has the same number, locked as daemons lock theirs, is no SQLite file.
        assert_eq!(read(73, 74), locks(&[], &[]));
        let copies = read(71, 72);
        assert_eq!(copies.checkpointers, [21]);
        assert_eq!((copies.writers, copies.readers), (vec![], vec![]));
    }

    #[test]
    fn device_names_are_those_of_the_kernel() {
        assert_eq!(device_name(0xfe00), "fe:00");
        assert_eq!(device_name(0x0801), "08:01");
        // Minor numbers of more than a byte stand above the major number.
        assert_eq!(device_name(0x0010_0823), "08:123");
    }

    #[test]
    fn a_program_name_is_shown_without_control_characters() {
        let user = FileUser {
            pid: 7,
            program: Some("a\u{1b}[2J\u{202e}\nb".to_owned()),
            state: UserState::Runs,
        };
        assert_eq!(user.to_string(), r"process 7 (a\u{1b}[2J\u{202e}\nb)");
    }

    #[test]
    fn this_process_is_found_as_a_running_writer_and_reader() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("locks.db");
        let conn = rusqlite::Connection::open(&path).expect("opens");
        let all = "PRAGMA journal_mode=WAL; CREATE TABLE t(x); BEGIN IMMEDIATE";
        conn.execute_batch(all).expect("locks");
        let description = describe_writer(&path);
        let status = FileStatus::of(&path);
        if cfg!(target_os = "linux") {
            assert!(description.is_some_and(|text| text.contains("this process keeps")));
            let writer = status.writer.expect("it writes");
            assert_eq!(
                (writer.pid, writer.state),
                (std::process::id(), UserState::Runs)
            );
        }
        assert_eq!(describe_stuck_writer(&path), None);
        conn.execute_batch("COMMIT; BEGIN; SELECT * FROM t")
            .expect("reads");
        let status = FileStatus::of(&path);
        if cfg!(target_os = "linux") {
            let readers: Vec<u32> = status.readers.iter().map(|reader| reader.pid).collect();
            assert_eq!((status.writer, readers), (None, vec![std::process::id()]));
        }
        conn.execute_batch("COMMIT").expect("ends");
        assert_eq!(FileStatus::of(&path).readers, []);
    }
}
