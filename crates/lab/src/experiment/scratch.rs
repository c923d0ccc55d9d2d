//! The files of a run: what is moved, where it goes, what programs print.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::LabError;

/// Directories that go away with it.
#[derive(Debug)]
pub(crate) struct Scratch {
    work: TempDir,
    memory: TempDir,
}

/// A file system in memory, so that no disk takes part.
const MEMORY: &str = "/dev/shm";

impl Scratch {
    /// Makes the directories: one for files to be served and for programs' output, one in memory
    /// for what is received.
    ///
    /// # Errors
    /// A full or missing file system.
    pub(crate) fn new() -> Result<Self, LabError> {
        let temporary = std::env::temp_dir();
        let memory = match Path::new(MEMORY) {
            there if there.is_dir() => there,
            _ => &temporary,
        };
        // Servers give up root and must still reach the files.
        let make = |place: &Path| {
            tempfile::Builder::new()
                .prefix("longhaul-lab-")
                .permissions(Permissions::from_mode(0o755))
                .tempdir_in(place)
                .map_err(|e| {
                    LabError::system(format!("cannot make a directory in {}", place.display()), e)
                })
        };
        Ok(Self {
            work: make(&temporary)?,
            memory: make(memory)?,
        })
    }

    /// The directory that servers serve; nothing else is in it.
    pub(crate) fn served(&self) -> PathBuf {
        self.work.path().join("served")
    }

    /// The file received by programs that need a real one.
    pub(crate) fn sink(&self) -> PathBuf {
        self.memory.path().join("received")
    }

    /// The directory, in memory, into which servers write; empty before every measurement.
    pub(crate) fn inbox(&self) -> PathBuf {
        self.memory.path().join("inbox")
    }

    /// A fresh, empty directory for one measurement; the sink is gone and the inbox empty, too.
    ///
    /// # Errors
    /// A full file system.
    pub(crate) fn clear(&self) -> Result<PathBuf, LabError> {
        let cell = self.work.path().join("cell");
        let emptied = |result: io::Result<()>| match result {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        // Sessions of a server that gave up root write into the inbox.
        let make = |directory: &Path, mode: u32| {
            emptied(std::fs::remove_dir_all(directory))
                .and_then(|()| std::fs::create_dir(directory))
                .and_then(|()| std::fs::set_permissions(directory, Permissions::from_mode(mode)))
        };
        make(&cell, 0o755)
            .and_then(|()| make(&self.inbox(), 0o777))
            .and_then(|()| emptied(std::fs::remove_file(self.sink())))
            .map_err(|e| LabError::system(format!("cannot empty {}", cell.display()), e))?;
        Ok(cell)
    }

    /// Makes the served file unless the last one had the same size: random bytes, on the disk and
    /// in the page cache, so that neither compression nor write-back is measured.
    ///
    /// # Errors
    /// A full file system.
    pub(crate) fn payload(&self, bytes: u64) -> Result<PathBuf, LabError> {
        let served = self.served();
        let path = served.join(format!("{bytes}.dat"));
        if path.is_file() {
            return Ok(path);
        }
        let made = || -> io::Result<()> {
            if served.exists() {
                std::fs::remove_dir_all(&served)?;
            }
            std::fs::create_dir(&served)?;
            std::fs::set_permissions(&served, Permissions::from_mode(0o755))?;
            let mut file = File::create(&path)?;
            io::copy(&mut File::open("/dev/urandom")?.take(bytes), &mut file)?;
            file.sync_all()?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o644))
        };
        made().map_err(|e| LabError::system(format!("cannot make {}", path.display()), e))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_served_file_has_its_size_and_is_kept_while_that_fits() {
        let scratch = Scratch::new().unwrap();
        let first = scratch.payload(100_000).unwrap();
        let content = std::fs::read(&first).unwrap();
        assert_eq!(content.len(), 100_000);
        assert!(content.iter().any(|b| *b != 0));
        assert_eq!(
            std::fs::read(scratch.payload(100_000).unwrap()).unwrap(),
            content
        );
        let second = scratch.payload(5).unwrap();
        assert_eq!(std::fs::metadata(second).unwrap().len(), 5);
        assert!(!first.exists());
    }

    #[test]
    fn each_measurement_begins_with_nothing() {
        let scratch = Scratch::new().unwrap();
        let cell = scratch.clear().unwrap();
        std::fs::write(cell.join("client.out"), "old").unwrap();
        std::fs::write(scratch.sink(), "old").unwrap();
        std::fs::write(scratch.inbox().join("sent"), "old").unwrap();
        let again = scratch.clear().unwrap();
        assert_eq!(std::fs::read_dir(again).unwrap().count(), 0);
        assert!(!scratch.sink().exists());
        assert_eq!(std::fs::read_dir(scratch.inbox()).unwrap().count(), 0);
        let (a, b) = (scratch.served(), scratch.sink());
        drop(scratch);
        assert!(!a.parent().unwrap().exists() && !b.parent().unwrap().exists());
    }
}
