//! Credential and rules with which a data node protects data connections as its front end would.

use serde::{Deserialize, Serialize};

/// The knowledge that both ends of a protected data connection have of each other. The connection between front end and node keeps it secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeSecurity {
    /// GSI.
    Grid {
        /// The certificates and the key that the client has delegated, or given by DCSC (PEM).
        credential: String,
        /// The identity that the peer must have.
        expected: String,
        /// The bytes stay inside TLS; otherwise only the ends are authenticated.
        is_protected: bool,
        /// DCSC: the peer has the same credential, and nothing else is trusted.
        is_shared: bool,
    },
    /// TLS (RFC 4217): the node is the TLS server.
    Tls {
        /// The secret of the tickets of the control connection's session.
        ticket_secret: Vec<u8>,
        /// The certificate that the client has to show (DER).
        client: Option<Vec<u8>>,
        /// Data connections must resume that session.
        requires_resumption: bool,
    },
}

impl std::fmt::Debug for NodeSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Grid { .. } => "NodeSecurity::Grid",
            Self::Tls { .. } => "NodeSecurity::Tls",
        };
        f.debug_struct(name).finish_non_exhaustive()
    }
}
