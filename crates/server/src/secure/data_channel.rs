//! The protection of a transfer's data connections, from the session's security and the client's PROT, DCAU
//! and DCSC.

use std::sync::Arc;

use data::security::{DataSecurity, ProtectedEnd};
use proto::security::{DataChannelAuth, DataChannelProtection, ProtectionLevel};
use security::gsi::DataHandshakeMode;
use security::tls::{ExpectedPeer, TlsError, TlsOptions};
use security::x509::{CertifiedKey, DistinguishedName, TrustStore};

use super::{GridSecurity, SecurityMaterial, SessionSecurity, TlsSecurity};
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
        Ok(DataSecurity {
            require_resumption: material.settings().session_reuse == SessionReuse::Required,
            ..DataSecurity::ftps_server(server)
        })
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
    let own = std::iter::once(credential.leaf()).chain(credential.chain());
    let trust = Arc::new(TrustStore::exactly(own.cloned().collect()));
    authenticated_by(asked, credential, &trust, &credential.identity())
}

/// Both ends show a certificate. `same_user`: the peer's identity with DCAU A, where both ends act for the same user (GFD.20
/// section 3.2), who is also the client of a session without delegation.
fn authenticated_by(
    asked: &DataChannelProtection,
    credential: &CertifiedKey,
    trust: &Arc<TrustStore>,
    same_user: &DistinguishedName,
) -> Result<DataSecurity, DataProtectionError> {
    let expected = match &asked.authentication {
        DataChannelAuth::Subject(subject) => DistinguishedName::from_text(subject.as_str()),
        DataChannelAuth::SelfAuth | DataChannelAuth::None => same_user.clone(),
    };
    let mode = match asked.level {
        ProtectionLevel::Clear => DataHandshakeMode::AuthenticateOnly,
        ProtectionLevel::Safe | ProtectionLevel::Confidential | ProtectionLevel::Private => {
            DataHandshakeMode::Protected
        }
    };
    let options = |role| {
        TlsOptions::grid(role)
            .with_credential(credential.clone())
            .with_trust(Arc::clone(trust))
            .expecting(ExpectedPeer::Identity(expected.clone()))
    };
    Ok(DataSecurity::grid(mode, options)?)
}
