//! REST at servers that accept it and may ignore it: what they send then is from the beginning of the file.

use std::sync::Arc;

use data::job::TransferControl;
use data::store::memory::MemorySink;
use proto::client::RetrievalPlan;
use proto::command::TransferMode;
use proto::ranges::RangeSet;

use super::get::get;
use super::outcome::FailedTransfer;
use super::{RestartProof, TransferSpec};
use crate::failure::{Operation, Sentence};
use crate::session::{ClientSession, RestartEffect, display_path};
use crate::{Failure, FailureKind, ModeChoice};

/// Whether a part that begins at an offset is asked for by REST, so that nobody knows where it begins.
pub(super) fn needs_proof(session: &ClientSession, mode: TransferMode) -> bool {
    let features = session.features();
    mode == TransferMode::Stream
        && !(features.eret || features.parallel || features.ignores_rest)
        && session.habits().restart == RestartEffect::Unknown
}

/// Proves that REST has effect by the last byte of the file: a server that ignores REST sends more. Once for each server.
///
/// # Errors
/// It has no effect; the size is unknown; those of a get.
pub(super) async fn prove(
    session: &mut ClientSession,
    path: &[u8],
    spec: &TransferSpec,
) -> Result<(), Failure> {
    let size = session.stat(path).await?.size;
    let Some(last) = size.and_then(|size| size.checked_sub(1)) else {
        let reason = Sentence::from(format!("{} shows no size of ", session.name()))
            .name(display_path(path))
            .words(", so nothing proves that it sends a part of it (REST)");
        return Err(Failure::protocol(reason).advise("copy the whole file"));
    };
    if last == 0 {
        return Ok(());
    }
    let spec = TransferSpec {
        size: Some(1),
        part: Some((last, 1)),
        restart_proof: RestartProof::EndOfFile,
        destination_offset: None,
        completed_ranges: RangeSet::new(),
        chunks: None,
        mode: ModeChoice::Stream,
        checksum: None,
        confirmation: Arc::default(),
        ..spec.clone()
    };
    let sink = Arc::new(MemorySink::new(1, "the last byte"));
    let control = Arc::new(TransferControl::new());
    // Boxed: a get may begin with a proof.
    Box::pin(get(session, path, sink, &spec, &control))
        .await
        .map(drop)
}

/// Notes what the end of a transfer shows about REST. `awaited_end`: the server has ended it where the file ends.
pub(super) fn note_success(
    session: &mut ClientSession,
    retrieval: &RetrievalPlan,
    awaited_end: bool,
) {
    if retrieval.restart.is_some() && awaited_end && !retrieval.overruns {
        session.note_restart(RestartEffect::Seen);
    }
}

/// The failure of a get that got more than the rest of a file after REST. The next attempt does without.
pub(super) fn note_failure(
    session: &mut ClientSession,
    retrieval: &RetrievalPlan,
    operation: &Operation,
    failed: FailedTransfer,
) -> FailedTransfer {
    if !failed.overrun || retrieval.restart.is_none() {
        return failed;
    }
    session.note_restart(RestartEffect::Missing);
    let sent = format!("{} sent more than the rest of the file to ", session.name());
    let reason = Sentence::from(sent)
        .operation(operation)
        .words(": it ignores REST, or the file grew");
    FailedTransfer {
        failure: Failure::transient(FailureKind::Integrity, reason)
            .advise("copy it from the first byte on"),
        ..failed
    }
}
