//! Environment variables by which grid programs find credentials and authorities.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::PeerPki;
use super::authority::PeerCertificate;

/// Environment of a grid client or server.
#[derive(Debug, Clone, Default)]
pub struct GridEnvironment {
    variables: Vec<(&'static str, PathBuf)>,
}

impl GridEnvironment {
    /// A client or server with a certificate and key, which trusts [`PeerPki::authority`].
    #[must_use]
    pub fn certificate(pki: &PeerPki, own: &PeerCertificate) -> Self {
        Self::default()
            .with("X509_CERT_DIR", pki.ca_directory())
            .with("X509_USER_CERT", &own.certificate)
            .with("X509_USER_KEY", &own.key)
    }

    /// A client with a proxy file, which trusts [`PeerPki::authority`].
    #[must_use]
    pub fn proxy(pki: &PeerPki, file: &Path) -> Self {
        Self::default()
            .with("X509_CERT_DIR", pki.ca_directory())
            .with("X509_USER_PROXY", file)
    }

    /// Adds or replaces a variable.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<PathBuf>) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.into()));
        self
    }

    /// Never offers or accepts TLS 1.3; only Globus programs read this.
    #[must_use]
    pub fn tls_1_2(self) -> Self {
        self.with("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLS1_2_VERSION")
    }

    /// Sets the variables for a command.
    pub fn apply(&self, command: &mut Command) {
        for variable in ["X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY"] {
            command.env_remove(variable);
        }
        for (name, value) in &self.variables {
            command.env(name, value);
        }
    }
}
