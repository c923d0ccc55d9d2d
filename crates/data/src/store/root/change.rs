//! Changes of names and attributes, and forcing names to disk.

use std::fs::File;
use std::os::fd::OwnedFd;

use proto::path::VPath;
use proto::timestamp::Timestamp;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Root, StoreError, id_names};
use crate::os::lookup::LOCATE_LINK;
use crate::os::{attributes, stat};
use crate::store::durability::sync_names;
use crate::store::modification_time;
use crate::store::naming::FileNode;

impl Root {
    /// Makes a directory (mode 0777 less the umask, or as the [`super::CreationRules`] say). The root exists:
    /// EEXIST.
    pub fn make_dir(&self, path: &VPath) -> Result<(), StoreError> {
        const OP: &str = "create directory";
        if path.is_root() {
            return Err(StoreError::new(OP, path, Errno::EXIST));
        }
        self.at_parent(OP, path, |parent, name| {
            rustix::fs::mkdirat(parent, name, self.creation.initial_directory_mode())?;
            self.creation
                .apply_to_directory(parent, name)
                .inspect_err(|_| {
                    let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
                })
        })
    }

    /// Removes an empty directory. The root cannot be removed: EBUSY.
    pub fn remove_dir(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("remove directory", path, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        })
    }

    /// Removes a file or a symbolic link (not its target). A directory is EISDIR.
    pub fn delete(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("delete", path, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())
        })
    }

    /// Renames a file. A symbolic link is renamed itself; an existing file at `to` is replaced.
    pub fn rename(&self, from: &VPath, to: &VPath) -> Result<(), StoreError> {
        let failed = |path, errno| StoreError::new("rename", path, errno);
        let source = self.parent_of(from).map_err(|errno| failed(from, errno))?;
        let target = self.parent_of(to).map_err(|errno| failed(to, errno))?;
        // The last component is never followed, so a link is renamed itself.
        rustix::fs::renameat(source, from.name(), target, to.name())
            .map_err(|errno| failed(from, errno))
    }

    /// Gives the file `from`, whose device and inode numbers are `inode`, the permission bits of the one that it is to
    /// replace: see [`FileNode::take_over_mode`].
    ///
    /// # Errors
    /// As there.
    pub fn take_over_mode(
        &self,
        inode: (u64, u64),
        from: &VPath,
        to: &VPath,
    ) -> Result<(), StoreError> {
        let taken = || {
            let (source, target) = (self.parent_of(from)?, self.parent_of(to)?);
            let flags = LOCATE_LINK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&source, from.name(), flags, Mode::empty())?;
            let node = FileNode::of(&file)?;
            match node.inode() == inode {
                true => node.take_over_mode(source, from.name(), target, to.name()),
                false => Err(Errno::NOENT),
            }
        };
        taken().map_err(|errno| StoreError::new("change mode of", from, errno))
    }

    /// Renames a file to a name that nothing has; otherwise EEXIST. A file system that cannot check
    /// this in one step refuses with EINVAL (renameat2(2)).
    pub fn rename_to_new_name(&self, from: &VPath, to: &VPath) -> Result<(), StoreError> {
        let failed = |path, errno| StoreError::new("rename", path, errno);
        let source = self.parent_of(from).map_err(|errno| failed(from, errno))?;
        let target = self.parent_of(to).map_err(|errno| failed(to, errno))?;
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(source, from.name(), target, to.name(), flags)
            .map_err(|errno| failed(to, errno))
    }

    /// Makes a symbolic link with the content `target` as given. It is resolved, inside the root,
    /// when it is used.
    pub fn symlink(&self, target: &[u8], link: &VPath) -> Result<(), StoreError> {
        self.at_parent("create link", link, |parent, name| {
            rustix::fs::symlinkat(target, parent, name)
        })
    }

    /// Sets the permission bits. Set-user-ID, and set-group-ID on anything but a directory, are
    /// refused (EPERM): a program stored by a remote user must not run as this process's user. A
    /// change of the root itself, by any name, is refused, too: sessions do not decide who may
    /// enter their root.
    pub fn chmod(&self, path: &VPath, mode: u32) -> Result<(), StoreError> {
        self.change("change mode of", path, |target| {
            self.require_not_root(target)?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(target)?.st_mode);
            if mode & 0o4000 != 0 || (mode & 0o2000 != 0 && kind != FileType::Directory) {
                return Err(Errno::PERM);
            }
            attributes::set_mode(target, mode)
        })
    }

    /// Sets the group by name or number. An unknown name is EINVAL, the root itself EPERM.
    pub fn chgrp(&self, path: &VPath, group: &str) -> Result<(), StoreError> {
        self.change("change group of", path, |target| {
            self.require_not_root(target)?;
            let group = id_names::groups().id(group).ok_or(Errno::INVAL)?;
            if group == u32::MAX {
                // The kernel takes this number for "no change" (chown(2)).
                return Err(Errno::INVAL);
            }
            let group = Some(Gid::from_raw(group));
            attributes::set_owner(target, None, group)
        })
    }

    /// Sets the modification time, and returns the one that is kept; see
    /// [`set_modified`](crate::store::modification_time::set_modified).
    pub fn set_modified(&self, path: &VPath, time: Timestamp) -> Result<Timestamp, StoreError> {
        self.change("keep this time for", path, |target| {
            modification_time::set_modified(target, time)
        })
    }

    /// Refuses the root itself (EPERM), to which links may lead as well.
    fn require_not_root(&self, target: &OwnedFd) -> Result<(), Errno> {
        let (root, target) = (rustix::fs::fstat(&self.dir)?, rustix::fs::fstat(target)?);
        // Device and inode identify the root under every name.
        if stat::inode(&root) == stat::inode(&target) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Runs `change` on the file that `path` leads to, following links.
    fn change<T>(
        &self,
        op: &'static str,
        path: &VPath,
        change: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> Result<T, StoreError> {
        self.locate(path)
            .and_then(|target| change(&target))
            .map_err(|errno| StoreError::new(op, path, errno))
    }

    /// Opens the directory that holds `path`'s last component, to sync it. `None` if it may be
    /// written but not read (mode `-wx`): it cannot be synced.
    ///
    /// # Errors
    /// The directory no longer exists, or the system refuses.
    pub fn directory_of(&self, path: &VPath) -> Result<Option<File>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match self.resolve(&path.parent(), flags, Mode::empty()) {
            Ok(directory) => Ok(Some(directory.into())),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(StoreError::new("open the directory of", path, errno)),
        }
    }

    /// Forces the names in the directory of `path` to disk after a creation, renaming or removal.
    ///
    /// # Errors
    /// As [`Root::directory_of`], and errors of the disk.
    pub fn sync_name(&self, path: &VPath) -> Result<(), StoreError> {
        let Some(directory) = self.directory_of(path)? else {
            return Ok(());
        };
        sync_names(&directory)
            .map_err(|error| StoreError::from_io("sync the name of", path, &error))
    }
}
