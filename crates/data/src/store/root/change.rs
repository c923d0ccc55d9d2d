//! Changing names and attributes, and forcing names to disk.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use proto::path::VPath;
use proto::timestamp::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::{Root, StoreError, id_names};
use crate::store::durability::sync_names;

impl Root {
    /// Makes a directory (mode 0777 less the umask). The root exists: EEXIST.
    pub fn make_dir(&self, path: &VPath) -> Result<(), StoreError> {
        const OP: &str = "create directory";
        if path.is_root() {
            return Err(StoreError::new(OP, path, Errno::EXIST));
        }
        self.at_parent(OP, path, |parent, name| {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777))
        })
    }

    /// Removes an empty directory. The root cannot be removed: EBUSY.
    pub fn remove_dir(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("remove directory", path, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        })
    }

    /// Removes a file or a symbolic link (not what it leads to). A directory is EISDIR.
    pub fn delete(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("delete", path, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())
        })
    }

    /// Renames; a symbolic link is renamed itself, an existing file at `to` is replaced.
    pub fn rename(&self, from: &VPath, to: &VPath) -> Result<(), StoreError> {
        let failed = |path, errno| StoreError::new("rename", path, errno);
        let source = self.parent_of(from).map_err(|errno| failed(from, errno))?;
        let target = self.parent_of(to).map_err(|errno| failed(to, errno))?;
        rustix::fs::renameat(source, from.name(), target, to.name())
            .map_err(|errno| failed(from, errno))
    }

    /// Makes a symbolic link whose content is `target` as given. What it leads to is decided,
    /// inside the root, when it is used.
    pub fn symlink(&self, target: &[u8], link: &VPath) -> Result<(), StoreError> {
        self.at_parent("create link", link, |parent, name| {
            rustix::fs::symlinkat(target, parent, name)
        })
    }

    /// Sets permission bits. Set-user-ID, and set-group-ID on anything but a directory, are
    /// refused (EPERM): a program stored by a stranger must not run as this process's user. So is any
    /// change of the root itself, by whatever name: who may enter a root is not its sessions' business.
    pub fn chmod(&self, path: &VPath, mode: u32) -> Result<(), StoreError> {
        self.change("change mode of", path, |there| {
            self.require_below(there)?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(there)?.st_mode);
            if mode & 0o4000 != 0 || (mode & 0o2000 != 0 && kind != FileType::Directory) {
                return Err(Errno::PERM);
            }
            // A descriptor that only names a file cannot be given to fchmod; its entry in /proc
            // can, and leads to the very file that was resolved.
            let entry = format!("/proc/self/fd/{}", there.as_raw_fd());
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match rustix::fs::chmodat(CWD, entry, mode, AtFlags::empty()) {
                // The file is open; what is missing is /proc.
                Err(Errno::NOENT) => Err(Errno::NOSYS),
                result => result,
            }
        })
    }

    /// Sets the group, by name or number; an unknown name is EINVAL. The root itself: EPERM.
    pub fn chgrp(&self, path: &VPath, group: &str) -> Result<(), StoreError> {
        self.change("change group of", path, |there| {
            self.require_below(there)?;
            let group = id_names::groups().id(group).ok_or(Errno::INVAL)?;
            if group == u32::MAX {
                // The number that means "leave as it is" to the kernel.
                return Err(Errno::INVAL);
            }
            let group = Some(Gid::from_raw(group));
            rustix::fs::chownat(there, c"", None, group, AtFlags::EMPTY_PATH)
        })
    }

    /// Sets the modification time; the access time is left.
    pub fn set_modified(&self, path: &VPath, time: Timestamp) -> Result<(), StoreError> {
        self.change("set time of", path, |there| {
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_OMIT,
                },
                last_modification: Timespec {
                    tv_sec: time.0,
                    tv_nsec: 0,
                },
            };
            rustix::fs::utimensat(there, c"", &times, AtFlags::EMPTY_PATH)
        })
    }

    /// EPERM for the root itself, to which links may lead as well.
    fn require_below(&self, there: &OwnedFd) -> Result<(), Errno> {
        let (root, there) = (rustix::fs::fstat(&self.dir)?, rustix::fs::fstat(there)?);
        if (root.st_dev, root.st_ino) == (there.st_dev, there.st_ino) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Runs `change` on what `path` leads to, links followed.
    fn change(
        &self,
        op: &'static str,
        path: &VPath,
        change: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(), StoreError> {
        self.locate(path)
            .and_then(|there| change(&there))
            .map_err(|errno| StoreError::new(op, path, errno))
    }

    /// The directory that holds `path`'s last component, open to be synced. `None` where it may be
    /// written but not read (mode `-wx`): nothing can be synced there.
    ///
    /// # Errors
    /// The directory is gone, or the system refuses.
    pub fn directory_of(&self, path: &VPath) -> Result<Option<File>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match self.resolve(&path.parent(), flags, Mode::empty()) {
            Ok(directory) => Ok(Some(directory.into())),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(StoreError::new("open the directory of", path, errno)),
        }
    }

    /// Forces the names in the directory of `path` to disk: that it was made, renamed, or removed.
    ///
    /// # Errors
    /// As [`Root::directory_of`], and what the disk says.
    pub fn sync_name(&self, path: &VPath) -> Result<(), StoreError> {
        let Some(directory) = self.directory_of(path)? else {
            return Ok(());
        };
        sync_names(&directory)
            .map_err(|error| StoreError::from_io("sync the name of", path, &error))
    }
}
