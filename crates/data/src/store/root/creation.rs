//! Permission bits and owner of files and directories that sessions create.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use super::resolve::subdirectory;
use crate::os::{attributes, stat};

/// Mode of new files, reduced by the process's umask.
const USUAL_FILE: u32 = 0o666;

/// Mode of new directories, reduced by the process's umask.
const USUAL_DIRECTORY: u32 = 0o777;

/// All permission bits of a mode.
const ALL_BITS: u32 = 0o7777;

/// Bit of directories whose entries get the directory's group (inode(7)).
const SET_GROUP_ID: u32 = 0o2000;

/// The permission bits and the owner that new files and directories get. Modes are exact: the process's umask
/// does not reduce them. What is not set is left to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CreationRules {
    /// Permission bits of files.
    pub file_mode: Option<u32>,
    /// Permission bits of directories. A set-group-ID bit that the kernel passes on stays.
    pub directory_mode: Option<u32>,
    /// User and group. Only root may give files away (chown(2)).
    pub owner: Option<(u32, u32)>,
}

impl CreationRules {
    /// Sets the modes that are not set to those that the system would give with this umask.
    pub fn complete_modes(&mut self, umask: u32) {
        self.file_mode.get_or_insert(USUAL_FILE & !umask);
        self.directory_mode.get_or_insert(USUAL_DIRECTORY & !umask);
    }

    /// The permission bits of files and directories together, if both are set.
    pub fn permitted_modes(&self) -> Option<u32> {
        Some((self.file_mode? | self.directory_mode?) & USUAL_DIRECTORY)
    }

    /// The mode with which a file is created, before its rules are applied.
    pub(super) fn initial_file_mode(&self) -> Mode {
        stat::permissions(self.file_mode.unwrap_or(USUAL_FILE))
    }

    /// The mode with which a directory is created.
    pub(super) fn initial_directory_mode(&self) -> Mode {
        stat::permissions(self.directory_mode.unwrap_or(USUAL_DIRECTORY))
    }

    /// Sets owner and mode of a file that was just created.
    pub(super) fn apply_to_file(&self, file: impl AsFd) -> Result<(), Errno> {
        self.set_owner(&file)?;
        match self.file_mode {
            // After the owner: a change of the owner may clear bits (chown(2)).
            Some(mode) => set_mode(file, |_| mode),
            None => Ok(()),
        }
    }

    /// Sets owner and mode of the directory `name` in `parent`, which was just created.
    pub(super) fn apply_to_directory(&self, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        if self.owner.is_none() && self.directory_mode.is_none() {
            return Ok(());
        }
        let directory = subdirectory(parent, name)?;
        self.set_owner(&directory)?;
        let Some(mode) = self.directory_mode else {
            return Ok(());
        };
        set_mode(directory, |present| mode | (present & SET_GROUP_ID))
    }

    fn set_owner(&self, file: impl AsFd) -> Result<(), Errno> {
        match self.owner {
            Some((user, group)) => {
                attributes::set_owner(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
            }
            None => Ok(()),
        }
    }
}

/// Sets the mode that follows from the present one. A file that has it is left alone: who is not in the group of a directory
/// would clear its set-group-ID bit (chmod(2)).
fn set_mode(file: impl AsFd, mode_of: impl FnOnce(u32) -> u32) -> Result<(), Errno> {
    let present = stat::mode(&rustix::fs::fstat(&file)?) & ALL_BITS;
    let mode = mode_of(present);
    if mode == present {
        return Ok(());
    }
    rustix::fs::fchmod(file, stat::permissions(mode))
}
