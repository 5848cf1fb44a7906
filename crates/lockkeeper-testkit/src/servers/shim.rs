//! A small C library that is preloaded into a process, and reads numbers that a test sets while the process runs.
//!
//! It needs a C compiler, as the embedded SQLite does.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// A library, compiled, and the file of its numbers.
#[derive(Debug)]
pub(super) struct Shim {
    folder: tempfile::TempDir,
    /// The variable that names the file to the library.
    variable: &'static str,
}

impl Shim {
    /// Compiles a library with so many numbers, which are 0 at first.
    ///
    /// # Panics
    /// When there is no C compiler, or it does not compile.
    pub fn compile(source: &str, numbers: usize, variable: &'static str) -> Shim {
        let folder = tempfile::tempdir().expect("a folder");
        let shim = Shim { folder, variable };
        fs::write(shim.file("shim.c"), source).expect("writes");
        fs::write(shim.file("setting"), vec![0; numbers * size_of::<i64>()]).expect("writes");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]);
        cc.arg(shim.file("shim.so")).arg(shim.file("shim.c"));
        let output = cc
            .output()
            .expect("cc is installed; see `cargo xtask test`");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the shim does not compile: {said}");
        shim
    }

    /// What a process needs in its environment to load it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.display().to_string();
        vec![
            ("LD_PRELOAD".into(), text(self.file("shim.so"))),
            (self.variable.into(), text(self.file("setting"))),
        ]
    }

    /// Sets one of the numbers.
    pub fn set(&self, number: usize, value: i64) {
        let file = fs::File::options().write(true).open(self.file("setting"));
        let file = file.expect("opens");
        // One write of eight bytes into a mapped page: a reader sees the old number or the new one.
        let place = (number * size_of::<i64>()) as u64;
        let written = file.write_all_at(&value.to_ne_bytes(), place);
        written.expect("writes");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
