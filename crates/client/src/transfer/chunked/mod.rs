//! One file in chunks, each a transfer of its own with its own number of streams: the only way to
//! change that number where the sender is somebody else's, or where the 2008 modes are asked for.
//!
//! A chunk is asked for by ERET P and stored by ESTO A (GFD.20 §3.5, §3.6), in extended block mode;
//! connections are kept from one to the next while their number stays (§3.4.3). The whole is one
//! transfer to the caller: its [`TransferControl`] counts all chunks, what an attempt made safe stays safe.

mod chunk_queue;
mod chunk_session;
mod outcome;
mod rtt_sampling;
mod sessions;

use std::sync::Arc;

use data::job::TransferControl;
use data::store::{Sink, Source};
use proto::command::TransferMode as Wire;
use proto::ranges::RangeSet;
use tune::streams::chunked::{
    self as policy, ChunkParameters, ChunkTuner, ChunkTuningMode, RttCommands as When,
};

use self::chunk_queue::ChunkQueue;
use self::chunk_session::{
    ChunkSession, DirectChunkSession, HeldSession, LocalStore, ThirdPartyChunkSession,
};
use self::rtt_sampling::{RttProbeSession, SharedRttAverage};
use self::sessions::{ChunkSessions, RttSource};
use super::get::get as get_whole;
use super::put::put as put_whole;
use super::third_party::third_party as pass_whole;
use super::{TransferAttempt, TransferSpec, negotiation};
use crate::CopyFailure;
use crate::session::ClientSession;

/// How a transfer is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chunking {
    /// One after the other over one session, by a mode of 2008.
    Mode(ChunkTuningMode, ChunkParameters),
    /// Two at a time over a session each, so that the path never drains between them; their number
    /// of streams by the goodput that they reach.
    Probe,
}

/// Server to this machine. MODE S: the server listens; MODE E: this end listens, on
/// `spec.data_ports`, and the server opens the connections.
///
/// # Errors
/// The server's refusal by its class; `Local` for the sink's errors; `Integrity` when the server
/// confirmed a transfer that did not bring all of `spec.size`; `Unreachable` (transient) for lost
/// connections: what arrived is in `control`.
pub async fn get(
    session: &mut ClientSession,
    path: &[u8],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, CopyFailure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && session.features().eret
        && sink.is_seekable()
        && negotiation::get_mode(session, spec, &mut warnings) == Wire::Extended;
    let Some((chunks, missing)) = chunk_plan(spec).filter(|_| extended) else {
        let attempt = get_whole(session, path, sink, spec, control).await;
        return attempt.map(|attempt| with_warnings(attempt, warnings));
    };
    let lane = Box::new(DirectChunkSession {
        session: HeldSession::Borrowed(session),
        path: path.into(),
        local_store: LocalStore::Sink(sink),
    });
    transfer_in_chunks(lane, chunks, missing, spec, control, &|_| {}).await
}

/// This machine to server; the server listens. `control.bytes()` counts what was handed to the
/// kernel; what the server reported as stored is in `spec.marked`.
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
) -> Result<TransferAttempt, CopyFailure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && session.features().esto
        && negotiation::transfer_mode(session, spec, &mut warnings) == Wire::Extended;
    let Some((chunks, missing)) = chunk_plan(spec).filter(|_| extended) else {
        let attempt = put_whole(session, source, path, spec, control).await;
        return attempt.map(|attempt| with_warnings(attempt, warnings));
    };
    let lane = Box::new(DirectChunkSession {
        session: HeldSession::Borrowed(session),
        path: path.into(),
        local_store: LocalStore::Source(source),
    });
    transfer_in_chunks(lane, chunks, missing, spec, control, &|_| {}).await
}

/// Server to server. Progress arrives by 112 markers (MODE E) in `progress`, bytes so far;
/// MODE S transfers are silent until they end, so that the caller has to look for a stall there.
///
/// # Errors
/// The refusal of the side that failed first, by its class; `Integrity` when both confirmed a
/// transfer whose last marker tells another length; `Unreachable` (transient) for lost
/// connections: what the destination reported as stored is in `spec.marked`.
pub async fn third_party(
    source: &mut ClientSession,
    source_path: &[u8],
    destination: &mut ClientSession,
    destination_path: &[u8],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<TransferAttempt, CopyFailure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && source.features().eret
        && destination.features().esto
        && [&mut *source, &mut *destination]
            .into_iter()
            .all(|end| negotiation::transfer_mode(end, spec, &mut warnings) == Wire::Extended);
    let Some((chunks, missing)) = chunk_plan(spec).filter(|_| extended) else {
        let attempt = pass_whole(
            source,
            source_path,
            destination,
            destination_path,
            spec,
            progress,
        );
        return attempt
            .await
            .map(|attempt| with_warnings(attempt, warnings));
    };
    let lane = Box::new(ThirdPartyChunkSession {
        from: HeldSession::Borrowed(source),
        from_path: source_path.into(),
        to: HeldSession::Borrowed(destination),
        to_path: destination_path.into(),
    });
    // The chunks' controls count nothing: the bytes do not pass here.
    let control = Arc::new(TransferControl::new());
    transfer_in_chunks(lane, chunks, missing, spec, &control, progress).await
}

/// Plan for what is missing, if it is to come in chunks: its size must be known.
fn chunk_plan(spec: &TransferSpec) -> Option<(Chunking, RangeSet)> {
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
    mut lane: Box<dyn ChunkSession + 'a>,
    chunks: Chunking,
    missing: RangeSet,
    spec: &'a TransferSpec,
    control: &'a Arc<TransferControl>,
    progress: &'a (dyn Fn(u64) + Send + Sync),
) -> Result<TransferAttempt, CopyFailure> {
    let (tuner, trips, sessions) = match chunks {
        Chunking::Mode(mode, parameters) => {
            let (tuner, trips) = chunk_tuner_of_2008(lane.session(), mode, parameters, spec).await;
            (tuner, trips, 1)
        }
        Chunking::Probe => {
            let rtt = lane.session().rtt();
            let tuner = policy::probe_tuner_with_min(2, spec.streams, spec.max_streams, rtt);
            (tuner, RttSource::Known(rtt), 2)
        }
    };
    let work = ChunkQueue::new(missing, tuner, sessions);
    let crew = ChunkSessions::new(spec, control, progress, (work, trips));
    crew.transfer(lane, sessions > 1).await
}

/// A tuner of the paper, and where its round trips come from. The first is asked for at once, for
/// the size of the first chunk (eq. 14).
async fn chunk_tuner_of_2008(
    session: &mut ClientSession,
    mode: ChunkTuningMode,
    parameters: ChunkParameters,
    spec: &TransferSpec,
) -> (Box<dyn ChunkTuner>, RttSource) {
    let trips = SharedRttAverage::new(parameters.rho);
    // One that does not answer is told of by the chunk's own command.
    trips.sample(session).await;
    let window = spec.options.buffers.pinned_bytes().unwrap_or(0);
    let tuner = policy::mode_tuner(mode, parameters, window, trips.average());
    let trips = match parameters.rtt_commands {
        When::BetweenChunks => RttSource::BetweenChunks(trips),
        When::DuringChunks => {
            let pulse = RttProbeSession::start(Box::pin(session.open_another()), trips.clone());
            RttSource::WhileDataFlows(trips, pulse)
        }
    };
    (tuner, trips)
}
