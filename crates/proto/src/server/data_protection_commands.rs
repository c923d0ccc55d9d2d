//! PBSZ, PROT, DCAU and DCSC in a session: a change closes connections that are kept from an earlier transfer.

use super::SessionAction;
use super::replies;
use super::session::ServerSession;
use super::session_state::{LoggedInSession, LoginState, PendingTask};
use crate::command::Command;
use crate::security::{DataCredential, ExchangeKind};

impl ServerSession {
    /// PBSZ, PROT and DCAU
    pub(super) fn set_data_protection(&mut self, command: &Command) -> Vec<SessionAction> {
        let before = self.protection.channel.clone();
        let offers_security = !self.config.mechanisms.is_empty();
        let replies = match command {
            Command::Pbsz(size) => self.protection.pbsz(*size),
            Command::Prot(level) => self.protection.prot(*level, offers_security),
            Command::Dcau(mode) => self.protection.dcau(mode),
            _ => return Vec::new(),
        };
        let mut actions = Vec::new();
        if let LoginState::LoggedIn(login) = &mut self.state {
            login.protection = self.protection.clone();
            if before != self.protection.channel {
                actions.extend(login.drop_cached_connections());
            }
        }
        actions.extend(replies);
        actions
    }
}

impl LoggedInSession {
    /// DCSC
    pub(super) fn dcsc(&mut self, credential: DataCredential) -> Vec<SessionAction> {
        // Elsewhere the private key would travel in the clear, or the credential have no use.
        if self.protection.exchange != Some(ExchangeKind::Tokens) {
            return replies::reply(503, "DCSC needs a session with GSSAPI security.");
        }
        let mut actions: Vec<SessionAction> = self.drop_cached_connections().into_iter().collect();
        self.pending = PendingTask::DataCredential;
        actions.push(SessionAction::SetDataCredential(credential));
        actions
    }
}
