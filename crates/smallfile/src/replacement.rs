//! Replacement of a whole file.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// Replaces the file, so that a crash leaves the old or the new one: the bytes are on disk before the rename, and the name
/// is on disk when this returns. The new file is first `PATH.new`, which only its owner may read; the caller excludes
/// others that replace the same file.
///
/// # Errors
/// The disk's. The old file then stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with_mode(path, content, 0o600)
}

/// As [`replace`], with the permissions of the new file, less those that the umask takes.
///
/// # Errors
/// The disk's. The old file then stays.
pub fn replace_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let new = new_path(path);
    // One that a crash has left, or a link: neither its mode nor its place is that of the new file.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(mode).open(&new)?;
    let replaced = write_synced(&file, content).and_then(|()| std::fs::rename(&new, path));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    replaced?;
    sync_directory_of(path)
}

fn new_path(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    PathBuf::from(new)
}

/// Synced before the rename, or a crash could leave an empty file (fsync(2)).
fn write_synced(mut file: &File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

/// rename(2) is durable only once the directory is synced (fsync(2)).
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// A change of a file that begins before the old one is read. Until it is committed or dropped, no other one begins, because
/// only one process can create `PATH.new` (`O_EXCL`, open(2)).
#[derive(Debug)]
pub struct FileReplacement {
    path: PathBuf,
    new: PathBuf,
    file: File,
    committed: bool,
}

impl FileReplacement {
    /// Begins a change. Only its owner may read the new file.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]: another change goes on, or was killed. Others: the disk's.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let new = new_path(path);
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        Ok(Self {
            path: path.to_owned(),
            new,
            file,
            committed: false,
        })
    }

    /// The new file of a change of `path`, to be named to people.
    pub fn new_path(path: &Path) -> PathBuf {
        new_path(path)
    }

    /// Replaces the file as [`replace`] does. The new one has the owner of the old one: otherwise a change by root would lock
    /// out a program that runs as another account.
    ///
    /// # Errors
    /// The disk's. The old file then stays.
    pub fn commit(mut self, content: &[u8]) -> io::Result<()> {
        let owner = |metadata: &Metadata| (metadata.uid(), metadata.gid());
        match self.path.metadata() {
            Ok(old) if owner(&old) != owner(&self.file.metadata()?) => {
                fchown(&self.file, Some(old.uid()), Some(old.gid()))?;
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        write_synced(&self.file, content)?;
        std::fs::rename(&self.new, &self.path)?;
        // From here on, the name is that of the next change.
        self.committed = true;
        sync_directory_of(&self.path)
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        if !self.committed {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_replaced_file_has_the_new_content_and_one_that_cannot_be_written_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        replace(&path, b"first, longer").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        std::fs::create_dir(dir.path().join("record.new")).unwrap();
        replace(&path, b"third").unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
    }

    #[test]
    fn a_file_that_a_crash_left_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("record"), dir.path().join("other"));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join("record.new")).unwrap();
        replace_with_mode(&path, b"new", 0o600).unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read(&other).unwrap(), b"kept");
    }

    #[test]
    fn a_change_excludes_others_until_it_is_committed_or_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let change = FileReplacement::begin(&path).unwrap();
        let other = FileReplacement::begin(&path).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AlreadyExists);
        drop(change);
        FileReplacement::begin(&path)
            .unwrap()
            .commit(b"first")
            .unwrap();
        let change = FileReplacement::begin(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        change.commit(b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }
}
