//! Protection of data connections: PBSZ, PROT, DCAU and DCSC (RFC 2228 §3, RFC 4217 §9, GFD.20 §3.2). A change
//! closes connections that are kept from an earlier transfer.

use super::logged_in::{LoggedInSession, LoginState, PendingTask};
use super::session::ServerSession;
use super::{SessionAction, SessionConfig, replies};
use crate::command::Command;
use crate::security::{
    DataChannelAuth, DataChannelProtection, DataCredential, ExchangeKind, ProtectionLevel,
};

/// Settings of PBSZ, PROT and DCAU, and what the server demands of them. They belong to the connection, since
/// clients may send them before the login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DataProtectionSettings {
    /// Exchange that secured the session; `None` in a clear session.
    pub(super) exchange: Option<ExchangeKind>,
    /// Protection of the next data connections.
    pub(super) channel: DataChannelProtection,
    /// PBSZ was given.
    buffer_size_given: bool,
    /// AUTH named the variant of TLS with PROT P from the start.
    private_from_start: bool,
    /// Nobody has to ask for clear data connections.
    clear_from_start: bool,
    /// Transfers without PROT P are refused.
    required: bool,
}

impl DataProtectionSettings {
    /// Settings at the start of a connection.
    pub(super) fn new(config: &SessionConfig) -> Self {
        Self {
            clear_from_start: config.carried.clear_data,
            required: config.require_data_protection,
            ..Self::default()
        }
    }

    /// Returns to the settings directly after the security exchange, if there was one.
    pub(super) fn reset(&mut self) {
        self.buffer_size_given = self.private_from_start;
        self.channel = DataChannelProtection {
            authentication: match self.exchange {
                // GFD.20 §3.2: DCAU A is the default after GSSAPI.
                Some(exchange) if exchange.has_data_credentials() && !self.clear_from_start => {
                    DataChannelAuth::SelfAuth
                }
                _ => DataChannelAuth::None,
            },
            level: match self.private_from_start {
                true => ProtectionLevel::Private,
                false => ProtectionLevel::Clear,
            },
        };
    }

    /// Notes the name of AUTH. Drafts of RFC 4217 define TLS-P as TLS with PROT P; the other names start with
    /// PROT C.
    pub(super) fn on_auth(&mut self, name: &str) {
        self.private_from_start = name.eq_ignore_ascii_case("TLS-P");
    }

    /// The security exchange is complete.
    pub(super) fn on_secured(&mut self, exchange: ExchangeKind) {
        self.exchange = Some(exchange);
        self.reset();
    }

    /// Reason why no data connection may be made with these settings; `None` if one may.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let DataChannelProtection {
            authentication,
            level,
        } = &self.channel;
        match () {
            () if self.required && *level != ProtectionLevel::Private => {
                Some("this server requires PROT P.")
            }
            // Without the handshake of DCAU there is no key, and the data would be in the clear.
            () if self.has_credentials()
                && *authentication == DataChannelAuth::None
                && *level != ProtectionLevel::Clear =>
            {
                Some("this PROT setting needs DCAU A or S.")
            }
            () => None,
        }
    }

    /// Refusal of a command that gives or asks for a data address.
    pub(super) fn address_refusal(&self) -> Option<Vec<SessionAction>> {
        let reason = self.refusal()?;
        Some(match self.exchange {
            // The globus server refuses at this point, with this text.
            Some(ExchangeKind::Tokens) if self.required => {
                replies::reply(534, "Data connection auth error : Encryption is required.")
            }
            _ => replies::reply(521, format!("Data connection cannot be opened: {reason}")),
        })
    }

    /// PBSZ: TLS needs no buffer, which size 0 says (RFC 4217 §9). In other sessions clients send a size
    /// too, and expect it in the reply.
    pub(super) fn pbsz(&mut self, size: u32) -> Vec<SessionAction> {
        self.buffer_size_given = true;
        let size = match self.exchange {
            Some(ExchangeKind::Handshake) => 0,
            _ => size,
        };
        replies::reply(200, format!("PBSZ={size}"))
    }

    /// PROT
    pub(super) fn prot(
        &mut self,
        level: ProtectionLevel,
        offers_security: bool,
    ) -> Vec<SessionAction> {
        let letter = match level {
            ProtectionLevel::Clear => 'C',
            ProtectionLevel::Safe => 'S',
            ProtectionLevel::Confidential => 'E',
            ProtectionLevel::Private => 'P',
        };
        let clear = level == ProtectionLevel::Clear;
        match self.exchange {
            None if offers_security && !clear => {
                return replies::reply(503, format!("PROT {letter} needs AUTH first."));
            }
            Some(ExchangeKind::Handshake) if !self.buffer_size_given => {
                return replies::reply(503, "PBSZ 0 must precede PROT.");
            }
            // TLS always gives integrity and confidentiality together (RFC 4217 §9).
            Some(ExchangeKind::Handshake) if !clear && level != ProtectionLevel::Private => {
                return replies::reply(536, format!("{letter} protection level not supported."));
            }
            None if !clear => {
                return replies::reply(536, format!("{letter} protection level not supported."));
            }
            _ => {}
        }
        self.channel.level = level;
        replies::reply(200, format!("Protection level set to {letter}."))
    }

    /// Whether data connections were clear before the client said anything about them.
    pub(super) fn is_clear_from_start(&self) -> bool {
        self.clear_from_start
    }

    pub(super) fn has_credentials(&self) -> bool {
        self.exchange
            .is_some_and(ExchangeKind::has_data_credentials)
    }

    /// DCAU: only after GSSAPI, and through ssh, is there a credential that could authenticate a data channel.
    pub(super) fn dcau(&mut self, mode: &DataChannelAuth) -> Vec<SessionAction> {
        let letter = match mode {
            DataChannelAuth::None => 'N',
            DataChannelAuth::SelfAuth => 'A',
            DataChannelAuth::Subject(_) => 'S',
        };
        if !self.has_credentials() && *mode != DataChannelAuth::None {
            let text = format!(
                "DCAU {letter} needs a session with GSSAPI security; this session offers only DCAU N."
            );
            return replies::reply(504, text);
        }
        self.channel.authentication = mode.clone();
        replies::reply(200, format!("DCAU {letter}."))
    }
}

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
    /// Whether a program carries the session (ssh).
    pub(super) fn is_carried(&self) -> bool {
        self.protection.exchange == Some(ExchangeKind::Carried)
    }

    /// DCSC
    pub(super) fn dcsc(&mut self, credential: DataCredential) -> Vec<SessionAction> {
        // Elsewhere the private key would travel in the clear, or the credential have no use.
        if !self.protection.has_credentials() {
            return replies::reply(503, "DCSC needs a session with GSSAPI security.");
        }
        let mut actions: Vec<SessionAction> = self.drop_cached_connections().into_iter().collect();
        self.pending = PendingTask::DataCredential;
        actions.push(SessionAction::SetDataCredential(credential));
        actions
    }
}
