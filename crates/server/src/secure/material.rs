//! The server's certificate, authorities and gridmap, as they were read from their files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data::os::tls_tickets;
use openssl::asn1::Asn1Time;
use proto::security::{ExchangeKind, SecurityMechanism};
use security::gridmap::{Gridmap, GridmapError};
use security::gsi::{GsiAcceptor, GsiError};
use security::tls::{
    ClientCertificates, ExpectedPeer, TicketSecret, TlsConfig, TlsError, TlsOptions, TlsRole,
};
use security::x509::{
    CertificateUsage, CertifiedKey, CredentialError, DistinguishedName, PeerIdentity, TrustError,
    TrustStore,
};
use smallfile::regular_file;

use crate::config::{SecurityConfig, SecurityConfigError, ServerConfig, TlsPolicy};
use crate::key_holder::KeyHolderError;

/// Validity of a certificate that the server makes for itself.
const SELF_SIGNED_VALIDITY: Duration = Duration::from_secs(30 * 24 * 3600);

/// The reason why the security settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityMaterialError {
    /// The settings do not fit together.
    #[error(transparent)]
    Settings(#[from] SecurityConfigError),
    /// The certificate or its key cannot be used.
    #[error("cannot use the server's certificate: {0}")]
    Credential(#[from] CredentialError),
    /// The authorities of clients cannot be read.
    #[error("cannot use the certificate authorities of clients: {0}")]
    Authorities(TrustError),
    /// The gridmap cannot be used.
    #[error("cannot use the gridmap: {0}")]
    Gridmap(#[from] GridmapError),
    /// The process that holds the private key, which reads the certificate, too.
    #[error("cannot use the server's certificate and private key: {0}")]
    KeyHolder(#[from] KeyHolderError),
    /// TLS refuses the certificate.
    #[error("cannot use the server's certificate for TLS: {0}")]
    Tls(TlsError),
}

/// The server's certificate, authorities and gridmap. A reload makes a new value; sessions keep theirs.
#[derive(Debug, Default)]
pub(crate) struct SecurityMaterial {
    settings: SecurityConfig,
    credential: Option<CertifiedKey>,
    client_trust: Option<Arc<TrustStore>>,
    /// Authorities of front ends and data nodes.
    node_trust: Option<Arc<TrustStore>>,
    /// Authorities of the grid, for the data connections of a data node.
    node_grid_trust: Option<Arc<TrustStore>>,
    grid: Option<GridMaterial>,
    mechanisms: Arc<[SecurityMechanism]>,
}

#[derive(Debug, Clone)]
struct GridMaterial {
    gridmap: Arc<Gridmap>,
    trust: Arc<TrustStore>,
}

impl SecurityMaterial {
    /// Reads the files that the settings name. A file that `before` was read from and that this process
    /// may no longer read, because it gave up root, keeps its old content, and a message says so. A
    /// certificate that the server made itself is kept, too. Blocks on the file system.
    ///
    /// # Errors
    /// See [`SecurityMaterialError`].
    pub(crate) fn load(
        config: &ServerConfig,
        before: Option<&Self>,
    ) -> Result<Self, SecurityMaterialError> {
        let settings = config.security.clone();
        settings.check()?;
        let credential = load_credential(config, before)?;
        if let Some(problem) = credential.as_ref().and_then(validity_problem) {
            tracing::warn!("{problem}");
        }
        let grid = load_grid(&settings, before)?;
        let client_trust = load_client_trust(&settings, grid.as_ref(), before)?;
        let node_trust = load_node_trust(&settings, before)?;
        let node_grid_trust = match (&grid, &settings.grid_authorities) {
            (Some(grid), _) => Some(Arc::clone(&grid.trust)),
            (None, Some(folder)) if node_trust.is_some() => {
                let trust = TrustStore::from_path(folder);
                Some(Arc::new(trust.map_err(SecurityMaterialError::Authorities)?))
            }
            (None, _) => None,
        };
        let mut mechanisms = Vec::new();
        if settings.tls_policy() != TlsPolicy::Off {
            mechanisms.push(tls_mechanism());
        }
        if grid.is_some() {
            mechanisms.push(SecurityMechanism {
                name: "GSSAPI".to_owned(),
                exchange: ExchangeKind::Tokens,
            });
        }
        let material = Self {
            settings,
            credential,
            client_trust,
            node_trust,
            node_grid_trust,
            grid,
            mechanisms: mechanisms.into(),
        };
        material.check_configs()?;
        Ok(material)
    }

    /// The settings that the material was loaded for.
    pub(crate) fn settings(&self) -> &SecurityConfig {
        &self.settings
    }

    /// The mechanisms that AUTH offers.
    pub(crate) fn mechanisms(&self) -> Arc<[SecurityMechanism]> {
        Arc::clone(&self.mechanisms)
    }

    /// The accounts of certificate subjects; `None`: no gridmap is configured.
    pub(crate) fn gridmap(&self) -> Option<Arc<Gridmap>> {
        self.grid.as_ref().map(|grid| Arc::clone(&grid.gridmap))
    }

    /// The server's certificate.
    pub(crate) fn credential(&self) -> Option<&CertifiedKey> {
        self.credential.as_ref()
    }

    /// Why clients will refuse the server's certificate now, by its dates.
    pub(crate) fn certificate_problem(&self) -> Option<String> {
        self.credential().and_then(validity_problem)
    }

    /// The grid's authorities; `None`: GSI is off.
    pub(crate) fn grid_trust(&self) -> Option<&Arc<TrustStore>> {
        self.grid.as_ref().map(|grid| &grid.trust)
    }

    /// Whether the certificate of a client that has logged in is still accepted. Where the settings name no authorities for
    /// its kind any more, nobody could say that it is not. Blocks on the file system.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub(crate) fn check_again(&self, client: &PeerIdentity) -> Result<(), TrustError> {
        let trust = match client.usage {
            CertificateUsage::Grid => self.grid_trust(),
            CertificateUsage::TlsClient | CertificateUsage::TlsServer => self.client_trust.as_ref(),
        };
        trust.map_or(Ok(()), |trust| {
            trust.verify_again(client, SystemTime::now())
        })
    }

    /// Keys of the files that this process may not read any more, so that they stayed as they were. `reads_key`: this process
    /// reads the certificate and its key itself. Blocks on the file system.
    pub(crate) fn unreadable_files(&self, reads_key: bool) -> Vec<&'static str> {
        let settings = &self.settings;
        let own = |path| Some(path).filter(|_| reads_key);
        let files = [
            ("cert", own(&settings.certificate)),
            ("key", own(&settings.key)),
            ("gridmap", Some(&settings.gridmap)),
            ("ca-dir", Some(&settings.grid_authorities)),
            ("client-ca", Some(&settings.client_authorities)),
            ("node-ca", Some(&settings.node_authorities)),
        ];
        let is_kept = |path: Option<&Option<PathBuf>>| {
            let path = path.and_then(Option::as_deref);
            path.is_some_and(is_denied)
        };
        let kept = files.into_iter().filter(|(_, path)| is_kept(*path));
        kept.map(|(key, _)| key).collect()
    }

    /// SHA-256 of a certificate that the server made itself.
    pub(crate) fn self_signed_fingerprint(&self) -> Option<String> {
        let made = self.settings.tls_policy() == TlsPolicy::SelfSigned;
        let credential = self.credential.as_ref().filter(|_| made)?;
        Some(credential.fingerprint())
    }

    /// A TLS configuration for one session: its tickets resume in that session's data connections
    /// only.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub(crate) fn tls_config(&self) -> Result<TlsConfig, TlsError> {
        // Its data nodes resume the session, too.
        let ticket_secret = match self.node_trust {
            Some(_) => {
                tls_tickets::permit_sharing();
                Some(TicketSecret::random()?)
            }
            None => None,
        };
        TlsConfig::new(TlsOptions {
            credential: self.credential.clone(),
            trust: self.client_trust.clone(),
            ticket_secret,
            client_certificates: self.settings.client_certificates,
            ..TlsOptions::server().with_tickets()
        })
    }

    /// The grid's authorities, for the data connections of a data node.
    pub(crate) fn node_grid_trust(&self) -> Option<&Arc<TrustStore>> {
        self.node_grid_trust.as_ref()
    }

    /// A data node's configuration for data connections of a session of its front end, whose tickets have this secret. `client`: the
    /// certificate that the client has to show (DER).
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub(crate) fn node_data_config(
        &self,
        ticket_secret: TicketSecret,
        client: Option<Vec<u8>>,
    ) -> Result<TlsConfig, TlsError> {
        tls_tickets::permit_sharing();
        let (client_certificates, expected) = match client {
            Some(leaf) => (
                ClientCertificates::Required,
                ExpectedPeer::Certificate(leaf),
            ),
            None => (ClientCertificates::None, ExpectedPeer::Trusted),
        };
        TlsConfig::new(TlsOptions {
            credential: self.credential.clone(),
            client_certificates,
            expected,
            ticket_secret: Some(ticket_secret),
            ..TlsOptions::server().with_tickets()
        })
    }

    /// A front end's configuration for the data node `host`.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub(crate) fn node_client_config(&self, host: &str) -> Result<TlsConfig, TlsError> {
        TlsConfig::new(TlsOptions {
            credential: self.credential.clone(),
            trust: self.node_trust.clone(),
            ..TlsOptions::client().for_host(host)
        })
    }

    /// A data node's configuration for its front ends.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub(crate) fn node_server_config(&self) -> Result<TlsConfig, TlsError> {
        TlsConfig::new(TlsOptions {
            credential: self.credential.clone(),
            trust: self.node_trust.clone(),
            client_certificates: ClientCertificates::Required,
            ..TlsOptions::server()
        })
    }

    /// A configuration for the GSI exchange of one session.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub(crate) fn grid_config(&self) -> Result<TlsConfig, TlsError> {
        TlsConfig::new(TlsOptions {
            credential: self.credential.clone(),
            trust: self.grid_trust().cloned(),
            ..TlsOptions::grid(TlsRole::Server)
        })
    }

    /// The server's side of one session's GSI exchange. Only subjects that the gridmap lists may delegate:
    /// a key is made for that, which takes long.
    ///
    /// # Errors
    /// See [`GsiError`].
    pub(crate) fn gsi_acceptor(&self) -> Result<GsiAcceptor, GsiError> {
        let gridmap = self.gridmap().unwrap_or_default();
        let acceptor = GsiAcceptor::new(&self.grid_config()?, true)?;
        Ok(acceptor.with_delegators(move |peer| {
            let name = peer.account_name();
            name.is_some_and(|name| !gridmap.accounts(name).is_empty())
        }))
    }

    /// Makes a configuration of each kind once, so that a certificate that TLS refuses is noticed at the
    /// start and not by the first client.
    fn check_configs(&self) -> Result<(), SecurityMaterialError> {
        if self.credential.is_some() {
            self.tls_config().map_err(SecurityMaterialError::Tls)?;
        }
        if self.grid.is_some() {
            self.grid_config().map_err(SecurityMaterialError::Tls)?;
        }
        Ok(())
    }
}

/// The mechanism of AUTH TLS and of the port with implicit TLS.
pub(crate) fn tls_mechanism() -> SecurityMechanism {
    SecurityMechanism {
        name: "TLS".to_owned(),
        exchange: ExchangeKind::Handshake,
    }
}

fn load_credential(
    config: &ServerConfig,
    before: Option<&SecurityMaterial>,
) -> Result<Option<CertifiedKey>, SecurityMaterialError> {
    let settings = &config.security;
    let old = |unchanged: fn(&SecurityConfig, &SecurityConfig) -> bool| {
        let before = before.filter(|before| unchanged(&before.settings, settings))?;
        before.credential.clone()
    };
    if settings.tls_policy() == TlsPolicy::SelfSigned {
        if let Some(kept) = old(|a, b| a.tls == b.tls) {
            return Ok(Some(kept));
        }
        let made = CertifiedKey::self_signed(&names_of_this_server(config), SELF_SIGNED_VALIDITY)?;
        return Ok(Some(made));
    }
    let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
        return Ok(None);
    };
    if let Some(holder) = &config.key_holder {
        return Ok(Some(holder.load()?));
    }
    let kept = old(|a, b| (&a.certificate, &a.key) == (&b.certificate, &b.key));
    if let Some(kept) = kept
        && [certificate, key].iter().any(|path| is_denied(path))
    {
        warn_kept("certificate", key);
        return Ok(Some(kept));
    }
    Ok(Some(CertifiedKey::from_files(certificate, key, None)?))
}

/// Why clients will refuse a certificate now, by its dates; `None`: it is valid.
pub(super) fn validity_problem(credential: &CertifiedKey) -> Option<String> {
    let now = Asn1Time::days_from_now(0).ok()?;
    let mut certificates = std::iter::once(credential.leaf()).chain(credential.chain());
    certificates.find_map(|certificate| {
        let subject = DistinguishedName::of_subject(certificate);
        let (begin, end) = (certificate.not_before(), certificate.not_after());
        let what = match () {
            () if *end < *now => format!("expired on {end}"),
            () if *begin > *now => format!("is not valid before {begin}"),
            () => return None,
        };
        Some(format!(
            "clients refuse the server's certificate: {subject} {what}; renew it, then send SIGHUP"
        ))
    })
}

fn load_grid(
    settings: &SecurityConfig,
    before: Option<&SecurityMaterial>,
) -> Result<Option<GridMaterial>, SecurityMaterialError> {
    let Some(path) = &settings.gridmap else {
        return Ok(None);
    };
    let folder = settings.grid_authorities.as_ref();
    let same_folder = before.filter(|b| b.settings.grid_authorities.as_ref() == folder);
    let kept = same_folder.and_then(|before| before.grid_trust().cloned());
    let trust = match (folder, kept) {
        (Some(folder), Some(kept)) if is_denied(folder) => {
            warn_kept("certificate authorities of the grid", folder);
            Ok(kept)
        }
        (Some(folder), _) => TrustStore::from_path(folder).map(Arc::new),
        (None, _) => TrustStore::grid().map(Arc::new),
    };
    let trust = trust.map_err(SecurityMaterialError::Authorities)?;
    let before = before.filter(|before| before.settings.gridmap.as_ref() == Some(path));
    let gridmap = match before.and_then(SecurityMaterial::gridmap) {
        Some(kept) if is_denied(path) => {
            warn_kept("gridmap", path);
            kept
        }
        _ => Arc::new(Gridmap::load(path)?),
    };
    Ok(Some(GridMaterial { gridmap, trust }))
}

fn load_client_trust(
    settings: &SecurityConfig,
    grid: Option<&GridMaterial>,
    before: Option<&SecurityMaterial>,
) -> Result<Option<Arc<TrustStore>>, SecurityMaterialError> {
    if settings.client_certificates == ClientCertificates::None {
        return Ok(None);
    }
    let Some(path) = &settings.client_authorities else {
        return Ok(grid.map(|grid| Arc::clone(&grid.trust)));
    };
    let before = before.filter(|b| b.settings.client_authorities.as_ref() == Some(path));
    match before.and_then(|before| before.client_trust.clone()) {
        Some(kept) if is_denied(path) => {
            warn_kept("authorities of clients", path);
            Ok(Some(kept))
        }
        _ => TrustStore::from_path(path)
            .map(|trust| Some(Arc::new(trust)))
            .map_err(SecurityMaterialError::Authorities),
    }
}

/// The authorities of front ends and data nodes.
fn load_node_trust(
    settings: &SecurityConfig,
    before: Option<&SecurityMaterial>,
) -> Result<Option<Arc<TrustStore>>, SecurityMaterialError> {
    let Some(path) = &settings.node_authorities else {
        return Ok(None);
    };
    let before = before.filter(|b| b.settings.node_authorities.as_ref() == Some(path));
    match before.and_then(|before| before.node_trust.clone()) {
        Some(kept) if is_denied(path) => {
            warn_kept("authorities of data nodes", path);
            Ok(Some(kept))
        }
        _ => TrustStore::from_path(path)
            .map(|trust| Some(Arc::new(trust)))
            .map_err(SecurityMaterialError::Authorities),
    }
}

/// Whether this process may not read a file.
fn is_denied(path: &Path) -> bool {
    let opened = regular_file::open(path);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn warn_kept(what: &str, path: &Path) {
    tracing::warn!(
        path = %path.display(),
        "the {what} may not be read any more and stays as it was at the start; changes need a restart, \
         or a file that the account of run-as may read"
    );
}

/// The names that clients may use for this server: addresses and the host name.
fn names_of_this_server(config: &ServerConfig) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    names.extend(Some(host.trim().to_owned()).filter(|name| is_dns_name(name)));
    let addresses = [Some(config.listen.ip()), config.public_address];
    let known = addresses.into_iter().flatten();
    names.extend(
        known
            .filter(|ip| !ip.is_unspecified())
            .map(|ip| ip.to_string()),
    );
    names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn is_dns_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    !name.is_empty() && name.bytes().all(allowed)
}
