//! A disk that stands still when a test says so: what is written to it waits, and the process that writes as well. It takes the rights
//! to mount, of root or by `sudo` without a password.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file system of its own, in a file. Dropping it lets it go on and unmounts it; that also happens when the process dies.
#[derive(Debug)]
pub struct Disk {
    _folder: tempfile::TempDir,
    mounted: PathBuf,
    leash: Child,
}

/// A command that root runs.
fn root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", program]);
    sudo
}

fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Lets a disk go on and unmounts it.
const RELEASE: &str = "fsfreeze -u \"$0\" 2>/dev/null; umount -l \"$0\"";

impl Disk {
    /// A disk of 256 MB.
    ///
    /// # Panics
    /// When it cannot be mounted, as for want of rights.
    pub fn new() -> Disk {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, mounted) = (folder.path().join("image"), folder.path().join("disk"));
        std::fs::create_dir(&mounted).expect("a folder");
        let file = std::fs::File::create(&image).expect("a file");
        file.set_len(256 << 20).expect("a file with nothing in it");
        succeed(root("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        succeed(root("mount").args(["-o", "loop"]).arg(&image).arg(&mounted));
        let leash = root("sh")
            .args(["-c", &format!("read _; {RELEASE}")])
            .arg(&mounted)
            // Ctrl-C ends us, and must leave somebody to unmount it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let disk = Disk {
            _folder: folder,
            leash: leash.expect("a shell"),
            mounted,
        };
        succeed(root("chmod").arg("777").arg(&disk.mounted));
        disk
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Lets nothing be written from now on. A write waits.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn freeze(&self) {
        succeed(root("fsfreeze").arg("-f").arg(&self.mounted));
    }

    /// Lets all go on.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn thaw(&self) {
        succeed(root("fsfreeze").arg("-u").arg(&self.mounted));
    }
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::new()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = root("sh").args(["-c", RELEASE]).arg(&self.mounted).output();
        let _ = self.leash.kill();
        let _ = self.leash.wait();
    }
}
