//! Refuses a database on a network file system. These do not share memory between machines and often fake locks, so
//! SQLite's log would be corrupted and no program excluded.

use std::path::Path;

use super::fault::refused;
use crate::Error;

/// Refuses a folder on a network file system. A folder that cannot be inspected passes: opening the file tells why.
pub(super) fn check(folder: &Path) -> Result<(), Error> {
    match network_kind(folder) {
        None => Ok(()),
        Some(kind) => Err(refused(format!(
            "{folder:?} is on a network file system ({kind}), where locks do not hold; put the file on a \
             local disk, or use a store with a server"
        ))),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn network_kind(folder: &Path) -> Option<String> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type as u32;
    if kind == FUSE {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        return remote_fuse(&mounts, folder);
    }
    let (_, name) = NETWORK.iter().find(|(magic, _)| *magic == kind)?;
    Some((*name).to_owned())
}

#[cfg(target_vendor = "apple")]
fn network_kind(folder: &Path) -> Option<String> {
    const MNT_LOCAL: u32 = 0x1000;
    let found = rustix::fs::statfs(folder).ok()?;
    (found.f_flags & MNT_LOCAL == 0).then(|| "not local".to_owned())
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn network_kind(_: &Path) -> Option<String> {
    None
}

/// The magic numbers of file systems, from `linux/magic.h` and their own sources.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFE53_4D42, "SMB2"),
    (0xFF53_4D42, "CIFS"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0102_1997, "9P"),
];

#[cfg(any(target_os = "linux", target_os = "android"))]
const FUSE: u32 = 0x6573_5546;

/// Whether a FUSE file system is remote depends on the program that serves it, which the table of mounts names.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn remote_fuse(mounts: &str, folder: &Path) -> Option<String> {
    const REMOTE: &[&str] = &[
        "sshfs",
        "s3fs",
        "rclone",
        "glusterfs",
        "gcsfuse",
        "davfs",
        "curlftpfs",
        "smbnetfs",
        "juicefs",
        "mount-s3",
        "goofys",
        "ceph-fuse",
        "blobfuse",
        "seaweedfs",
        "moosefs",
        "mfs",
    ];
    let folder = std::fs::canonicalize(folder).ok()?;
    // "36 35 98:0 /root /mount/point options... - type source super-options"; later mounts cover earlier.
    let kinds = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.replace("\\040", " ");
        let depth = Path::new(&point).components().count();
        let kind = kind.split(' ').next()?;
        folder.starts_with(&point).then_some((depth, kind))
    });
    let (_, kind) = kinds.max_by_key(|(depth, _)| *depth)?;
    let program = kind.strip_prefix("fuse.")?;
    REMOTE.contains(&program).then(|| kind.to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_local_disk_passes() {
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(check(folder.path()), Ok(()));
        // A missing folder is refused elsewhere.
        assert_eq!(check(Path::new("/nowhere/at/all")), Ok(()));
    }

    #[test]
    fn fuse_is_refused_if_a_remote_program_serves_it() {
        let folder = tempfile::tempdir().expect("folder");
        let folder = std::fs::canonicalize(folder.path()).expect("real path");
        let table = |kind: &str| {
            let point = folder.display();
            format!(
                "21 1 8:1 / / rw - ext4 /dev/sda rw\n36 21 0:40 / {point} rw - {kind} host:/ rw\n"
            )
        };
        let at = |kind: &str| remote_fuse(&table(kind), &folder.join("."));
        assert_eq!(at("fuse.sshfs").as_deref(), Some("fuse.sshfs"));
        assert_eq!(at("fuse.fuse-overlayfs"), None);
        assert_eq!(at("fuseblk"), None);
    }

    #[test]
    fn every_network_file_system_is_named() {
        assert!(
            NETWORK
                .iter()
                .any(|(magic, name)| *magic == 0x6969 && *name == "NFS")
        );
        assert!(NETWORK.iter().all(|(magic, _)| *magic != FUSE));
    }
}
