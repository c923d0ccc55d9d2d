//! Flags of `longhaul serve` about TLS, GSI and passwords.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use server::config::{
    ClientCertificatesName, PamConfig, RequiredProtection, SecurityConfig, SessionReuse, TlsPolicy,
    UnlistedRights,
};

/// Security of a server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct ServeSecurityArgs {
    /// TLS on the control port (AUTH TLS): `off`, `optional`, `required` (no login without it), or
    /// `self-signed`: `optional` with a certificate that is made at the start, for a try-out; its
    /// fingerprint is printed [default: optional with --cert, otherwise off]
    #[arg(long, value_name = "off|optional|required|self-signed")]
    tls: Option<TlsArg>,
    /// Certificate of the server and its chain (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM); only its owner may have access (chmod 600)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Also listen here for connections that begin with TLS (`ftps:`, usually port 990)
    #[arg(long, value_name = "HOST:PORT")]
    implicit_tls: Option<SocketAddr>,
    /// Ask TLS clients for a certificate. One that the gridmap lists replaces the password
    /// [default: none]
    #[arg(long, value_name = "none|optional|required")]
    client_certs: Option<ClientCertsArg>,
    /// Certificate authorities of the clients: a PEM file or a directory
    #[arg(long, value_name = "PATH")]
    client_ca: Option<PathBuf>,
    /// Certificate authorities of front ends and data nodes: a PEM file or a directory
    #[arg(long, value_name = "PATH")]
    node_ca: Option<PathBuf>,
    /// Whether TLS data connections must resume the session of the control connection, which proves
    /// that they come from the same client [default: any]
    #[arg(long, value_name = "any|required")]
    tls_session_reuse: Option<SessionReuseArg>,
    /// Allow CCC: a client may end the protection of its commands after the login
    #[arg(long)]
    allow_ccc: bool,
    /// Refuse transfers whose data connections are not encrypted (PROT P) [default: none]
    #[arg(long, value_name = "none|data")]
    require_protection: Option<RequireProtectionArg>,
    /// Accept passwords without TLS. Without this flag they are accepted from this host only
    #[arg(long)]
    clear_passwords: bool,
    /// Accounts of certificate subjects. Switches GSI on (AUTH GSSAPI); requires --cert and --key
    #[arg(long, value_name = "FILE")]
    gridmap: Option<PathBuf>,
    /// Rights of accounts that are only in the gridmap and not in the password file; their root is
    /// that of the server [default: rw]
    #[arg(long, value_name = "ro|rw")]
    gridmap_rights: Option<UnlistedRightsArg>,
    /// Accept passwords of the system's accounts: PAM checks them by the rules of this service, /etc/pam.d/SERVICE. Names
    /// in the password file are not asked about. Started as root, the server needs --run-as, too
    #[arg(long, value_name = "SERVICE")]
    pam: Option<String>,
    /// Rights of accounts that PAM knows and the password file does not list; their root is that of the server
    /// [default: rw]
    #[arg(long, value_name = "ro|rw")]
    pam_rights: Option<UnlistedRightsArg>,
    /// Smallest user ID of accounts that may log in with --pam; root may never [default: 1000]
    #[arg(long, value_name = "UID")]
    pam_min_uid: Option<u32>,
    /// Certificate authorities for GSI with signing policies and revocation lists [default: as other
    /// grid software: X509_CERT_DIR, ~/.globus/certificates, /etc/grid-security/certificates]
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
}

/// Values of `--tls`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TlsArg {
    /// Not offered.
    Off,
    /// Offered.
    Optional,
    /// No login without it.
    Required,
    /// Offered with a new certificate.
    SelfSigned,
}

/// Values of `--client-certs`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClientCertsArg {
    /// Not asked for.
    None,
    /// Asked for.
    Optional,
    /// Necessary.
    Required,
}

/// Values of `--tls-session-reuse`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SessionReuseArg {
    /// Allowed.
    Any,
    /// Necessary.
    Required,
}

/// Values of `--require-protection`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RequireProtectionArg {
    /// None.
    None,
    /// Of data connections.
    Data,
}

/// Values of `--gridmap-rights` and `--pam-rights`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum UnlistedRightsArg {
    /// Read only.
    Ro,
    /// Read and write.
    Rw,
}

impl ServeSecurityArgs {
    /// Applies the flags that are given. Flags without a value can only switch a setting on.
    pub(super) fn apply(self, config: &mut SecurityConfig) {
        config.tls = self.tls.map(TlsPolicy::from).or(config.tls);
        config.certificate = self.cert.or(config.certificate.take());
        config.key = self.key.or(config.key.take());
        config.implicit_tls = self.implicit_tls.or(config.implicit_tls);
        config.client_authorities = self.client_ca.or(config.client_authorities.take());
        config.node_authorities = self.node_ca.or(config.node_authorities.take());
        config.gridmap = self.gridmap.or(config.gridmap.take());
        config.grid_authorities = self.ca_dir.or(config.grid_authorities.take());
        config.clear_commands |= self.allow_ccc;
        config.clear_passwords |= self.clear_passwords;
        if let Some(choice) = self.client_certs {
            config.client_certificates = ClientCertificatesName::from(choice).into();
        }
        if let Some(choice) = self.tls_session_reuse {
            config.session_reuse = match choice {
                SessionReuseArg::Any => SessionReuse::Any,
                SessionReuseArg::Required => SessionReuse::Required,
            };
        }
        if let Some(choice) = self.require_protection {
            config.require_protection = match choice {
                RequireProtectionArg::None => RequiredProtection::None,
                RequireProtectionArg::Data => RequiredProtection::Data,
            };
        }
        if let Some(choice) = self.gridmap_rights {
            config.gridmap_rights = choice.into();
        }
    }

    /// Applies the flags about PAM that are given.
    pub(super) fn apply_pam(&self, config: &mut PamConfig) {
        if self.pam.is_some() {
            config.service.clone_from(&self.pam);
        }
        if let Some(choice) = self.pam_rights {
            config.rights = choice.into();
        }
        config.min_uid = self.pam_min_uid.unwrap_or(config.min_uid);
    }
}

impl From<TlsArg> for TlsPolicy {
    fn from(choice: TlsArg) -> Self {
        match choice {
            TlsArg::Off => Self::Off,
            TlsArg::Optional => Self::Optional,
            TlsArg::Required => Self::Required,
            TlsArg::SelfSigned => Self::SelfSigned,
        }
    }
}

impl From<UnlistedRightsArg> for UnlistedRights {
    fn from(choice: UnlistedRightsArg) -> Self {
        match choice {
            UnlistedRightsArg::Ro => Self::Ro,
            UnlistedRightsArg::Rw => Self::Rw,
        }
    }
}

impl From<ClientCertsArg> for ClientCertificatesName {
    fn from(choice: ClientCertsArg) -> Self {
        match choice {
            ClientCertsArg::None => Self::None,
            ClientCertsArg::Optional => Self::Optional,
            ClientCertsArg::Required => Self::Required,
        }
    }
}
