//! Server to server: this machine only speaks (RFC 959 §5.2, GFD.20 §3).
//!
//! The destination listens and the source connects to exactly the address that was told. STOR is
//! sent without waiting for its 150, which comes only when the source has connected.

use std::net::SocketAddr;

use data::job::TransferReport;
use proto::client::{
    PartialRetrievalUnsupported, PlanStep, RetrievalPlan, ServerDrsAddress, TransferDirection,
    TransferRequirements, plan_retrieval,
};
use proto::command::{Command, TransferMode};
use proto::drs::DrsAddress;
use proto::ranges::RangeSet;
use proto::sizing::BufferSizing;
use proto::streams::ParallelismRange;
use proto::stripes::StripeAddresses;

use super::prepare::PreparationResult;
use super::server_pair::{ExpectedBytes, MarkerProgress, ServerPair};
use super::{TransferAttempt, TransferSpec, negotiation, put};
use crate::session::{ClientSession, display_path};
use crate::{CopyFailure, Exit};

/// Settings that both servers were brought to.
struct ThirdPartyAgreement {
    mode: TransferMode,
    retrieval: RetrievalPlan,
    have: RangeSet,
    sizing: BufferSizing,
}

/// [`transfer::third_party`](super::third_party()) in one piece: a file, or a chunk of one.
pub(super) async fn third_party(
    source: &mut ClientSession,
    source_path: &[u8],
    destination: &mut ClientSession,
    destination_path: &[u8],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<TransferAttempt, CopyFailure> {
    source.check_path(source_path)?;
    destination.check_path(destination_path)?;
    let mut warnings = Vec::new();
    let mut sides = ThirdPartyServers {
        source,
        source_path,
        destination,
        destination_path,
        spec,
    };
    let agreed = sides.agree_and_start(&mut warnings).await?;
    let sending = format!("send {}", display_path(source_path));
    let receiving = format!("write {}", display_path(destination_path));
    let extent = ExpectedBytes {
        size: spec.size,
        missing: sides.expected_bytes(&agreed),
    };
    let mut watch = MarkerProgress::new(extent, &spec.stored_ranges, progress);
    let outcome = ServerPair {
        source: sides.source,
        sending: &sending,
        destination: sides.destination,
        receiving: &receiving,
        patience: spec.options.stall,
        confirmation: &spec.confirmation,
    }
    .wait_for_replies(&mut watch)
    .await;
    sides.forget_data_channels();
    let remarks = outcome?;
    let bytes = sides.check_moved_bytes(&agreed, &receiving, watch.bytes())?;
    Ok(TransferAttempt {
        report: TransferReport {
            evidence: tune::Evidence {
                bytes,
                ..tune::Evidence::default()
            },
            ..TransferReport::default()
        },
        extended_mode: agreed.mode == TransferMode::Extended,
        streams: u64::from(negotiation::stream_range(source, agreed.mode, spec).start),
        buffers: spec.options.buffers.with_sizing(agreed.sizing),
        remarks,
        warnings,
    })
}

struct ThirdPartyServers<'a> {
    source: &'a mut ClientSession,
    source_path: &'a [u8],
    destination: &'a mut ClientSession,
    destination_path: &'a [u8],
    spec: &'a TransferSpec,
}

/// Why agreement starts again.
enum RenegotiationReason {
    StreamMode,
    StartOver,
    /// One of them has no part in the right-sizing that was wanted: each does its own.
    WithoutRightSizing,
    /// The source refused what was sent ahead of its answer.
    WithoutPipelining,
}

/// Message to the user when [`Sizing::Drs1`] is wanted between two servers.
const DRS1_NOT_BETWEEN_SERVERS: &str = "cannot be told buffer sizes on the control channel while another server \
     receives (the first drsFTP knows no third party); each server sizes its own (--buffer auto)";

impl ThirdPartyServers<'_> {
    /// Brings both servers to the same mode, the destination to listen and the source to know
    /// where, and has them begin.
    async fn agree_and_start(
        &mut self,
        warnings: &mut Vec<String>,
    ) -> Result<ThirdPartyAgreement, CopyFailure> {
        let mut mode = negotiation::transfer_mode(self.source, self.spec, warnings);
        if mode == TransferMode::Extended {
            mode = negotiation::transfer_mode(self.destination, self.spec, warnings);
        }
        let mut have = negotiation::usable_restart_ranges(mode, &self.spec.completed_ranges);
        let mut sizing = self.agree_sizing(warnings);
        negotiation::warn_of_ignored_congestion_control(self.source, self.spec, warnings);
        loop {
            let retrieval = self.plan_source_retrieval(mode, &have).await?;
            let mut kept = RangeSet::new();
            kept.insert(0, retrieval.start);
            let agreed = ThirdPartyAgreement {
                mode,
                have: if mode == TransferMode::Stream {
                    kept
                } else {
                    have
                },
                retrieval,
                sizing,
            };
            match self.set_up_transfer(&agreed, warnings).await? {
                None => return Ok(agreed),
                Some(RenegotiationReason::StreamMode) => {
                    mode = TransferMode::Stream;
                    have = negotiation::usable_restart_ranges(mode, &self.spec.completed_ranges);
                }
                Some(RenegotiationReason::StartOver) if self.spec.part.is_some() => {
                    return Err(self.no_partial());
                }
                Some(RenegotiationReason::StartOver) => have = RangeSet::new(),
                Some(RenegotiationReason::WithoutRightSizing) => {
                    sizing = BufferSizing::Auto;
                    have = agreed.have;
                }
                Some(RenegotiationReason::WithoutPipelining) => {
                    self.source.reopen_without_pipelining().await?;
                    have = agreed.have;
                }
            }
        }
    }

    /// Who sizes the servers' buffers. Where both must have a part in it, one that has none is
    /// enough to leave it to each of them.
    fn agree_sizing(&mut self, warnings: &mut Vec<String>) -> BufferSizing {
        let wish = self.spec.options.buffers.sizing;
        match wish {
            BufferSizing::Auto | BufferSizing::Kernel => wish,
            BufferSizing::Drs1 => {
                self.source.warn_once(warnings, DRS1_NOT_BETWEEN_SERVERS);
                BufferSizing::Auto
            }
            BufferSizing::Drs => {
                let source = self.source.negotiate_sizing(wish, warnings);
                let destination = self.destination.negotiate_sizing(wish, warnings);
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

    /// How the source is asked. Nobody can stop it between two servers, so a part that REST alone
    /// expresses must reach to the end of the file.
    async fn plan_source_retrieval(
        &mut self,
        mode: TransferMode,
        have: &RangeSet,
    ) -> Result<RetrievalPlan, CopyFailure> {
        let (path, part) = (self.source_path, self.spec.part);
        let Ok(found) = plan_retrieval(self.source.features(), mode, path, part, have) else {
            return Err(self.no_partial());
        };
        if let (true, Some((offset, length))) = (found.overruns, part) {
            let size = self.source.stat(path).await?.size;
            if size != offset.checked_add(length) {
                return Err(self.no_partial());
            }
        }
        Ok(found)
    }

    fn no_partial(&self) -> CopyFailure {
        CopyFailure {
            exit: Exit::Protocol,
            message: format!(
                "cannot copy a part of {} from {} to another server: {PartialRetrievalUnsupported}; copy the whole \
                 file, or by way of this machine",
                display_path(self.source_path),
                self.source.name()
            ),
            transient: false,
        }
    }

    /// Settings, addresses, and the two transfer commands.
    async fn set_up_transfer(
        &mut self,
        agreed: &ThirdPartyAgreement,
        warnings: &mut Vec<String>,
    ) -> Result<Option<RenegotiationReason>, CopyFailure> {
        let send = self.send_requirements(agreed);
        self.announce_data_peers().await?;
        let (settings, store) = split_off_transfer_command(
            self.destination
                .planner
                .plan(&self.receive_requirements(agreed)),
        );
        let set = self
            .send_settings_to_both(&send, settings, warnings)
            .await?;
        let (None, Some(told)) = (&set.again, &set.told) else {
            return Ok(set.again);
        };
        let addresses = self.destination.checked_data_addresses(told, warnings);
        let host = addresses.first();
        self.source.announce_data_peer(host.ip()).await?;
        if agreed.sizing == BufferSizing::Drs && !self.connect_drs(host, warnings).await? {
            return Ok(Some(RenegotiationReason::WithoutRightSizing));
        }
        self.start_transfer(&send, &store, &addresses, warnings)
            .await
    }

    /// The settings of both, and the destination's address: side by side where neither is known for
    /// anything but taking commands ahead; else the source's first, so that one that refuses costs the
    /// other nothing.
    async fn send_settings_to_both(
        &mut self,
        send: &TransferRequirements,
        receiving: Vec<PlanStep>,
        warnings: &mut Vec<String>,
    ) -> Result<SettingsResult, CopyFailure> {
        let (reading, writing) = self.operation_names();
        let sending = self.source.planner.setting_steps(send);
        if self.both_support_pipelining() {
            let mut more = Vec::new();
            let (source, destination) = tokio::join!(
                send_settings(self.source, sending, &reading, warnings),
                send_settings(self.destination, receiving, &writing, &mut more),
            );
            warnings.append(&mut more);
            let (source, destination) = (source?, destination?);
            return Ok(SettingsResult {
                again: source.again.or(destination.again),
                ..destination
            });
        }
        let source = send_settings(self.source, sending, &reading, warnings).await?;
        if source.again.is_some() {
            return Ok(source);
        }
        if send.buffer_sizing == Some(BufferSizing::Drs) && !agrees_to_drs(self.source) {
            return Ok(SettingsResult {
                again: Some(RenegotiationReason::WithoutRightSizing),
                told: None,
            });
        }
        send_settings(self.destination, receiving, &writing, warnings).await
    }

    /// Each server is told of the other: neither has data connections with hosts that it does not
    /// know of. A server connects from the address at which it is known here.
    async fn announce_data_peers(&mut self) -> Result<(), CopyFailure> {
        let [from, to] = [&*self.source, &*self.destination].map(|s| s.control.peer_addr().ip());
        let (source, destination) = tokio::join!(
            self.source.announce_data_peer(to),
            self.destination.announce_data_peer(from),
        );
        source.and(destination)
    }

    /// Requests to the source and to the destination, for messages.
    fn operation_names(&self) -> (String, String) {
        let (source, destination) = (self.source_path, self.destination_path);
        let reading = format!("read {}", display_path(source));
        (reading, format!("write {}", display_path(destination)))
    }

    /// Tells the source where the destination listens for the DRS channel; `false` when one of them
    /// takes no part in it after all.
    async fn connect_drs(
        &mut self,
        data: SocketAddr,
        warnings: &mut Vec<String>,
    ) -> Result<bool, CopyFailure> {
        let Some(told) =
            listening_drs_address(self.destination).filter(|_| agrees_to_drs(self.source))
        else {
            return Ok(false);
        };
        // The source connects there only where its data goes.
        let at = SocketAddr::new(data.ip(), told.socket.port());
        let channel = DrsAddress { socket: at, ..told };
        self.source.send_drs_address(channel, warnings).await
    }

    /// Tells the source where to send, and both to begin. The destination's command goes out when the
    /// source has taken the address: one that refuses leaves nothing behind. Connections that come
    /// before it wait in the listener's queue, which is known to be long enough where both servers are
    /// longhaul's; others hear their commands at the same time.
    async fn start_transfer(
        &mut self,
        send: &TransferRequirements,
        store: &[PlanStep],
        addresses: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> Result<Option<RenegotiationReason>, CopyFailure> {
        let (reading, writing) = self.operation_names();
        let plan = self.source.planner.plan(send).into_iter();
        let steps: Vec<PlanStep> = plan.filter(needs_data_address).collect();
        let flights = match self.both_support_pipelining() {
            true => vec![steps],
            false => steps.into_iter().map(|step| vec![step]).collect(),
        };
        for flight in flights {
            let flown = self
                .source
                .send_pipeline(&flight, Some(addresses), &reading, warnings);
            let again = flown.await?.replan;
            if again.is_some() {
                return Ok(renegotiation_reason(self.source, again, warnings));
            }
        }
        let begun = self
            .destination
            .send_pipeline(store, None, &writing, warnings)
            .await;
        if begun.is_err() {
            // The source connects to where nobody listens any more.
            self.source.control.abandon();
        }
        begun.map(|_| None)
    }

    fn both_support_pipelining(&self) -> bool {
        [&*self.source, &*self.destination]
            .iter()
            .all(|session| session.planner.supports_pipelining())
    }

    fn receive_requirements(&self, agreed: &ThirdPartyAgreement) -> TransferRequirements {
        TransferRequirements {
            direction: TransferDirection::Receive,
            mode: agreed.mode,
            streams: ParallelismRange::fixed(1),
            congestion_control: None,
            buffer: self.spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(agreed.sizing),
            announced_size: self.spec.size,
            store_checksum: self.spec.server_checksum,
            restart: put::store_restart(agreed.mode, &agreed.have),
            server_listens: true,
            connections_reusable: false,
            command: negotiation::store_command(self.spec, self.destination_path),
        }
    }

    fn send_requirements(&self, agreed: &ThirdPartyAgreement) -> TransferRequirements {
        TransferRequirements {
            direction: TransferDirection::Send,
            mode: agreed.mode,
            streams: negotiation::stream_range(self.source, agreed.mode, self.spec),
            congestion_control: negotiation::requested_congestion_control(self.spec),
            buffer: self.spec.options.buffers.pinned_bytes(),
            buffer_sizing: Some(agreed.sizing),
            announced_size: None,
            store_checksum: None,
            restart: agreed.retrieval.restart.clone(),
            server_listens: false,
            connections_reusable: false,
            command: agreed.retrieval.verb.clone(),
        }
    }

    fn forget_data_channels(&mut self) {
        for session in [&mut *self.source, &mut *self.destination] {
            session.data_channel = None;
            session.planner.on_channel_lost();
        }
    }

    /// Bytes that are to be moved.
    fn expected_bytes(&self, agreed: &ThirdPartyAgreement) -> Option<u64> {
        let size = self.spec.size?;
        Some(agreed.have.gaps(0, size).byte_count())
    }

    /// Bytes moved: by the destination's last marker if it sent any, which must agree with what
    /// was to be moved.
    fn check_moved_bytes(
        &self,
        agreed: &ThirdPartyAgreement,
        receiving: &str,
        marked: Option<u64>,
    ) -> Result<u64, CopyFailure> {
        match (marked, self.expected_bytes(agreed)) {
            (Some(marked), Some(expected)) if marked != expected => {
                Err(negotiation::incomplete_failure(
                    self.destination.name(),
                    receiving,
                    marked,
                    expected,
                ))
            }
            (marked, expected) => Ok(marked.or(expected).unwrap_or(0)),
        }
    }
}

/// The end of a plan: the transfer command by itself.
fn split_off_transfer_command(mut steps: Vec<PlanStep>) -> (Vec<PlanStep>, Vec<PlanStep>) {
    let command = steps.split_off(steps.len().saturating_sub(1));
    (steps, command)
}

/// Whether the source hears this step only when the destination's address is known: it and what must follow it.
fn needs_data_address(step: &PlanStep) -> bool {
    matches!(
        step,
        PlanStep::Connect | PlanStep::Set(Command::Rest(_), _) | PlanStep::Transfer(_)
    )
}

/// Whether a server takes part in right-sizing by a DRS channel, as far as it has been asked.
fn agrees_to_drs(session: &ClientSession) -> bool {
    session.planner.agreed_sizing(BufferSizing::Drs) == BufferSizing::Drs
}

/// Where a server that takes part in it listens for the DRS channel.
fn listening_drs_address(session: &ClientSession) -> Option<DrsAddress> {
    match session.planner.drs_address() {
        Some(ServerDrsAddress::Listens(told)) if agrees_to_drs(session) => Some(told),
        _ => None,
    }
}

/// Result of settings.
struct SettingsResult {
    again: Option<RenegotiationReason>,
    /// Where the server listens, if it was asked.
    told: Option<StripeAddresses>,
}

async fn send_settings(
    session: &mut ClientSession,
    steps: Vec<PlanStep>,
    doing: &str,
    warnings: &mut Vec<String>,
) -> Result<SettingsResult, CopyFailure> {
    let mut told = None;
    for flight in session.planner.group_for_pipelining(steps) {
        let flown = session
            .send_pipeline(&flight, None, doing, warnings)
            .await?;
        told = told.or(flown.passive_addresses);
        let mut again = renegotiation_reason(session, flown.replan, warnings);
        if flight.contains(&PlanStep::DrsListen) && listening_drs_address(session).is_none() {
            again = again.or(Some(RenegotiationReason::WithoutRightSizing));
        }
        if again.is_some() {
            return Ok(SettingsResult { again, told });
        }
    }
    Ok(SettingsResult { again: None, told })
}

fn renegotiation_reason(
    session: &mut ClientSession,
    refused: Option<PreparationResult>,
    warnings: &mut Vec<String>,
) -> Option<RenegotiationReason> {
    match refused? {
        PreparationResult::Ready { .. } => None,
        PreparationResult::RetryInStreamMode => {
            session.warn_once(warnings, negotiation::EXTENDED_MODE_UNAVAILABLE);
            Some(RenegotiationReason::StreamMode)
        }
        PreparationResult::RetryFromZero => Some(RenegotiationReason::StartOver),
        PreparationResult::RetryWithoutPipelining => Some(RenegotiationReason::WithoutPipelining),
    }
}
