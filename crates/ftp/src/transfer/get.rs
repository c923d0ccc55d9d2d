//! Gets: from a server to this machine.

use std::sync::Arc;

use data::job::{TransferControl, TransferReport};
use data::options::{CongestionChoice, TransferOptions};
use data::recv::ReceivePlan;
use data::store::Sink;
use proto::client::{
    PartialRetrievalUnsupported, RetrievalPlan, TransferDirection, TransferRequirements,
    plan_retrieval,
};
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use proto::stripes::StripeAddresses;

use super::control_messages::ReplySinks;
use super::exchange::{CompletedExchange, LocalTransfer, TransferExchange};
use super::negotiation;
use super::outcome::FailedTransfer;
use super::prepare::{LocalDataEnd, PreparationResult};
use super::{RestartProof, TransferAttempt, TransferSpec, put, restart};
use crate::Failure;
use crate::failure::{Operation, Sentence};
use crate::session::ClientSession;
use crate::session::replies::{RefusalCause, refusal_cause};

/// Agreement with the server before the transfer.
struct GetAgreement {
    mode: TransferMode,
    retrieval: RetrievalPlan,
    /// Ranges of the destination that are kept.
    kept_ranges: RangeSet,
    alternative: Option<StripeAddresses>,
}

/// [`transfer::get`](super::get()) in one piece: a file, or a chunk of one.
pub(super) async fn get(
    session: &mut ClientSession,
    path: &[u8],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    session.check_path(path)?;
    let mut warnings = Vec::new();
    let before = session.habits().without_stripes_until;
    let mut first = try_get(session, path, &sink, spec, control, &mut warnings).await;
    // Where data nodes do not reach this end, the server itself may.
    if session.habits().without_stripes_until != before
        && first.as_ref().is_err_and(server_could_not_connect)
    {
        first = try_get(session, path, &sink, spec, control, &mut warnings).await;
    }
    let attempt = match first {
        // One more attempt in MODE S, where this end opens the connection.
        Err(failed) if session.server_can_connect() && server_could_not_connect(&failed) => {
            session.set_server_cannot_connect();
            try_get(session, path, &sink, spec, control, &mut warnings).await
        }
        other => other,
    };
    match attempt {
        Ok(attempt) => Ok(TransferAttempt {
            warnings,
            ..attempt
        }),
        Err(FailedTransfer {
            failure,
            refusal: Some(reply),
            ..
        }) if failure.is_missing() => {
            let operation = Operation::on_path("read", path);
            Err(session
                .explain_access_refusal(path, &operation, &reply)
                .await)
        }
        Err(failed) => Err(failed.into()),
    }
}

/// Whether the server failed to open the data connections of a MODE E get before anything moved.
pub(super) fn server_could_not_connect(failed: &FailedTransfer) -> bool {
    failed.refused_before_data
        && failed
            .refusal
            .as_ref()
            .is_some_and(|reply| reply.code != 421 && refusal_cause(reply) == RefusalCause::Lost)
}

async fn try_get(
    session: &mut ClientSession,
    path: &[u8],
    sink: &Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
    warnings: &mut Vec<String>,
) -> Result<TransferAttempt, FailedTransfer> {
    let operation = Operation::on_path("read", path);
    let agreement = agree_on_get(session, path, spec, &operation, warnings).await?;
    let size = spec.size.or(spec.part.map(|(_, length)| length));
    let local_end = LocalTransfer::Receive {
        sink: Arc::clone(sink),
        plan: ReceivePlan {
            origin: spec.destination_offset.unwrap_or(0),
            stream_start: agreement.retrieval.start,
            limit: size,
        },
        server_overruns: agreement.retrieval.overruns,
    };
    let mut settings =
        negotiation::data_settings(session, agreement.mode, spec, &agreement.kept_ranges);
    // The congestion control acts on sending, so it stays at the system's choice here: a name that
    // only the server knows is no error.
    settings.options.congestion = CongestionChoice::System;
    let exchange = TransferExchange {
        local_end,
        settings,
        control,
        reply_sinks: ReplySinks::default(),
        alternative: agreement.alternative.clone(),
        // In MODE E the server connects, and may fail to: the data side starts after its 150.
        wait_for_start: agreement.mode == TransferMode::Extended,
        operation: &operation,
        when_sent: None,
    };
    let result = session.exchange(exchange).await;
    let CompletedExchange {
        report, remarks, ..
    } = result
        .map_err(|failed| restart::note_failure(session, &agreement.retrieval, &operation, failed))
        .inspect_err(|failed| spec.confirmation.record_failure(failed))?;
    let awaited_end = size.is_some() && !report.ended_early;
    if agreement.mode == TransferMode::Stream {
        restart::note_success(session, &agreement.retrieval, awaited_end);
    }
    // Everything before an early end is stored. The end may have moved since then, and tells nothing.
    if !report.ended_early {
        let size = size.map(|size| size.min(control.early_end().unwrap_or(size)));
        check_complete(session.name(), &operation, &agreement, size, &report)?;
    }
    Ok(TransferAttempt {
        extended_mode: agreement.mode == TransferMode::Extended,
        streams: report.evidence.streams.max(1),
        buffers: negotiation::agreed_buffers(session, spec),
        remarks,
        report,
        warnings: Vec::new(),
    })
}

async fn agree_on_get(
    session: &mut ClientSession,
    path: &[u8],
    spec: &TransferSpec,
    operation: &Operation,
    warnings: &mut Vec<String>,
) -> Result<GetAgreement, Failure> {
    let mut mode = negotiation::get_mode(session, spec, warnings);
    let mut kept_ranges = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
    let sizing = session.negotiate_sizing(spec.options.buffers.sizing, warnings);
    negotiation::warn_of_ignored_congestion_control(session, spec, warnings);
    let data_end = LocalDataEnd {
        ports: spec.data_ports,
        options: TransferOptions {
            // It acts on sending.
            congestion: CongestionChoice::System,
            ..spec.options.clone()
        },
        is_large: put::is_large(spec.size.or(spec.part.map(|(_, length)| length))),
    };
    loop {
        let spelled = prove_restart(session, path, spec, mode, &mut kept_ranges).await?;
        let reaches_end = spec.restart_proof == RestartProof::EndOfFile;
        let features = session.features();
        let retrieval = plan_retrieval(
            features,
            mode,
            &spelled,
            spec.part,
            reaches_end,
            &kept_ranges,
        )
        .map_err(|error| no_partial_failure(session.name(), operation, &error))?;
        let mut requirements = TransferRequirements {
            protection: None,
            direction: TransferDirection::Send,
            mode,
            streams: negotiation::stream_range(session, mode, spec),
            congestion_control: negotiation::requested_congestion_control(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(sizing),
            announcements: Vec::new(),
            announced_size: None,
            passing_checksum: spec.server_checksum,
            restart: retrieval.restart.clone(),
            server_listens: mode == TransferMode::Stream,
            connections_reusable: false,
            command: retrieval.command.clone(),
        };
        requirements.connections_reusable =
            negotiation::has_reusable_connections(session, &requirements, false);
        match session
            .prepare_transfer(&requirements, &data_end, operation, warnings)
            .await?
        {
            PreparationResult::Ready { alternative } => {
                let mut prefix = RangeSet::new();
                // MODE S keeps exactly the prefix that REST names.
                prefix.insert(0, retrieval.start);
                return Ok(GetAgreement {
                    mode,
                    kept_ranges: if mode == TransferMode::Stream {
                        prefix
                    } else {
                        kept_ranges
                    },
                    retrieval,
                    alternative,
                });
            }
            PreparationResult::RetryInStreamMode => {
                session.warn_once(warnings, negotiation::EXTENDED_MODE_UNAVAILABLE);
                mode = TransferMode::Stream;
                kept_ranges = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
            }
            // Without REST a part cannot begin at its offset.
            PreparationResult::RetryFromZero if spec.part.is_some() => {
                return Err(no_partial_failure(
                    session.name(),
                    operation,
                    &PartialRetrievalUnsupported,
                ));
            }
            PreparationResult::RetryFromZero => kept_ranges = RangeSet::new(),
            PreparationResult::RetryWithoutPipelining => {
                session.reopen_without_pipelining().await?;
            }
        }
    }
}

/// Sees to it that nothing is asked for by REST without proof that the server obeys it. Returns the path as the transfer
/// command has to name it.
async fn prove_restart(
    session: &mut ClientSession,
    path: &[u8],
    spec: &TransferSpec,
    mode: TransferMode,
    kept_ranges: &mut RangeSet,
) -> Result<Vec<u8>, Failure> {
    let is_inside = spec
        .part
        .is_some_and(|(offset, length)| offset > 0 && length > 0);
    if is_inside
        && spec.restart_proof == RestartProof::Before
        && restart::needs_proof(session, mode)
    {
        let proved = restart::prove(session, path, spec).await;
        // Without REST there is no way to send a part, which the plan says.
        if !session.features().ignores_rest {
            proved?;
        }
    }
    if spec.size.is_none() && restart::needs_proof(session, mode) {
        // Without a size no end shows where the server began.
        *kept_ranges = RangeSet::new();
    }
    session.spell(path).await
}

fn no_partial_failure(
    server: &str,
    operation: &Operation,
    error: &PartialRetrievalUnsupported,
) -> Failure {
    let reason = Sentence::cannot(operation).words(format_args!(" in part at {server}: {error}"));
    Failure::protocol(reason).advise("copy the whole file")
}

/// Checks that every announced byte is here. The server's 226 and the end of the stream do not
/// prove it.
fn check_complete(
    server: &str,
    operation: &Operation,
    agreement: &GetAgreement,
    size: Option<u64>,
    report: &TransferReport,
) -> Result<(), Failure> {
    let Some(size) = size else { return Ok(()) };
    let mut all = agreement.kept_ranges.clone();
    all.extend(&report.stored);
    if all.contains(0, size) {
        return Ok(());
    }
    let expected = agreement.kept_ranges.gaps(0, size).byte_count();
    Err(negotiation::incomplete_failure(
        server,
        operation,
        report.evidence.bytes,
        expected,
    ))
}
