//! The protection of a transfer's data connections, from the session's security and the client's PROT, DCAU
//! and DCSC.

use std::sync::Arc;

use data::security::{DataSecurity, ProtectedEnd};
use proto::security::{DataChannelAuth, DataChannelProtection, ProtectionLevel};
use security::gsi::DataHandshakeMode;
use security::tls::{ExpectedPeer, TicketSecret, TlsConfig, TlsError, TlsOptions};
use security::x509::{CertifiedKey, DistinguishedName, TrustStore};

use super::{GridSecurity, NodeSecurity, SecurityMaterial, SessionSecurity, TlsSecurity};
use crate::config::SessionReuse;

/// The reason why a transfer cannot have the protection that its client asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataProtectionError {
    /// The session has no security from which the protection could come.
    #[error("this session has no security for protected data connections")]
    NoSecurity,
    /// DCAU N makes no keys.
    #[error(
        "data connections without authentication (DCAU N) cannot be protected; send DCAU A or PROT C"
    )]
    NoAuthentication,
    /// GSI is switched off meanwhile.
    #[error("this server has no credential for data connections")]
    NoCredential,
    /// TLS refuses the credential.
    #[error("the credential for data connections cannot be used: {0}")]
    Tls(#[from] TlsError),
}

impl SessionSecurity {
    /// The protection of the next transfer; `None`: its bytes are in the clear.
    ///
    /// # Errors
    /// See [`DataProtectionError`]: a transfer is never less protected than it was asked for.
    pub(crate) fn data_security(
        &self,
        asked: &DataChannelProtection,
        material: &SecurityMaterial,
    ) -> Result<Option<DataSecurity>, DataProtectionError> {
        let is_clear = asked.level == ProtectionLevel::Clear;
        let is_anonymous = asked.authentication == DataChannelAuth::None;
        match self {
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) if is_clear && is_anonymous => {
                Ok(None)
            }
            Self::Clear | Self::Handshake(_) | Self::Exchanging(_) => {
                Err(DataProtectionError::NoSecurity)
            }
            Self::Tls(_) if is_clear => Ok(None),
            Self::Tls(tls) => tls.data_security(material).map(Some),
            Self::Grid(_) | Self::Carried(_) if is_clear && is_anonymous => Ok(None),
            Self::Grid(_) | Self::Carried(_) if is_anonymous => {
                Err(DataProtectionError::NoAuthentication)
            }
            Self::Grid(grid) => grid.data_security(asked, material).map(Some),
            Self::Carried(carried) => {
                let shared = carried.data_credential.as_ref();
                let shared = shared.ok_or(DataProtectionError::NoCredential)?;
                let security = shared_by_both(asked, shared)?;
                // A program that carries the connection, too, may die when it has taken the last byte. Another server, with which
                // the client lets this one exchange files, may know FIN alone.
                Ok(Some(security.ending(ProtectedEnd::Announced)))
            }
        }
    }
}

impl SessionSecurity {
    /// Whether data nodes could protect this session's data connections.
    pub(crate) fn suits_nodes(&self) -> bool {
        match self {
            Self::Clear | Self::Tls(_) => true,
            Self::Grid(grid) => grid.own_credential().is_some(),
            _ => false,
        }
    }

    /// Credential and rules with which a data node protects the next transfer as this process would; `None`: its bytes are in the clear. The error says
    /// why only this process can.
    pub(crate) fn node_security(
        &self,
        asked: &DataChannelProtection,
        material: &SecurityMaterial,
    ) -> Result<Option<NodeSecurity>, &'static str> {
        if asked.level == ProtectionLevel::Clear && asked.authentication == DataChannelAuth::None {
            return Ok(None);
        }
        match self {
            Self::Tls(_) if asked.level == ProtectionLevel::Clear => Ok(None),
            Self::Tls(tls) => tls.node_security(material).map(Some),
            Self::Grid(grid) => grid.node_security(asked).map(Some),
            _ => Err("only GSI and TLS protect the data connections of stripes"),
        }
    }
}

impl TlsSecurity {
    fn node_security(&self, material: &SecurityMaterial) -> Result<NodeSecurity, &'static str> {
        let secret = self.config.options().ticket_secret.as_ref();
        let secret = secret.ok_or("data nodes cannot resume the TLS session")?;
        let leaf = self.peer.as_ref().and_then(|peer| peer.chain.first());
        Ok(NodeSecurity::Tls {
            ticket_secret: secret.to_bytes().to_vec(),
            client: leaf.cloned(),
            requires_resumption: material.settings().session_reuse == SessionReuse::Required,
        })
    }
}

impl GridSecurity {
    fn node_security(&self, asked: &DataChannelProtection) -> Result<NodeSecurity, &'static str> {
        let credential = self.own_credential();
        let credential = credential.ok_or("you have delegated no credential")?;
        let pem = credential.to_pem();
        let pem = pem.map_err(|_| "the credential cannot be passed on")?;
        let is_shared = self.data_credential.is_some();
        let same_user = match is_shared {
            true => credential.identity(),
            false => self.peer.identity.clone(),
        };
        Ok(NodeSecurity::Grid {
            credential: String::from_utf8_lossy(&pem).into_owned(),
            expected: expected_peer(asked, &same_user).to_string(),
            is_protected: handshake_mode(asked) == DataHandshakeMode::Protected,
            is_shared,
        })
    }
}

impl GridSecurity {
    /// The credential that the client has given this session.
    fn own_credential(&self) -> Option<&CertifiedKey> {
        self.data_credential.as_ref().or(self.delegated.as_ref())
    }
}

/// The protection of a part that a data node carries out.
///
/// # Errors
/// [`DataProtectionError::NoCredential`] if this node trusts no authorities of the grid (`ca-dir`).
pub(crate) fn of_order(
    order: &NodeSecurity,
    material: &SecurityMaterial,
) -> Result<DataSecurity, DataProtectionError> {
    let (credential, expected, is_protected, is_shared) = match order {
        NodeSecurity::Tls {
            ticket_secret,
            client,
            requires_resumption,
        } => {
            let secret = TicketSecret::from_bytes(ticket_secret);
            let secret = secret.ok_or(DataProtectionError::NoCredential)?;
            let server = material.node_data_config(secret, client.clone())?;
            return Ok(as_ftps_server(server, *requires_resumption));
        }
        NodeSecurity::Grid {
            credential,
            expected,
            is_protected,
            is_shared,
        } => (credential, expected, *is_protected, *is_shared),
    };
    let credential = CertifiedKey::from_pem(credential.as_bytes(), "a front end's credential");
    let credential = credential.map_err(|_| DataProtectionError::NoCredential)?;
    let trust = match is_shared {
        true => trust_in_itself(&credential),
        false => {
            let trust = material.node_grid_trust();
            Arc::clone(trust.ok_or(DataProtectionError::NoCredential)?)
        }
    };
    let mode = match is_protected {
        true => DataHandshakeMode::Protected,
        false => DataHandshakeMode::AuthenticateOnly,
    };
    let expected = DistinguishedName::from_text(expected.as_str());
    between(mode, &expected, &credential, &trust)
}

impl TlsSecurity {
    /// TLS with this end as the server (RFC 4217 section 7). A client that has shown a certificate must show
    /// the same one, or resume the session in which it did.
    fn data_security(
        &self,
        material: &SecurityMaterial,
    ) -> Result<DataSecurity, DataProtectionError> {
        let leaf = self.peer.as_ref().and_then(|peer| peer.chain.first());
        let server = match leaf {
            Some(leaf) => {
                let same = ExpectedPeer::Certificate(leaf.clone());
                self.config.with_expected(same)?
            }
            None => self.config.clone(),
        };
        let require_resumption = material.settings().session_reuse == SessionReuse::Required;
        Ok(as_ftps_server(server, require_resumption))
    }
}

/// This end as the TLS server of data connections. They give tickets only where each must resume a session: a client may use
/// a ticket once, and take the next one from its last data connection. Elsewhere the tickets of the control connection are
/// enough, and a client such as curl that closes its socket at once after an upload would reset the connection by a later one.
fn as_ftps_server(config: TlsConfig, require_resumption: bool) -> DataSecurity {
    let config = match require_resumption {
        true => config,
        false => config.without_new_tickets(),
    };
    DataSecurity {
        require_resumption,
        ..DataSecurity::ftps_server(config)
    }
}

impl GridSecurity {
    /// GSI: the end that opens a connection is the TLS client. With PROT C both ends authenticate and then
    /// send raw bytes.
    fn data_security(
        &self,
        asked: &DataChannelProtection,
        material: &SecurityMaterial,
    ) -> Result<DataSecurity, DataProtectionError> {
        if let Some(shared) = &self.data_credential {
            return shared_by_both(asked, shared);
        }
        let credential = self
            .delegated
            .as_ref()
            .or(material.credential())
            .ok_or(DataProtectionError::NoCredential)?;
        let trust = material
            .grid_trust()
            .ok_or(DataProtectionError::NoCredential)?;
        authenticated_by(asked, credential, trust, &self.peer.identity)
    }
}

/// DCSC: both ends have the credential that the client has given to both, and trust nothing else.
fn shared_by_both(
    asked: &DataChannelProtection,
    credential: &CertifiedKey,
) -> Result<DataSecurity, DataProtectionError> {
    let trust = trust_in_itself(credential);
    authenticated_by(asked, credential, &trust, &credential.identity())
}

fn trust_in_itself(credential: &CertifiedKey) -> Arc<TrustStore> {
    let own = std::iter::once(credential.leaf()).chain(credential.chain());
    Arc::new(TrustStore::exactly(own.cloned().collect()))
}

/// Both ends show a certificate. `same_user`: the peer's identity with DCAU A, where both ends act for the same user (GFD.20
/// section 3.2), who is also the client of a session without delegation.
fn authenticated_by(
    asked: &DataChannelProtection,
    credential: &CertifiedKey,
    trust: &Arc<TrustStore>,
    same_user: &DistinguishedName,
) -> Result<DataSecurity, DataProtectionError> {
    let expected = expected_peer(asked, same_user);
    between(handshake_mode(asked), &expected, credential, trust)
}

fn expected_peer(
    asked: &DataChannelProtection,
    same_user: &DistinguishedName,
) -> DistinguishedName {
    match &asked.authentication {
        DataChannelAuth::Subject(subject) => DistinguishedName::from_text(subject.as_str()),
        DataChannelAuth::SelfAuth | DataChannelAuth::None => same_user.clone(),
    }
}

fn handshake_mode(asked: &DataChannelProtection) -> DataHandshakeMode {
    match asked.level {
        ProtectionLevel::Clear => DataHandshakeMode::AuthenticateOnly,
        ProtectionLevel::Safe | ProtectionLevel::Confidential | ProtectionLevel::Private => {
            DataHandshakeMode::Protected
        }
    }
}

/// GSI between `credential` and the `expected` peer.
fn between(
    mode: DataHandshakeMode,
    expected: &DistinguishedName,
    credential: &CertifiedKey,
    trust: &Arc<TrustStore>,
) -> Result<DataSecurity, DataProtectionError> {
    let options = |role| {
        TlsOptions::grid(role)
            .with_credential(credential.clone())
            .with_trust(Arc::clone(trust))
            .expecting(ExpectedPeer::Identity(expected.clone()))
    };
    Ok(DataSecurity::grid(mode, options)?)
}
