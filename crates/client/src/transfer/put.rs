//! This machine to server.

use std::sync::Arc;

use data::job::TransferControl;
use data::send::SendPlan;
use data::store::Source;
use proto::client::{TransferDirection, TransferRequirements};
use proto::command::{RestartMarker, TransferMode};
use proto::ranges::RangeSet;
use proto::stripes::StripeAddresses;

use super::control_messages::ReplySinks;
use super::exchange::{CompletedExchange, LocalTransfer, TransferExchange};
use super::negotiation;
use super::outcome::FailedTransfer;
use super::prepare::{LocalDataEnd, PreparationResult};
use super::{TransferAttempt, TransferSpec};
use crate::session::{ClientSession, display_path};
use crate::{CopyFailure, Exit};

/// Agreement with the server before the bytes flow.
struct PutAgreement {
    mode: TransferMode,
    /// Data that the transfer builds on, in destination offsets.
    have: RangeSet,
    alternative: Option<StripeAddresses>,
}

/// [`transfer::put`](super::put()) in one piece: a file, or a chunk of one.
pub(super) async fn put(
    session: &mut ClientSession,
    source: Arc<dyn Source>,
    path: &[u8],
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, CopyFailure> {
    session.check_path(path)?;
    let doing = format!("write {}", display_path(path));
    let mut warnings = Vec::new();
    let size = destination_size(&source, spec)?;
    let agreed = agree_on_put(session, path, spec, size, &doing, &mut warnings).await?;
    let origin = spec.part.map_or(0, |(offset, _)| offset);
    let missing = size.map(|size| agreed.have.gaps(0, size));
    let local_end = LocalTransfer::Send {
        source,
        plan: SendPlan {
            ranges: shift_ranges(missing.as_ref(), origin),
            origin,
        },
    };
    let exchange = TransferExchange {
        local_end,
        settings: negotiation::data_settings(session, agreed.mode, spec, &agreed.have),
        control,
        reply_sinks: ReplySinks {
            started: Some(&spec.started),
            stored_ranges: Some(&spec.stored_ranges),
            ..ReplySinks::default()
        },
        alternative: agreed.alternative,
        wait_for_start: false,
        doing: &doing,
    };
    let done = session.exchange(exchange).await;
    let CompletedExchange { report, remarks } =
        match done.inspect_err(|ended| spec.confirmation.record_failure(ended)) {
            Ok(done) => done,
            Err(FailedTransfer {
                failure,
                refusal: Some(reply),
                ..
            }) if !failure.transient => {
                return Err(session.explain_create_refusal(path, &doing, &reply).await);
            }
            Err(ended) => return Err(ended.into()),
        };
    if let Some(expected) = missing.map(|ranges| ranges.byte_count())
        && report.evidence.bytes != expected
    {
        return Err(negotiation::incomplete_failure(
            session.name(),
            &doing,
            report.evidence.bytes,
            expected,
        ));
    }
    Ok(TransferAttempt {
        extended_mode: agreed.mode == TransferMode::Extended,
        streams: report.evidence.streams.max(1),
        buffers: negotiation::agreed_buffers(session, spec),
        remarks,
        report,
        warnings,
    })
}

/// Bytes of the whole destination: as told, else the rest of the source; `None` for pipes.
fn destination_size(
    source: &Arc<dyn Source>,
    spec: &TransferSpec,
) -> Result<Option<u64>, CopyFailure> {
    let length = source.len().map_err(|error| CopyFailure {
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
fn shift_ranges(ranges: Option<&RangeSet>, by: u64) -> RangeSet {
    let mut source = RangeSet::new();
    for r in ranges.iter().flat_map(|set| set.iter()) {
        source.insert(r.start.saturating_add(by), r.end.saturating_add(by));
    }
    source
}

async fn agree_on_put(
    session: &mut ClientSession,
    path: &[u8],
    spec: &TransferSpec,
    size: Option<u64>,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<PutAgreement, CopyFailure> {
    let mut mode = negotiation::transfer_mode(session, spec, warnings);
    let mut have = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
    let sizing = session.negotiate_sizing(spec.options.buffers.sizing, warnings);
    loop {
        let mut need = TransferRequirements {
            direction: TransferDirection::Receive,
            mode,
            streams: negotiation::stream_range(session, mode, spec),
            congestion_control: negotiation::requested_congestion_control(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(sizing),
            announced_size: size,
            store_checksum: spec.server_checksum,
            restart: store_restart(mode, &have),
            server_listens: true,
            connections_reusable: false,
            command: negotiation::store_command(spec, path),
        };
        need.connections_reusable = negotiation::has_reusable_connections(session, &need, true);
        let ends = LocalDataEnd::default();
        match session
            .prepare_transfer(&need, &ends, doing, warnings)
            .await?
        {
            PreparationResult::Ready { alternative } => {
                return Ok(PutAgreement {
                    mode,
                    have,
                    alternative,
                });
            }
            PreparationResult::RetryInStreamMode => {
                session.warn_once(warnings, negotiation::EXTENDED_MODE_UNAVAILABLE);
                mode = TransferMode::Stream;
                have = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
            }
            PreparationResult::RetryFromZero => have = RangeSet::new(),
            PreparationResult::RetryWithoutPipelining => {
                session.reopen_without_pipelining().await?;
            }
        }
    }
}

/// REST for a store: what is there is kept (without REST the server truncates).
pub(super) fn store_restart(mode: TransferMode, have: &RangeSet) -> Option<RestartMarker> {
    match mode {
        _ if have.is_empty() => None,
        TransferMode::Extended => Some(RestartMarker::Ranges(have.clone())),
        TransferMode::Stream => Some(RestartMarker::Offset(have.prefix_len())),
    }
}
