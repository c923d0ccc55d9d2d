//! The checksum of a file that is computed while the file is sent, for the CKSM that follows.

use std::fs::File;
use std::io;
use std::sync::Arc;

use data::job::TransferReport;
use proto::checksum::ChecksumAlgorithm;

use crate::files::checksum_cache::UnreadFile;
use crate::files::{ChecksumCache, SessionFiles};

/// A checksum to compute of the bytes of a file that is sent as a whole.
#[derive(Debug)]
pub struct PassingChecksum {
    algorithm: ChecksumAlgorithm,
    before: UnreadFile,
    cache: Arc<ChecksumCache>,
}

impl SessionFiles {
    /// `None` if the result could not be cached, or is already.
    pub(super) fn passing_checksum(
        &self,
        file: &File,
        algorithm: ChecksumAlgorithm,
    ) -> io::Result<Option<PassingChecksum>> {
        let before = UnreadFile::new(file.try_clone()?)?;
        let is_settled = !self.uploads.is_being_written(before.state.inode);
        let is_wanted = is_settled && self.checksums.get(&before.state, algorithm).is_none();
        Ok(is_wanted.then(|| PassingChecksum {
            algorithm,
            before,
            cache: Arc::clone(&self.checksums),
        }))
    }
}

impl PassingChecksum {
    /// Algorithm of the checksum ([`data::job::TransferSettings::checksum`]).
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// Caches the checksum of the bytes that were sent, if they are those of one state of the file.
    pub fn sent(self, report: &TransferReport) {
        let is_whole = report.evidence.bytes == self.before.state.size;
        if let Some(checksum) = report.checksum.as_ref().filter(|_| is_whole) {
            self.cache
                .insert_if_unchanged(&self.before, self.algorithm, checksum);
        }
    }
}
