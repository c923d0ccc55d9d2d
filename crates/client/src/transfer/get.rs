//! Server to this machine.

use std::sync::Arc;

use data::job::{TransferControl, TransferReport};
use data::options::CongestionChoice;
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
use super::{TransferAttempt, TransferSpec};
use crate::session::replies::{RefusalCause, refusal_cause};
use crate::session::{ClientSession, display_path};
use crate::{CopyFailure, Exit};

/// Agreement with the server before the bytes flow.
struct GetAgreement {
    mode: TransferMode,
    retrieval: RetrievalPlan,
    /// Data that the transfer builds on, in destination offsets.
    have: RangeSet,
    alternative: Option<StripeAddresses>,
}

/// [`transfer::get`](super::get()) in one piece: a file, or a chunk of one.
pub(super) async fn get(
    session: &mut ClientSession,
    path: &[u8],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, CopyFailure> {
    session.check_path(path)?;
    let mut warnings = Vec::new();
    let first = try_get(session, path, &sink, spec, control, &mut warnings).await;
    let done = match first {
        Err(ended) if session.server_can_connect() && server_could_not_connect(&ended) => {
            session.set_server_cannot_connect();
            try_get(session, path, &sink, spec, control, &mut warnings).await
        }
        other => other,
    };
    match done {
        Ok(done) => Ok(TransferAttempt { warnings, ..done }),
        Err(FailedTransfer {
            failure,
            refusal: Some(reply),
            ..
        }) if failure.exit == Exit::NotFound => {
            let doing = format!("read {}", display_path(path));
            Err(session.explain_access_refusal(path, &doing, &reply).await)
        }
        Err(ended) => Err(ended.into()),
    }
}

/// The server tried to open the data connections of a MODE E get and failed before anything moved.
fn server_could_not_connect(ended: &FailedTransfer) -> bool {
    ended.refused_before_data
        && ended
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
    let doing = format!("read {}", display_path(path));
    let agreed = agree_on_get(session, path, spec, &doing, warnings).await?;
    let size = spec.size.or(spec.part.map(|(_, length)| length));
    let local_end = LocalTransfer::Receive {
        sink: Arc::clone(sink),
        plan: ReceivePlan {
            origin: spec.destination_offset.unwrap_or(0),
            stream_start: agreed.retrieval.start,
            limit: size,
        },
        server_overruns: agreed.retrieval.overruns,
    };
    let mut settings = negotiation::data_settings(session, agreed.mode, spec, &agreed.have);
    // It would act on what is sent; a name that only the server has is no error here.
    settings.options.congestion = CongestionChoice::System;
    let exchange = TransferExchange {
        local_end,
        settings,
        control,
        reply_sinks: ReplySinks::default(),
        alternative: agreed.alternative.clone(),
        wait_for_start: agreed.mode == TransferMode::Extended,
        doing: &doing,
    };
    let done = session.exchange(exchange).await;
    let CompletedExchange { report, remarks } =
        done.inspect_err(|ended| spec.confirmation.record_failure(ended))?;
    check_complete(session.name(), &doing, &agreed, size, &report)?;
    Ok(TransferAttempt {
        extended_mode: agreed.mode == TransferMode::Extended,
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
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<GetAgreement, CopyFailure> {
    let mut mode = negotiation::get_mode(session, spec, warnings);
    let mut have = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
    let sizing = session.negotiate_sizing(spec.options.buffers.sizing, warnings);
    negotiation::warn_of_ignored_congestion_control(session, spec, warnings);
    let ends = LocalDataEnd {
        ports: spec.data_ports,
        buffers: spec.options.buffers,
    };
    loop {
        let retrieval = plan_retrieval(session.features(), mode, path, spec.part, &have)
            .map_err(|error| no_partial_failure(session.name(), doing, &error))?;
        let mut need = TransferRequirements {
            direction: TransferDirection::Send,
            mode,
            streams: negotiation::stream_range(session, mode, spec),
            congestion_control: negotiation::requested_congestion_control(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(sizing),
            announced_size: None,
            store_checksum: None,
            restart: retrieval.restart.clone(),
            server_listens: mode == TransferMode::Stream,
            connections_reusable: false,
            command: retrieval.verb.clone(),
        };
        need.connections_reusable = negotiation::has_reusable_connections(session, &need, false);
        match session
            .prepare_transfer(&need, &ends, doing, warnings)
            .await?
        {
            PreparationResult::Ready { alternative } => {
                let mut kept = RangeSet::new();
                kept.insert(0, retrieval.start);
                return Ok(GetAgreement {
                    mode,
                    have: if mode == TransferMode::Stream {
                        kept
                    } else {
                        have
                    },
                    retrieval,
                    alternative,
                });
            }
            PreparationResult::RetryInStreamMode => {
                session.warn_once(warnings, negotiation::EXTENDED_MODE_UNAVAILABLE);
                mode = TransferMode::Stream;
                have = negotiation::usable_restart_ranges(mode, &spec.completed_ranges);
            }
            PreparationResult::RetryFromZero if spec.part.is_some() => {
                return Err(no_partial_failure(
                    session.name(),
                    doing,
                    &PartialRetrievalUnsupported,
                ));
            }
            PreparationResult::RetryFromZero => have = RangeSet::new(),
            PreparationResult::RetryWithoutPipelining => {
                session.reopen_without_pipelining().await?;
            }
        }
    }
}

fn no_partial_failure(
    server: &str,
    doing: &str,
    error: &PartialRetrievalUnsupported,
) -> CopyFailure {
    CopyFailure {
        exit: Exit::Protocol,
        message: format!("cannot {doing} in part at {server}: {error}; copy the whole file"),
        transient: false,
    }
}

/// The server's 226 and the end of the stream are not enough: every byte that was announced must
/// be here.
fn check_complete(
    server: &str,
    doing: &str,
    agreed: &GetAgreement,
    size: Option<u64>,
    report: &TransferReport,
) -> Result<(), CopyFailure> {
    let Some(size) = size else { return Ok(()) };
    let mut all = agreed.have.clone();
    all.extend(&report.stored);
    if all.contains(0, size) {
        return Ok(());
    }
    let expected = agreed.have.gaps(0, size).byte_count();
    Err(negotiation::incomplete_failure(
        server,
        doing,
        report.evidence.bytes,
        expected,
    ))
}
