//! DCSC, DCAU, PBSZ and PROT: the protection of data connections at a server.

use super::planner::ServerDataAddress;
use super::{CommandPlanner, PlanStep, RefusalEffect, TransferRequirements};
use crate::command::{Command, DataChannelAuth, ProtectionLevel};
use crate::security::{DataCredential, ExchangeKind};

/// PBSZ in a session with GSSAPI: the value of the globus client.
const BUFFER_SIZE: u32 = 1 << 20;

/// The commands that a session inside TLS sends directly after the login. Servers that require
/// protected data refuse MLST and SIZE without them (Pure-FTPd: 521). A refusal is no failure yet: the
/// planner sends PROT again before a transfer.
pub fn early_protection_commands(level: ProtectionLevel) -> [Command; 2] {
    // RFC 4217 §9: PBSZ 0 must precede PROT.
    [Command::Pbsz(0), Command::Prot(level)]
}

/// Protection settings in force at the server.
#[derive(Debug, Clone, Default)]
pub(super) struct ProtectionState {
    /// Exchange that secured the session.
    exchange: Option<ExchangeKind>,
    /// PBSZ was sent.
    buffer_size_sent: bool,
    /// PROT; `None` before the first one, although C is the default: servers with implicit TLS differ.
    level: Option<ProtectionLevel>,
    /// DCAU; `None` if it is unknown.
    authentication: Option<DataChannelAuth>,
    /// DCSC that the session shall use.
    wanted_credential: Option<DataCredential>,
    /// DCSC in force.
    credential: Option<DataCredential>,
}

impl CommandPlanner {
    /// The planner of a session that this exchange has secured.
    pub fn with_security(mut self, exchange: ExchangeKind) -> Self {
        self.protection.exchange = Some(exchange);
        // GFD.20 §3.2: DCAU A is the default after GSSAPI.
        self.protection.authentication =
            (exchange == ExchangeKind::Tokens).then_some(DataChannelAuth::SelfAuth);
        self
    }

    /// Makes the following transfers use this credential for data connections (DCSC). The caller has
    /// checked that the server announces it.
    pub fn use_data_credential(&mut self, credential: DataCredential) {
        self.protection.wanted_credential = Some(credential);
    }

    /// The steps that bring the protection of data connections to what the transfer requires, in the order
    /// of the globus client. Each is mandatory: nothing may travel with less protection than asked for.
    pub(super) fn protection_steps(&self, requirements: &TransferRequirements) -> Vec<PlanStep> {
        let Some(wanted) = &requirements.protection else {
            return Vec::new();
        };
        let state = &self.protection;
        let has_tokens = state.exchange == Some(ExchangeKind::Tokens);
        let mut steps = Vec::new();
        let mut set = |command| steps.push(PlanStep::Set(command, RefusalEffect::Fatal));
        let new_credential = state
            .wanted_credential
            .as_ref()
            .filter(|credential| has_tokens && state.credential.as_ref() != Some(credential));
        if let Some(credential) = new_credential {
            set(Command::Dcsc(credential.clone()));
        }
        // Servers may return to their own DCAU setting after DCSC. FTPS has no DCAU.
        let is_unchanged = state.authentication.as_ref() == Some(&wanted.authentication);
        if has_tokens && (new_credential.is_some() || !is_unchanged) {
            set(Command::Dcau(wanted.authentication.clone()));
        }
        if state.level != Some(wanted.level) {
            // RFC 4217 §9: PBSZ 0 must precede PROT.
            if !state.buffer_size_sent {
                let size = if has_tokens { BUFFER_SIZE } else { 0 };
                steps.push(PlanStep::Set(Command::Pbsz(size), RefusalEffect::Ignore));
            }
            steps.push(PlanStep::Set(
                Command::Prot(wanted.level),
                RefusalEffect::Fatal,
            ));
        }
        steps
    }

    /// Records PBSZ, PROT, DCAU or DCSC. The server closes connections with another protection, so the
    /// data address cannot be used again.
    pub(super) fn on_protection_accepted(&mut self, command: &Command) {
        let state = &mut self.protection;
        match command {
            Command::Pbsz(_) => {
                state.buffer_size_sent = true;
                return;
            }
            Command::Prot(level) => state.level = Some(*level),
            Command::Dcau(mode) => state.authentication = Some(mode.clone()),
            Command::Dcsc(credential) => {
                state.credential = Some(credential.clone());
                state.authentication = None;
            }
            _ => return,
        }
        self.data_address = ServerDataAddress::None;
    }
}
