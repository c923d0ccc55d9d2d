//! Credential and rules with which a data node protects data connections as its front end would.

use serde::{Deserialize, Serialize};

/// The knowledge that both ends of a protected data connection have of each other. The connection between front end and node keeps it secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeSecurity {
    /// The certificates and the key that the client has delegated, or given by DCSC (PEM).
    pub(crate) credential: String,
    /// The identity that the peer must have.
    pub(crate) expected: String,
    /// The bytes stay inside TLS; otherwise only the ends are authenticated.
    pub(crate) is_protected: bool,
    /// DCSC: the peer has the same credential, and nothing else is trusted.
    pub(crate) is_shared: bool,
}

impl std::fmt::Debug for NodeSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeSecurity")
            .field("expected", &self.expected)
            .field("is_protected", &self.is_protected)
            .field("is_shared", &self.is_shared)
            .finish_non_exhaustive()
    }
}
