//! Bytes from an open file to an open file, within this machine.

use std::num::NonZero;
use std::sync::Arc;

use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::pull::{self, FileOrigin, PullPlan};
use data::store::{Sink, Source};
use proto::ranges::RangeSet;

use crate::transfer::outcome::pull_failure;
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::{CopyFailure, Exit};

/// Bytes that one thread copies before it takes the next piece.
const PIECE: u64 = 8 << 20;
/// Files from this size on are copied by several threads, if nothing else was asked for.
const LARGE: u64 = 64 << 20;
/// Most threads, if nothing else was asked for: a few keep a disk or a file server busy.
const MOST_THREADS: u32 = 4;

/// Copies what `spec` says is missing, by as many threads as it says streams: more than one store their
/// pieces in any order. Where the whole is missing and the file system can, the copy shares
/// the source's blocks.
///
/// # Errors
/// `Local` for what the disk says, `Integrity` when the source becomes shorter.
pub(crate) async fn copy(
    source: Arc<dyn Source>,
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, CopyFailure> {
    let plan = PullPlan {
        origin: spec.part.map_or(0, |(offset, _)| offset),
        missing: spec.size.map(|size| spec.completed_ranges.gaps(0, size)),
        piece: PIECE,
        view: None,
    };
    let settings = TransferSettings {
        options: spec.options.clone(),
        streams: usize::try_from(spec.streams.max(1)).unwrap_or(1),
        checksum: spec.checksum.filter(|_| spec.completed_ranges.is_empty()),
        ..TransferSettings::default()
    };
    let doing = format!("copy {}", source.name());
    let whole = spec.completed_ranges.is_empty() && spec.part.is_none();
    let running = Arc::clone(control);
    let moved =
        tokio::task::spawn_blocking(move || run(source, &sink, plan, whole, &settings, &running));
    let moved = moved
        .await
        .map_err(|e| CopyFailure::new(Exit::Local, e.to_string()))?;
    let report =
        moved.map_err(|error| pull_failure("this machine", &doing, &error, &spec.confirmation))?;
    Ok(TransferAttempt {
        streams: report.evidence.streams.max(1),
        buffers: spec.options.buffers,
        report,
        ..TransferAttempt::default()
    })
}

fn run(
    source: Arc<dyn Source>,
    sink: &Arc<dyn Sink>,
    mut plan: PullPlan,
    whole: bool,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, DataError> {
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

/// Threads for a file of this size, if no number was asked for: several for a large one.
pub(crate) fn threads(size: Option<u64>) -> u32 {
    // Who asks for the number of cores reads files of the kernel: not for each of many small files.
    if size.is_none_or(|size| size < LARGE) {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(cores).map_or(MOST_THREADS, |cores| cores.min(MOST_THREADS))
}

#[cfg(test)]
mod tests {
    use data::store::file::{FileSink, FileSource};

    use super::*;
    use crate::storage::conformance::spec;

    #[tokio::test]
    async fn a_source_that_ends_before_its_size_is_no_whole_copy() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"short").unwrap();
        let source = Arc::new(FileSource::new(file, "s").unwrap());
        let sink = Arc::new(FileSink::new(tempfile::tempfile().unwrap(), "d").unwrap());
        let announced = spec(Some(10));
        let failed = copy(source, sink, &announced, &Arc::default()).await;
        assert_eq!(failed.unwrap_err().exit, Exit::Integrity);
    }
}
