//! The part of a series that depends on its direction.

use std::sync::Arc;

use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::Source;
use proto::command::{Command, TransferMode};
use proto::ranges::RangeSet;

use super::super::TransferSpec;
use super::super::exchange::LocalTransfer;
use super::files::{SeriesEnd, SeriesFile};
use crate::session::checksum::CONCURRENT_FROM;

/// The path at the server while the file moves.
pub(super) fn path_of<'f>(end: &SeriesEnd, file: &'f SeriesFile) -> &'f [u8] {
    match end {
        SeriesEnd::Receive(_) => &file.path,
        SeriesEnd::Send(_) => &file.partial,
    }
}

/// Whether the size at the server is compared after the transfer: always of stored files. A source that takes long to
/// read may have changed meanwhile.
pub(super) fn needs_size(end: &SeriesEnd, file: &SeriesFile, mode: TransferMode) -> bool {
    match end {
        SeriesEnd::Send(_) => true,
        SeriesEnd::Receive(_) => mode == TransferMode::Extended || file.size >= CONCURRENT_FROM,
    }
}

/// The commands that give a stored file its time and name; none for fetched ones.
pub(super) fn naming_commands(end: &SeriesEnd, file: &SeriesFile, sets_time: bool) -> Vec<Command> {
    if matches!(end, SeriesEnd::Receive(_)) {
        return Vec::new();
    }
    let time = file.modified.filter(|_| sets_time);
    let time = time.map(|time| Command::Mfmt(time, file.partial.clone()));
    let names = [
        Command::Rnfr(file.partial.clone()),
        Command::Rnto(file.path.clone()),
    ];
    time.into_iter().chain(names).collect()
}

/// Why the bytes that were sent are not those of the file.
pub(super) fn fault(end: &SeriesEnd, index: usize) -> Option<String> {
    match end {
        SeriesEnd::Receive(_) => None,
        SeriesEnd::Send(source) => source.fault(index),
    }
}

/// The specification of one file.
pub(super) fn file_spec(end: &SeriesEnd, file: &SeriesFile, spec: &TransferSpec) -> TransferSpec {
    let (part, destination_offset) = match end {
        SeriesEnd::Receive(_) => (None, Some(file.start)),
        SeriesEnd::Send(_) => (Some((file.start, file.size)), None),
    };
    TransferSpec {
        size: Some(file.size),
        part,
        destination_offset,
        ..spec.clone()
    }
}

/// This end's part of the transfer of one file.
pub(super) fn local_transfer(end: &SeriesEnd, file: &SeriesFile) -> LocalTransfer {
    match end {
        SeriesEnd::Receive(sink) => LocalTransfer::Receive {
            sink: Arc::clone(sink),
            plan: ReceivePlan {
                origin: file.start,
                stream_start: 0,
                limit: Some(file.size),
            },
            server_overruns: false,
        },
        SeriesEnd::Send(source) => {
            let mut ranges = RangeSet::new();
            ranges.insert(file.start, file.start.saturating_add(file.size));
            LocalTransfer::Send {
                source: Arc::clone(source) as Arc<dyn Source>,
                plan: SendPlan::new(ranges, file.start),
            }
        }
    }
}
