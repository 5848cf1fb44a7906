//! A real `mariadbd` for one test, or for all of a test program. With `LOCKKEEPER_MARIADB=FOLDER`, the one in that folder; with
//! `LOCKKEEPER_MYSQLD=PATH`, that `mysqld` instead.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::certificates::Identity;
use super::leash::Leash;
use super::ports::free_port;
use crate::retries;

/// How long a server may take to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// The user that the tests are to it.
const USER: &str = "keeper";
/// The user's password.
pub const PASSWORD: &str = "canary";
/// The database that every server has.
pub const DATABASE: &str = "locks";

/// What its log is called. The server adds an ending to a name that has none.
const LOG: &str = "log.err";

/// How a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    /// Options for the command line, such as `--max-connections=10`.
    pub options: Vec<String>,
    /// Speak TLS, as this server.
    pub tls: Option<Identity>,
    /// More for its environment, such as [a clock](super::wall_clock::WallClock::environment).
    pub environment: Vec<(String, String)>,
}

/// A running server. Dropping it kills it, also when the test panics; it does not outlive the process either.
#[derive(Debug)]
pub struct MariaDbServer {
    folder: tempfile::TempDir,
    port: u16,
    options: MariaDbOptions,
    child: Option<(Leash, Child)>,
}

impl MariaDbServer {
    /// A server as it is by default.
    pub fn start() -> MariaDbServer {
        MariaDbServer::start_with(MariaDbOptions::default())
    }

    /// A server with these options on its command line.
    pub fn start_as(options: &[&str]) -> MariaDbServer {
        MariaDbServer::start_with(MariaDbOptions {
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..MariaDbOptions::default()
        })
    }

    /// A server with these options.
    ///
    /// # Panics
    /// When `mariadbd` is not installed or does not start.
    pub fn start_with(options: MariaDbOptions) -> MariaDbServer {
        let folder = tempfile::tempdir().expect("a folder");
        copy_template(&folder.path().join("data"));
        let mut server = MariaDbServer {
            folder,
            port: 0,
            options,
            child: None,
        };
        // Another program may take the port between our look and the server's start.
        for _ in 0..20 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
            retries::count("a server did not start");
        }
        panic!("mariadbd does not start: {}", server.log());
    }

    /// The URL of the server over TCP.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The URL by way of another port, as of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        self.url_of(USER, port)
    }

    /// The URL for another user, who has the same password.
    pub fn url_of(&self, user: &str, port: u16) -> String {
        format!("mariadb://{user}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}")
    }

    /// The URL of the server over its socket; more options may follow.
    pub fn unix_url(&self) -> String {
        let socket = self.socket().display().to_string().replace('/', "%2F");
        format!("mysql://{USER}:{PASSWORD}@/{DATABASE}?host={socket}")
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("maria.sock")
    }

    /// Where all its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|(_, child)| child.id())
    }

    /// Kills it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some((_leash, mut child)) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port, with its data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let end = Instant::now() + STARTS_WITHIN;
        while !self.launch() {
            assert!(Instant::now() < end, "it does not start: {}", self.log());
            retries::count("a server did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts it again with other options.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart_as(&mut self, options: &[&str]) {
        self.options.options = options.iter().map(|option| (*option).to_owned()).collect();
        self.restart();
    }

    /// Stops it from running, without ending it.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it run again.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Runs statements as the administrator. Returns rows as lines, with tabs between values.
    ///
    /// # Panics
    /// When one fails.
    pub fn sql(&self, statements: &str) -> String {
        match self.try_sql(statements) {
            Ok(said) => said,
            Err(error) => panic!("{statements}: {error}"),
        }
    }

    /// Runs statements as the administrator.
    ///
    /// # Errors
    /// What the server says.
    ///
    /// # Panics
    /// When there is no `mariadb` command.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        let output = Command::new("mariadb")
            .args([
                "--no-defaults",
                "--user=root",
                "--batch",
                "--skip-column-names",
            ])
            .arg(format!("--socket={}", self.socket().display()))
            .args(["--database", DATABASE, "--execute", statements])
            .stdin(Stdio::null())
            .output()
            .expect("mariadb is installed; see `cargo xtask test`");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// The tables of the tests' database, as statements that put them back.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn dump(&self) -> String {
        let output = Command::new("mariadb-dump")
            .args(["--no-defaults", "--user=root", "--hex-blob"])
            .arg(format!("--socket={}", self.socket().display()))
            .arg(DATABASE)
            .stdin(Stdio::null())
            .output()
            .expect("mariadb-dump is installed; see `cargo xtask test`");
        assert!(output.status.success(), "mariadb-dump: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        // What is for the client alone.
        let lines = text.lines().filter(|line| !line.starts_with("/*M!"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Ends every connection of the tests' users. Returns how many.
    pub fn kill_connections(&self) -> usize {
        let users = "SELECT id FROM information_schema.processlist WHERE user NOT IN ('root', 'system user')";
        let ids = self.sql(users);
        let killed = ids
            .lines()
            .filter(|id| self.try_sql(&format!("KILL {id}")).is_ok());
        killed.count()
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    /// Starts the process and waits until it answers. `false` if it ended instead.
    fn launch(&mut self) -> bool {
        let folder = self.folder.path();
        let first = folder.join("first.sql");
        fs::write(&first, first_statements()).expect("writes");
        let _ = fs::remove_file(self.socket());
        let mut command = Command::new(mysqld().unwrap_or_else(|| mariadb("bin/mariadbd")));
        command.args(common_options());
        command.args([
            format!("--datadir={}", folder.join("data").display()),
            format!("--socket={}", self.socket().display()),
            format!("--pid-file={}", folder.join("pid").display()),
            format!("--log-error={}", folder.join(LOG).display()),
            format!("--init-file={}", first.display()),
            format!("--port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            "--skip-name-resolve".into(),
            "--performance-schema=off".into(),
            // A table is made without a file of its own, which is quicker.
            "--innodb-file-per-table=0".into(),
            "--max-connections=500".into(),
        ]);
        if let Some(Identity { cert, key }) = &self.options.tls {
            command.arg(format!("--ssl-cert={}", cert.display()));
            command.arg(format!("--ssl-key={}", key.display()));
        }
        let child = command
            .args(&self.options.options)
            // A server that starts removes the temporary tables of all that use the same folder.
            .env("TMPDIR", folder)
            .envs(self.options.environment.iter().cloned())
            // Ctrl-C is meant for the test; a server that went first would be missed. Its leash ends it afterwards.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mariadbd is installed; see `cargo xtask test`");
        self.child = Some((Leash::on(child.id(), folder), child));
        let end = Instant::now() + STARTS_WITHIN;
        while Instant::now() < end {
            if let Some((_, child)) = &mut self.child
                && matches!(child.try_wait(), Ok(Some(_)))
            {
                self.child = None;
                return false;
            }
            if self.answers() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
        false
    }

    /// Whether it answers on both ways in.
    fn answers(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.try_sql("SELECT 1").is_ok()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.expect("the server runs");
        kill_process(pid, signal).expect("the server can be signalled");
    }
}

impl Drop for MariaDbServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server to start instead of MariaDB's.
fn mysqld() -> Option<String> {
    std::env::var("LOCKKEEPER_MYSQLD").ok()
}

/// A program of MariaDB: the system's, or that of the folder that is named.
fn mariadb(program: &str) -> String {
    match (base(), program.rsplit_once('/')) {
        (Some(base), _) => base.join(program).display().to_string(),
        (None, Some((_, name))) => name.to_owned(),
        (None, None) => program.to_owned(),
    }
}

/// The folder of a MariaDB that is not the system's.
fn base() -> Option<PathBuf> {
    std::env::var_os("LOCKKEEPER_MARIADB").map(PathBuf::from)
}

/// What every start and the making of the data folder have in common: small files, little memory.
fn common_options() -> Vec<String> {
    let of_kind: &[&str] = match mysqld() {
        Some(_) => &["--innodb-redo-log-capacity=8M", "--mysqlx=OFF"],
        None => &[
            "--innodb-log-file-size=8M",
            "--aria-pagecache-buffer-size=8M",
        ],
    };
    let both = [
        "--no-defaults",
        "--innodb-buffer-pool-size=24M",
        "--key-buffer-size=1M",
    ];
    let mut options: Vec<String> = both
        .iter()
        .chain(of_kind)
        .map(|one| (*one).to_owned())
        .collect();
    if let (None, Some(base)) = (mysqld(), base()) {
        options.push(format!("--basedir={}", base.display()));
        let messages = base.join("share");
        options.push(format!("--lc-messages-dir={}", messages.display()));
    }
    // It does not run as root unless that is meant.
    if rustix::process::geteuid().is_root() {
        options.push("--user=root".into());
    }
    options
}

fn first_statements() -> String {
    // One statement a line.
    [
        format!("CREATE DATABASE IF NOT EXISTS {DATABASE};"),
        format!("CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';"),
        format!("GRANT ALL PRIVILEGES ON {DATABASE}.* TO {USER}@'%';"),
    ]
    .join("\n")
}

/// A data folder as a new server has it. It takes seconds to make, and a moment to copy.
fn copy_template(target: &Path) {
    static TEMPLATE: Mutex<Option<(Leash, tempfile::TempDir)>> = Mutex::new(None);
    let mut template = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, folder) = template.get_or_insert_with(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, how): (String, &[&str]) = match mysqld() {
            Some(mysqld) => (mysqld, &["--initialize-insecure"]),
            None => (
                mariadb("scripts/mariadb-install-db"),
                &["--auth-root-authentication-method=normal", "--skip-test-db"],
            ),
        };
        let output = Command::new(program)
            .args(common_options())
            .arg(format!(
                "--datadir={}",
                folder.path().join("data").display()
            ))
            .args(how)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("mariadb-install-db is installed; see `cargo xtask test`");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "no data folder: {said}");
        (Leash::over(folder.path()), folder)
    });
    copy(&folder.path().join("data"), target);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(from, to).expect("copies")),
        }
    }
}
