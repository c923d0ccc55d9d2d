//! DCSC, DCAU, PBSZ and PROT: the protection of data connections at a server.

use super::{PlanStep, RefusalEffect};
use crate::command::Command;
use crate::security::{
    DataChannelAuth, DataChannelProtection, DataCredential, ExchangeKind, ProtectionLevel,
};

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

impl ProtectionState {
    /// The state directly after this exchange.
    pub(super) fn secured_by(exchange: ExchangeKind) -> Self {
        Self {
            exchange: Some(exchange),
            // GFD.20 §3.2: DCAU A is the default after GSSAPI.
            authentication: exchange
                .has_data_credentials()
                .then_some(DataChannelAuth::SelfAuth),
            ..Self::default()
        }
    }

    /// Selects the credential of the following transfers (DCSC).
    pub(super) fn use_credential(&mut self, credential: DataCredential) {
        self.wanted_credential = Some(credential);
    }

    /// The steps that bring the protection of data connections to `wanted`, in the order of the globus
    /// client. Each is mandatory: nothing may travel with less protection than asked for. There are none in a
    /// session without security (`None`).
    pub(super) fn steps(&self, wanted: Option<&DataChannelProtection>) -> Vec<PlanStep> {
        let Some(wanted) = wanted else {
            return Vec::new();
        };
        let has_credentials = self
            .exchange
            .is_some_and(ExchangeKind::has_data_credentials);
        let mut steps = Vec::new();
        let mut set = |command, refusal| steps.push(PlanStep::Set(command, refusal));
        let new_credential = self
            .wanted_credential
            .as_ref()
            .filter(|credential| has_credentials && self.credential.as_ref() != Some(credential));
        if let Some(credential) = new_credential {
            set(Command::Dcsc(credential.clone()), RefusalEffect::Fatal);
        }
        // Servers may return to their own DCAU setting after DCSC. FTPS has no DCAU.
        let is_unchanged = self.authentication.as_ref() == Some(&wanted.authentication);
        if has_credentials && (new_credential.is_some() || !is_unchanged) {
            let command = Command::Dcau(wanted.authentication.clone());
            set(command, RefusalEffect::Fatal);
        }
        if self.level != Some(wanted.level) {
            // RFC 4217 §9: PBSZ 0 must precede PROT.
            if !self.buffer_size_sent {
                let size = if has_credentials { BUFFER_SIZE } else { 0 };
                set(Command::Pbsz(size), RefusalEffect::Ignore);
            }
            set(Command::Prot(wanted.level), RefusalEffect::Fatal);
        }
        steps
    }

    /// Records that PBSZ was sent. PROT works without an accepted one at some servers; at others its refusal
    /// tells.
    pub(super) fn on_buffer_size_sent(&mut self) {
        self.buffer_size_sent = true;
    }

    /// Records an accepted PROT.
    pub(super) fn on_level(&mut self, level: ProtectionLevel) {
        self.level = Some(level);
    }

    /// Records an accepted DCAU.
    pub(super) fn on_authentication(&mut self, mode: &DataChannelAuth) {
        self.authentication = Some(mode.clone());
    }

    /// Records an accepted DCSC. The server may have changed its DCAU setting.
    pub(super) fn on_credential(&mut self, credential: &DataCredential) {
        self.credential = Some(credential.clone());
        self.authentication = None;
    }
}
