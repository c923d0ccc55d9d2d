//! Puts: from this machine to a server.

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
use crate::failure::Operation;
use crate::session::ClientSession;
use crate::{Failure, FailureKind};

/// Smallest transfer for which a server's data nodes are asked for, bytes.
const STRIPED_FROM: u64 = 64 << 20;

/// Agreement with the server before the transfer.
struct PutAgreement {
    mode: TransferMode,
    /// Ranges of the destination that are kept.
    kept_ranges: RangeSet,
    alternative: Option<StripeAddresses>,
}

/// [`transfer::put`](super::put()) in one piece: a file, or a chunk of one.
pub(super) async fn put(
    session: &mut ClientSession,
    source: Arc<dyn Source>,
    path: &[u8],
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    session.check_path(path)?;
    let operation = Operation::on_path("write", path);
    let mut warnings = Vec::new();
    let size = destination_size(&source, spec)?;
    let spelled = session.spell(path).await?;
    let agreement = agree_on_put(session, &spelled, spec, size, &operation, &mut warnings).await?;
    let origin = spec.part.map_or(0, |(offset, _)| offset);
    let missing = size.map(|size| agreement.kept_ranges.gaps(0, size));
    let local_end = LocalTransfer::Send {
        source,
        plan: SendPlan {
            unit: session.stripe_unit(size),
            ..SendPlan::new(shift_ranges(missing.as_ref(), origin), origin)
        },
    };
    let exchange = TransferExchange {
        local_end,
        settings: negotiation::data_settings(session, agreement.mode, spec, &agreement.kept_ranges),
        control,
        reply_sinks: ReplySinks {
            started: Some(&spec.started),
            stored_ranges: Some(&spec.stored_ranges),
            ..ReplySinks::default()
        },
        alternative: agreement.alternative,
        wait_for_start: false,
        operation: &operation,
        when_sent: None,
    };
    let result = session.exchange(exchange).await;
    let result = result.inspect_err(|failed| spec.confirmation.record_failure(failed));
    let CompletedExchange {
        report, remarks, ..
    } = match result {
        Ok(completed) => completed,
        // Only a permanent refusal is explained: a transient one may have another cause next time.
        Err(FailedTransfer {
            failure,
            refusal: Some(reply),
            ..
        }) if !failure.may_retry() => {
            return Err(session
                .explain_create_refusal(path, &operation, &reply)
                .await);
        }
        Err(failed) => return Err(failed.into()),
    };
    // The server's 226 does not prove that it got every byte.
    if let Some(expected) = missing.map(|ranges| ranges.byte_count())
        && report.evidence.bytes != expected
    {
        return Err(negotiation::incomplete_failure(
            session.name(),
            &operation,
            report.evidence.bytes,
            expected,
        ));
    }
    Ok(TransferAttempt {
        extended_mode: agreement.mode == TransferMode::Extended,
        streams: report.evidence.streams.max(1),
        buffers: negotiation::agreed_buffers(session, spec),
        remarks,
        report,
        warnings,
    })
}

/// Size of the whole destination, bytes: as specified, else the rest of the source; `None` for
/// pipes.
fn destination_size(source: &Arc<dyn Source>, spec: &TransferSpec) -> Result<Option<u64>, Failure> {
    let length = source.len().map_err(|error| {
        let operation = Operation::on("read the size of", source.name());
        operation.failed(FailureKind::Local, error)
    })?;
    let offset = spec.part.map_or(0, |(offset, _)| offset);
    let remaining = length.map(|n| n.saturating_sub(offset));
    Ok(match (length, spec.size, spec.part) {
        // A pipe has no length, whatever the caller expects of it.
        (None, ..) => None,
        (_, Some(size), _) => Some(size),
        (_, None, Some((_, length))) => remaining.map(|remaining| remaining.min(length)),
        (_, None, None) => remaining,
    })
}

/// Converts destination ranges to source ranges.
fn shift_ranges(ranges: Option<&RangeSet>, offset_in_source: u64) -> RangeSet {
    let mut source = RangeSet::new();
    for r in ranges.iter().flat_map(|set| set.iter()) {
        source.insert(
            r.start.saturating_add(offset_in_source),
            r.end.saturating_add(offset_in_source),
        );
    }
    source
}

async fn agree_on_put(
    session: &mut ClientSession,
    path: &[u8],
    spec: &TransferSpec,
    size: Option<u64>,
    operation: &Operation,
    warnings: &mut Vec<String>,
) -> Result<PutAgreement, Failure> {
    let mut mode = negotiation::transfer_mode(session, spec, warnings);
    let mut kept_ranges = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
    let sizing = session.negotiate_sizing(spec.options.buffers.sizing, warnings);
    loop {
        let mut requirements = TransferRequirements {
            protection: None,
            direction: TransferDirection::Receive,
            mode,
            streams: negotiation::stream_range(session, mode, spec),
            congestion_control: negotiation::requested_congestion_control(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(sizing),
            announcements: Vec::new(),
            announced_size: size,
            passing_checksum: spec.server_checksum,
            restart: store_restart(mode, &kept_ranges),
            server_listens: true,
            connections_reusable: false,
            command: negotiation::store_command(spec, path),
        };
        requirements.connections_reusable =
            negotiation::has_reusable_connections(session, &requirements, true);
        let data_end = LocalDataEnd {
            ports: None,
            options: spec.options.clone(),
            is_large: is_large(size),
        };
        match session
            .prepare_transfer(&requirements, &data_end, operation, warnings)
            .await?
        {
            PreparationResult::Ready { alternative } => {
                return Ok(PutAgreement {
                    mode,
                    kept_ranges,
                    alternative,
                });
            }
            PreparationResult::RetryInStreamMode => {
                session.warn_once(warnings, negotiation::EXTENDED_MODE_UNAVAILABLE);
                mode = TransferMode::Stream;
                kept_ranges = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
            }
            PreparationResult::RetryFromZero => kept_ranges = RangeSet::new(),
            PreparationResult::RetryWithoutPipelining => {
                session.reopen_without_pipelining().await?;
            }
        }
    }
}

/// Whether a transfer of this size is worth asking for data nodes: the commands and connections cost round trips.
pub(super) fn is_large(size: Option<u64>) -> bool {
    size.is_some_and(|size| size >= STRIPED_FROM)
}

/// The restart marker for a store that keeps stored bytes. Without REST the server truncates the
/// file.
pub(super) fn store_restart(mode: TransferMode, kept_ranges: &RangeSet) -> Option<RestartMarker> {
    match mode {
        _ if kept_ranges.is_empty() => None,
        TransferMode::Extended => Some(RestartMarker::Ranges(kept_ranges.clone())),
        TransferMode::Stream => Some(RestartMarker::Offset(kept_ranges.prefix_len())),
    }
}
