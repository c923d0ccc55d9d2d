//! How servers have shown themselves, for receipts.

use proto::printable::printable;
use serde::{Deserialize, Serialize};

/// Longest text of a server that is kept, characters.
const MAX_SOFTWARE: usize = 300;

/// A server as it has shown itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerIdentity {
    /// Its greeting, or its `Server` field of HTTP: mostly program and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// SHA-256 of its certificate, in lower-case hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_sha256: Option<String>,
}

impl ServerIdentity {
    /// A server that has told this about its program.
    pub fn of_software(told: &str) -> Self {
        let shown = printable(told.as_bytes()).to_string();
        Self {
            software: Some(shown.chars().take(MAX_SOFTWARE).collect()),
            certificate_sha256: None,
        }
    }

    /// Takes over what is not known yet.
    pub fn learn(&mut self, other: Self) {
        self.software = self.software.take().or(other.software);
        self.certificate_sha256 = self.certificate_sha256.take().or(other.certificate_sha256);
    }
}
