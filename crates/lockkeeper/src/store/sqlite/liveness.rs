//! Which stores still live. Each keeps a lock of the operating system (`flock`) on a file of its own, which
//! ends with its process however that ends, and which a process id that is used again cannot fake.
//!
//! The files are in a folder next to the database, so that a user that can use the one can see the other:
//! `locks.db-keepers/<instance>.alive`, and `.sock` for hints. They take over the database's permissions: for
//! two users of one group to share it, create the database with a umask that lets the group write (`umask
//! 002`) in a folder of that group with the set-group-id bit.
//!
//! A file that is missing says nothing: a clean-up of old files must not free a lock that is held. Then the
//! lease alone decides.

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

/// This store's own file, locked for as long as it lives.
#[derive(Debug)]
pub(super) struct Instance {
    pub id: String,
    pub socket: PathBuf,
    alive: PathBuf,
    file: File,
    access: Access,
}

/// What each user may do with the database, and so with everything next to it.
#[derive(Clone, Copy, Debug)]
struct Access {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Access {
    fn of(database: &Path) -> io::Result<Access> {
        let file = fs::metadata(database)?;
        Ok(Access {
            owner: file.uid(),
            group: file.gid(),
            mode: file.mode() & 0o666,
        })
    }

    /// Gives a path the database's owner and group, as far as this user may, and these permissions, whatever
    /// the umask says: what others of the group, or root, leave must not lock anyone out.
    fn give(self, path: &Path, mode: u32) -> io::Result<()> {
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
        let access = Access::of(database).map_err(explain)?;
        loop {
            create_folder(folder, access).map_err(explain)?;
            let id = Uuid::new_v4().simple().to_string();
            let alive = folder.join(format!("{id}.alive"));
            let file = match create(&alive, access) {
                Ok(file) => file,
                // Another store was the last to leave and took the folder with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(explain(error)),
            };
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))
                .map_err(|error| explain(error.into()))?;
            // Before it was locked it looked like that of a dead store, and may have been removed.
            if file.metadata().map_err(explain)?.nlink() > 0 {
                return Ok(Instance {
                    socket: socket_path(folder, &id),
                    id,
                    alive,
                    file,
                    access,
                });
            }
        }
    }

    /// Lets others of the group write to the socket, if they can write to the database.
    pub fn share_socket(&self) -> io::Result<()> {
        self.access.give(&self.socket, self.access.mode)
    }

    /// Another handle of the lock: the instance counts as living until the last is closed.
    pub fn handle(&self) -> Option<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from).ok()
    }

    /// Takes away the files, and the folder if it is empty now.
    pub fn remove(&self) {
        remove(&self.alive, Some(&self.socket));
        if let Some(folder) = self.alive.parent() {
            // Fails while others use it.
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

/// What a look at an instance's file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pulse {
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
            // The file's name is made of it, and others of the group can write to the database.
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

    pub fn pulse(&self) -> Pulse {
        pulse(&self.alive)
    }

    pub fn is_dead(&self) -> bool {
        self.pulse() == Pulse::Dead
    }

    /// Takes away what a dead instance left. Its rows must be gone already: they are found by these files.
    pub fn remove_files(&self) {
        // Only a socket of ours: the path was read from a file that others can write.
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
        if look(&file) == Pulse::Dead {
            remove(&path, Some(&folder.join(format!("{instance}.sock"))));
        }
    }
}

fn pulse(alive: &Path) -> Pulse {
    File::open(alive).map_or(Pulse::Unknown, |file| look(&file))
}

/// Dead, it is locked until it is closed.
fn look(file: &File) -> Pulse {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Pulse::Dead,
        Err(Errno::WOULDBLOCK) => Pulse::Alive,
        Err(_) => Pulse::Unknown,
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

fn create_folder(folder: &Path, access: Access) -> io::Result<()> {
    match fs::create_dir(folder) {
        // A user that may read the database may also look into the folder.
        Ok(()) => match access.give(folder, access.mode | ((access.mode & 0o444) >> 2)) {
            // Another store was the last to leave and took it away already: what is to be in it finds it gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            given => given,
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(access.mode);
    let file = file.open(path)?;
    access.give(path, access.mode)?;
    Ok(file)
}

/// Next to the lock, or where temporary files go if that path is too long for a socket.
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

    /// A database in a folder, and its folder of keepers.
    fn place(folder: &tempfile::TempDir) -> (PathBuf, PathBuf) {
        let database = folder.path().join("db");
        fs::write(&database, "").expect("writes");
        (folder.path().join("db-keepers"), database)
    }

    #[test]
    fn everything_belongs_to_whom_the_database_does() {
        let folder = tempfile::tempdir().expect("folder");
        let (keepers, database) = place(&folder);
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
    fn cleaning_up_takes_no_file_of_a_store_that_is_being_opened() {
        let folder = tempfile::tempdir().expect("folder");
        let (keepers, database) = place(&folder);
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
            let taken = (0..2000).find(|_| {
                let instance = Instance::new(&keepers, &database).expect("instance");
                // Time enough for a clean-up that had begun before.
                std::thread::sleep(std::time::Duration::from_micros(100));
                !instance.alive.exists()
            });
            done.store(true, order);
            assert_eq!(taken, None);
        });
    }

    #[test]
    fn an_instance_lives_until_its_last_handle_is_closed() {
        let folder = tempfile::tempdir().expect("folder");
        let (keepers, database) = place(&folder);
        let instance = Instance::new(&keepers, &database).expect("instance");
        let path = instance.alive.clone();
        assert_eq!(pulse(&path), Pulse::Alive);
        let handle = instance.handle().expect("handle");
        drop(instance);
        assert_eq!(pulse(&path), Pulse::Alive);
        remove_orphans(&keepers, &[]);
        assert!(path.exists());
        drop(handle);
        assert_eq!(pulse(&path), Pulse::Dead);
        remove_orphans(&keepers, &[]);
        assert!(!path.exists());
        assert_eq!(pulse(&path), Pulse::Unknown);
    }

    #[test]
    fn a_long_path_moves_the_socket_and_nothing_else() {
        let long = Path::new("/").join("x".repeat(120));
        assert!(!socket_path(&long, "i").starts_with(&long));
        assert!(socket_path(Path::new("/tmp/x"), "i").starts_with("/tmp/x"));
    }
}
