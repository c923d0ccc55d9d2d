//! Checksums of files that this process can read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::checksum::checksum_source;
use data::store::Source;
use ftp::failure::Operation;
use ftp::{Failure, FailureKind};
use proto::checksum::ChecksumAlgorithm;

/// Computes the checksum of a local file on a thread for blocking calls. Dropping the future stops
/// it.
pub(crate) async fn checksum_local(
    algorithm: ChecksumAlgorithm,
    source: Arc<dyn Source>,
    offset: u64,
    length: Option<u64>,
) -> Result<String, Failure> {
    let stop_guard = StopChecksumOnDrop(Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop_guard.0);
    let name = source.name();
    let checksum = tokio::task::spawn_blocking(move || {
        // spawn_blocking tasks cannot be aborted, so the flag ends the reading.
        let mut keep_reading = |_| !stopped.load(Ordering::Relaxed);
        checksum_source(
            algorithm,
            source.as_ref(),
            offset,
            length,
            &mut keep_reading,
        )
    });
    let operation = Operation::on("compute the checksum of", name);
    match checksum.await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(e)) => Err(operation.failed(FailureKind::Local, e)),
        Err(e) => Err(operation.failed(FailureKind::Local, e)),
    }
}

struct StopChecksumOnDrop(Arc<AtomicBool>);

impl Drop for StopChecksumOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
