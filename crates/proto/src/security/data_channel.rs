//! Values of DCAU, PROT and DCSC: who must be at the other end of a data connection, how its bytes are
//! protected, and by which credential.

use super::Secret;

/// DCAU argument: authentication of data channels (GFD.20 §3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataChannelAuth {
    /// N: no authentication.
    None,
    /// A: the peer must have the user's own credential.
    SelfAuth,
    /// S: the peer must have this subject.
    Subject(String),
}

/// PROT argument: protection of data channels (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionLevel {
    /// C: no protection.
    Clear,
    /// S: integrity.
    Safe,
    /// E: confidentiality.
    Confidential,
    /// P: integrity and confidentiality.
    Private,
}

/// Protection of data connections. The default is that of a clear session: none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataChannelProtection {
    /// DCAU: whom the peer must prove to be. Only sessions with GSSAPI have another value than
    /// [`DataChannelAuth::None`]; on FTPS the level decides alone.
    pub authentication: DataChannelAuth,
    /// PROT.
    pub level: ProtectionLevel,
}

impl Default for DataChannelProtection {
    fn default() -> Self {
        Self {
            authentication: DataChannelAuth::None,
            level: ProtectionLevel::Clear,
        }
    }
}

/// DCSC argument: credential of the server for data connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataCredential {
    /// D: the one that the client delegated, or the server's own.
    Default,
    /// P: PEM text with a certificate, its private key and further certificates.
    Pem(Secret),
}

/// Longest PEM text of DCSC, bytes.
pub const MAX_CREDENTIAL: usize = 64 * 1024;
