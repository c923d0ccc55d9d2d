//! Transfers one file in several parts, so that the number of streams can change although another
//! program sends: in chunks, each with its own number, on which the tuning modes of Ito, Ohsaki and
//! Imase (2008) are defined, or over several sessions ([`shared_get`]).
//!
//! A chunk is requested by ERET P and stored by ESTO A (GFD.20 §3.5, §3.6), in extended block mode.
//! Connections are kept from one chunk to the next while their number stays the same (§3.4.3). For
//! the caller it is one transfer: its [`TransferControl`] counts all chunks, and the ranges that a
//! failed attempt stored stay valid.

mod chunk_queue;
mod chunk_session;
mod rtt_sampling;
mod sessions;
mod shared_get;

use std::sync::Arc;
use std::time::Instant;

use data::job::TransferControl;
use data::store::{Sink, Source};
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use tune::streams::chunked::{
    ChunkParameters, ChunkTuner, ChunkTuningMode, RttCommands, mode_tuner, probe_tuner_with_min,
};

use self::chunk_queue::ChunkQueue;
use self::chunk_session::{
    ChunkSession, DirectChunkSession, HeldSession, LocalStore, ThirdPartyChunkSession,
};
use self::rtt_sampling::{RttProbeSession, SharedRttAverage};
use self::sessions::{ChunkSessions, RttSource};
use super::subject::TransferSubject;
use crate::Failure;
use crate::session::ClientSession;
use crate::transfer::{Chunking, TransferAttempt, TransferSpec, negotiation};

/// Receives a file from a server. MODE S: the server listens. MODE E: this end listens, on
/// `spec.data_ports`, and the server opens the connections.
///
/// # Errors
/// The server's refusal by its class; `Local` for the sink's errors; `Integrity` when the server
/// confirmed the transfer and bytes of `spec.size` are missing; `Unreachable` (transient) for lost
/// connections: what arrived is in `control`.
pub async fn get(
    session: &mut ClientSession,
    path: &[u8],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    if spec.chunks == Some(Chunking::Probe)
        && sink.is_seekable()
        && !session.features().ignores_rest
        && let Some((_, missing)) = chunk_plan(spec)
    {
        // Boxed: the future of a get is part of many others.
        return Box::pin(shared_get::get(session, path, sink, missing, spec, control)).await;
    }
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && session.features().eret
        // Chunks arrive out of order with two sessions, so the sink must be seekable.
        && sink.is_seekable()
        && negotiation::get_mode(session, spec, &mut warnings) == TransferMode::Extended;
    let Some((chunking, missing)) = chunk_plan(spec).filter(|_| extended) else {
        let attempt = super::get::get(session, path, sink, spec, control).await;
        return attempt.map(|attempt| with_warnings(attempt, warnings));
    };
    let chunk_session = Box::new(DirectChunkSession {
        session: HeldSession::Borrowed(session),
        path: path.into(),
        local_store: LocalStore::Sink(sink),
    });
    transfer_in_chunks(chunk_session, chunking, missing, spec, control, &|_| {}).await
}

/// Sends a file to a server, which listens. `control.bytes()` counts the bytes handed to the
/// kernel; the ranges that the server reported as stored are in `spec.stored_ranges`.
///
/// # Errors
/// The server's refusal by its class; `Local` for the source's errors; `Integrity` when the server
/// confirmed a transfer of another length; `Unreachable` (transient) for lost connections.
pub async fn put(
    session: &mut ClientSession,
    source: Arc<dyn Source>,
    path: &[u8],
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && session.features().esto
        && negotiation::transfer_mode(session, spec, &mut warnings) == TransferMode::Extended;
    let Some((chunking, missing)) = chunk_plan(spec).filter(|_| extended) else {
        let attempt = super::put::put(session, source, path, spec, control).await;
        return attempt.map(|attempt| with_warnings(attempt, warnings));
    };
    let chunk_session = Box::new(DirectChunkSession {
        session: HeldSession::Borrowed(session),
        path: path.into(),
        local_store: LocalStore::Source(source),
    });
    transfer_in_chunks(chunk_session, chunking, missing, spec, control, &|_| {}).await
}

/// Transfers a file from one server to another. In MODE E the 112 markers report progress to
/// `progress`, in bytes so far. MODE S transfers report nothing until they end, so the caller has
/// to detect a stall. `control` gets the decisions about the streams and counts nothing, since the
/// bytes do not pass this machine.
///
/// # Errors
/// The refusal of the side that failed first, by its class; `Integrity` when both confirmed a
/// transfer and the last marker reports another length; `Unreachable` (transient) for lost
/// connections: the ranges that the destination reported as stored are in `spec.stored_ranges`.
pub async fn third_party(
    source: &mut ClientSession,
    source_path: &[u8],
    destination: &mut ClientSession,
    destination_path: &[u8],
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<TransferAttempt, Failure> {
    let mut warnings = Vec::new();
    // Both sides must speak MODE E: ESTO needs offsets, which only MODE E blocks carry.
    let extended = spec.chunks.is_some()
        && source.features().eret
        && destination.features().esto
        && [&mut *source, &mut *destination].into_iter().all(|end| {
            negotiation::transfer_mode(end, spec, &mut warnings) == TransferMode::Extended
        });
    let Some((chunking, missing)) = chunk_plan(spec).filter(|_| extended) else {
        let attempt = super::third_party::third_party(
            source,
            destination,
            TransferSubject::File {
                from: source_path,
                to: destination_path,
            },
            spec,
            progress,
        );
        return attempt
            .await
            .map(|attempt| with_warnings(attempt, warnings));
    };
    let chunk_session = Box::new(ThirdPartyChunkSession {
        from: HeldSession::Borrowed(source),
        from_path: source_path.into(),
        to: HeldSession::Borrowed(destination),
        to_path: destination_path.into(),
    });
    control.note_begin(Instant::now());
    transfer_in_chunks(chunk_session, chunking, missing, spec, control, progress).await
}

/// The chunking and the missing ranges, if the transfer is to run in chunks. The size must be
/// known.
fn chunk_plan(spec: &TransferSpec) -> Option<(Chunking, RangeSet)> {
    // An unknown size cannot be divided; an empty rest needs no chunks.
    let missing = spec.completed_ranges.gaps(0, spec.size?);
    Some((spec.chunks?, missing)).filter(|(_, missing)| !missing.is_empty())
}

fn with_warnings(mut attempt: TransferAttempt, mut warnings: Vec<String>) -> TransferAttempt {
    warnings.append(&mut attempt.warnings);
    TransferAttempt {
        warnings,
        ..attempt
    }
}

async fn transfer_in_chunks<'a>(
    mut chunk_session: Box<dyn ChunkSession + 'a>,
    chunking: Chunking,
    missing: RangeSet,
    spec: &'a TransferSpec,
    control: &'a Arc<TransferControl>,
    progress: &'a (dyn Fn(u64) + Send + Sync),
) -> Result<TransferAttempt, Failure> {
    let (tuner, rtt_source, sessions) = match chunking {
        Chunking::Mode(mode, parameters) => {
            let (tuner, rtt_source) =
                chunk_tuner_of_2008(chunk_session.session(), mode, parameters, spec).await;
            (tuner, rtt_source, 1)
        }
        Chunking::Probe => {
            let rtt = chunk_session.session().rtt();
            let tuner = probe_tuner_with_min(2, spec.streams, spec.max_streams, rtt);
            (tuner, RttSource::Known(rtt), 2)
        }
    };
    let queue = ChunkQueue::new(missing, tuner, sessions);
    let chunk_sessions = ChunkSessions::new(spec, control, progress, queue, rtt_source);
    chunk_sessions.transfer(chunk_session, sessions > 1).await
}

/// A tuner of the 2008 paper, and the source of its round trips. The first round trip is sampled
/// here, for the size of the first chunk (eq. 14).
async fn chunk_tuner_of_2008(
    session: &mut ClientSession,
    mode: ChunkTuningMode,
    parameters: ChunkParameters,
    spec: &TransferSpec,
) -> (Box<dyn ChunkTuner>, RttSource) {
    let average = SharedRttAverage::new(parameters.rho);
    if parameters.rtt_commands == RttCommands::OwnReplies {
        average.take_from_replies(session);
    } else {
        // A session that does not answer here fails again in the chunk's own command.
        average.sample(session).await;
    }
    let window = spec.options.buffers.pinned_bytes().unwrap_or(0);
    let tuner = mode_tuner(mode, parameters, window, average.average());
    let rtt_source = match parameters.rtt_commands {
        RttCommands::BetweenChunks => RttSource::BetweenChunks(average),
        RttCommands::OwnReplies => RttSource::OwnReplies(average),
        RttCommands::DuringChunks => {
            let probe = RttProbeSession::start(Box::pin(session.open_another()), average.clone());
            RttSource::WhileDataFlows(average, probe)
        }
    };
    (tuner, rtt_source)
}
