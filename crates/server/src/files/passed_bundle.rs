//! The bundle of a session's last transfer: it ends with a command of its own (SITE BUNDLE END).

use std::sync::Arc;

use data::store::bundle::{BundleSink, BundleSource};
use parking_lot::{Mutex, MutexGuard};
use proto::bundle::{BundleFailure, BundleOutcome, BundleProof, CHECKSUM};
use proto::server::{FileError, FileErrorKind};

use super::DirectoryFiles;

/// Largest bundle whose files are read again to find those that arrived wrong, bytes.
const MAX_SUMMED_BYTES: u64 = 1 << 30;

/// The bundle of a session's last transfer, until it is ended.
#[derive(Debug, Clone, Default)]
pub(super) struct LastBundle(Arc<Mutex<Option<PassedBundle>>>);

/// A bundle whose bytes have passed.
#[derive(Debug)]
pub(super) struct PassedBundle {
    checksum: Option<String>,
    files: PassedFiles,
    /// The client has got the checksums of the files.
    summed: bool,
}

/// The files of such a bundle.
#[derive(Debug)]
pub(super) enum PassedFiles {
    /// They were sent.
    Sent(Arc<BundleSource>),
    /// They were stored, and have no names yet.
    Stored(Arc<BundleSink>),
}

impl PassedBundle {
    /// A bundle whose bytes have this checksum.
    pub(super) fn new(files: PassedFiles, checksum: Option<String>) -> Self {
        Self {
            checksum,
            files,
            summed: false,
        }
    }
}

impl PassedFiles {
    fn checksums(&self) -> Vec<Option<String>> {
        match self {
            Self::Sent(source) => source.checksums(),
            Self::Stored(sink) => sink.checksums(),
        }
    }

    fn total(&self) -> u64 {
        match self {
            Self::Sent(source) => source.total(),
            Self::Stored(sink) => sink.total(),
        }
    }
}

impl LastBundle {
    /// Forgets the bundle; files without a name are removed.
    pub(super) fn take(&self) -> Option<PassedBundle> {
        self.lock().take()
    }

    /// Keeps a bundle for SITE BUNDLE END.
    pub(super) fn keep(&self, bundle: PassedBundle) {
        *self.lock() = Some(bundle);
    }

    /// The slot is consistent after every statement, so that a panic of the holder leaves it usable.
    fn lock(&self) -> MutexGuard<'_, Option<PassedBundle>> {
        self.0.lock()
    }
}

impl DirectoryFiles {
    /// Ends the bundle of the last transfer. The files of one that was stored get their names, if the proof is right. If
    /// it is wrong, the outcome has the checksums of the files, and the bundle can be ended once more.
    ///
    /// # Errors
    /// There is no bundle, its bytes have another checksum for the second time, or the disk refuses.
    pub(super) fn end_bundle(
        &self,
        proof: Option<&BundleProof>,
    ) -> Result<BundleOutcome, FileError> {
        let Some(passed) = self.last_bundle.take() else {
            return Err(other("No bundle has been transferred".to_owned()));
        };
        let checksum = passed.checksum.clone().map(|hex| (CHECKSUM, hex));
        let differs = proof.is_some_and(|proof| {
            checksum.as_ref() != Some(&(proof.algorithm, proof.checksum.clone()))
        });
        if differs {
            let sums = self.sums_of(passed)?;
            return Ok(BundleOutcome {
                checksum,
                failures: Vec::new(),
                sums,
            });
        }
        let failures = match &passed.files {
            PassedFiles::Sent(source) => {
                let failures = source.finish();
                // The client may have received other bytes.
                self.last_bundle.keep(passed);
                failures
            }
            PassedFiles::Stored(sink) => {
                let Some(proof) = proof else {
                    return Err(wrong_checksum());
                };
                let without = proof.without.iter().map(|index| BundleFailure {
                    index: *index,
                    reason: "the client could not read it".to_owned(),
                });
                sink.drop_members(&without.collect::<Vec<_>>());
                sink.finish()
                    .map_err(|error| other(format!("The bundle is not on disk: {error}")))?
            }
        };
        Ok(BundleOutcome {
            checksum,
            failures,
            sums: Vec::new(),
        })
    }

    /// The checksums of the files of a bundle, once. The bundle is kept.
    fn sums_of(&self, passed: PassedBundle) -> Result<Vec<Option<String>>, FileError> {
        if passed.summed || passed.files.total() > MAX_SUMMED_BYTES {
            return Err(wrong_checksum());
        }
        let sums = passed.files.checksums();
        self.last_bundle.keep(PassedBundle {
            summed: true,
            ..passed
        });
        Ok(sums)
    }
}

fn wrong_checksum() -> FileError {
    other("The bytes that arrived have another checksum; nothing was stored".to_owned())
}

fn other(text: String) -> FileError {
    FileError::new(FileErrorKind::Other, text)
}
