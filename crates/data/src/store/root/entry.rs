//! The entry that a path leads to, as a listing shows it.

use std::os::fd::AsFd;

use proto::listing::{DirectoryEntry, EntryKind, EntryPermissions};
use proto::path::VPath;
use proto::timestamp::Timestamp;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::{Root, StoreError, id_names};

/// The user and groups for which the kernel checks this process's file accesses.
#[derive(Debug)]
pub(super) struct ProcessCredentials {
    uid: u32,
    groups: Vec<u32>,
}

impl ProcessCredentials {
    /// The present credentials of this process.
    pub(super) fn current() -> Self {
        let mut groups: Vec<u32> = rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        // The effective group is checked in addition to the supplementary groups (getgroups(2)).
        groups.push(rustix::process::getegid().as_raw());
        Self {
            uid: rustix::process::geteuid().as_raw(),
            groups,
        }
    }

    /// The rights that the permission bits grant. Access control lists are ignored: whether a directory can
    /// be listed, [`Root::may_list`] asks the kernel.
    fn access(&self, stat: &Stat) -> EntryPermissions {
        // Root ignores permission bits, but executing a file needs one execute bit (execve(2)).
        if self.uid == 0 {
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            return EntryPermissions {
                read: true,
                write: true,
                execute: is_dir || stat.st_mode & 0o111 != 0,
            };
        }
        // The first matching class decides, as in path_resolution(7).
        let bits = if stat.st_uid == self.uid {
            stat.st_mode >> 6
        } else if self.groups.contains(&stat.st_gid) {
            stat.st_mode >> 3
        } else {
            stat.st_mode
        };
        EntryPermissions {
            read: bits & 4 != 0,
            write: bits & 2 != 0,
            execute: bits & 1 != 0,
        }
    }

    fn entry(&self, name: &[u8], stat: &Stat, link_target: Option<Vec<u8>>) -> DirectoryEntry {
        DirectoryEntry {
            name: name.to_vec(),
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Dir,
                FileType::Symlink => EntryKind::SymLink,
                _ => EntryKind::Other,
            },
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: Timestamp(stat.st_mtime),
            mode: stat.st_mode & 0o7777,
            #[allow(clippy::useless_conversion, reason = "32 bits on arm64, 64 on x86-64")]
            link_count: u64::from(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
            owner: id_names::users().name(stat.st_uid),
            group: id_names::groups().name(stat.st_gid),
            device_and_inode: (stat.st_dev, stat.st_ino),
            link_target,
            permissions: match FileType::from_raw_mode(stat.st_mode) {
                // A link without a target can neither be read nor written.
                FileType::Symlink => EntryPermissions::default(),
                _ => self.access(stat),
            },
        }
    }
}

impl Root {
    /// The entry that `path` leads to. Symbolic links are followed inside the root and reported in
    /// `link_target`. A link whose target is missing, outside or unreachable is reported itself, as
    /// a symbolic link. The entry's name is the last component.
    pub fn stat(&self, path: &VPath) -> Result<DirectoryEntry, StoreError> {
        let viewer = ProcessCredentials::current();
        let result = if path.is_root() {
            rustix::fs::fstat(&self.dir).map(|stat| viewer.entry(b"", &stat, None))
        } else {
            self.parent_of(path)
                .and_then(|parent| self.entry_at(&parent, &path.parent(), path.name(), &viewer))
        };
        result.map_err(|errno| StoreError::new("look at", path, errno))
    }

    /// The entry `name` of the open directory `dir`, which is at `path`.
    pub(super) fn entry_at(
        &self,
        dir: impl AsFd,
        path: &VPath,
        name: &[u8],
        viewer: &ProcessCredentials,
    ) -> Result<DirectoryEntry, Errno> {
        let dir = dir.as_fd();
        let own = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(own.st_mode) != FileType::Symlink {
            return Ok(viewer.entry(name, &own, None));
        }
        let target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes();
        // The link is resolved from the root, not from `dir`: below `dir` an absolute target or
        // `..` would have another meaning.
        let target_of = |link: VPath| self.locate(&link);
        let link = path.join(name).map_err(|_| Errno::NAMETOOLONG);
        let stat = match link.and_then(target_of) {
            Ok(target) => rustix::fs::fstat(target)?,
            Err(errno) if leads_nowhere(errno) => own,
            Err(errno) => return Err(errno),
        };
        Ok(viewer.entry(name, &stat, Some(target)))
    }
}

/// Whether a symbolic link could not be followed because of its target. Other errors (no
/// descriptors or memory) are not caused by the link.
fn leads_nowhere(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NOTDIR
            | Errno::NAMETOOLONG
            | Errno::ACCESS
            | Errno::PERM
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(uid: u32, groups: &[u32], mode: u32) -> EntryPermissions {
        let viewer = ProcessCredentials {
            uid,
            groups: groups.to_vec(),
        };
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_gid, stat.st_mode) = (10, 20, mode);
        viewer.access(&stat)
    }

    #[test]
    fn access_follows_owner_group_and_other_bits() {
        let rwx = |read, write, execute| EntryPermissions {
            read,
            write,
            execute,
        };
        assert_eq!(access(10, &[20], 0o100_467), rwx(true, false, false));
        assert_eq!(access(11, &[5, 20], 0o100_467), rwx(true, true, false));
        assert_eq!(access(11, &[5], 0o100_467), rwx(true, true, true));
        assert_eq!(access(0, &[], 0o100_000), rwx(true, true, false));
        assert_eq!(access(0, &[], 0o040_000), rwx(true, true, true));
    }
}
