//! A real PostgreSQL server for tests. With `LOCKKEEPER_POSTGRES=FOLDER`, the one in that folder.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};

use super::certificates::Identity;
use super::leash::Leash;
use super::ports::free_port;
use crate::retries;

/// How long a server may take to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// The user `nobody`: the server refuses to be run by root.
const NOBODY: u32 = 65_534;
/// The superuser of every server.
const SUPERUSER: &str = "postgres";

/// How a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Whether commits are synced to disk. A crash of the server alone loses none in either case.
    pub fsync: bool,
    /// Speak TLS, as this server.
    pub tls: Option<Identity>,
    /// More settings, such as `("synchronous_commit", "off")`.
    pub settings: Vec<(String, String)>,
    /// Lines for `pg_hba.conf`, before the one that lets everybody in.
    pub access: Vec<String>,
    /// More for its environment, such as [a clock](super::wall_clock::WallClock::environment).
    pub environment: Vec<(String, String)>,
}

/// A running server. Dropping it kills it, also when the test panics; it does not outlive the process either.
#[derive(Debug)]
pub struct PostgresServer {
    folder: tempfile::TempDir,
    port: u16,
    options: PostgresOptions,
    child: Option<(Leash, Child)>,
    is_paused: AtomicBool,
}

/// The folder of the server's programs, the newest version there is.
///
/// # Panics
/// When PostgreSQL is not installed.
pub fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|entry| {
        let path = entry.ok()?.path();
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let bin = path.join("bin");
        bin.join("initdb").exists().then_some((version, bin))
    });
    let newest = versions.max_by_key(|(version, _)| *version);
    newest
        .expect("postgresql is installed; see `cargo xtask test`")
        .1
}

/// The folder of what makes and runs a server. Clients are always the system's.
fn server_programs() -> PathBuf {
    let named = std::env::var_os("LOCKKEEPER_POSTGRES");
    named.map_or_else(programs, |folder| PathBuf::from(folder).join("bin"))
}

/// A command that is run as a user that the server accepts.
fn as_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.env("LC_ALL", "C.UTF-8").current_dir("/");
    command
}

fn give_to_user(path: &Path) {
    if getuid().is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("changes the owner");
    }
}

/// The data of a new server, made once a process.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        give_to_user(folder.path());
        let data = folder.path().join("data");
        let made = as_user(server_programs().join("initdb"))
            .args(["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C"])
            .args(["-U", SUPERUSER, "-D"])
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {made:?}");
        // A shell that outlives us removes it.
        let path = folder.keep();
        std::mem::forget(Leash::on(u32::MAX >> 1, &path));
        data
    })
}

impl PostgresServer {
    /// A server that does not sync.
    pub fn start() -> PostgresServer {
        PostgresServer::start_with(PostgresOptions::default())
    }

    /// One server for all tests of this process. It goes with the process.
    pub fn shared() -> &'static PostgresServer {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(PostgresServer::start)
    }

    /// A server with these options.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not start.
    pub fn start_with(options: PostgresOptions) -> PostgresServer {
        let mut server = PostgresServer::new(options);
        let mut copy = as_user("cp");
        copy.arg("-a").arg(template()).arg(server.data());
        assert!(copied_well(&mut copy), "the data of a new server is copied");
        server.first_start();
        server
    }

    /// A standby of another server, which follows it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn standby_of(primary: &PostgresServer) -> PostgresServer {
        let mut server = PostgresServer::new(primary.options.clone());
        let mut copy = as_user(programs().join("pg_basebackup"));
        copy.args(["-R", "-X", "stream", "-c", "fast", "-U", SUPERUSER, "-h"])
            .arg(primary.folder())
            .args(["-p", &primary.port.to_string(), "-D"])
            .arg(server.data());
        assert!(copied_well(&mut copy), "a copy of the primary");
        server.first_start();
        server
    }

    fn new(options: PostgresOptions) -> PostgresServer {
        let folder = tempfile::tempdir().expect("a folder");
        give_to_user(folder.path());
        PostgresServer {
            folder,
            port: 0,
            options,
            child: None,
            is_paused: AtomicBool::new(false),
        }
    }

    fn first_start(&mut self) {
        for _ in 0..20 {
            self.port = free_port();
            if self.launch() {
                return;
            }
            retries::count("a server did not start");
        }
        panic!("PostgreSQL does not start: {}", self.log());
    }

    /// The URL of its database over TCP, as the superuser.
    pub fn url(&self) -> String {
        self.url_of(SUPERUSER)
    }

    /// The URL of its database over TCP, as this user (with a password, if need be).
    pub fn url_of(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres?", self.port)
    }

    /// The URL of its database over its socket.
    pub fn socket_url(&self) -> String {
        let folder = self.folder().display().to_string().replace('/', "%2F");
        format!(
            "postgresql://{SUPERUSER}@/postgres?host={folder}&port={}",
            self.port
        )
    }

    /// A schema of its name that nobody has used, as an option of a URL.
    pub fn fresh_schema() -> String {
        static CASES: AtomicU64 = AtomicU64::new(1);
        format!("case{}", CASES.fetch_add(1, Ordering::Relaxed))
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where all its files are, its socket among them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|(_, child)| child.id())
    }

    /// Runs statements as the superuser, and returns the rows: columns with `|` between them.
    ///
    /// # Panics
    /// When they fail.
    pub fn sql(&self, text: &str) -> Vec<String> {
        match self.try_sql(text) {
            Ok(rows) => rows,
            Err(error) => panic!("{text}: {error}"),
        }
    }

    /// The same, where an error is returned.
    ///
    /// # Errors
    /// What the server says.
    pub fn try_sql(&self, text: &str) -> Result<Vec<String>, String> {
        let output = Command::new(programs().join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U"])
            .args([SUPERUSER, "-d", "postgres", "-p", &self.port.to_string()])
            .arg("-h")
            .arg(self.folder())
            .args(["-c", text])
            .stdin(Stdio::null())
            .output()
            .expect("psql runs");
        match output.status.success() {
            true => {
                let text = String::from_utf8_lossy(&output.stdout);
                Ok(text.lines().map(str::to_owned).collect())
            }
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// What puts a schema back as it is now, in place of what is there then.
    ///
    /// # Panics
    /// When it cannot be dumped.
    pub fn dump(&self, schema: &str) -> String {
        let output = Command::new(programs().join("pg_dump"))
            .args(["--clean", "--if-exists", "--inserts", "-n", schema, "-U"])
            .args([SUPERUSER, "-d", "postgres", "-p", &self.port.to_string()])
            .arg("-h")
            .arg(self.folder())
            .stdin(Stdio::null())
            .output()
            .expect("pg_dump runs");
        assert!(output.status.success(), "pg_dump: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        // What is for psql alone.
        let lines = text.lines().filter(|line| !line.starts_with('\\'));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Kills it at once with all its processes, as an immediate stop does: nothing is written any more.
    pub fn stop_at_once(&mut self) {
        self.stop_by(Signal::QUIT);
    }

    /// Stops it as an administrator does: everything is written.
    pub fn stop(&mut self) {
        self.stop_by(Signal::INT);
    }

    fn stop_by(&mut self, signal: Signal) {
        if self.child.is_some() {
            self.signal(signal);
        }
        if let Some((_leash, mut child)) = self.child.take() {
            let end = Instant::now() + STARTS_WITHIN;
            while !matches!(child.try_wait(), Ok(Some(_))) {
                if Instant::now() > end {
                    let _ = child.kill();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Starts it again on the same port, with its data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.stop_at_once();
        let end = Instant::now() + STARTS_WITHIN;
        while !self.launch() {
            assert!(Instant::now() < end, "it does not start: {}", self.log());
            retries::count("a server did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        self.sql("SELECT pg_promote(true, 60)");
    }

    /// Stops its first process and all the others from running, without ending them.
    pub fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
        self.signal_all(Signal::STOP);
    }

    /// Lets them run again.
    pub fn resume(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        let pid = self.pid().expect("the server runs");
        let children = Command::new("ps")
            .args(["-o", "pid=", "--ppid", &pid.to_string()])
            .output()
            .expect("ps runs");
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        self.signal(signal);
        for child in children.split_whitespace() {
            if let Some(pid) = child.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.expect("the server runs");
        kill_process(pid, signal).expect("the server can be signalled");
    }

    /// Starts the process and waits until it answers. `false` if it ended instead.
    fn launch(&mut self) -> bool {
        let access = self.options.access.iter().map(String::as_str);
        let access: Vec<&str> = access
            .chain(["local all all trust", "host all all 127.0.0.1/32 trust"])
            .chain(["local replication all trust"])
            .collect();
        fs::write(self.data().join("pg_hba.conf"), access.join("\n") + "\n").expect("writes");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder().join("log"))
            .expect("a log");
        let mut command = as_user(server_programs().join("postgres"));
        command.arg("-D").arg(self.data());
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let child = command
            .process_group(0)
            .envs(self.options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres runs");
        self.child = Some((Leash::on(child.id(), self.folder()), child));
        let end = Instant::now() + STARTS_WITHIN;
        while Instant::now() < end {
            if let Some((_, child)) = &mut self.child
                && matches!(child.try_wait(), Ok(Some(_)))
            {
                self.child = None;
                return false;
            }
            if self.try_sql("SELECT 1").is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stop_at_once();
        false
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings: Vec<(String, String)> = [
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", self.port.to_string()),
            (
                "unix_socket_directories",
                self.folder().display().to_string(),
            ),
            ("max_connections", "300".into()),
            ("shared_buffers", "32MB".into()),
            ("max_wal_senders", "4".into()),
            ("wal_level", "replica".into()),
            ("log_min_messages", "warning".into()),
            ("autovacuum_naptime", "5s".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let fsync = if self.options.fsync { "on" } else { "off" };
        settings.push(("fsync".into(), fsync.into()));
        if let Some(Identity { cert, key }) = &self.options.tls {
            settings.push(("ssl".into(), "on".into()));
            for (name, path) in [("ssl_cert_file", cert), ("ssl_key_file", key)] {
                // The server reads a key only if it is its user's alone.
                let own = self.folder().join(name);
                fs::copy(path, &own).expect("copies");
                give_to_user(&own);
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                fs::set_permissions(&own, mode).expect("changes the mode");
                settings.push((name.into(), own.display().to_string()));
            }
        }
        settings.extend(self.options.settings.iter().cloned());
        settings
    }
}

fn copied_well(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stderr(Stdio::inherit());
    command.status().is_ok_and(|status| status.success())
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // One that is paused hears of nothing.
        if self.child.is_some() && *self.is_paused.get_mut() {
            self.resume();
        }
        self.stop_at_once();
    }
}
