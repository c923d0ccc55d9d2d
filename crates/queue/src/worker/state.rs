//! The state directory of a worker: its identity, the locks of its attempts, and results that the database does not have yet.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use smallfile::{regular_file, replace};

use crate::guard::boot_time;
use crate::store::{JobResult, WorkerIdentity};

/// Longest file of a result, bytes.
const LONGEST_RESULT: u64 = 64 * 1024;
/// Longest wait for processes of an earlier worker, which the kernel has killed.
const EARLIER: Duration = Duration::from_secs(30);
/// Number of this start of the machine (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory.
    #[error("state directory: cannot use {}: {cause}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Another worker has it.
    #[error("state directory {}: another worker uses it (--state)", path.display())]
    Used {
        /// The directory.
        path: PathBuf,
    },
    /// Children of an earlier worker live.
    #[error("state directory: {} is locked: the program of an earlier worker has not ended", path.display())]
    Earlier {
        /// The lock.
        path: PathBuf,
    },
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |cause| StateError::File { path, cause }
}

/// The state directory, which no other worker uses.
#[derive(Debug)]
pub(super) struct WorkerState {
    directory: PathBuf,
    /// Held until the end of the process.
    _lock: File,
}

impl WorkerState {
    /// Takes the directory, and waits until no process of an earlier worker is left. Returns the results of that worker which the
    /// database may not have.
    pub(super) async fn open(directory: &Path) -> Result<(Self, Vec<JobResult>), StateError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(file_error(directory))?;
        let path = directory.join("lock");
        let lock = File::create(&path).map_err(file_error(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = directory.to_owned();
                return Err(StateError::Used { path });
            }
            Err(TryLockError::Error(cause)) => return Err(file_error(&path)(cause)),
        }
        let state = Self {
            directory: directory.to_owned(),
            _lock: lock,
        };
        let mut results = Vec::new();
        let entries = fs::read_dir(directory).map_err(file_error(directory))?;
        for entry in entries {
            let path = entry.map_err(file_error(directory))?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("attempt") => {
                    until_free(&path).await?;
                    fs::remove_file(&path).map_err(file_error(&path))?;
                }
                Some("rate") => fs::remove_file(&path).map_err(file_error(&path))?,
                Some("result") => results.extend(read_result(&path)),
                _ => {}
            }
        }
        Ok((state, results))
    }

    /// Who this worker is.
    pub(super) fn identity(&self, name: &str) -> Result<WorkerIdentity, StateError> {
        let path = self.directory.join("identity");
        let own = match regular_file::read_to_string(&path, 64) {
            Ok(text) if text.len() == 32 => text,
            Ok(_) => String::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(file_error(&path)(cause)),
        };
        let own = match own.is_empty() {
            false => own,
            true => {
                let own = random_name().map_err(file_error(&path))?;
                replace(&path, own.as_bytes()).map_err(file_error(&path))?;
                own
            }
        };
        // A copy of this directory on another machine is another holder: it has not seen the locks of this one's children.
        let boot = Path::new(BOOT_ID);
        let boot_id = fs::read_to_string(boot).map_err(file_error(boot))?;
        Ok(WorkerIdentity {
            name: name.to_owned(),
            holder: format!("{own}/{}", boot_id.trim()),
            session: random_name().map_err(file_error(&self.directory))?,
        })
    }

    /// The lock of an attempt.
    pub(super) fn attempt_lock(&self, id: i64, number: u32) -> PathBuf {
        self.directory.join(format!("{id}-{number}.attempt"))
    }

    /// The file with the rate of an attempt.
    pub(super) fn rate_file(&self, id: i64, number: u32) -> PathBuf {
        self.directory.join(format!("{id}-{number}.rate"))
    }

    /// Writes the rate of an attempt, bits per second.
    pub(super) fn write_rate(
        &self,
        id: i64,
        number: u32,
        rate: Option<u64>,
    ) -> Result<(), StateError> {
        let path = self.rate_file(id, number);
        let text = match rate {
            // Less than a byte per second is not a rate of the program.
            Some(rate) => format!("{}bit\n", rate.max(8)),
            None => "off\n".to_owned(),
        };
        replace(&path, text.as_bytes()).map_err(file_error(&path))
    }

    /// Keeps a result until [`forget`](Self::forget), and removes what else the attempt had.
    pub(super) fn keep(&self, result: &JobResult) -> Result<(), StateError> {
        let path = self.result_file(result.id, result.number);
        let text = serde_json::to_vec(result).unwrap_or_default();
        replace(&path, &text).map_err(file_error(&path))?;
        for path in [
            self.attempt_lock(result.id, result.number),
            self.rate_file(result.id, result.number),
        ] {
            // One that stays is removed when a worker starts here.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Removes a result that the database has.
    pub(super) fn forget(&self, result: &JobResult) {
        // One that stays is written again when a worker starts here, which changes nothing.
        let _ = fs::remove_file(self.result_file(result.id, result.number));
    }

    fn result_file(&self, id: i64, number: u32) -> PathBuf {
        self.directory.join(format!("{id}-{number}.result"))
    }
}

/// Waits until nobody holds the lock of an attempt.
async fn until_free(path: &Path) -> Result<(), StateError> {
    let file = File::open(path).map_err(file_error(path))?;
    let deadline = boot_time() + EARLIER;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(cause)) => return Err(file_error(path)(cause)),
            Err(TryLockError::WouldBlock) if boot_time() > deadline => {
                let path = path.to_owned();
                return Err(StateError::Earlier { path });
            }
            Err(TryLockError::WouldBlock) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// A result that cannot be read is left where it is: the job runs again when its lease has ended.
fn read_result(path: &Path) -> Option<JobResult> {
    let text = regular_file::read_to_string(path, LONGEST_RESULT);
    let read = text.map(|text| serde_json::from_str(&text));
    match read {
        Ok(Ok(result)) => Some(result),
        Ok(Err(error)) => {
            tracing::warn!(
                "the result in {} is not understood: {error}",
                path.display()
            );
            None
        }
        Err(error) => {
            tracing::warn!("the result in {} cannot be read: {error}", path.display());
            None
        }
    }
}

/// 128 random bits.
fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::retry::AttemptEnd;

    fn result() -> JobResult {
        JobResult {
            id: 3,
            number: 1,
            session: "s".to_owned(),
            end: AttemptEnd::Exited(0),
            error: None,
            bytes: Some(9),
            files: Some(1),
            seconds: Some(0.1),
            verified: None,
        }
    }

    #[tokio::test]
    async fn one_worker_has_the_directory_and_the_next_finds_its_results() {
        let directory = tempfile::tempdir().unwrap();
        let (state, found) = WorkerState::open(directory.path()).await.unwrap();
        assert!(found.is_empty());
        let second = WorkerState::open(directory.path()).await;
        assert!(matches!(second, Err(StateError::Used { .. })));
        let first = state.identity("w").unwrap();
        state.write_rate(3, 1, Some(1000)).unwrap();
        state.keep(&result()).unwrap();
        drop(state);
        let (state, found) = WorkerState::open(directory.path()).await.unwrap();
        assert_eq!(found, [result()]);
        let second = state.identity("w").unwrap();
        assert!(first.holder == second.holder && first.session != second.session);
        state.forget(&result());
        drop(state);
        let (_, found) = WorkerState::open(directory.path()).await.unwrap();
        assert!(found.is_empty());
        assert!(!directory.path().join("3-1.rate").exists());
    }

    #[tokio::test]
    async fn a_worker_waits_for_the_children_of_an_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let held = File::create(directory.path().join("3-1.attempt")).unwrap();
        held.lock().unwrap();
        let opened = WorkerState::open(directory.path());
        let mut opened = std::pin::pin!(opened);
        let early = tokio::time::timeout(Duration::from_millis(60), opened.as_mut()).await;
        assert!(early.is_err());
        drop(held);
        assert!(opened.await.is_ok());
    }
}
