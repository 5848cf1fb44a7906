//! Which open stores still live. Each has a file of its own with a lock of the operating system (`flock`) on it. The lock
//! ends with the process, in whatever way that ends, and another process with the same id does not have it.
//!
//! The files are in a folder next to the database, so that a user that can use the one can see the other:
//! `locks.db-keepers/<instance>.alive`, and `.sock` for hints. They take over the database's permissions: for
//! two users of one group to share it, create the database with a umask that lets the group write (`umask
//! 002`) in a folder of that group with the set-group-id bit.
//!
//! A missing file proves nothing, since a clean-up of old files must not free a lock that is held. The lease alone decides
//! then.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rusqlite::Row;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use uuid::Uuid;

use super::fault::refused;
use crate::Error;
use crate::store::Process;
use crate::store::record::ProcessId;

/// The longest address of a socket that every system takes.
const MAX_SOCKET_PATH: usize = 100;

/// This store's own file, locked for as long as the store is open.
#[derive(Debug)]
pub(super) struct Instance {
    pub id: String,
    pub socket: PathBuf,
    alive: PathBuf,
    file: File,
    permissions: Permissions,
}

/// What each user may do with the database, and so with everything next to it.
#[derive(Clone, Copy, Debug)]
struct Permissions {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Permissions {
    fn of(database: &Path) -> io::Result<Permissions> {
        let file = fs::metadata(database)?;
        Ok(Permissions {
            owner: file.uid(),
            group: file.gid(),
            mode: file.mode() & 0o666,
        })
    }

    /// Gives a path the database's owner and group, as far as this user may, and this mode, whatever the umask is: a file
    /// that root or another user of the group made must not lock anyone out.
    fn apply_to(self, path: &Path, mode: u32) -> io::Result<()> {
        let _ = chown(path, Some(self.owner), Some(self.group))
            .or_else(|_| chown(path, None, Some(self.group)));
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }
}

impl Instance {
    /// Creates and locks the file of a new instance.
    pub fn new(folder: &Path, database: &Path) -> Result<Instance, Error> {
        let explain = |error: io::Error| {
            refused(format!(
                "{folder:?} cannot be written ({error}); give this user write access to it"
            ))
            .caused_by(error)
        };
        let permissions = Permissions::of(database).map_err(explain)?;
        loop {
            create_folder(folder, permissions).map_err(explain)?;
            let id = Uuid::new_v4().simple().to_string();
            let alive = folder.join(format!("{id}.alive"));
            let file = match create(&alive, permissions) {
                Ok(file) => file,
                // Another store was the last to close and removed the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(explain(error)),
            };
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))
                .map_err(|error| explain(error.into()))?;
            // Before it was locked it looked like the file of a dead store, and may have been removed.
            if file.metadata().map_err(explain)?.nlink() > 0 {
                return Ok(Instance {
                    socket: socket_path(folder, &id),
                    id,
                    alive,
                    file,
                    permissions,
                });
            }
        }
    }

    /// Lets other users write to the socket, if they can write to the database.
    pub fn share_socket(&self) -> io::Result<()> {
        self.permissions
            .apply_to(&self.socket, self.permissions.mode)
    }

    /// Another handle of the lock: the instance counts as alive until the last one is closed.
    pub fn handle(&self) -> Option<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from).ok()
    }

    /// Removes the files, and the folder if it is empty now.
    pub fn remove(&self) {
        remove(&self.alive, Some(&self.socket));
        if let Some(folder) = self.alive.parent() {
            // Fails while other stores have files in it.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Another store on the same file.
#[derive(Debug)]
pub(super) struct Peer {
    pub id: ProcessId,
    pub instance: String,
    pub process: Process,
    pub socket: Option<PathBuf>,
    alive: PathBuf,
}

/// What the file of an instance proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Liveness {
    Alive,
    Dead,
    /// No file, or one that this user cannot open.
    Unknown,
}

impl Peer {
    pub fn read(row: &Row<'_>, folder: &Path) -> rusqlite::Result<Peer> {
        let instance: String = row.get(1)?;
        let socket: Option<Vec<u8>> = row.get(5)?;
        Ok(Peer {
            id: row.get(0)?,
            // Other programs can write to the database, and this becomes the name of a file.
            alive: if is_instance(&instance) {
                folder.join(format!("{instance}.alive"))
            } else {
                PathBuf::new()
            },
            instance,
            process: Process {
                host: row.get(2)?,
                pid: row.get(3)?,
                program: row.get(4)?,
            },
            socket: socket.map(|path| std::ffi::OsString::from_vec(path).into()),
        })
    }

    pub fn liveness(&self) -> Liveness {
        liveness_of(&self.alive)
    }

    pub fn is_dead(&self) -> bool {
        self.liveness() == Liveness::Dead
    }

    /// Removes the files of a dead instance, after its rows: without a file it would not count as dead.
    pub fn remove_files(&self) {
        // Only a socket of ours: other programs can write to the database that had the path.
        let ours = |path: &&PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.ends_with(".sock") && name.contains(self.instance.as_str())
            })
        };
        remove(
            &self.alive,
            self.socket.as_ref().filter(ours).map(PathBuf::as_path),
        );
    }
}

/// Removes the files of instances that died before they had a row, or whose row is gone.
pub(super) fn remove_orphans(folder: &Path, known: &[String]) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let Some(instance) = stem.filter(|stem| is_instance(stem)) else {
            continue;
        };
        let is_known = known.iter().any(|known| known == instance);
        if is_known || path.extension().is_none_or(|end| end != "alive") {
            continue;
        }
        let Ok(file) = File::open(&path) else {
            continue;
        };
        // Locked until it is removed: a store that is just being opened waits for the lock, and then sees that
        // its file is gone.
        if try_lock(&file) == Liveness::Dead {
            remove(&path, Some(&folder.join(format!("{instance}.sock"))));
        }
    }
}

fn liveness_of(alive: &Path) -> Liveness {
    File::open(alive).map_or(Liveness::Unknown, |file| try_lock(&file))
}

/// Tries the lock of an instance's file. If the instance is dead, `file` then has the lock until it is closed.
fn try_lock(file: &File) -> Liveness {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Liveness::Dead,
        Err(Errno::WOULDBLOCK) => Liveness::Alive,
        Err(_) => Liveness::Unknown,
    }
}

fn remove(alive: &Path, socket: Option<&Path>) {
    if let Some(socket) = socket {
        let _ = fs::remove_file(socket);
    }
    let _ = fs::remove_file(alive);
}

fn is_instance(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn create_folder(folder: &Path, permissions: Permissions) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => {
            // A user that may read the database may also enter the folder.
            let enter = (permissions.mode & 0o444) >> 2;
            match permissions.apply_to(folder, permissions.mode | enter) {
                // Another store was the last to close and removed it again. The caller notices.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                applied => applied,
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, permissions: Permissions) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(permissions.mode);
    let file = file.open(path)?;
    permissions.apply_to(path, permissions.mode)?;
    Ok(file)
}

/// The socket's path: next to the instance's file, or in the folder for temporary files if that is too long for a socket.
fn socket_path(folder: &Path, instance: &str) -> PathBuf {
    let near = folder.join(format!("{instance}.sock"));
    if near.as_os_str().len() <= MAX_SOCKET_PATH {
        return near;
    }
    std::env::temp_dir().join(format!("lockkeeper-{instance}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of the stores of a new database, and the database.
    fn new_database(folder: &tempfile::TempDir) -> (PathBuf, PathBuf) {
        let database = folder.path().join("db");
        fs::write(&database, "").expect("writes");
        (folder.path().join("db-keepers"), database)
    }

    #[test]
    fn all_files_have_the_owner_and_mode_of_the_database() {
        let folder = tempfile::tempdir().expect("folder");
        let (keepers, database) = new_database(&folder);
        // More than an ordinary umask leaves to the group.
        fs::set_permissions(&database, fs::Permissions::from_mode(0o660)).expect("sets");
        // Only root can; without, the owner is the same anyway.
        let _ = chown(&database, Some(12_345), Some(12_345));
        let instance = Instance::new(&keepers, &database).expect("instance");
        let _socket = std::os::unix::net::UnixDatagram::bind(&instance.socket).expect("binds");
        instance.share_socket().expect("shares");
        let of = |path: &Path| {
            let file = fs::metadata(path).expect("there");
            (file.uid(), file.gid(), file.mode() & 0o777)
        };
        let expected = of(&database);
        assert_eq!(of(&instance.alive), expected);
        assert_eq!(of(&instance.socket), expected);
        assert_eq!(of(&keepers), (expected.0, expected.1, 0o770));
    }

    #[test]
    fn a_clean_up_removes_no_file_of_a_store_that_is_being_opened() {
        let folder = tempfile::tempdir().expect("folder");
        let (keepers, database) = new_database(&folder);
        let done = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(order) {
                        remove_orphans(&keepers, &[]);
                    }
                });
            }
            let removed = (0..2000).find(|_| {
                let instance = Instance::new(&keepers, &database).expect("instance");
                // Long enough for a clean-up that had begun before.
                std::thread::sleep(std::time::Duration::from_micros(100));
                !instance.alive.exists()
            });
            done.store(true, order);
            assert_eq!(removed, None);
        });
    }

    #[test]
    fn an_instance_lives_until_its_last_handle_is_closed() {
        let folder = tempfile::tempdir().expect("folder");
        let (keepers, database) = new_database(&folder);
        let instance = Instance::new(&keepers, &database).expect("instance");
        let path = instance.alive.clone();
        assert_eq!(liveness_of(&path), Liveness::Alive);
        let handle = instance.handle().expect("handle");
        drop(instance);
        assert_eq!(liveness_of(&path), Liveness::Alive);
        remove_orphans(&keepers, &[]);
        assert!(path.exists());
        drop(handle);
        assert_eq!(liveness_of(&path), Liveness::Dead);
        remove_orphans(&keepers, &[]);
        assert!(!path.exists());
        assert_eq!(liveness_of(&path), Liveness::Unknown);
    }

    #[test]
    fn a_long_path_moves_the_socket_and_nothing_else() {
        let long = Path::new("/").join("x".repeat(120));
        assert!(!socket_path(&long, "i").starts_with(&long));
        assert!(socket_path(Path::new("/tmp/x"), "i").starts_with("/tmp/x"));
    }
}
