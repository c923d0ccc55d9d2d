//! Server to this machine.

use std::sync::Arc;

use data::job::{Control, Report};
use data::options::Congestion;
use data::recv::RecvPlan;
use data::store::Sink;
use proto::client::{Direction, Need, NoPartial, Retrieval, retrieval};
use proto::command::Mode;
use proto::ranges::RangeSet;
use proto::stripes::StripeAddresses;

use super::choice;
use super::exchange::{Done, Exchange, LocalEnd};
use super::prepare::{Ends, Prepared};
use super::told::Told;
use super::verdict::Ended;
use super::{Attempt, TransferSpec};
use crate::session::replies::{Cause, cause};
use crate::session::{Session, shown};
use crate::{Exit, Failure};

/// Agreement with the server before the bytes flow.
struct Agreed {
    mode: Mode,
    retrieval: Retrieval,
    /// Data that the transfer builds on, in destination offsets.
    have: RangeSet,
    alternative: Option<StripeAddresses>,
}

/// [`transfer::get`](super::get()) in one piece: a file, or a chunk of one.
pub(super) async fn get(
    session: &mut Session,
    path: &[u8],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<Control>,
) -> Result<Attempt, Failure> {
    session.check_path(path)?;
    let mut warnings = Vec::new();
    let first = attempt(session, path, &sink, spec, control, &mut warnings).await;
    let done = match first {
        Err(ended) if session.is_connectable() && could_not_connect(&ended) => {
            session.not_connectable();
            attempt(session, path, &sink, spec, control, &mut warnings).await
        }
        other => other,
    };
    match done {
        Ok(done) => Ok(Attempt { warnings, ..done }),
        Err(Ended {
            failure,
            refusal: Some(reply),
            ..
        }) if failure.exit == Exit::NotFound => {
            let doing = format!("read {}", shown(path));
            Err(session.why_not_touched(path, &doing, &reply).await)
        }
        Err(ended) => Err(ended.into()),
    }
}

/// The server tried to open the data connections of a MODE E get and failed before anything moved.
fn could_not_connect(ended: &Ended) -> bool {
    ended.before_data
        && ended
            .refusal
            .as_ref()
            .is_some_and(|reply| reply.code != 421 && cause(reply) == Cause::Lost)
}

async fn attempt(
    session: &mut Session,
    path: &[u8],
    sink: &Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<Control>,
    warnings: &mut Vec<String>,
) -> Result<Attempt, Ended> {
    let doing = format!("read {}", shown(path));
    let agreed = agree(session, path, spec, &doing, warnings).await?;
    let size = spec.size.or(spec.part.map(|(_, length)| length));
    let local_end = LocalEnd::Receive {
        sink: Arc::clone(sink),
        plan: RecvPlan {
            origin: spec.place.unwrap_or(0),
            stream_start: agreed.retrieval.start,
            limit: size,
        },
        overruns: agreed.retrieval.overruns,
    };
    let mut settings = choice::settings(session, agreed.mode, spec, &agreed.have);
    // It would act on what is sent; a name that only the server has is no error here.
    settings.options.congestion = Congestion::System;
    let exchange = Exchange {
        local_end,
        settings,
        control,
        told: Told::default(),
        alternative: agreed.alternative.clone(),
        await_start: agreed.mode == Mode::Extended,
        doing: &doing,
    };
    let done = session.exchange(exchange).await;
    let Done { report, remarks } = done.inspect_err(|ended| spec.said.note(ended))?;
    check_whole(session.name(), &doing, &agreed, size, &report)?;
    Ok(Attempt {
        extended: agreed.mode == Mode::Extended,
        streams: report.evidence.streams.max(1),
        buffers: choice::buffers(session, spec),
        remarks,
        report,
        warnings: Vec::new(),
    })
}

async fn agree(
    session: &mut Session,
    path: &[u8],
    spec: &TransferSpec,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<Agreed, Failure> {
    let mut mode = choice::mode_of_get(session, spec, warnings);
    let mut have = choice::have_for(mode, &spec.have);
    let sizing = session.agree_sizing(spec.options.buffers.sizing, warnings);
    choice::warn_of_congestion(session, spec, warnings);
    let ends = Ends {
        ports: spec.data_ports,
        buffers: spec.options.buffers,
    };
    loop {
        let retrieval = retrieval(session.features(), mode, path, spec.part, &have)
            .map_err(|error| no_partial(session.name(), doing, &error))?;
        let mut need = Need {
            direction: Direction::Send,
            mode,
            streams: choice::streams(session, mode, spec),
            congestion: choice::congestion(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            sizing: Some(sizing),
            allocate: None,
            store_sum: None,
            restart: retrieval.restart.clone(),
            server_listens: mode == Mode::Stream,
            reusable: false,
            verb: retrieval.verb.clone(),
        };
        need.reusable = choice::reusable(session, &need, false);
        match session.prepare(&need, &ends, doing, warnings).await? {
            Prepared::Ready { alternative } => {
                let mut kept = RangeSet::new();
                kept.insert(0, retrieval.start);
                return Ok(Agreed {
                    mode,
                    have: if mode == Mode::Stream { kept } else { have },
                    retrieval,
                    alternative,
                });
            }
            Prepared::StreamMode => {
                session.warn(warnings, choice::NO_EXTENDED);
                mode = Mode::Stream;
                have = choice::have_for(mode, &spec.have);
            }
            Prepared::StartOver if spec.part.is_some() => {
                return Err(no_partial(session.name(), doing, &NoPartial));
            }
            Prepared::StartOver => have = RangeSet::new(),
            Prepared::Carefully => session.begin_carefully().await?,
        }
    }
}

fn no_partial(server: &str, doing: &str, error: &NoPartial) -> Failure {
    Failure {
        exit: Exit::Protocol,
        message: format!("cannot {doing} in part at {server}: {error}; copy the whole file"),
        transient: false,
    }
}

/// The server's 226 and the end of the stream are not enough: every byte that was announced must
/// be here.
fn check_whole(
    server: &str,
    doing: &str,
    agreed: &Agreed,
    size: Option<u64>,
    report: &Report,
) -> Result<(), Failure> {
    let Some(size) = size else { return Ok(()) };
    let mut all = agreed.have.clone();
    all.extend(&report.stored);
    if all.contains(0, size) {
        return Ok(());
    }
    let expected = agreed.have.gaps(0, size).bytes();
    Err(choice::incomplete(
        server,
        doing,
        report.evidence.bytes,
        expected,
    ))
}
