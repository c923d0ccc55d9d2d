//! Exclusive ownership of a local file: one copy at a time writes it, under a lock on the open
//! file.
//!
//! The lock is taken after the file is opened. The previous owner may have renamed or removed the
//! file in between, so the lock counts only if the path still names the locked file. The kernel
//! releases the lock with the last descriptor, also after a crash (flock(2)).

use std::fs::File;
use std::io;

use data::os::stat;
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;

use crate::local::local_name::{LocalName, is_directory, is_file, own_user};
use crate::local::replacement::temporary_name;

/// Mode of unfinished files, which only their owner may read.
const PRIVATE_MODE: u32 = 0o600;
/// All permission bits of a mode.
const ALL_BITS: u32 = 0o7777;
/// Most attempts to lock a file that disappears. Each time another copy has ended.
const MAX_OPEN_ATTEMPTS: usize = 100;

/// Result of [`open_locked`].
#[derive(Debug)]
pub(crate) enum LockedOpen {
    /// Locked: nobody else writes the file until it is closed.
    Locked(File),
    /// The file system has no locks.
    Unlocked(File),
    /// Another copy holds the lock.
    Busy,
}

/// Opens a regular file for reading and writing and takes its lock. The file is created if missing; existing content is
/// kept. A symbolic link that has the name is an error.
///
/// # Errors
/// Those of the file system; it is no regular file.
pub(crate) fn open_locked(name: &LocalName) -> io::Result<LockedOpen> {
    open_locked_if(name, |_, _| Ok(true))
}

/// As [`open_locked`], for a file that is this user's alone: it has this owner, no other name, and a mode that lets nobody
/// else in. What is found with another owner, name or mode is removed and made anew, because somebody else could read or
/// write what is written to it; so is a link, a pipe or a device. Returns whether that happened, too.
///
/// # Errors
/// As there; the file that is found cannot be removed.
pub(crate) fn open_own_locked(name: &LocalName) -> io::Result<(LockedOpen, bool)> {
    // Nothing that this user's copies leave; a directory is in the way.
    let is_other = |there: &Stat| !is_file(there) && !is_directory(there);
    let mut was_foreign = name.own_stat().is_ok_and(|there| is_other(&there));
    if was_foreign {
        name.remove().map_err(cannot_remove)?;
    }
    let opened = open_locked_if(name, |file, is_locked| {
        let found = rustix::fs::fstat(file)?;
        // While another copy of this user has it, the file may be about to get its final mode.
        let is_own = match is_locked {
            true => is_own(name, &found)?,
            false => has_own_owner(name, &found)?,
        };
        if !is_own {
            was_foreign = true;
            name.remove_open(file).map_err(cannot_remove)?;
        }
        Ok(is_own)
    });
    Ok((opened?, was_foreign))
}

/// `is_wanted` looks at a file that was there before: first before its lock is tried, which whoever has made the file may hold
/// as long as he likes, and then (`true`) when it is locked. If it is not wanted, it has lost its name.
fn open_locked_if(
    name: &LocalName,
    mut is_wanted: impl FnMut(&File, bool) -> io::Result<bool>,
) -> io::Result<LockedOpen> {
    for _ in 0..MAX_OPEN_ATTEMPTS {
        let (file, is_new) = match name.create_new(PRIVATE_MODE) {
            Ok(file) => (file, true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match open_existing(name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                opened => (opened?, false),
            },
            Err(e) => return Err(e),
        };
        if !is_file(&rustix::fs::fstat(&file)?) {
            return Err(io::Error::other("is not a regular file"));
        }
        if !is_new && !is_wanted(&file, false)? {
            continue;
        }
        // Does not wait: a busy file is reported, and --wait polls with its own intervals.
        let lock = take_write_lock(&file, WriteLockKind::Exclusive)?;
        if lock == WriteLockStatus::Busy {
            return Ok(LockedOpen::Busy);
        }
        if name.is_name_of(&file)? && (is_new || is_wanted(&file, true)?) {
            return Ok(match lock {
                WriteLockStatus::Unsupported => LockedOpen::Unlocked(file),
                _ => LockedOpen::Locked(file),
            });
        }
    }
    Err(io::Error::other("keeps being replaced"))
}

/// Opens for reading and writing what has the name. A pipe in its place must not block.
fn open_existing(name: &LocalName) -> io::Result<File> {
    name.open_with(OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW, 0)
}

/// Whether a file that is found is one that this user has made here, and alone has.
fn is_own(name: &LocalName, found: &Stat) -> io::Result<bool> {
    if found.st_nlink > 1 {
        return Ok(false);
    }
    let looks = |stat: &Stat| (stat.st_uid, stat::mode(stat) & ALL_BITS);
    if looks(found) == (own_user(), PRIVATE_MODE) {
        return Ok(true);
    }
    Ok(looks(found) == looks(&made_here(name)?))
}

/// Whether a file that is found is of the user for whom this process makes files here.
fn has_own_owner(name: &LocalName, found: &Stat) -> io::Result<bool> {
    Ok(found.st_uid == own_user() || found.st_uid == made_here(name)?.st_uid)
}

/// The attributes of an unfinished file that is made here. Some file systems have neither owners nor modes of their own:
/// whatever this user makes there looks like that.
fn made_here(name: &LocalName) -> io::Result<Stat> {
    let probe = name.beside(temporary_name("probe").as_bytes());
    let new = probe.create_new(PRIVATE_MODE)?;
    let made = rustix::fs::fstat(&new);
    probe.remove_open(&new)?;
    Ok(made?)
}

fn cannot_remove(errno: Errno) -> io::Error {
    let reason = io::Error::from(errno);
    io::Error::other(format!(
        "is not a file of this user alone, and cannot be removed: {reason}"
    ))
}

/// Opens and locks a regular file, if it exists and nobody else holds its lock. Nothing is created. `None` also where the
/// file system has no locks.
pub(crate) fn lock_existing(name: &LocalName) -> io::Result<Option<File>> {
    let file = open_existing(name)?;
    if !is_file(&rustix::fs::fstat(&file)?) {
        return Ok(None);
    }
    let lock = take_write_lock(&file, WriteLockKind::Exclusive)?;
    let is_own = lock == WriteLockStatus::Held && name.is_name_of(&file)?;
    Ok(is_own.then_some(file))
}

/// Removes a name if it is still that of this file, whose lock is held. Errors are ignored: the name of a leftover shows
/// what it is.
pub(crate) fn remove_if_same(name: &LocalName, file: &File) {
    let _ = name.remove_open(file);
}

/// A locked file that represents something that cannot be locked itself. It is removed on drop.
#[derive(Debug)]
pub(crate) struct LockFile {
    name: LocalName,
    file: File,
}

impl LockFile {
    /// The lock file, opened by [`open_locked`].
    pub(crate) fn new(name: LocalName, file: File) -> Self {
        Self { name, file }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        remove_if_same(&self.name, &self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn name(path: &Path) -> LocalName {
        LocalName::at(path).unwrap()
    }

    fn own(path: &Path) -> File {
        match open_locked(&name(path)).unwrap() {
            LockedOpen::Locked(file) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_writer_at_a_time_owns_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "kept").unwrap();
        let first = own(&path);
        assert!(matches!(open_locked(&name(&path)), Ok(LockedOpen::Busy)));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        drop(first);
        own(&path);
    }

    #[test]
    fn a_renamed_file_is_not_mistaken_for_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = own(&path);
        fs::rename(&path, dir.path().join("g")).unwrap();
        // The name is free, whoever holds the renamed file.
        let second = own(&path);
        let name = name(&path);
        assert!(!name.is_name_of(&first).unwrap());
        assert!(name.is_name_of(&second).unwrap());
        remove_if_same(&name, &first);
        assert!(path.exists());
        remove_if_same(&name, &second);
        assert!(!path.exists());
    }

    #[test]
    fn links_are_not_followed_and_new_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        fs::write(&path, "kept").unwrap();
        symlink(&path, &link).unwrap();
        assert!(open_locked(&name(&link)).is_err());
        assert!(open_locked(&name(dir.path())).is_err());
        let fresh = own(&dir.path().join("new"));
        assert_eq!(
            fresh.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_file_that_others_can_reach_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let opened = |path: &str| match open_own_locked(&name(&at(path))).unwrap() {
            (LockedOpen::Locked(file), was_foreign) => (file, was_foreign),
            other => panic!("{other:?}"),
        };
        for (path, mode, is_kept) in [("own", 0o600, true), ("open", 0o644, false)] {
            fs::write(at(path), "begun").unwrap();
            fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
            let inode = fs::metadata(at(path)).unwrap().ino();
            let held = File::open(at(path)).unwrap();
            let (file, was_foreign) = opened(path);
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.ino() == inode, was_foreign), (is_kept, !is_kept));
            assert_eq!(metadata.len() > 0, is_kept);
            assert_eq!(metadata.mode() & 0o7777, 0o600);
            drop(held);
        }
        symlink("victim", at("link")).unwrap();
        let (pipe, mode) = (dir.path().join("pipe"), Mode::from_raw_mode(0o600));
        mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        for name in ["link", "pipe"] {
            let (file, was_foreign) = opened(name);
            assert!(was_foreign && file.metadata().unwrap().is_file());
        }
        // The other name may be in a directory of somebody else.
        fs::write(at("victim"), "precious").unwrap();
        fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(at("victim"), at("linked")).unwrap();
        let (file, was_foreign) = opened("linked");
        file.set_len(0).unwrap();
        assert!(was_foreign);
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 6, "nothing is left of the looks");
    }

    #[test]
    fn a_file_of_another_user_is_made_anew() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make a file of another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "planted").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        // He may hold its lock as long as he likes.
        let _locked = own(&path);
        let (opened, was_foreign) = open_own_locked(&name(&path)).unwrap();
        assert!(matches!(opened, LockedOpen::Locked(_)) && was_foreign);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.len()), (0, 0));
    }

    #[test]
    fn a_lock_file_is_removed_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let lock_file = LockFile::new(name(&path), own(&path));
        assert!(matches!(open_locked(&name(&path)), Ok(LockedOpen::Busy)));
        drop(lock_file);
        assert!(!path.exists());
    }
}
