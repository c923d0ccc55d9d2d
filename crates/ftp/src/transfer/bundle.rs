//! Bundles: many small files in one transfer with a longhaul server ([`proto::bundle`]).

use std::sync::Arc;

use data::job::{TransferControl, TransferReport};
use data::options::CongestionChoice;
use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::bundle::BundleSource;
use data::store::{Sink, Source};
use proto::bundle::{BundleEntry, BundleOutcome, BundleProof, CHECKSUM};
use proto::client::{TransferDirection, TransferRequirements};
use proto::command::{Command, ExtendedRetrieve, ExtendedStore, SiteCommand, TransferMode};
use proto::ranges::RangeSet;
use proto::stripes::StripeAddresses;

use super::bundle_commands::{announcements, directory_of};
use super::control_messages::ReplySinks;
use super::exchange::{CompletedExchange, LocalTransfer, TransferExchange};
use super::get::server_could_not_connect;
use super::negotiation;
use super::outcome::FailedTransfer;
use super::prepare::{LocalDataEnd, PreparationResult};
use super::subject::TransferSubject;
use super::third_party;
use super::{TransferAttempt, TransferSpec};
use crate::Failure;
use crate::failure::Operation;
use crate::session::{ClientSession, replies};

/// Agreement with the server before a bundle.
struct BundleAgreement {
    mode: TransferMode,
    alternative: Option<StripeAddresses>,
}

/// Receives the files `entries` into `sink`. The outcome names those that the server could not send; their bytes are
/// zeros. If other bytes arrived than those that the server sent, it has the checksum of each file at the server.
///
/// # Errors
/// As [`super::get`].
pub async fn get_bundle(
    session: &mut ClientSession,
    entries: &[BundleEntry],
    sink: Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<(TransferAttempt, BundleOutcome), Failure> {
    match try_get(session, entries, &sink, spec, control).await {
        // One more attempt in MODE S, where this end opens the connection.
        Err(failed) if session.server_can_connect() && server_could_not_connect(&failed) => {
            session.set_server_cannot_connect();
            Ok(try_get(session, entries, &sink, spec, control).await?)
        }
        result => Ok(result?),
    }
}

async fn try_get(
    session: &mut ClientSession,
    entries: &[BundleEntry],
    sink: &Arc<dyn Sink>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<(TransferAttempt, BundleOutcome), FailedTransfer> {
    let operation = Operation::from(format!("read {} files", entries.len()));
    let total = total_size(entries);
    let mut warnings = Vec::new();
    let mode = negotiation::get_mode(session, spec, &mut warnings);
    negotiation::warn_of_ignored_congestion_control(session, spec, &mut warnings);
    // Answered along with the end of the transfer.
    session.pipeline_followups(spec, vec![end_command(None)]);
    let direction = TransferDirection::Send;
    let agreement = agree(
        session,
        entries,
        direction,
        mode,
        spec,
        &operation,
        &mut warnings,
    )
    .await?;
    let local_end = LocalTransfer::Receive {
        sink: Arc::clone(sink),
        plan: ReceivePlan {
            origin: 0,
            stream_start: 0,
            limit: Some(total),
        },
        server_overruns: false,
    };
    let mut settings = negotiation::data_settings(session, agreement.mode, spec, &RangeSet::new());
    // Only the sender's congestion control acts.
    settings.options.congestion = CongestionChoice::System;
    let exchange = TransferExchange {
        local_end,
        settings,
        control,
        reply_sinks: ReplySinks::default(),
        alternative: agreement.alternative.clone(),
        wait_for_start: agreement.mode == TransferMode::Extended,
        operation: &operation,
        when_sent: None,
    };
    let completed = session.exchange(exchange).await?;
    if !completed.report.stored.contains(0, total) {
        let arrived = completed.report.stored.byte_count();
        let name = session.name();
        return Err(negotiation::incomplete_failure(name, &operation, arrived, total).into());
    }
    let mut outcome = end(session, None, entries.len()).await?;
    let Some(arrived) = completed.report.checksum.clone() else {
        return Err(Failure::local("the bytes of a bundle have no checksum").into());
    };
    let sent = outcome.checksum.as_ref().map(|(_, hex)| hex);
    if sent != Some(&arrived) {
        let proof = BundleProof {
            algorithm: CHECKSUM,
            checksum: arrived,
            without: Vec::new(),
        };
        // The checksum of the first reply may be the one that was damaged.
        outcome.sums = end(session, Some(proof), entries.len()).await?.sums;
    }
    let attempt = attempt_of(session, &agreement, spec, completed, warnings);
    Ok((attempt, outcome))
}

/// Sends `source`, which holds the files `entries`, and ends the bundle. The proof is the one that ended it.
///
/// # Errors
/// As [`super::put`], and as [`end_bundle`].
pub async fn put_bundle(
    session: &mut ClientSession,
    entries: &[BundleEntry],
    source: &Arc<BundleSource>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<(TransferAttempt, BundleProof, BundleOutcome), Failure> {
    let operation = Operation::from(format!("write {} files", entries.len()));
    let total = total_size(entries);
    let mut warnings = Vec::new();
    let mode = negotiation::transfer_mode(session, spec, &mut warnings);
    let direction = TransferDirection::Receive;
    let agreement = agree(
        session,
        entries,
        direction,
        mode,
        spec,
        &operation,
        &mut warnings,
    )
    .await?;
    let mut ranges = RangeSet::new();
    ranges.insert(0, total);
    let proof_of = |report: &TransferReport| {
        let checksum = report.checksum.clone()?;
        let failures = source.finish();
        Some(BundleProof {
            algorithm: CHECKSUM,
            checksum,
            without: failures.iter().map(|failure| failure.index).collect(),
        })
    };
    // The server reads it after its 226, which so costs no round trip.
    let end_at_once = |report: &TransferReport| proof_of(report).map(|p| end_command(Some(p)));
    let ends_at_once = session.can_pipeline_followups(spec);
    let exchange = TransferExchange {
        local_end: LocalTransfer::Send {
            source: Arc::clone(source) as Arc<dyn Source>,
            plan: SendPlan::new(ranges, 0),
        },
        settings: negotiation::data_settings(session, agreement.mode, spec, &RangeSet::new()),
        control,
        reply_sinks: ReplySinks {
            started: Some(&spec.started),
            ..ReplySinks::default()
        },
        alternative: agreement.alternative.clone(),
        wait_for_start: false,
        operation: &operation,
        when_sent: ends_at_once.then_some(&end_at_once),
    };
    let completed = session.exchange(exchange).await?;
    let Some(proof) = proof_of(&completed.report) else {
        return Err(Failure::local("the bytes of a bundle have no checksum"));
    };
    let outcome = end(session, Some(proof.clone()), entries.len()).await?;
    let attempt = attempt_of(session, &agreement, spec, completed, warnings);
    Ok((attempt, proof, outcome))
}

/// Ends a bundle with a proof: the server compares the checksum, and gives files that it has stored their names. If the
/// checksum differs, the outcome has that of each file.
///
/// # Errors
/// The refusal by its class; nothing was stored then.
pub async fn end_bundle(
    session: &mut ClientSession,
    proof: BundleProof,
    count: usize,
) -> Result<BundleOutcome, Failure> {
    end(session, Some(proof), count).await
}

/// Moves a bundle from one server to another. The outcome is that of the source: the checksum of the bytes that it sent,
/// and the files that it could not send. Ends with [`end_bundle`] at the destination.
///
/// # Errors
/// As [`super::third_party`].
pub async fn pass_bundle(
    source: &mut ClientSession,
    from: &[BundleEntry],
    destination: &mut ClientSession,
    to: &[BundleEntry],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<(TransferAttempt, BundleOutcome), Failure> {
    let subject = TransferSubject::Bundle { from, to };
    let attempt = third_party::third_party(source, destination, subject, spec, progress).await?;
    let outcome = end(source, None, from.len()).await?;
    Ok((attempt, outcome))
}

async fn end(
    session: &mut ClientSession,
    proof: Option<BundleProof>,
    count: usize,
) -> Result<BundleOutcome, Failure> {
    let reply = session.control.call(&end_command(proof)).await?;
    BundleOutcome::from_reply(&reply, count).ok_or_else(|| {
        let operation = Operation::from(format!("end a bundle of {count} files"));
        replies::refusal_failure(session.name(), &operation, &reply)
    })
}

fn end_command(proof: Option<BundleProof>) -> Command {
    Command::Site(SiteCommand::BundleEnd(proof))
}

async fn agree(
    session: &mut ClientSession,
    entries: &[BundleEntry],
    direction: TransferDirection,
    mut mode: TransferMode,
    spec: &TransferSpec,
    operation: &Operation,
    warnings: &mut Vec<String>,
) -> Result<BundleAgreement, Failure> {
    let sends = direction == TransferDirection::Receive;
    let sizing = session.negotiate_sizing(spec.options.buffers.sizing, warnings);
    let (count, directory) = (entries.len(), directory_of(entries));
    let command = match sends {
        true => Command::Esto(ExtendedStore::Bundle { count }, directory),
        false => Command::Eret(ExtendedRetrieve::Bundle { count }, directory),
    };
    let data_end = LocalDataEnd {
        ports: spec.data_ports,
        options: spec.options.clone(),
        is_large: false,
    };
    loop {
        let mut requirements = TransferRequirements {
            protection: None,
            direction,
            mode,
            streams: negotiation::stream_range(session, mode, spec),
            congestion_control: negotiation::requested_congestion_control(spec),
            buffer: spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(sizing),
            announcements: announcements(entries, session),
            announced_size: None,
            passing_checksum: None,
            restart: None,
            server_listens: sends || mode == TransferMode::Stream,
            connections_reusable: false,
            command: command.clone(),
        };
        requirements.connections_reusable =
            negotiation::has_reusable_connections(session, &requirements, sends);
        let prepared = session
            .prepare_transfer(&requirements, &data_end, operation, warnings)
            .await?;
        match prepared {
            PreparationResult::Ready { alternative } => {
                return Ok(BundleAgreement { mode, alternative });
            }
            PreparationResult::RetryWithoutPipelining => {
                session.reopen_without_pipelining().await?;
            }
            // A bundle has no REST.
            PreparationResult::RetryInStreamMode | PreparationResult::RetryFromZero => {
                session.warn_once(warnings, negotiation::EXTENDED_MODE_UNAVAILABLE);
                mode = TransferMode::Stream;
            }
        }
    }
}

fn total_size(entries: &[BundleEntry]) -> u64 {
    entries.iter().map(|entry| entry.size).sum()
}

fn attempt_of(
    session: &ClientSession,
    agreement: &BundleAgreement,
    spec: &TransferSpec,
    completed: CompletedExchange,
    warnings: Vec<String>,
) -> TransferAttempt {
    TransferAttempt {
        extended_mode: agreement.mode == TransferMode::Extended,
        streams: completed.report.evidence.streams.max(1),
        buffers: negotiation::agreed_buffers(session, spec),
        remarks: completed.remarks,
        report: completed.report,
        warnings,
    }
}
