//! Third-party transfers: server to server, controlled from this machine (RFC 959 §5.2, GFD.20 §3).
//!
//! The destination listens and the source connects to exactly the address that it announced. STOR
//! is sent without waiting for its 150, which comes only when the source has connected.

use std::net::{IpAddr, SocketAddr};

use data::job::TransferReport;
use proto::client::{
    PartialRetrievalUnsupported, PlanStep, RetrievalPlan, TransferDirection, TransferRequirements,
    plan_retrieval,
};
use proto::command::{Command, SiteCommand, TransferMode};
use proto::drs::DrsAddress;
use proto::ranges::RangeSet;
use proto::sizing::BufferSizing;
use proto::streams::ParallelismRange;
use proto::stripes::StripeAddresses;

use super::prepare::gives_credential;
use super::server_pair::{ExpectedBytes, MarkerProgress, ServerPair};
use super::subject::TransferSubject;
use super::third_party_settings::{
    RenegotiationReason, SettingsResult, agrees_to_drs, listening_drs_address,
    renegotiation_reason, send_settings,
};
use super::{TransferAttempt, TransferSpec, bundle_commands, negotiation, put, restart};
use crate::failure::{Operation, Sentence};
use crate::session::{ClientSession, DataPurpose};
use crate::{Failure, FailureKind};

/// Settings agreed with both servers.
struct ThirdPartyAgreement {
    mode: TransferMode,
    retrieval: RetrievalPlan,
    kept_ranges: RangeSet,
    sizing: BufferSizing,
}

/// Moves a file, a chunk of one, or a bundle of files from one server to another.
pub(super) async fn third_party(
    source: &mut ClientSession,
    destination: &mut ClientSession,
    subject: TransferSubject<'_>,
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<TransferAttempt, Failure> {
    subject.check_paths(source, destination)?;
    // The data goes from one to the other, past any proxy of this machine.
    source.find_peer_addr().await?;
    destination.find_peer_addr().await?;
    let mut warnings = Vec::new();
    let mut servers = ThirdPartyServers {
        source,
        destination,
        subject,
        spec,
        is_striped: false,
    };
    let agreement = servers.agree_and_start(&mut warnings).await?;
    let [_, sending, receiving] = subject.operation_names();
    let expected = ExpectedBytes {
        size: spec.size,
        missing: servers.expected_bytes(&agreement),
    };
    let mut marker_progress = MarkerProgress::new(expected, &spec.stored_ranges, progress);
    let is_striped = servers.is_striped;
    let outcome = ServerPair {
        source: servers.source,
        sending: &sending,
        destination: servers.destination,
        receiving: &receiving,
        stall_timeout: spec.options.stall,
        confirmation: &spec.confirmation,
    }
    .wait_for_replies(&mut marker_progress)
    .await;
    // The data connections are between the servers; neither can be used with this machine.
    servers.forget_data_channels();
    let mut remarks = match outcome {
        // The data nodes may be in networks that do not reach each other, where the servers themselves do.
        Err(failure) if is_striped && failure.kind() == FailureKind::Apart => {
            servers.forget_stripes();
            if !(servers.source.is_usable() && servers.destination.is_usable()) {
                return Err(failure.of_kind(FailureKind::Unreachable).retried(true));
            }
            let again = third_party(source, destination, subject, spec, progress);
            // Boxed: an async function cannot contain itself. Once, since the servers are used without stripes now.
            return Box::pin(again).await;
        }
        outcome => outcome?,
    };
    if is_striped {
        let both = [&*servers.source, &*servers.destination];
        remarks.extend(both.map(ClientSession::remark_of_stripes));
    }
    let bytes = servers.check_moved_bytes(&agreement, &receiving, marker_progress.bytes())?;
    Ok(TransferAttempt {
        report: TransferReport {
            evidence: tune::Evidence {
                bytes,
                ..tune::Evidence::default()
            },
            ..TransferReport::default()
        },
        extended_mode: agreement.mode == TransferMode::Extended,
        streams: u64::from(negotiation::stream_range(source, agreement.mode, spec).start),
        buffers: spec.options.buffers.with_sizing(agreement.sizing),
        remarks,
        warnings,
    })
}

/// The two servers of a transfer, until both have their transfer commands.
struct ThirdPartyServers<'a> {
    source: &'a mut ClientSession,
    destination: &'a mut ClientSession,
    subject: TransferSubject<'a>,
    spec: &'a TransferSpec,
    /// The data goes from data nodes to data nodes.
    is_striped: bool,
}

/// Warning when [`BufferSizing::Drs1`] is requested between two servers.
const DRS1_NOT_BETWEEN_SERVERS: &str = "cannot receive buffer sizes on the control channel while another server \
     receives (the 2003 drsFTP has no third-party transfers); each server sizes its own (--buffer auto)";

impl ThirdPartyServers<'_> {
    /// Agrees on one mode with both servers, sends the destination's address to the source, and
    /// starts the transfer.
    async fn agree_and_start(
        &mut self,
        warnings: &mut Vec<String>,
    ) -> Result<ThirdPartyAgreement, Failure> {
        let mut mode = negotiation::transfer_mode(self.source, self.spec, warnings);
        if mode == TransferMode::Extended {
            // MODE E only if both servers support it.
            mode = negotiation::transfer_mode(self.destination, self.spec, warnings);
        }
        let mut kept_ranges = negotiation::usable_restart_ranges(mode, &self.spec.completed_ranges);
        let mut sizing = self.agree_sizing(warnings);
        negotiation::warn_of_ignored_congestion_control(self.source, self.spec, warnings);
        loop {
            let retrieval = self.plan_source_retrieval(mode, &kept_ranges).await?;
            let mut prefix = RangeSet::new();
            prefix.insert(0, retrieval.start);
            let agreement = ThirdPartyAgreement {
                mode,
                kept_ranges: if mode == TransferMode::Stream {
                    prefix
                } else {
                    kept_ranges
                },
                retrieval,
                sizing,
            };
            match self.set_up_transfer(&agreement, warnings).await? {
                None => return Ok(agreement),
                Some(RenegotiationReason::StreamMode) => {
                    mode = TransferMode::Stream;
                    kept_ranges =
                        negotiation::usable_restart_ranges(mode, &self.spec.completed_ranges);
                }
                Some(RenegotiationReason::RestartFromZero) => match self.subject {
                    TransferSubject::File { from, .. } if self.spec.part.is_some() => {
                        return Err(self.partial_copy_failure(from));
                    }
                    _ => kept_ranges = RangeSet::new(),
                },
                Some(RenegotiationReason::WithoutRightSizing) => {
                    sizing = BufferSizing::Auto;
                    kept_ranges = agreement.kept_ranges;
                }
                Some(RenegotiationReason::WithoutStripes) => {
                    self.forget_stripes();
                    kept_ranges = agreement.kept_ranges;
                }
                Some(RenegotiationReason::WithoutPipelining) => {
                    self.source.reopen_without_pipelining().await?;
                    kept_ranges = agreement.kept_ranges;
                }
            }
        }
    }

    /// Who sizes the servers' buffers. A policy that needs both servers falls back to each server's
    /// own if one does not support it.
    fn agree_sizing(&mut self, warnings: &mut Vec<String>) -> BufferSizing {
        let requested = self.spec.options.buffers.sizing;
        match requested {
            BufferSizing::Auto | BufferSizing::Kernel => requested,
            BufferSizing::Drs1 => {
                self.source.warn_once(warnings, DRS1_NOT_BETWEEN_SERVERS);
                BufferSizing::Auto
            }
            BufferSizing::Drs | BufferSizing::Drs2004 => {
                let source = self.source.negotiate_sizing(requested, warnings);
                let destination = self.destination.negotiate_sizing(requested, warnings);
                let refused = self.source.planner.is_drs_connecting_refused()
                    || self.destination.planner.is_drs_listening_refused();
                if source == destination && !refused {
                    source
                } else {
                    BufferSizing::Auto
                }
            }
        }
    }

    /// The retrieval commands for the source. Nobody can stop the source between two servers, so a
    /// part requested by REST alone must reach to the end of the file.
    async fn plan_source_retrieval(
        &mut self,
        mode: TransferMode,
        kept_ranges: &RangeSet,
    ) -> Result<RetrievalPlan, Failure> {
        let path = match self.subject {
            TransferSubject::File { from, .. } => from,
            TransferSubject::Bundle { from, .. } => {
                return Ok(bundle_commands::bundle_retrieval(from));
            }
        };
        let part = self.spec.part;
        let Ok(plan) = plan_retrieval(self.source.features(), mode, path, part, false, kept_ranges)
        else {
            return Err(self.partial_copy_failure(path));
        };
        // REST alone has no end: the source sends to the end of the file.
        if let (true, Some((offset, length))) = (plan.overruns, part) {
            let size = self.source.stat(path).await?.size;
            if size != offset.checked_add(length) {
                return Err(self.partial_copy_failure(path));
            }
        }
        // Nobody here sees how many bytes pass.
        if plan.restart.is_some() && restart::needs_proof(self.source, mode) {
            restart::prove(self.source, path, self.spec).await?;
        }
        Ok(plan)
    }

    fn partial_copy_failure(&self, path: &[u8]) -> Failure {
        let from = self.source.name();
        let reason = Sentence::cannot(&Operation::on_path("copy a part of", path)).words(
            format_args!(" from {from} to another server: {PartialRetrievalUnsupported}"),
        );
        Failure::protocol(reason).advise("copy the whole file, or copy through this machine")
    }

    /// Sends the settings, the addresses and the two transfer commands.
    async fn set_up_transfer(
        &mut self,
        agreement: &ThirdPartyAgreement,
        warnings: &mut Vec<String>,
    ) -> Result<Option<RenegotiationReason>, Failure> {
        let source_requirements = TransferRequirements {
            protection: self
                .source
                .agree_data_protection(DataPurpose::Files)
                .await?,
            ..self.send_requirements(agreement)
        };
        let destination_requirements = TransferRequirements {
            protection: self
                .destination
                .agree_data_protection(DataPurpose::Files)
                .await?,
            ..self.receive_requirements(agreement)
        };
        let sending = self.source.planner.setting_steps(&source_requirements);
        if sending.iter().any(gives_credential) {
            // A server without the credential that its data nodes are to show names none of them.
            let sizing = source_requirements.buffer_sizing.unwrap_or_default();
            let [reading, ..] = self.subject.operation_names();
            let sent = send_settings(self.source, sending, sizing, &reading, warnings).await?;
            if sent.reason.is_some() {
                return Ok(sent.reason);
            }
        }
        self.find_stripes(&source_requirements, &destination_requirements)
            .await?;
        self.announce_sources().await?;
        let (settings, store_steps) =
            split_off_transfer_command(self.destination.planner.plan(&destination_requirements));
        let result = self
            .send_settings_to_both(&source_requirements, settings, warnings)
            .await?;
        let (None, Some(announced)) = (&result.reason, &result.announced) else {
            return Ok(result.reason);
        };
        self.is_striped = self.destination.take_checked_stripes();
        self.source.ask_for_stripes(self.is_striped);
        let addresses = match self.is_striped {
            true => announced.clone(),
            false => self.destination.checked_data_addresses(announced, warnings),
        };
        let host = addresses.first();
        let hosts: Vec<IpAddr> = addresses.as_slice().iter().map(SocketAddr::ip).collect();
        self.source.announce_data_peers(&hosts).await?;
        if agreement.sizing.uses_drs_channel()
            && !self.connect_drs(agreement.sizing, host, warnings).await?
        {
            return Ok(Some(RenegotiationReason::WithoutRightSizing));
        }
        self.start_transfer(&source_requirements, &store_steps, &addresses, warnings)
            .await
    }

    /// Sends the settings of both servers and asks for the destination's address. With pipelining
    /// on both servers this runs concurrently; otherwise the source goes first, so that its refusal
    /// costs the destination nothing.
    async fn send_settings_to_both(
        &mut self,
        source_requirements: &TransferRequirements,
        receiving: Vec<PlanStep>,
        warnings: &mut Vec<String>,
    ) -> Result<SettingsResult, Failure> {
        let [reading, _, writing] = self.subject.operation_names();
        let sending = self.source.planner.setting_steps(source_requirements);
        let sizing = source_requirements.buffer_sizing.unwrap_or_default();
        if self.both_support_pipelining() {
            let mut destination_warnings = Vec::new();
            let (source, destination) = tokio::join!(
                send_settings(self.source, sending, sizing, &reading, warnings),
                // Warnings of the second future go through a list of their own, as `warnings` is
                // borrowed by the first.
                send_settings(
                    self.destination,
                    receiving,
                    sizing,
                    &writing,
                    &mut destination_warnings
                ),
            );
            warnings.append(&mut destination_warnings);
            let (source, destination) = (source?, destination?);
            return Ok(SettingsResult {
                reason: source.reason.or(destination.reason),
                ..destination
            });
        }
        let source = send_settings(self.source, sending, sizing, &reading, warnings).await?;
        if source.reason.is_some() {
            return Ok(source);
        }
        if sizing.uses_drs_channel() && !agrees_to_drs(self.source, sizing) {
            return Ok(SettingsResult {
                reason: Some(RenegotiationReason::WithoutRightSizing),
                announced: None,
            });
        }
        send_settings(self.destination, receiving, sizing, &writing, warnings).await
    }

    /// Has the destination's data nodes listen if both servers have some, and so much is to be moved that it is worth asking.
    async fn find_stripes(
        &mut self,
        sending: &TransferRequirements,
        requirements: &TransferRequirements,
    ) -> Result<(), Failure> {
        let is_large = put::is_large(self.spec.size);
        if is_large {
            self.source.enter_for_stripes(sending).await?;
            self.destination.enter_for_stripes(requirements).await?;
        }
        let mut is_striped = is_large
            && !requirements
                .buffer_sizing
                .is_some_and(BufferSizing::uses_drs_channel)
            // Each part of an object has to come to one node, and the nodes of a source do not know the parts.
            && !self.destination.features().stores_whole
            && [&*self.source, &*self.destination]
                .iter()
                .all(|server| server.may_use_stripes(requirements));
        if is_striped {
            self.source.learn_stripes().await?;
            is_striped = self.source.has_stripes();
        }
        self.destination.ask_for_stripes(is_striped);
        Ok(())
    }

    fn forget_stripes(&mut self) {
        self.source.forget_stripes();
        self.destination.forget_stripes();
    }

    /// Announces each server to the other: a server may restrict data connections to hosts it
    /// knows. A server connects from the address at which this machine reaches it, and its data nodes from theirs.
    async fn announce_sources(&mut self) -> Result<(), Failure> {
        let from = self.source.hosts_of_stripes();
        let to = [self.destination.control.peer_addr().ip()];
        let (source, destination) = tokio::join!(
            self.source.announce_data_peers(&to),
            self.destination.announce_data_peers(&from),
        );
        source.and(destination)
    }

    /// Tells the source where the destination listens for the DRS channel; `false` when one of them
    /// does not take part.
    async fn connect_drs(
        &mut self,
        sizing: BufferSizing,
        data: SocketAddr,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let Some(announced) = listening_drs_address(self.destination, sizing)
            .filter(|_| agrees_to_drs(self.source, sizing))
        else {
            return Ok(false);
        };
        // The source accepts only the host of its data connections.
        let at = SocketAddr::new(data.ip(), announced.socket.port());
        let channel = DrsAddress {
            socket: at,
            ..announced
        };
        self.source.send_drs_address(channel, warnings).await
    }

    /// Sends the destination's address and both transfer commands. STOR follows after the source
    /// has accepted the address: a refusal leaves nothing behind. Data connections that arrive
    /// before STOR wait in the listener's queue, which is known to be long enough where both
    /// servers are longhaul. Otherwise both commands are sent at about the same time.
    async fn start_transfer(
        &mut self,
        source_requirements: &TransferRequirements,
        store_steps: &[PlanStep],
        addresses: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> Result<Option<RenegotiationReason>, Failure> {
        let [reading, _, writing] = self.subject.operation_names();
        let plan = self.source.planner.plan(source_requirements).into_iter();
        let steps: Vec<PlanStep> = plan.filter(needs_data_address).collect();
        // Without pipelining the replies to PORT and REST are read before RETR is sent.
        let pipelines = match self.both_support_pipelining() {
            true => vec![steps],
            false => steps.into_iter().map(|step| vec![step]).collect(),
        };
        for pipeline in pipelines {
            let result = self
                .source
                .send_pipeline(&pipeline, Some(addresses), &reading, warnings);
            let result = result.await;
            if result.is_err() && self.is_striped && self.source.habits().is_without_stripes() {
                return Ok(Some(RenegotiationReason::WithoutStripes));
            }
            let reason = result?.replan;
            if reason.is_some() {
                return Ok(renegotiation_reason(self.source, reason, warnings));
            }
        }
        let stor_result = self
            .destination
            .send_pipeline(store_steps, None, &writing, warnings)
            .await;
        if stor_result.is_err() {
            // The source would connect to an address where nobody listens.
            self.source.control.abandon();
        }
        stor_result.map(|_| None)
    }

    fn both_support_pipelining(&self) -> bool {
        [&*self.source, &*self.destination]
            .iter()
            .all(|session| session.planner.supports_pipelining())
    }

    fn receive_requirements(&self, agreement: &ThirdPartyAgreement) -> TransferRequirements {
        TransferRequirements {
            protection: None,
            direction: TransferDirection::Receive,
            mode: agreement.mode,
            streams: ParallelismRange::fixed(1),
            congestion_control: None,
            buffer: self.spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(agreement.sizing),
            announcements: self.subject.store_announcements(self.destination),
            announced_size: self.spec.size,
            passing_checksum: self.spec.server_checksum,
            restart: put::store_restart(agreement.mode, &agreement.kept_ranges),
            server_listens: true,
            connections_reusable: false,
            command: self.subject.store_command(self.spec),
        }
    }

    fn send_requirements(&self, agreement: &ThirdPartyAgreement) -> TransferRequirements {
        TransferRequirements {
            protection: None,
            direction: TransferDirection::Send,
            mode: agreement.mode,
            streams: negotiation::stream_range(self.source, agreement.mode, self.spec),
            congestion_control: negotiation::requested_congestion_control(self.spec),
            buffer: self.spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(agreement.sizing),
            announcements: self.subject.retrieve_announcements(self.source),
            announced_size: None,
            passing_checksum: self.spec.server_checksum,
            restart: agreement.retrieval.restart.clone(),
            server_listens: false,
            connections_reusable: false,
            command: agreement.retrieval.command.clone(),
        }
    }

    fn forget_data_channels(&mut self) {
        for session in [&mut *self.source, &mut *self.destination] {
            session.data_channel = None;
            session.planner.on_channel_lost();
        }
    }

    /// Bytes to be moved.
    fn expected_bytes(&self, agreement: &ThirdPartyAgreement) -> Option<u64> {
        let size = self.spec.size?;
        Some(agreement.kept_ranges.gaps(0, size).byte_count())
    }

    /// Bytes moved: those of the destination's last marker if it sent any, which must agree with
    /// the expected number.
    fn check_moved_bytes(
        &self,
        agreement: &ThirdPartyAgreement,
        receiving: &Operation,
        reported: Option<u64>,
    ) -> Result<u64, Failure> {
        match (reported, self.expected_bytes(agreement)) {
            (Some(reported), Some(expected)) if reported != expected => {
                Err(negotiation::incomplete_failure(
                    self.destination.name(),
                    receiving,
                    reported,
                    expected,
                ))
            }
            (reported, expected) => Ok(reported.or(expected).unwrap_or(0)),
        }
    }
}

/// Splits the transfer command off the end of a plan.
fn split_off_transfer_command(mut steps: Vec<PlanStep>) -> (Vec<PlanStep>, Vec<PlanStep>) {
    let command = steps.split_off(steps.len().saturating_sub(1));
    (steps, command)
}

/// Whether the source gets this step only after the destination's address is known: the address
/// itself and everything that must follow it.
fn needs_data_address(step: &PlanStep) -> bool {
    matches!(
        step,
        PlanStep::Connect
            | PlanStep::Set(
                Command::Rest(_)
                    | Command::Site(SiteCommand::BundleAdd(_) | SiteCommand::BundlePack(_)),
                _
            )
            | PlanStep::Transfer(_)
    )
}
