//! The security that one session has agreed on.

use std::time::SystemTime;

use security::gsi::{GsiAcceptor, GsiContext};
use security::tls::{TlsConfig, TlsEngine};
use security::x509::{CertifiedKey, DistinguishedName, PeerIdentity};

use crate::limits::HandshakeSlot;
use crate::login::CertifiedClient;
use crate::users::UserAccount;

/// The security of a control connection, and what its data connections need. Large variants are boxed,
/// because a session in the clear should not pay for them.
#[derive(Debug, Default)]
pub(crate) enum SessionSecurity {
    /// None.
    #[default]
    Clear,
    /// A TLS handshake is to be made. The slot counts it.
    Handshake(HandshakeSlot),
    /// A GSI exchange waits for the client's next token.
    Exchanging(GsiExchange),
    /// TLS (RFC 4217).
    Tls(Box<TlsSecurity>),
    /// GSI (RFC 2228, GFD.20).
    Grid(Box<GridSecurity>),
    /// A program carries the session, and protects it (ssh).
    Carried(Box<CarriedSecurity>),
}

/// A session whose client has this process's account: a program that has identified both ends carries it.
#[derive(Debug)]
pub(crate) struct CarriedSecurity {
    account: UserAccount,
    /// The credential of DCSC.
    pub(super) data_credential: Option<CertifiedKey>,
}

impl CarriedSecurity {
    /// The session of an account.
    pub(crate) fn of(account: UserAccount) -> Self {
        Self {
            account,
            data_credential: None,
        }
    }
}

/// A GSI exchange in progress.
#[derive(Debug)]
pub(crate) struct GsiExchange {
    /// Counts the exchange until it is complete.
    pub(crate) slot: HandshakeSlot,
    /// Missing before the first token, so that a silent client costs no memory for TLS, and while a thread
    /// computes with it.
    pub(crate) acceptor: Option<Box<GsiAcceptor>>,
}

/// TLS on the control connection. It stays in use for data connections after CCC.
#[derive(Debug)]
pub(crate) struct TlsSecurity {
    /// The configuration of the control connection, whose tickets its data connections may resume.
    pub(super) config: TlsConfig,
    /// The client, if it has shown a certificate.
    pub(super) peer: Option<PeerIdentity>,
    description: String,
    /// Commands are in the clear again (CCC).
    is_cleared: bool,
}

/// GSI on the control connection.
#[derive(Debug)]
pub(crate) struct GridSecurity {
    pub(super) peer: PeerIdentity,
    /// The proxy that the client has delegated.
    pub(super) delegated: Option<CertifiedKey>,
    /// The credential of DCSC.
    pub(super) data_credential: Option<CertifiedKey>,
    description: String,
}

impl SessionSecurity {
    /// The client's certificate, for the login; `None`: it has shown none.
    pub(crate) fn client(&self) -> Option<CertifiedClient> {
        match self {
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) => None,
            // Anybody on the way may send commands now.
            Self::Tls(tls) if tls.is_cleared => None,
            Self::Tls(tls) => {
                let peer = tls.peer.as_ref()?;
                Some(CertifiedClient::Tls(peer.identity.clone()))
            }
            Self::Grid(grid) => Some(CertifiedClient::of_grid(&grid.peer)),
            Self::Carried(carried) => Some(CertifiedClient::Carried(carried.account.clone())),
        }
    }

    /// The client that has shown a certificate.
    pub(crate) fn peer(&self) -> Option<&PeerIdentity> {
        match self {
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) | Self::Carried(_) => None,
            Self::Tls(tls) => tls.peer.as_ref(),
            Self::Grid(grid) => Some(&grid.peer),
        }
    }

    /// End of validity of the client's certificate and its proxies.
    pub(crate) fn certified_until(&self) -> Option<SystemTime> {
        match self {
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) | Self::Carried(_) => None,
            Self::Tls(tls) => tls.peer.as_ref().map(|peer| peer.expires),
            Self::Grid(grid) => Some(grid.peer.expires),
        }
    }

    /// The client's identity, for logs.
    pub(crate) fn identity(&self) -> Option<&DistinguishedName> {
        self.peer().map(|peer| &peer.identity)
    }

    /// Counts the exchange in progress.
    pub(crate) fn exchange_slot(&self) -> Option<&HandshakeSlot> {
        match self {
            Self::Handshake(slot) | Self::Exchanging(GsiExchange { slot, .. }) => Some(slot),
            Self::Clear | Self::Tls(_) | Self::Grid(_) | Self::Carried(_) => None,
        }
    }

    /// Sets the credential of data connections (DCSC); `None`: that of the session again. Returns whether such sessions have
    /// one.
    pub(crate) fn set_data_credential(&mut self, credential: Option<CertifiedKey>) -> bool {
        match self {
            Self::Grid(grid) => grid.data_credential = credential,
            Self::Carried(carried) => carried.data_credential = credential,
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) | Self::Tls(_) => return false,
        }
        true
    }

    /// Notes that commands are in the clear from now on (CCC).
    pub(crate) fn clear_commands(&mut self) {
        if let Self::Tls(tls) = self {
            tls.is_cleared = true;
        }
    }

    /// Name, version and cipher suite of the protection, for logs.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) => "none".to_owned(),
            Self::Tls(tls) if tls.is_cleared => {
                format!("commands in clear after TLS {}", tls.description)
            }
            Self::Tls(tls) => format!("TLS {}", tls.description),
            Self::Grid(grid) => format!("GSI {}", grid.description),
            Self::Carried(_) => "what carries the session (ssh)".to_owned(),
        }
    }
}

impl TlsSecurity {
    /// The state after a complete handshake.
    pub(crate) fn of(config: TlsConfig, engine: &TlsEngine) -> Self {
        Self {
            config,
            peer: engine.peer().cloned(),
            description: engine.description(),
            is_cleared: false,
        }
    }

    /// Whether the client has proved an identity.
    pub(crate) fn is_identified(&self) -> bool {
        self.peer.is_some()
    }
}

impl GridSecurity {
    /// The state after a complete exchange. Takes the delegated credential out of the context.
    pub(crate) fn of(context: &mut GsiContext) -> Self {
        Self {
            peer: context.peer().clone(),
            delegated: context.take_delegated(),
            data_credential: None,
            description: context.description(),
        }
    }
}
