//! Protection of the data connections of a transfer.

mod protection_error;

use security::gsi::DataHandshakeMode;
use security::tls::{TlsConfig, TlsError, TlsOptions, TlsRole, TlsSession};

pub(crate) use protection_error::ProtectionError;
pub use protection_error::ProtectionFault;

/// Which end opened a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOpener {
    /// This end: connect(2).
    ThisEnd,
    /// The peer: accept(2).
    Peer,
}

/// TLS side of this end on a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataTlsRole {
    /// The end that opened the TCP connection is the TLS client (GFD.20: GSI).
    Opener,
    /// This end is the TLS client on every connection (RFC 4217 §7: the FTP client).
    Client,
    /// This end is the TLS server on every connection (RFC 4217 §7: the FTP server).
    Server,
}

/// How streams end inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectedEnd {
    /// By FIN alone, as with GSI: peers neither send close_notify nor expect it.
    Fin,
    /// This end sends close_notify, and takes FIN alone.
    Announced,
    /// This end sends close_notify. A stream that ends without one is an error, because it may have been cut (RFC 8446 §6.1).
    Proved,
}

/// Protection of data connections. The DRS channel of a transfer has the same.
#[derive(Debug, Clone)]
pub struct DataSecurity {
    /// Whether the bytes stay inside TLS.
    pub mode: DataHandshakeMode,
    /// Who is the TLS client.
    pub role: DataTlsRole,
    /// For connections on which this end is the TLS client.
    pub client: Option<TlsConfig>,
    /// For connections on which this end is the TLS server.
    pub server: Option<TlsConfig>,
    /// TLS client: the session of the control connection, resumed by every data connection.
    pub resume: Option<TlsSession>,
    /// TLS server: a connection that does not resume the control connection's session is refused.
    pub require_resumption: bool,
    /// How streams end inside TLS.
    pub stream_end: ProtectedEnd,
}

impl DataSecurity {
    /// FTPS at the FTP client (RFC 4217 §7). Connections resume the session of the control connection
    /// only with [`DataSecurity::resuming`].
    pub fn ftps_client(config: TlsConfig) -> Self {
        Self {
            client: Some(config),
            ..Self::ftps(DataTlsRole::Client)
        }
    }

    /// FTPS at the FTP server (RFC 4217 §7). Resumption is possible and not required.
    pub fn ftps_server(config: TlsConfig) -> Self {
        Self {
            server: Some(config),
            ..Self::ftps(DataTlsRole::Server)
        }
    }

    fn ftps(role: DataTlsRole) -> Self {
        Self {
            mode: DataHandshakeMode::Protected,
            role,
            client: None,
            server: None,
            resume: None,
            require_resumption: false,
            stream_end: ProtectedEnd::Proved,
        }
    }

    /// GSI: this end is the TLS client of the connections that it opens and the TLS server of the others;
    /// `options` are those of a side.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn grid(
        mode: DataHandshakeMode,
        options: impl Fn(TlsRole) -> TlsOptions,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            mode,
            role: DataTlsRole::Opener,
            client: Some(TlsConfig::new(options(TlsRole::Client))?),
            server: Some(TlsConfig::new(options(TlsRole::Server))?),
            resume: None,
            require_resumption: false,
            stream_end: ProtectedEnd::Fin,
        })
    }

    /// The same with streams that end so.
    #[must_use]
    pub fn ending(self, stream_end: ProtectedEnd) -> Self {
        Self { stream_end, ..self }
    }

    /// TLS client: every connection resumes this session; `None`: each has a full handshake.
    #[must_use]
    pub fn resuming(self, session: Option<TlsSession>) -> Self {
        Self {
            resume: session,
            ..self
        }
    }

    /// The configuration for a connection, and whether this end is the TLS client on it.
    ///
    /// # Errors
    /// [`TlsError::Config`]: there is none for this end's side.
    pub(crate) fn config_for(
        &self,
        opener: ConnectionOpener,
    ) -> Result<(&TlsConfig, bool), TlsError> {
        let is_client = match self.role {
            DataTlsRole::Opener => opener == ConnectionOpener::ThisEnd,
            DataTlsRole::Client => true,
            DataTlsRole::Server => false,
        };
        let (config, side) = match is_client {
            true => (&self.client, "client"),
            false => (&self.server, "server"),
        };
        let missing = || {
            TlsError::Config(format!(
                "no credential for the TLS {side} of a data connection"
            ))
        };
        config
            .as_ref()
            .map(|config| (config, is_client))
            .ok_or_else(missing)
    }
}

#[cfg(test)]
impl DataSecurity {
    /// GSI with one credential at both ends.
    pub(crate) fn of_one_user(mode: DataHandshakeMode) -> Self {
        use security::test_pki::TestAuthority;
        let user = TestAuthority::new("/O=Grid/CN=Authority").user("User");
        let options = |role| {
            TlsOptions::grid(role)
                .with_credential(user.clone())
                .unverified()
        };
        Self::grid(mode, options).unwrap()
    }
}
