//! Settings of TLS, GSI, client certificates and bearer tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use security::tls::ClientCertificates;
use serde::Deserialize;

/// Use of TLS on the control port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsPolicy {
    /// AUTH TLS is not offered.
    Off,
    /// AUTH TLS is offered (RFC 4217).
    Optional,
    /// A login needs TLS, or GSI where a gridmap is configured.
    Required,
    /// As [`TlsPolicy::Optional`], with a certificate that the server makes at its start and keeps in
    /// memory only.
    SelfSigned,
}

/// Use of TLS session resumption (RFC 4217 section 10.2, RFC 8446 section 2.2) on data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionReuse {
    /// A data connection may resume the session of its control connection, or make a full handshake.
    #[default]
    Any,
    /// A data connection that does not resume the session of its control connection is refused.
    Required,
}

/// Lowest protection of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequiredProtection {
    /// None.
    #[default]
    None,
    /// Data connections are encrypted (PROT P): other transfers are refused.
    Data,
}

/// Rights of accounts that the gridmap or PAM knows and the users file does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnlistedRights {
    /// Read only.
    Ro,
    /// Read and write.
    #[default]
    Rw,
}

/// A trusted issuer of bearer tokens, a `[[token-issuer]]` table of the settings file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TokenIssuerConfig {
    /// The `iss` claim of its tokens: an https URL.
    pub url: String,
    /// Accepted values of the `aud` claim.
    pub audience: Vec<String>,
    /// Path below which the scopes of its tokens apply.
    #[serde(default = "root_path")]
    pub base_path: String,
    /// Account whose root and rights bound the sessions.
    pub account: String,
    /// File or https URL of the issuer's keys (RFC 7517); `None`: found by the issuer's metadata (RFC 8414).
    #[serde(default)]
    pub keys: Option<String>,
}

/// Settings of TLS, GSI, client certificates and bearer tokens. Each field names its key in the settings
/// file, which is also its flag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecurityConfig {
    /// `tls`: Use of TLS on the control port; `None`: optional with a certificate, off without.
    pub tls: Option<TlsPolicy>,
    /// `cert`: PEM file of the server's certificate and its chain, leaf first.
    pub certificate: Option<PathBuf>,
    /// `key`: PEM file of its private key.
    pub key: Option<PathBuf>,
    /// `implicit-tls`: Address of the port whose connections begin with the TLS handshake (RFC 4217 section 13 names 990).
    pub implicit_tls: Option<SocketAddr>,
    /// `client-certs`: Certificates of TLS clients.
    pub client_certificates: ClientCertificates,
    /// `client-ca`: PEM file or directory of the authorities of client certificates.
    pub client_authorities: Option<PathBuf>,
    /// `node-ca`: PEM file or directory of the authorities of front ends and data nodes.
    pub node_authorities: Option<PathBuf>,
    /// `tls-session-reuse`: Session resumption of data connections.
    pub session_reuse: SessionReuse,
    /// `allow-ccc`: CCC is allowed: the commands after the login may travel in the clear.
    pub clear_commands: bool,
    /// `require-protection`: Lowest protection of transfers.
    pub require_protection: RequiredProtection,
    /// `clear-passwords`: Passwords are accepted in the clear. On the loopback interface they always are.
    pub clear_passwords: bool,
    /// `gridmap`: File that maps certificate subjects to accounts. It switches GSI on.
    pub gridmap: Option<PathBuf>,
    /// `gridmap-rights`: Rights of accounts that only the gridmap names.
    pub gridmap_rights: UnlistedRights,
    /// `ca-dir`: Directory of the grid's authorities (`HASH.0`, `HASH.signing_policy`, `HASH.r0`); `None`: the
    /// directory that the Globus toolkit uses.
    pub grid_authorities: Option<PathBuf>,
    /// `[[token-issuer]]`: Trusted issuers of bearer tokens.
    pub token_issuers: Vec<TokenIssuerConfig>,
}

/// Name of a [`ClientCertificates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the choice of its name")]
pub enum ClientCertificatesName {
    None,
    Optional,
    Required,
}

/// Security settings that do not fit together; the text says what to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecurityConfigError {
    /// One of certificate and key is missing.
    #[error("a certificate needs its private key: give both --cert FILE and --key FILE")]
    HalfCredential,
    /// TLS is asked for without a certificate.
    #[error(
        "TLS needs a certificate: give --cert FILE and --key FILE, or --tls self-signed for a try-out"
    )]
    NoCertificate,
    /// A certificate is given, and another one is to be made.
    #[error("--tls self-signed makes a certificate of its own: remove --cert and --key, or --tls")]
    TwoCertificates,
    /// TLS is off, but another setting needs it.
    #[error("--implicit-tls and --tls off contradict each other: remove one of them")]
    ImplicitWithoutTls,
    /// Client certificates cannot be verified.
    #[error(
        "client certificates need their authorities: give --client-ca PATH (or --gridmap with --ca-dir)"
    )]
    NoClientAuthorities,
    /// GSI without a certificate of the server.
    #[error(
        "--gridmap switches GSI on, which needs the host's certificate: give --cert FILE and --key FILE"
    )]
    GridWithoutCertificate,
    /// Tokens without protection.
    #[error("bearer tokens are accepted over TLS only: give --cert FILE and --key FILE")]
    TokensWithoutTls,
}

impl SecurityConfig {
    /// Use of TLS on the control port.
    pub fn tls_policy(&self) -> TlsPolicy {
        match (self.tls, &self.certificate) {
            (Some(policy), _) => policy,
            (None, Some(_)) => TlsPolicy::Optional,
            (None, None) => TlsPolicy::Off,
        }
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// See [`SecurityConfigError`].
    pub fn check(&self) -> Result<(), SecurityConfigError> {
        use SecurityConfigError as E;
        let policy = self.tls_policy();
        let has_certificate = self.certificate.is_some();
        let refusals = [
            (has_certificate != self.key.is_some(), E::HalfCredential),
            (
                has_certificate && policy == TlsPolicy::SelfSigned,
                E::TwoCertificates,
            ),
            (
                self.gridmap.is_some() && !has_certificate,
                E::GridWithoutCertificate,
            ),
            (
                self.implicit_tls.is_some() && self.tls == Some(TlsPolicy::Off),
                E::ImplicitWithoutTls,
            ),
            (
                !self.token_issuers.is_empty() && policy == TlsPolicy::Off,
                E::TokensWithoutTls,
            ),
            (
                self.needs_certificate() && !has_certificate && policy != TlsPolicy::SelfSigned,
                E::NoCertificate,
            ),
            (
                self.client_certificates != ClientCertificates::None
                    && self.client_authorities.is_none()
                    && self.gridmap.is_none(),
                E::NoClientAuthorities,
            ),
        ];
        let found = refusals.into_iter().find(|(applies, _)| *applies);
        found.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Whether any login other than an anonymous one or one with a password is configured.
    pub fn has_other_logins(&self) -> bool {
        self.gridmap.is_some() || !self.token_issuers.is_empty()
    }

    fn needs_certificate(&self) -> bool {
        self.tls_policy() != TlsPolicy::Off
            || self.implicit_tls.is_some()
            || self.client_certificates != ClientCertificates::None
    }
}

impl From<ClientCertificatesName> for ClientCertificates {
    fn from(name: ClientCertificatesName) -> Self {
        match name {
            ClientCertificatesName::None => Self::None,
            ClientCertificatesName::Optional => Self::Optional,
            ClientCertificatesName::Required => Self::Required,
        }
    }
}

fn root_path() -> String {
    "/".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FileConfig, ServerConfig};

    fn with(text: &str) -> SecurityConfig {
        let mut config = ServerConfig::default();
        let file: FileConfig = toml::from_str(text).unwrap();
        file.apply(&mut config);
        config.security
    }

    const CREDENTIAL: &str = "cert = \"/c\"\nkey = \"/k\"\n";

    #[test]
    fn every_setting_of_the_file_is_applied() {
        let config = with(concat!(
            "tls = \"required\"\ncert = \"/c\"\nkey = \"/k\"\nimplicit-tls = \"[::]:990\"\n",
            "client-certs = \"optional\"\nclient-ca = \"/ca\"\nnode-ca = \"/na\"\ntls-session-reuse = \"required\"\n",
            "allow-ccc = true\nrequire-protection = \"data\"\nclear-passwords = true\n",
            "gridmap = \"/g\"\ngridmap-rights = \"ro\"\nca-dir = \"/d\"\n",
            "[[token-issuer]]\nurl = \"https://i\"\naudience = [\"a\"]\naccount = \"ann\"\n",
        ));
        let expected = SecurityConfig {
            tls: Some(TlsPolicy::Required),
            certificate: Some("/c".into()),
            key: Some("/k".into()),
            implicit_tls: Some("[::]:990".parse().unwrap()),
            client_certificates: ClientCertificates::Optional,
            client_authorities: Some("/ca".into()),
            node_authorities: Some("/na".into()),
            session_reuse: SessionReuse::Required,
            clear_commands: true,
            require_protection: RequiredProtection::Data,
            clear_passwords: true,
            gridmap: Some("/g".into()),
            gridmap_rights: UnlistedRights::Ro,
            grid_authorities: Some("/d".into()),
            token_issuers: vec![TokenIssuerConfig {
                url: "https://i".to_owned(),
                audience: vec!["a".to_owned()],
                base_path: "/".to_owned(),
                account: "ann".to_owned(),
                keys: None,
            }],
        };
        assert_eq!(config, expected);
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn tls_is_optional_with_a_certificate_and_off_without() {
        assert_eq!(with("").tls_policy(), TlsPolicy::Off);
        assert_eq!(with(CREDENTIAL).tls_policy(), TlsPolicy::Optional);
        let off = with(&format!("{CREDENTIAL}tls = \"off\"\n"));
        assert_eq!((off.tls_policy(), off.check()), (TlsPolicy::Off, Ok(())));
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        use SecurityConfigError as E;
        let issuer = "[[token-issuer]]\nurl = \"u\"\naudience = []\naccount = \"a\"\n";
        let implicit = "implicit-tls = \"127.0.0.1:0\"\n";
        for (text, error) in [
            ("cert = \"/c\"\n".to_owned(), E::HalfCredential),
            ("tls = \"optional\"\n".to_owned(), E::NoCertificate),
            (implicit.to_owned(), E::NoCertificate),
            (
                format!("{CREDENTIAL}tls = \"self-signed\"\n"),
                E::TwoCertificates,
            ),
            (
                format!("{CREDENTIAL}{implicit}tls = \"off\"\n"),
                E::ImplicitWithoutTls,
            ),
            (
                format!("{CREDENTIAL}client-certs = \"required\"\n"),
                E::NoClientAuthorities,
            ),
            ("gridmap = \"/g\"\n".to_owned(), E::GridWithoutCertificate),
            (issuer.to_owned(), E::TokensWithoutTls),
        ] {
            assert_eq!(with(&text).check(), Err(error), "{text}");
        }
        assert_eq!(with("tls = \"self-signed\"\n").check(), Ok(()));
        let grid = format!("{CREDENTIAL}gridmap = \"/g\"\nclient-certs = \"optional\"\n");
        assert_eq!(with(&grid).check(), Ok(()));
    }
}
