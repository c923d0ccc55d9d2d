//! One file in chunks, each a transfer of its own with its own number of streams: the only way to
//! change that number where the sender is somebody else's, or where the 2008 modes are asked for.
//!
//! A chunk is asked for by ERET P and stored by ESTO A (GFD.20 §3.5, §3.6), in extended block mode;
//! connections are kept from one to the next while their number stays (§3.4.3). The whole is one
//! transfer to the caller: its [`Control`] counts all chunks, what an attempt made safe stays safe.

mod crew;
mod lane;
mod outcome;
mod round_trips;
mod work;

use std::sync::Arc;

use data::job::Control;
use data::store::{Sink, Source};
use proto::command::Mode as Wire;
use proto::ranges::RangeSet;
use tune::streams::chunked::{self as policy, Mode, Parameters, RoundTrips as When, Tuner};

use self::crew::{Crew, Trips};
use self::lane::{Direct, Held, Here, Lane, Passing};
use self::round_trips::{Pulse, RoundTrips};
use self::work::Work;
use super::get::get as get_whole;
use super::put::put as put_whole;
use super::third_party::third_party as pass_whole;
use super::{Attempt, TransferSpec, choice};
use crate::Failure;
use crate::session::Session;

/// How a transfer is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chunks {
    /// One after the other over one session, by a mode of 2008.
    Mode(Mode, Parameters),
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
    session: &mut Session,
    path: &[u8],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<Control>,
) -> Result<Attempt, Failure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && session.features().eret
        && sink.seekable()
        && choice::mode_of_get(session, spec, &mut warnings) == Wire::Extended;
    let Some((chunks, missing)) = plan(spec).filter(|_| extended) else {
        let attempt = get_whole(session, path, sink, spec, control).await;
        return attempt.map(|attempt| warned(attempt, warnings));
    };
    let lane = Box::new(Direct {
        session: Held::Lent(session),
        path: path.into(),
        here: Here::Sink(sink),
    });
    in_chunks(lane, chunks, missing, spec, control, &|_| {}).await
}

/// This machine to server; the server listens. `control.bytes()` counts what was handed to the
/// kernel; what the server reported as stored is in `spec.marked`.
///
/// # Errors
/// The server's refusal by its class; `Local` for the source's errors; `Integrity` when the server
/// confirmed a transfer of another length; `Unreachable` (transient) for lost connections.
pub async fn put(
    session: &mut Session,
    source: Arc<dyn Source>,
    path: &[u8],
    spec: &TransferSpec,
    control: &Arc<Control>,
) -> Result<Attempt, Failure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && session.features().esto
        && choice::mode(session, spec, &mut warnings) == Wire::Extended;
    let Some((chunks, missing)) = plan(spec).filter(|_| extended) else {
        let attempt = put_whole(session, source, path, spec, control).await;
        return attempt.map(|attempt| warned(attempt, warnings));
    };
    let lane = Box::new(Direct {
        session: Held::Lent(session),
        path: path.into(),
        here: Here::Source(source),
    });
    in_chunks(lane, chunks, missing, spec, control, &|_| {}).await
}

/// Server to server. Progress arrives by 112 markers (MODE E) in `progress`, bytes so far;
/// MODE S transfers are silent until they end, so that the caller has to look for a stall there.
///
/// # Errors
/// The refusal of the side that failed first, by its class; `Integrity` when both confirmed a
/// transfer whose last marker tells another length; `Unreachable` (transient) for lost
/// connections: what the destination reported as stored is in `spec.marked`.
pub async fn third_party(
    source: &mut Session,
    source_path: &[u8],
    destination: &mut Session,
    destination_path: &[u8],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Attempt, Failure> {
    let mut warnings = Vec::new();
    let extended = spec.chunks.is_some()
        && source.features().eret
        && destination.features().esto
        && [&mut *source, &mut *destination]
            .into_iter()
            .all(|end| choice::mode(end, spec, &mut warnings) == Wire::Extended);
    let Some((chunks, missing)) = plan(spec).filter(|_| extended) else {
        let attempt = pass_whole(
            source,
            source_path,
            destination,
            destination_path,
            spec,
            progress,
        );
        return attempt.await.map(|attempt| warned(attempt, warnings));
    };
    let lane = Box::new(Passing {
        from: Held::Lent(source),
        from_path: source_path.into(),
        to: Held::Lent(destination),
        to_path: destination_path.into(),
    });
    // The chunks' controls count nothing: the bytes do not pass here.
    let control = Arc::new(Control::new());
    in_chunks(lane, chunks, missing, spec, &control, progress).await
}

/// Plan for what is missing, if it is to come in chunks: its size must be known.
fn plan(spec: &TransferSpec) -> Option<(Chunks, RangeSet)> {
    let missing = spec.have.gaps(0, spec.size?);
    Some((spec.chunks?, missing)).filter(|(_, missing)| !missing.is_empty())
}

fn warned(mut attempt: Attempt, mut warnings: Vec<String>) -> Attempt {
    warnings.append(&mut attempt.warnings);
    Attempt {
        warnings,
        ..attempt
    }
}

async fn in_chunks<'a>(
    mut lane: Box<dyn Lane + 'a>,
    chunks: Chunks,
    missing: RangeSet,
    spec: &'a TransferSpec,
    control: &'a Arc<Control>,
    progress: &'a (dyn Fn(u64) + Send + Sync),
) -> Result<Attempt, Failure> {
    let (tuner, trips, sessions) = match chunks {
        Chunks::Mode(mode, parameters) => {
            let (tuner, trips) = mode_of_2008(lane.session(), mode, parameters, spec).await;
            (tuner, trips, 1)
        }
        Chunks::Probe => {
            let rtt = lane.session().rtt();
            let tuner = policy::probe_from(2, spec.streams, spec.most_streams, rtt);
            (tuner, Trips::Known(rtt), 2)
        }
    };
    let work = Work::new(missing, tuner, sessions);
    let crew = Crew::new(spec, control, progress, (work, trips));
    crew.run(lane, sessions > 1).await
}

/// A tuner of the paper, and where its round trips come from. The first is asked for at once, for
/// the size of the first chunk (eq. 14).
async fn mode_of_2008(
    session: &mut Session,
    mode: Mode,
    parameters: Parameters,
    spec: &TransferSpec,
) -> (Box<dyn Tuner>, Trips) {
    let trips = RoundTrips::new(parameters.rho);
    // One that does not answer is told of by the chunk's own command.
    trips.sample(session).await;
    let window = spec.options.buffers.pinned_bytes().unwrap_or(0);
    let tuner = policy::tuner(mode, parameters, window, trips.average());
    let trips = match parameters.round_trips {
        When::Between => Trips::Between(trips),
        When::Flowing => {
            let pulse = Pulse::start(Box::pin(session.another()), trips.clone());
            Trips::Flowing(trips, pulse)
        }
    };
    (tuner, trips)
}
