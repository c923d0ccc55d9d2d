//! The checksum of a stored file, computed here from its bytes.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use data::job::TransferControl;
use data::options::TransferOptions;
use data::store::Sink;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;

use crate::storage::contract::Storage;
use ftp::transfer::{RestartProof, TransferSpec};
use ftp::{Failure, ModeChoice};

/// Reads a file and computes its checksum.
///
/// # Errors
/// As [`Storage::facts`] and [`Storage::fetch`].
pub(crate) async fn read_checksum(
    storage: &mut dyn Storage,
    algorithm: ChecksumAlgorithm,
    path: &[u8],
    stall: std::time::Duration,
) -> Result<String, Failure> {
    let entry = storage.stat(path).await?;
    let spec = TransferSpec {
        size: entry.size,
        part: None,
        restart_proof: RestartProof::default(),
        destination_offset: None,
        chunks: None,
        completed_ranges: RangeSet::new(),
        // In order, as the checksum needs the bytes.
        streams: 1,
        max_streams: 1,
        adapt: false,
        prior: tune::Prior::default(),
        mode: ModeChoice::Stream,
        checksum: Some(algorithm),
        server_checksum: None,
        options: TransferOptions {
            stall,
            ..TransferOptions::default()
        },
        started: Arc::default(),
        stored_ranges: Arc::default(),
        confirmation: Arc::default(),
        data_ports: None,
    };
    let sink = Arc::new(DiscardingSink);
    let control = Arc::new(TransferControl::new());
    let attempt = storage.fetch(path, sink, &spec, &control).await?;
    attempt
        .report
        .checksum
        .ok_or_else(|| Failure::local(format!("{}: its bytes have no checksum", storage.name())))
}

/// Takes bytes in order and keeps none.
#[derive(Debug)]
struct DiscardingSink;

impl Sink for DiscardingSink {
    fn name(&self) -> String {
        "checksum".to_owned()
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use data::store::durability::SyncPolicy;

    use super::*;
    use crate::storage_access::StorageAccess;
    use ftp::FailureKind;
    use ftp::location::StorageId;
    use ftp::session::{ListingUse, SessionOpening};

    #[tokio::test]
    async fn the_checksum_of_the_bytes_is_that_of_the_file() {
        let timeout = std::time::Duration::from_secs(60);
        let access = StorageAccess {
            timeout,
            foreign_data: false,
            listing_use: ListingUse::Reading,
            sync_policy: SyncPolicy::default(),
            trees: Arc::default(),
        };
        let opening = SessionOpening::default();
        let mut storage = access.open(&StorageId::LocalFiles, opening).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for length in [0, 9, 9 << 20] {
            std::fs::write(&path, vec![7; length]).unwrap();
            let path = path.as_os_str().as_encoded_bytes();
            for algorithm in [ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Crc32c] {
                let read = read_checksum(&mut *storage, algorithm, path, timeout).await;
                let computed = storage.checksum(algorithm, 0, None, path).await;
                assert_eq!(read.unwrap(), computed.unwrap(), "{length}");
            }
        }
        let missing = read_checksum(&mut *storage, ChecksumAlgorithm::Md5, b"/none", timeout).await;
        assert_eq!(missing.unwrap_err().kind(), FailureKind::NotFound);
    }
}
