//! Protection of the data connections of a transfer.

use security::gsi::DataHandshakeMode;
use security::tls::{TlsConfig, TlsSession};

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
    /// A stream that ends without close_notify is an error, because it may have been cut (RFC 8446
    /// §6.1). FTPS: yes; peers with GSI never send it.
    pub require_close_notify: bool,
}
