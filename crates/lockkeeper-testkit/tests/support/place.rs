//! A folder with a store, a fenced resource and the histories of the processes that use them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper_testkit::fenced::FencedFile;
use lockkeeper_testkit::history::{self, Answer, Call, Event, What};
use lockkeeper_testkit::process::Taker;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lock-taker");

pub struct Place {
    dir: tempfile::TempDir,
    pub url: String,
    pub resource: FencedFile,
}

impl Place {
    /// With a SQLite file.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn new() -> Place {
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", dir.path().join("locks.db").display());
        Place::in_folder(dir, url)
    }

    /// With a store that is somewhere else.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn at(url: &str) -> Place {
        Place::in_folder(tempfile::tempdir().expect("a folder"), url.to_owned())
    }

    fn in_folder(dir: tempfile::TempDir, url: String) -> Place {
        let resource = FencedFile::open(&dir.path().join("stock")).expect("opens");
        Place { dir, url, resource }
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens the store in this process, and makes it if there is none.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn store(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&self.file("locks.db")).expect("opens"))
    }

    /// A process that waits for the lock and holds it.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn holder(&self, lease: &str) -> Taker {
        let resource = self.file("stock").display().to_string();
        let arguments = ["hold", "--store", &self.url, "--name", "a"];
        let more = ["--lease", lease, "--resource", &resource];
        Taker::start(PROGRAM, &[&arguments[..], &more].concat()).expect("starts")
    }

    /// A process that counts, and writes its history.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn counter(&self, process: &str, lease: &str, more: &[&str]) -> Taker {
        self.start("count", &self.url, process, lease, more, Vec::new())
    }

    /// A process of either kind on a store of this URL, which writes its history.
    pub fn start(
        &self,
        command: &str,
        url: &str,
        process: &str,
        lease: &str,
        more: &[&str],
        environment: Vec<(String, String)>,
    ) -> Taker {
        let history = self.file(&format!("{process}.jsonl")).display().to_string();
        let resource = self.file("stock").display().to_string();
        let arguments = [command, "--store", url, "--name", "a", "--lease", lease];
        let files = ["--resource", &resource, "--history", &history];
        let arguments = [&arguments[..], &files, &["--process", process], more].concat();
        Taker::start_in(PROGRAM, &arguments, environment).expect("starts")
    }

    /// Whether a process that is stopped believes to hold, by its own history.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn holds(&self, process: &str) -> bool {
        let events = history::read(&self.file(&format!("{process}.jsonl"))).unwrap_or_default();
        let soon = (Moment::now() + Duration::from_millis(300)).as_nanos();
        let granted = events.iter().rev().find_map(|event| match event.what {
            What::Ok {
                op,
                answer: Answer::Granted { deadline, .. },
            } => Some((op, deadline)),
            _ => None,
        });
        let Some((granted, deadline)) = granted else {
            return false;
        };
        let let_go = events.iter().any(|event| match event.what {
            What::Invoke {
                call: Call::Release { hold, .. },
                ..
            } => hold == granted,
            _ => false,
        });
        !let_go && deadline > soon
    }

    /// The files of the histories.
    pub fn histories(&self) -> impl Iterator<Item = PathBuf> {
        let files = std::fs::read_dir(self.dir.path()).expect("a folder");
        let files = files.map(|file| file.expect("a file").path());
        files.filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
    }

    /// Everything that all processes recorded, with the resource's own books.
    pub fn history(&self) -> Vec<Event> {
        let histories = self
            .histories()
            .map(|path| history::read(&path).expect("a history"));
        let entries = self.resource.entries().expect("reads").into_iter();
        let books = entries.map(|entry| Event {
            at: Moment::now().as_nanos(),
            process: "resource".into(),
            what: What::Entry(entry),
        });
        history::merge(histories.chain([books.collect()]))
    }
}
