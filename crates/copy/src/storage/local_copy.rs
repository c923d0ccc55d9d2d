//! Copies from an open file to an open file on this machine.

use std::num::NonZero;
use std::sync::Arc;

use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::pull::{self, FileOrigin, PullPlan};
use data::store::{Sink, Source};
use proto::ranges::RangeSet;

use ftp::Failure;
use ftp::failure::Operation;
use ftp::transfer::outcome::pull_failure;
use ftp::transfer::{TransferAttempt, TransferSpec};

/// Bytes that one thread copies before it takes the next range.
const BYTES_PER_STEP: u64 = 8 << 20;
/// Size from which a file is copied by several threads by default.
const PARALLEL_FROM: u64 = 64 << 20;
/// Most threads by default. A few are enough to keep a disk or file server busy.
const MAX_THREADS: u32 = 4;

/// Copies the ranges that are missing according to `spec`, with one thread for each stream. Several
/// threads store their ranges in any order. If the whole file is missing and the file system
/// supports it, the copy shares the source's blocks (FICLONE).
///
/// # Errors
/// `Local` for disk errors. `Integrity` if the source became shorter.
pub(crate) async fn copy_local(
    source: Arc<dyn Source>,
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    let plan = PullPlan {
        origin: spec.part.map_or(0, |(offset, _)| offset),
        missing: spec.size.map(|size| spec.completed_ranges.gaps(0, size)),
        piece: BYTES_PER_STEP,
        view: None,
    };
    let settings = TransferSettings {
        options: spec.options.clone(),
        streams: usize::try_from(spec.streams.max(1)).unwrap_or(1),
        checksum: spec.checksum.filter(|_| spec.completed_ranges.is_empty()),
        ..TransferSettings::default()
    };
    let action = Operation::on("copy", source.name());
    let whole = spec.completed_ranges.is_empty() && spec.part.is_none();
    let control = Arc::clone(control);
    let result = tokio::task::spawn_blocking(move || {
        copy_blocking(source, &sink, plan, whole, &settings, &control)
    });
    let result = result.await.map_err(|e| Failure::local(e.to_string()))?;
    let report = result
        .map_err(|error| pull_failure("this machine", &action, &error, &spec.confirmation))?;
    Ok(TransferAttempt {
        streams: report.evidence.streams.max(1),
        buffers: spec.options.buffers,
        report,
        ..TransferAttempt::default()
    })
}

fn copy_blocking(
    source: Arc<dyn Source>,
    sink: &Arc<dyn Sink>,
    mut plan: PullPlan,
    whole: bool,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, DataError> {
    // A clone takes no time, so it would ignore a rate limit.
    if whole && settings.options.rate.is_none() {
        let length = plan.missing.as_ref().map(RangeSet::end);
        if let Some(length) = length
            && let Some(report) = pull::clone_file(&*source, &**sink, length, control)?
        {
            return Ok(report);
        }
    }
    let seekable = source.fd().is_some();
    plan.view = seekable.then(|| (Arc::clone(&source), plan.origin));
    pull::run(&FileOrigin(source), sink, &plan, settings, control)
}

/// Default number of threads for a file of this size.
pub(crate) fn default_threads(size: Option<u64>) -> u32 {
    // Reading the number of cores opens files in /proc and /sys, which is too slow for many small
    // files.
    if size.is_none_or(|size| size < PARALLEL_FROM) {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(cores).map_or(MAX_THREADS, |cores| cores.min(MAX_THREADS))
}

#[cfg(test)]
mod tests {
    use data::store::file::{FileSink, FileSource};

    use super::*;
    use crate::storage::conformance::spec;
    use ftp::FailureKind;

    #[tokio::test]
    async fn a_source_shorter_than_its_size_fails() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"short").unwrap();
        let source = Arc::new(FileSource::new(file, "s").unwrap());
        let sink = Arc::new(FileSink::new(tempfile::tempfile().unwrap(), "d").unwrap());
        let announced = spec(Some(10));
        let failed = copy_local(source, sink, &announced, &Arc::default()).await;
        assert_eq!(failed.unwrap_err().kind(), FailureKind::Integrity);
    }
}
