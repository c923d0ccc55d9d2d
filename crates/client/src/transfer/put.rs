//! This machine to server.

use std::sync::Arc;

use data::job::Control;
use data::send::SendPlan;
use data::store::Source;
use proto::client::{Direction, Need};
use proto::command::{Mode, Restart};
use proto::ranges::RangeSet;
use proto::stripes::StripeAddresses;

use super::choice;
use super::exchange::{Done, Exchange, LocalEnd};
use super::prepare::{Ends, Prepared};
use super::told::Told;
use super::verdict::Ended;
use super::{Attempt, TransferSpec};
use crate::session::{Session, shown};
use crate::{Exit, Failure};

/// Agreement with the server before the bytes flow.
struct Agreed {
    mode: Mode,
    /// Data that the transfer builds on, in destination offsets.
    have: RangeSet,
    alternative: Option<StripeAddresses>,
}

/// [`transfer::put`](super::put()) in one piece: a file, or a chunk of one.
pub(super) async fn put(
    session: &mut Session,
    source: Arc<dyn Source>,
    path: &[u8],
    spec: &TransferSpec,
    control: &Arc<Control>,
) -> Result<Attempt, Failure> {
    session.check_path(path)?;
    let doing = format!("write {}", shown(path));
    let mut warnings = Vec::new();
    let size = size_of(&source, spec)?;
    let agreed = agree(session, path, spec, size, &doing, &mut warnings).await?;
    let origin = spec.part.map_or(0, |(offset, _)| offset);
    let missing = size.map(|size| agreed.have.gaps(0, size));
    let local_end = LocalEnd::Send {
        source,
        plan: SendPlan {
            ranges: shifted(missing.as_ref(), origin),
            origin,
        },
    };
    let exchange = Exchange {
        local_end,
        settings: choice::settings(session, agreed.mode, spec, &agreed.have),
        control,
        told: Told {
            begun: Some(&spec.begun),
            marked: Some(&spec.marked),
            ..Told::default()
        },
        alternative: agreed.alternative,
        await_start: false,
        doing: &doing,
    };
    let done = session.exchange(exchange).await;
    let Done { report, remarks } = match done.inspect_err(|ended| spec.said.note(ended)) {
        Ok(done) => done,
        Err(Ended {
            failure,
            refusal: Some(reply),
            ..
        }) if !failure.transient => return Err(session.why_not_made(path, &doing, &reply).await),
        Err(ended) => return Err(ended.into()),
    };
    if let Some(expected) = missing.map(|ranges| ranges.bytes())
        && report.evidence.bytes != expected
    {
        return Err(choice::incomplete(
            session.name(),
            &doing,
            report.evidence.bytes,
            expected,
        ));
    }
    Ok(Attempt {
        extended: agreed.mode == Mode::Extended,
        streams: report.evidence.streams.max(1),
        buffers: choice::buffers(session, spec),
        remarks,
        report,
        warnings,
    })
}

/// Bytes of the whole destination: as told, else the rest of the source; `None` for pipes.
fn size_of(source: &Arc<dyn Source>, spec: &TransferSpec) -> Result<Option<u64>, Failure> {
    let length = source.len().map_err(|error| Failure {
        exit: Exit::Local,
        message: format!("cannot read the size of {}: {error}", source.name()),
        transient: false,
    })?;
    let offset = spec.part.map_or(0, |(offset, _)| offset);
    let rest = length.map(|n| n.saturating_sub(offset));
    Ok(match (length, spec.size, spec.part) {
        (None, ..) => None,
        (_, Some(size), _) => Some(size),
        (_, None, Some((_, length))) => rest.map(|rest| rest.min(length)),
        (_, None, None) => rest,
    })
}

/// Destination ranges as source ranges.
fn shifted(ranges: Option<&RangeSet>, by: u64) -> RangeSet {
    let mut source = RangeSet::new();
    for r in ranges.iter().flat_map(|set| set.iter()) {
        source.insert(r.start.saturating_add(by), r.end.saturating_add(by));
    }
    source
}

async fn agree(
    session: &mut Session,
    path: &[u8],
    spec: &TransferSpec,
    size: Option<u64>,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<Agreed, Failure> {
    let mut mode = choice::mode(session, spec, warnings);
    let mut have = choice::have_for(mode, &spec.have);
    let sizing = session.agree_sizing(spec.options.buffers.sizing, warnings);
    loop {
        let mut need = Need {
            direction: Direction::Receive,
            mode,
            streams: choice::streams(session, mode, spec),
            congestion: choice::congestion(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            sizing: Some(sizing),
            allocate: size,
            store_sum: spec.remote_sum,
            restart: restart(mode, &have),
            server_listens: true,
            reusable: false,
            verb: choice::store_verb(spec, path),
        };
        need.reusable = choice::reusable(session, &need, true);
        let ends = Ends::default();
        match session.prepare(&need, &ends, doing, warnings).await? {
            Prepared::Ready { alternative } => {
                return Ok(Agreed {
                    mode,
                    have,
                    alternative,
                });
            }
            Prepared::StreamMode => {
                session.warn(warnings, choice::NO_EXTENDED);
                mode = Mode::Stream;
                have = choice::have_for(mode, &spec.have);
            }
            Prepared::StartOver => have = RangeSet::new(),
            Prepared::Carefully => session.begin_carefully().await?,
        }
    }
}

/// REST for a store: what is there is kept (without REST the server truncates).
pub(super) fn restart(mode: Mode, have: &RangeSet) -> Option<Restart> {
    match mode {
        _ if have.is_empty() => None,
        Mode::Extended => Some(Restart::Ranges(have.clone())),
        Mode::Stream => Some(Restart::Offset(have.prefix())),
    }
}
