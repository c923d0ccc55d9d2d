//! The transfer of one file of a series.

use std::sync::Arc;

use data::job::TransferControl;
use data::options::CongestionChoice;
use data::store::Source;
use proto::client::{PlanStep, TransferDirection, TransferRequirements};
use proto::command::{Command, TransferMode};
use proto::ranges::RangeSet;
use proto::stripes::StripeAddresses;

use super::super::control_messages::ReplySinks;
use super::super::exchange::{CompletedExchange, TransferExchange};
use super::super::outcome::FailedTransfer;
use super::super::{TransferAttempt, TransferSpec, get, negotiation, put};
use super::files::{SeriesEnd, SeriesFile};
use super::local_end::{file_spec, local_transfer, path_of};
use crate::Failure;
use crate::failure::Operation;
use crate::session::ClientSession;
use crate::session::replies::{RefusalCause, refusal_cause};

/// A transfer whose command is sent.
pub(super) struct SeriesTransfer<'a> {
    pub(super) end: &'a SeriesEnd,
    pub(super) file: &'a SeriesFile,
    pub(super) mode: TransferMode,
    pub(super) alternative: Option<StripeAddresses>,
}

/// Moves a file with nothing ahead of it. Agrees on all settings first.
pub(super) async fn move_alone(
    session: &mut ClientSession,
    end: &SeriesEnd,
    file: &SeriesFile,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    let spec = file_spec(end, file, spec);
    let part = Arc::new(TransferControl::part_of(control, file.start));
    match end {
        SeriesEnd::Receive(sink) => {
            get::get(session, &file.path, Arc::clone(sink), &spec, &part).await
        }
        SeriesEnd::Send(source) => {
            let source = Arc::clone(source) as Arc<dyn Source>;
            put::put(session, source, &file.partial, &spec, &part).await
        }
    }
}

/// The commands of a transfer in `mode` that can be sent before the last transfer has ended; `None` if the server's
/// settings are not yet what it needs. `has_kept`: data connections are kept, though the session does not have them now.
pub(super) fn steps_ahead(
    session: &ClientSession,
    spec: &TransferSpec,
    file: &SeriesFile,
    mode: TransferMode,
    is_receive: bool,
    has_kept: bool,
) -> Option<Vec<Command>> {
    let sends = !is_receive;
    let sizing = spec.options.buffers.sizing;
    let mut requirements = TransferRequirements {
        protection: session.agreed_protection(),
        direction: match is_receive {
            true => TransferDirection::Send,
            false => TransferDirection::Receive,
        },
        mode,
        streams: negotiation::stream_range(session, mode, spec),
        congestion_control: negotiation::requested_congestion_control(spec),
        buffer: spec.options.buffers.pinned_bytes(),
        buffer_sizing: Some(session.planner.agreed_sizing(sizing)),
        announcements: Vec::new(),
        announced_size: Some(file.size),
        passing_checksum: spec.server_checksum,
        restart: None,
        server_listens: sends || mode == TransferMode::Stream,
        connections_reusable: false,
        command: match is_receive {
            true => Command::Retr(file.path.clone()),
            false => Command::Stor(file.partial.clone()),
        },
    };
    requirements.connections_reusable =
        has_kept || negotiation::has_reusable_connections(session, &requirements, sends);
    let steps = session.planner.steps_ahead(&requirements)?;
    let commands = steps.into_iter().filter_map(|step| match step {
        PlanStep::Listen => Some(session.passive_command()),
        PlanStep::Transfer(command) => Some(command),
        PlanStep::Set(..) | PlanStep::Connect | PlanStep::DrsListen => None,
    });
    Some(commands.collect())
}

/// Whether the server refused this file, so that others may succeed.
pub(super) fn refuses_file(failed: &FailedTransfer) -> bool {
    let Some(reply) = &failed.refusal else {
        return false;
    };
    let names_file = match reply.code {
        550 | 551 | 553 => true,
        // globus-gridftp-server answers every refused store so.
        500 => matches!(
            refusal_cause(reply),
            RefusalCause::Denied
                | RefusalCause::Missing
                | RefusalCause::Directory
                | RefusalCause::NoFile
        ),
        _ => false,
    };
    names_file && !failed.failure.may_retry()
}

/// Moves the bytes of a file whose commands are sent, and checks that all have moved.
pub(super) async fn exchange(
    session: &mut ClientSession,
    transfer: SeriesTransfer<'_>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, FailedTransfer> {
    let SeriesTransfer {
        end,
        file,
        mode,
        alternative,
    } = transfer;
    let verb = match end {
        SeriesEnd::Receive(_) => "read",
        SeriesEnd::Send(_) => "write",
    };
    let operation = Operation::on_path(verb, path_of(end, file));
    let spec = file_spec(end, file, spec);
    let part = Arc::new(TransferControl::part_of(control, file.start));
    let mut settings = negotiation::data_settings(session, mode, &spec, &RangeSet::new());
    if let SeriesEnd::Receive(_) = end {
        // Only the sender's congestion control acts.
        settings.options.congestion = CongestionChoice::System;
    }
    let exchange = TransferExchange {
        local_end: local_transfer(end, file),
        settings,
        control: &part,
        reply_sinks: ReplySinks {
            started: Some(&spec.started),
            ..ReplySinks::default()
        },
        alternative,
        // On a kept connection the bytes of a refused file would be taken for those of the next one.
        wait_for_start: mode == TransferMode::Extended,
        operation: &operation,
        when_sent: None,
    };
    let CompletedExchange {
        report, remarks, ..
    } = session.exchange(exchange).await?;
    let moved = match end {
        SeriesEnd::Receive(_) => report.stored.byte_count(),
        SeriesEnd::Send(_) => report.evidence.bytes,
    };
    if moved != file.size {
        let name = session.name();
        return Err(negotiation::incomplete_failure(name, &operation, moved, file.size).into());
    }
    Ok(TransferAttempt {
        extended_mode: mode == TransferMode::Extended,
        streams: report.evidence.streams.max(1),
        buffers: negotiation::agreed_buffers(session, &spec),
        remarks,
        report,
        warnings: Vec::new(),
    })
}
