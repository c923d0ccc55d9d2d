//! Sends the settings of one server of a third-party transfer, and decides whether a refusal
//! requires another agreement.

use proto::client::{PlanStep, ServerDrsAddress};
use proto::drs::DrsAddress;
use proto::sizing::BufferSizing;
use proto::stripes::StripeAddresses;

use crate::Failure;
use crate::failure::Operation;
use crate::session::ClientSession;
use crate::transfer::negotiation;
use crate::transfer::prepare::PreparationResult;

/// Why the agreement is made again.
pub(super) enum RenegotiationReason {
    /// A server refused MODE E: both use MODE S.
    StreamMode,
    /// A server refused REST: the transfer starts with the first byte.
    RestartFromZero,
    /// One of the servers does not support the requested right-sizing: each sizes its own buffers.
    WithoutRightSizing,
    /// The source refused the addresses of the destination's data nodes.
    WithoutStripes,
    /// The source refused a pipelined command.
    WithoutPipelining,
}

/// Whether a server takes part in this sizing by a DRS channel, as far as it has been asked.
pub(super) fn agrees_to_drs(session: &ClientSession, sizing: BufferSizing) -> bool {
    session.planner.agreed_sizing(sizing).uses_drs_channel()
}

/// Where a server that takes part in this sizing listens for the DRS channel.
pub(super) fn listening_drs_address(
    session: &ClientSession,
    sizing: BufferSizing,
) -> Option<DrsAddress> {
    match session.planner.drs_address() {
        Some(ServerDrsAddress::Listens(announced)) if agrees_to_drs(session, sizing) => {
            Some(announced)
        }
        _ => None,
    }
}

/// Result of sending settings.
pub(super) struct SettingsResult {
    /// Set when a refusal requires another agreement.
    pub(super) reason: Option<RenegotiationReason>,
    /// Where the server listens, if it was asked.
    pub(super) announced: Option<StripeAddresses>,
}

/// Sends the settings of one server, with this sizing; stops at the first refusal that requires another
/// agreement.
pub(super) async fn send_settings(
    session: &mut ClientSession,
    steps: Vec<PlanStep>,
    sizing: BufferSizing,
    operation: &Operation,
    warnings: &mut Vec<String>,
) -> Result<SettingsResult, Failure> {
    let mut announced = None;
    for pipeline in session.planner.group_for_pipelining(steps) {
        let result = session
            .send_pipeline(&pipeline, None, operation, warnings)
            .await?;
        announced = announced.or(result.passive_addresses);
        let mut reason = renegotiation_reason(session, result.replan, warnings);
        if pipeline.contains(&PlanStep::DrsListen)
            && listening_drs_address(session, sizing).is_none()
        {
            reason = reason.or(Some(RenegotiationReason::WithoutRightSizing));
        }
        if reason.is_some() {
            return Ok(SettingsResult { reason, announced });
        }
    }
    Ok(SettingsResult {
        reason: None,
        announced,
    })
}

/// The reason for another agreement that follows from a refusal, if any. Warns about the fallback.
pub(super) fn renegotiation_reason(
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
        PreparationResult::RetryFromZero => Some(RenegotiationReason::RestartFromZero),
        PreparationResult::RetryWithoutPipelining => Some(RenegotiationReason::WithoutPipelining),
    }
}
