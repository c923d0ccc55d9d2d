//! Names of files that this process writes. A file gets a name, or loses one, only if its present name is still its own:
//! whoever may write in a directory can put another file in the place of one that is being written.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::os::lookup::LOCATE_LINK;
use crate::os::{attributes, stat};

/// The mark of a file among those that have its name before or after it. While the file is open, or has a name, no other has
/// its inode number. When it is gone, a new file may get the number, but not one of another account with this owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNode {
    /// Device and inode number.
    inode: (u64, u64),
    /// User.
    owner: u32,
}

impl FileNode {
    /// The node of an open file.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn of(file: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(file).map(|stat| Self::from_stat(&stat))
    }

    /// Device and inode number.
    pub fn inode(self) -> (u64, u64) {
        self.inode
    }

    /// Whether the name `name` in `directory` is that of this file. A symbolic link is not followed. `false` if nothing has
    /// the name.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub fn has_name(self, directory: impl AsFd, name: &[u8]) -> Result<bool, Errno> {
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok(Self::from_stat(&named) == self),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// User.
    pub fn owner(self) -> u32 {
        self.owner
    }

    /// Gives the file, whose name in `directory` is `name`, the permission bits over the regular file `replaced` in
    /// `replaced_in` that it is to replace, if there is one: see [`mode_over`].
    ///
    /// # Errors
    /// Those of chmod(2). The name is no longer that of the file: ENOENT.
    pub fn take_over_mode(
        self,
        directory: impl AsFd,
        name: &[u8],
        replaced_in: impl AsFd,
        replaced: &[u8],
    ) -> Result<(), Errno> {
        let there = match rustix::fs::statat(replaced_in, replaced, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            there => there?,
        };
        if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let flags = LOCATE_LINK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        // Another file must not get the rights.
        let own = rustix::fs::fstat(&file)?;
        match Self::from_stat(&own) == self {
            true => attributes::set_mode(&file, mode_over(self.owner, stat::mode(&own), &there)),
            false => Err(Errno::NOENT),
        }
    }

    /// Gives the file, whose name in `directory` is `from`, the name `to` in the same directory. With `replaces` it takes the
    /// place of a file or link that has this name; otherwise that is EEXIST.
    ///
    /// # Errors
    /// See [`NamingError`].
    pub fn rename(
        self,
        directory: impl AsFd,
        from: &[u8],
        to: &[u8],
        replaces: bool,
    ) -> Result<(), NamingError> {
        let directory = directory.as_fd();
        if !self.has_name(directory, from)? {
            return Err(NamingError::Replaced);
        }
        // The last component is never followed, so a link is renamed itself.
        match replaces {
            true => rustix::fs::renameat(directory, from, directory, to)?,
            false => {
                let flags = RenameFlags::NOREPLACE;
                rustix::fs::renameat_with(directory, from, directory, to, flags)?;
            }
        }
        // The kernel has no renaming by descriptor: the name may have changed since it was looked at.
        match self.has_name(directory, to)? {
            true => Ok(()),
            false => Err(NamingError::Swapped),
        }
    }

    /// Removes the name `name` of `directory` if it is that of this file. Returns whether it was.
    ///
    /// # Errors
    /// Those of fstatat(2) and unlinkat(2).
    pub fn remove(self, directory: impl AsFd, name: &[u8]) -> Result<bool, Errno> {
        let directory = directory.as_fd();
        let is_own = self.has_name(directory, name)?;
        if is_own {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        }
        Ok(is_own)
    }

    fn from_stat(stat: &Stat) -> Self {
        Self {
            inode: stat::inode(stat),
            owner: stat.st_uid,
        }
    }
}

/// The permission bits of a new file that replaces the file `replaced`. `owner`: its user; `usual`: the mode that it has where
/// it replaces nothing. A file of the same owner passes its own on. Anybody who may write in the directory can put a file
/// there, so that one of another owner opens nothing; but what it did not show, its successor does not show either.
///
/// Not the set-user-ID, set-group-ID and sticky bits: whoever trusts the old file to run under another identity trusts its old
/// content.
pub fn mode_over(owner: u32, usual: u32, replaced: &Stat) -> u32 {
    let mode = match replaced.st_uid == owner {
        true => stat::mode(replaced),
        false => stat::mode(replaced) & usual,
    };
    mode & 0o777
}

/// Why a file has not got a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NamingError {
    /// The present name is no longer that of the file; nothing was renamed.
    #[error("it was removed or replaced by another process while it was written")]
    Replaced,
    /// Another process has put another file under one of the names during the renaming.
    #[error("another process has put another file in its place")]
    Swapped,
    /// The system refused.
    #[error(transparent)]
    System(#[from] Errno),
}

impl From<NamingError> for io::Error {
    fn from(error: NamingError) -> Self {
        match error {
            NamingError::System(errno) => errno.into(),
            other => Self::other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_file_is_renamed_and_removed_only_under_its_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let directory = File::open(dir.path()).unwrap();
        let file = File::create_new(at("new")).unwrap();
        fs::write(at("there"), "old").unwrap();
        let node = FileNode::of(&file).unwrap();
        let rename = |to: &[u8], replaces| node.rename(&directory, b"new", to, replaces);
        assert_eq!(
            rename(b"there", false),
            Err(NamingError::System(Errno::EXIST))
        );
        fs::rename(at("new"), at("moved")).unwrap();
        assert_eq!(rename(b"there", true), Err(NamingError::Replaced));
        fs::write(at("new"), "of another").unwrap();
        assert_eq!(rename(b"there", true), Err(NamingError::Replaced));
        assert_eq!(fs::read(at("there")).unwrap(), b"old");
        assert_eq!(node.remove(&directory, b"new"), Ok(false));
        assert_eq!(node.remove(&directory, b"none"), Ok(false));
        fs::rename(at("moved"), at("new")).unwrap();
        assert_eq!(rename(b"there", true), Ok(()));
        assert_eq!(fs::read(at("there")).unwrap(), b"");
        assert_eq!(node.remove(&directory, b"there"), Ok(true));
        assert!(!at("there").exists() && !at("new").exists());
    }

    #[test]
    fn a_file_takes_over_the_mode_of_the_one_that_it_replaces() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let directory = File::open(dir.path()).unwrap();
        let file = File::create_new(at("new")).unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        let (node, usual) = (FileNode::of(&file).unwrap(), mode("new"));
        let take_over = || node.take_over_mode(&directory, b"new", &directory, b"old");
        take_over().unwrap();
        assert_eq!(mode("new"), usual, "nothing is replaced");
        std::os::unix::fs::symlink("new", at("old")).unwrap();
        take_over().unwrap();
        assert_eq!(mode("new"), usual, "a link has no mode");
        fs::remove_file(at("old")).unwrap();
        fs::write(at("old"), "").unwrap();
        fs::set_permissions(at("old"), fs::Permissions::from_mode(0o4700)).unwrap();
        take_over().unwrap();
        assert_eq!(mode("new"), 0o700);
        // One who has put another file there gives it no rights.
        fs::write(at("victim"), "").unwrap();
        fs::remove_file(at("new")).unwrap();
        fs::hard_link(at("victim"), at("new")).unwrap();
        assert_eq!(take_over(), Err(Errno::NOENT));
        assert_eq!(mode("victim"), usual);
    }

    #[test]
    fn a_file_of_another_owner_opens_nothing() {
        let mut stat = rustix::fs::stat("/").unwrap();
        for (owner, mode, taken) in [
            (1, 0o4666, 0o666),
            (2, 0o666, 0o644),
            (2, 0o600, 0o600),
            (2, 0o4777, 0o644),
        ] {
            (stat.st_uid, stat.st_mode) = (owner, mode);
            assert_eq!(mode_over(1, 0o644, &stat), taken, "{owner} {mode:o}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_new_name_is_replaced_and_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let directory = File::open(dir.path()).unwrap();
        let file = File::create_new(at("new")).unwrap();
        fs::write(at("victim"), "precious").unwrap();
        std::os::unix::fs::symlink("victim", at("to")).unwrap();
        let node = FileNode::of(&file).unwrap();
        node.rename(&directory, b"new", b"to", true).unwrap();
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        assert!(at("to").symlink_metadata().unwrap().is_file());
    }
}
