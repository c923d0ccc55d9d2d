//! Replacement of a whole file.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the file, so that a crash leaves the old or the new one: the bytes are on disk before the rename, and the name
/// is on disk when this returns. The new file is first `PATH.new`, which only its owner may read; the caller excludes
/// others that replace the same file.
///
/// # Errors
/// The disk's. The old file then stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    // rename(2) is durable only once the directory is synced (fsync(2)).
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
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
}
