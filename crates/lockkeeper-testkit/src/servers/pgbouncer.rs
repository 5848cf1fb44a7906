//! A real PgBouncer in front of a PostgreSQL server, in transaction mode.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::getuid;

use super::leash::Leash;
use super::ports::free_port;
use super::postgres::PostgresServer;

/// A running pooler. Dropping it kills it.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    child: Child,
    _leash: Leash,
    _folder: tempfile::TempDir,
}

impl PgBouncer {
    /// Starts one with so many connections to the server.
    ///
    /// # Panics
    /// When PgBouncer is not installed or does not start.
    pub fn to(server: &PostgresServer, connections: usize) -> PgBouncer {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let config = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\n\
             ignore_startup_parameters = extra_float_digits\n",
            server.folder().display(),
            server.port()
        );
        // `auth_type = any` logs in as the user that a database names.
        let config = config.replace("port=", "user=postgres port=");
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, config).expect("writes");
        let mut command = Command::new("/usr/sbin/pgbouncer");
        if getuid().is_root() {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(folder.path(), mode).expect("changes the mode");
            command.uid(65_534).gid(65_534);
        }
        let child = command
            .arg(&file)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer is installed; see `cargo xtask test`");
        let leash = Leash::on(child.id(), folder.path());
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        PgBouncer {
            port,
            child,
            _leash: leash,
            _folder: folder,
        }
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the database through it.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
