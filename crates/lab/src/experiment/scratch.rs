//! The directories of a run: for files to serve, for received files and for the programs' output.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Mode;
use super::definition::tree::TreeDefinition;
use super::process::Interrupts;
use super::process::leftovers::{self, OwnedDirectory};
use crate::LabError;

/// The directories of an experiment. They are removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    work: OwnedDirectory,
    memory: OwnedDirectory,
}

/// The bytes written between two checks for a signal: a slow disk needs about a second for them.
const PIECE_BYTES: u64 = 32 << 20;

impl Scratch {
    /// Creates the directories: one for served files and the programs' output, and one in memory for
    /// received files.
    ///
    /// # Errors
    /// [`LabError::System`]: a file system is full or does not exist.
    pub(crate) fn new() -> Result<Self, LabError> {
        let [work, memory] = leftovers::locations();
        Ok(Self {
            work: OwnedDirectory::new_in(&work)?,
            memory: OwnedDirectory::new_in(&memory)?,
        })
    }

    /// Returns the directory on disk, whose path also marks the processes of this experiment
    /// ([`leftovers::MARK`]).
    pub(crate) fn mark(&self) -> &Path {
        self.work.path()
    }

    /// Returns the directory that servers serve. It has no other files.
    pub(crate) fn served(&self) -> PathBuf {
        self.work.path().join("served")
    }

    /// Returns the path, in memory, for the received file of a client that cannot write to `/dev/null`.
    pub(crate) fn sink(&self) -> PathBuf {
        self.memory.path().join("received")
    }

    /// Returns the directory, in memory, into which servers write. It is empty before every measurement.
    pub(crate) fn inbox(&self) -> PathBuf {
        self.memory.path().join("inbox")
    }

    /// Returns the same on the disk.
    pub(crate) fn disk_inbox(&self) -> PathBuf {
        self.work.path().join("inbox")
    }

    /// Waits until the disk has all that earlier runs wrote, so that no write-back disturbs the next one.
    ///
    /// # Errors
    /// [`LabError::System`]: the disk reports an error.
    pub(crate) fn sync_disk(&self) -> Result<(), LabError> {
        let place = self.work.path();
        sync_file_system(place)
            .map_err(|e| LabError::system(format!("cannot sync {}", place.display()), e))
    }

    /// Creates an empty directory for one measurement, empties the inboxes and removes the sink.
    ///
    /// # Errors
    /// [`LabError::System`]: a directory cannot be removed or created.
    pub(crate) fn clear(&self) -> Result<PathBuf, LabError> {
        let cell = self.work.path().join("cell");
        let emptied = |result: io::Result<()>| match result {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        // An inbox is writable for all, because sessions of a server that dropped root write into it.
        let make = |directory: &Path, mode: u32| {
            emptied(std::fs::remove_dir_all(directory))
                .and_then(|()| std::fs::create_dir(directory))
                .and_then(|()| std::fs::set_permissions(directory, Permissions::from_mode(mode)))
        };
        make(&cell, 0o755)
            .and_then(|()| make(&self.inbox(), 0o777))
            .and_then(|()| make(&self.disk_inbox(), 0o777))
            .and_then(|()| emptied(std::fs::remove_file(self.sink())))
            .map_err(|e| LabError::system(format!("cannot empty {}", cell.display()), e))?;
        Ok(cell)
    }

    /// Creates the served file unless the last one has the same size. Its bytes are random, so that no program
    /// gains by compression; they are synced, so that no write-back disturbs the run, and in the page cache.
    /// `None`: the user wants to stop.
    ///
    /// # Errors
    /// [`LabError::System`]: the file system is full.
    pub(crate) fn make_payload(
        &self,
        bytes: u64,
        interrupts: &Interrupts,
    ) -> Result<Option<PathBuf>, LabError> {
        self.make_served(&format!("{bytes}.dat"), |part| {
            let mut file = File::create(part)?;
            let mut random = File::open("/dev/urandom")?.take(bytes);
            while random.limit() > 0 {
                if interrupts.has_signal() {
                    return Ok(false);
                }
                io::copy(&mut random.by_ref().take(PIECE_BYTES), &mut file)?;
                file.sync_data()?;
            }
            file.sync_all()?;
            std::fs::set_permissions(part, Permissions::from_mode(0o644))?;
            Ok(true)
        })
    }

    /// Creates a served tree of files in the same way; it is reused if it is the last that was served.
    ///
    /// # Errors
    /// [`LabError::System`]: the file system is full.
    pub(crate) fn make_tree(
        &self,
        name: &str,
        tree: &TreeDefinition,
        (mode, seed): (Mode, u64),
        interrupts: &Interrupts,
    ) -> Result<Option<PathBuf>, LabError> {
        self.make_served(&tree.directory_name(name, mode), |part| {
            let whole = tree.make(part, (mode, seed), interrupts)?;
            sync_file_system(part)?;
            Ok(whole)
        })
    }

    /// Makes what is served, by `make`, which returns whether it is whole. `None`: it is not.
    fn make_served(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> io::Result<bool>,
    ) -> Result<Option<PathBuf>, LabError> {
        let served = self.served();
        let path = served.join(name);
        if path.exists() {
            return Ok(Some(path));
        }
        let made = || -> io::Result<bool> {
            if served.exists() {
                std::fs::remove_dir_all(&served)?;
            }
            std::fs::create_dir(&served)?;
            std::fs::set_permissions(&served, Permissions::from_mode(0o755))?;
            // It gets its final name when it is complete, so that an interrupted one is never reused.
            let part = served.join("part");
            if !make(&part)? {
                return Ok(false);
            }
            std::fs::rename(&part, &path)?;
            Ok(true)
        };
        let whole =
            made().map_err(|e| LabError::system(format!("cannot make {}", path.display()), e))?;
        Ok(whole.then_some(path))
    }
}

/// Writes all that is dirty in the file system of `place`.
fn sync_file_system(place: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(place)?)?)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{SigSet, Signal, raise};

    use super::*;

    fn payload(scratch: &Scratch, bytes: u64) -> Option<PathBuf> {
        let interrupts = Interrupts::block().unwrap();
        scratch.make_payload(bytes, &interrupts).unwrap()
    }

    #[test]
    fn the_creation_of_a_payload_stops_when_a_signal_arrives() {
        let scratch = Scratch::new().unwrap();
        let before = SigSet::thread_get_mask().unwrap();
        let interrupts = Interrupts::block().unwrap();
        raise(Signal::SIGTERM).unwrap();
        // One byte more than is written between two checks.
        assert_eq!(
            scratch.make_payload(PIECE_BYTES + 1, &interrupts).unwrap(),
            None
        );
        assert_eq!(std::fs::read_dir(scratch.served()).unwrap().count(), 1);
        // The signal is consumed here; otherwise it would end the test.
        assert_eq!(
            SigSet::from(Signal::SIGTERM).wait().unwrap(),
            Signal::SIGTERM
        );
        drop(interrupts);
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
        assert_eq!(payload(&scratch, 3).unwrap().metadata().unwrap().len(), 3);
    }

    #[test]
    fn the_served_file_has_the_requested_size_and_is_reused_for_it() {
        let scratch = Scratch::new().unwrap();
        let first = payload(&scratch, 100_000).unwrap();
        let content = std::fs::read(&first).unwrap();
        assert_eq!(content.len(), 100_000);
        assert!(content.iter().any(|b| *b != 0));
        assert_eq!(
            std::fs::read(payload(&scratch, 100_000).unwrap()).unwrap(),
            content
        );
        let second = payload(&scratch, 5).unwrap();
        assert_eq!(std::fs::metadata(second).unwrap().len(), 5);
        assert!(!first.exists());
    }

    #[test]
    fn each_measurement_begins_with_empty_directories() {
        let scratch = Scratch::new().unwrap();
        let cell = scratch.clear().unwrap();
        std::fs::write(cell.join("client.out"), "old").unwrap();
        std::fs::write(scratch.sink(), "old").unwrap();
        for inbox in [scratch.inbox(), scratch.disk_inbox()] {
            std::fs::write(inbox.join("sent"), "old").unwrap();
        }
        let again = scratch.clear().unwrap();
        assert_eq!(std::fs::read_dir(again).unwrap().count(), 0);
        assert!(!scratch.sink().exists());
        for inbox in [scratch.inbox(), scratch.disk_inbox()] {
            assert_eq!(std::fs::read_dir(inbox).unwrap().count(), 0);
        }
        let (a, b) = (scratch.served(), scratch.sink());
        drop(scratch);
        assert!(!a.parent().unwrap().exists() && !b.parent().unwrap().exists());
    }
}
