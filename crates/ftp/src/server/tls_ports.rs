//! The two ports of FTP over TLS, and where TLS begins on each.

use crate::location::{Scheme, Server};
use crate::protection::TlsUse;

/// Port of FTP over TLS from the first byte (IANA: ftps).
const IMPLICIT_TLS_PORT: u16 = 990;
/// Port of FTP, where TLS begins with AUTH (IANA: ftp).
const EXPLICIT_TLS_PORT: u16 = 21;

impl Server {
    /// Whether TLS begins before the greeting: on the port of such servers, and where the user says so.
    pub fn begins_with_tls(&self) -> bool {
        let is_implicit = self.security.options().tls == TlsUse::Implicit;
        match self.scheme {
            Scheme::Ftps => is_implicit || self.port == IMPLICIT_TLS_PORT,
            Scheme::Ftp => is_implicit,
            _ => false,
        }
    }

    /// Advice on a server that sends no greeting. A server that expects TLS
    /// from the first byte waits for it in silence.
    pub fn silence_advice(&self) -> Option<&'static str> {
        match self.scheme {
            Scheme::Ftps if !self.begins_with_tls() => {
                Some("if it has TLS from the first byte (implicit TLS), add --tls implicit")
            }
            _ => None,
        }
    }

    /// Advice, after a failed connection, on the other port of FTP over TLS; `None` for other schemes
    /// and ports.
    pub fn other_port_advice(&self) -> Option<String> {
        let host = self.bracketed_host();
        match (self.scheme, self.port) {
            (Scheme::Ftps, EXPLICIT_TLS_PORT) => Some(format!(
                "if it has TLS from the first byte only (implicit TLS), use \
                 ftps://{host}:{IMPLICIT_TLS_PORT}"
            )),
            (Scheme::Ftps, IMPLICIT_TLS_PORT) => Some(format!(
                "if it has TLS on port {EXPLICIT_TLS_PORT} (AUTH TLS), use ftps://{host}"
            )),
            _ => None,
        }
    }
}
