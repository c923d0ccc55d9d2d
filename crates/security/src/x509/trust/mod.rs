//! Certificate authorities, signing policies and revocation lists, and the verification of a peer's
//! chain against them.

mod chain;
mod facts;
mod file_cache;
mod inspection;
mod policy;
mod revocation;
mod source;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use openssl::x509::X509;

use super::host_name::HostNames;
use super::proxy::{CertificateRole, ProxyKind, role};
use super::{DistinguishedName, TrustError};
pub use facts::{CertificateFacts, ShownChain};
pub use inspection::{AuthorityFile, AuthorityState, inspect_authorities};
use source::AuthoritySource;

/// Trusted authorities. A grid directory (`HASH.0`, `HASH.signing_policy`, `HASH.r0`) also has
/// signing policies and revocation lists. The files of a directory are read when a peer needs them,
/// and again within seconds when they have changed. A PEM file is read once; it may have revocation
/// lists, too.
///
/// Revocation lists count for every usage. [`CertificateUsage::Grid`] demands signing policies of every
/// authority of a directory; so does [`CertificateUsage::TlsClient`] if the directory has any.
/// [`CertificateUsage::TlsServer`] has none.
#[derive(Debug)]
pub struct TrustStore {
    sources: Vec<AuthoritySource>,
    /// The certificates that [`TrustStore::exactly`] trusts.
    exact: Option<Vec<X509>>,
}

/// Use of a certificate; decides the rules of its verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateUsage {
    /// The server of a TLS connection: extended key usage serverAuth or none; no proxies.
    TlsServer,
    /// The client of a TLS connection: clientAuth or none; no proxies.
    TlsClient,
    /// Either end of a GSI connection: any purpose, proxies allowed, signing policies required.
    Grid,
}

/// A verified peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Subject of the certificate that was shown.
    pub subject: DistinguishedName,
    /// The identity behind it: proxies stripped (equal to `subject` without proxies).
    pub identity: DistinguishedName,
    /// A limited proxy is in the chain.
    pub limited: bool,
    /// The usage that the certificate was verified for.
    pub usage: CertificateUsage,
    /// The chain as verified, leaf first, without the authority that is trusted; DER.
    pub chain: Vec<Vec<u8>>,
    /// End of validity of the chain.
    pub expires: SystemTime,
    /// Why the CN names no host, although it has the form of one: an authority may not let it.
    unnamed_host: Option<String>,
}

/// File names of OpenSSL's default authorities, in its own directory.
const DEFAULT_FILE: &str = "cert.pem";
const DEFAULT_DIRECTORY: &str = "certs";
/// Grid directory of a host.
const GRID_DIRECTORY: &str = "/etc/grid-security/certificates";

impl TrustStore {
    /// The authorities of this system: SSL_CERT_FILE and SSL_CERT_DIR, else OpenSSL's defaults.
    ///
    /// # Errors
    /// [`TrustError::Store`]
    pub fn system() -> Result<Self, TrustError> {
        Self::system_of(|name| std::env::var_os(name), openssl::version::dir())
    }

    /// As [`TrustStore::system`]; `defaults` is OpenSSL's description of its directory,
    /// `OPENSSLDIR: "DIR"`.
    fn system_of(
        variable: impl Fn(&str) -> Option<OsString>,
        defaults: &str,
    ) -> Result<Self, TrustError> {
        let defaults = Path::new(defaults.split('"').nth(1).unwrap_or("/etc/ssl"));
        let mut sources = Vec::new();
        let mut searched = Vec::new();
        match variable("SSL_CERT_FILE") {
            Some(file) => sources.push(AuthoritySource::of_file(Path::new(&file))?),
            None => {
                let file = defaults.join(DEFAULT_FILE);
                if file.exists() {
                    sources.push(AuthoritySource::of_file(&file)?);
                }
                searched.push(file);
            }
        }
        let directories: Vec<PathBuf> = match variable("SSL_CERT_DIR") {
            Some(list) => std::env::split_paths(&list).collect(),
            None => vec![defaults.join(DEFAULT_DIRECTORY)],
        };
        for directory in directories {
            if directory.is_dir() {
                sources.push(AuthoritySource::of_directory(&directory));
            }
            searched.push(directory);
        }
        if sources.is_empty() {
            return Err(TrustError::Store(format!(
                "no certificate authorities in {}: install ca-certificates, or name yours (--ca)",
                show(&searched)
            )));
        }
        Ok(Self::of(sources))
    }

    /// The authorities of a PEM file, with its revocation lists, or of a directory (hashed or grid).
    ///
    /// # Errors
    /// [`TrustError::Store`]
    pub fn from_path(path: &Path) -> Result<Self, TrustError> {
        let metadata = std::fs::metadata(path).map_err(|error| {
            TrustError::of_file(path, "read the certificate authorities", &error)
        })?;
        if !metadata.is_dir() {
            return Ok(Self::of(vec![AuthoritySource::of_file(path)?]));
        }
        if !has_authorities(path)? {
            return Err(TrustError::Store(format!(
                "{} has no certificate authority (HASH.0): run openssl rehash {}",
                path.display(),
                path.display()
            )));
        }
        Ok(Self::of(vec![AuthoritySource::of_directory(path)]))
    }

    /// The grid directory of X509_CERT_DIR, else `$HOME/.globus/certificates`, else
    /// `/etc/grid-security/certificates`.
    ///
    /// # Errors
    /// [`TrustError::Store`] naming the places that were searched.
    pub fn grid() -> Result<Self, TrustError> {
        Self::grid_of(|name| std::env::var_os(name), Path::new(GRID_DIRECTORY))
    }

    fn grid_of(
        variable: impl Fn(&str) -> Option<OsString>,
        host: &Path,
    ) -> Result<Self, TrustError> {
        Self::from_path(&grid_directory_of(variable, host)?)
    }

    /// Trusts exactly these certificates, also if they are self-signed and no authorities (DCSC), and
    /// what they sign.
    pub fn exactly(certificates: Vec<X509>) -> Self {
        let source = AuthoritySource::of_certificates(
            "the certificates given for this connection".to_owned(),
            certificates.clone(),
            Vec::new(),
        );
        Self {
            sources: vec![source],
            exact: Some(certificates),
        }
    }

    fn of(sources: Vec<AuthoritySource>) -> Self {
        Self {
            sources,
            exact: None,
        }
    }

    /// Verifies a chain, leaf first.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn verify(
        &self,
        chain: &[X509],
        usage: CertificateUsage,
        now: SystemTime,
    ) -> Result<PeerIdentity, TrustError> {
        chain::verify(self, chain, usage, now)
    }

    /// Verifies the certificate of a peer that was accepted before: meanwhile it may have been revoked, or have expired.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn verify_again(&self, peer: &PeerIdentity, now: SystemTime) -> Result<(), TrustError> {
        let chain: Result<Vec<X509>, _> =
            peer.chain.iter().map(|der| X509::from_der(der)).collect();
        let chain = chain.map_err(|error| TrustError::Chain {
            subject: peer.subject.clone(),
            problem: format!("cannot be read: {error}"),
        })?;
        self.verify(&chain, peer.usage, now).map(|_| ())
    }
}

/// Whether a signing policy lets an authority sign a subject.
///
/// # Errors
/// Line number and problem of the policy.
#[cfg(feature = "fuzzing")]
pub(crate) fn may_sign(
    policy: &str,
    authority: &DistinguishedName,
    subject: &DistinguishedName,
) -> Result<bool, String> {
    let policy = policy::SigningPolicy::parse(policy)?;
    Ok(policy.permission(authority, subject) == policy::Permission::Granted)
}

fn show(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|one| one.display().to_string()).collect();
    places.join(", ")
}

/// The directory of [`TrustStore::grid`].
///
/// # Errors
/// [`TrustError::Store`] naming the places that were searched.
pub fn grid_directory() -> Result<PathBuf, TrustError> {
    grid_directory_of(|name| std::env::var_os(name), Path::new(GRID_DIRECTORY))
}

fn grid_directory_of(
    variable: impl Fn(&str) -> Option<OsString>,
    host: &Path,
) -> Result<PathBuf, TrustError> {
    if let Some(directory) = variable("X509_CERT_DIR") {
        return Ok(directory.into());
    }
    let mut places: Vec<PathBuf> = variable("HOME")
        .map(|home| Path::new(&home).join(".globus/certificates"))
        .into_iter()
        .collect();
    places.push(host.to_owned());
    let found = places.iter().find(|place| place.is_dir()).cloned();
    found.ok_or_else(|| {
        TrustError::Store(format!(
            "no directory of certificate authorities in {}: set X509_CERT_DIR",
            show(&places)
        ))
    })
}

/// Whether a directory has a file `HASH.NUMBER`.
fn has_authorities(directory: &Path) -> Result<bool, TrustError> {
    let failed = |error| TrustError::of_file(directory, "read", &error);
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_authority = name.to_str().is_some_and(is_authority_file);
        if is_authority {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a file name is `HASH.NUMBER`.
fn is_authority_file(name: &str) -> bool {
    name.split_once('.').is_some_and(|(hash, number)| {
        hash.len() == 8
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

impl PeerIdentity {
    /// Checks that the certificate names `host` (a DNS name in ASCII, or an address): the leaf, or
    /// the one behind proxies. An independent proxy names no host, and nothing below it does: its
    /// owner chooses its subject.
    ///
    /// Alternative names decide, if there are any. Without them, the CN of a grid certificate counts,
    /// also as `host/NAME` (STRICT_RFC2818 of the Globus toolkit), within the name constraints of the authorities above
    /// it; the CN of others does not (RFC 6125).
    ///
    /// # Errors
    /// [`TrustError::Name`] with the names of the certificate.
    pub fn check_host(&self, host: &str) -> Result<(), TrustError> {
        let names = match self.named_certificate() {
            NamedCertificate::Found(certificate) => HostNames::of(&certificate),
            NamedCertificate::BehindIndependentProxy => {
                return Err(TrustError::Name(format!(
                    "the certificate {} belongs to an independent proxy, which is for no host, not for {host}",
                    self.subject
                )));
            }
            NamedCertificate::None => HostNames::default(),
        };
        if names.is_match(host, self.usage == CertificateUsage::Grid) {
            return self.unnamed_host.as_ref().map_or(Ok(()), |problem| {
                let text = format!("the certificate {} is refused: {problem}", self.identity);
                Err(TrustError::Name(text))
            });
        }
        Err(TrustError::Name(format!(
            "the certificate {} is for {}, not for {host}",
            self.identity,
            names.describe()
        )))
    }

    /// The name that accounts are given to: the identity, but never that of an independent proxy. Its owner chooses it,
    /// and so could take that of somebody else (globus-gridftp-server accepts that).
    pub fn account_name(&self) -> Option<&DistinguishedName> {
        match self.named_certificate() {
            NamedCertificate::BehindIndependentProxy => None,
            NamedCertificate::Found(_) | NamedCertificate::None => Some(&self.identity),
        }
    }

    /// The first certificate, from the leaf on, that is no proxy.
    fn named_certificate(&self) -> NamedCertificate {
        for der in &self.chain {
            let Ok(certificate) = X509::from_der(der) else {
                break;
            };
            // Elsewhere than on the grid there are no proxies, whatever the subject looks like.
            if self.usage != CertificateUsage::Grid {
                return NamedCertificate::Found(certificate);
            }
            match role(&certificate) {
                Ok(CertificateRole::Proxy(proxy)) if proxy.kind == ProxyKind::Independent => {
                    return NamedCertificate::BehindIndependentProxy;
                }
                Ok(CertificateRole::Proxy(_)) => {}
                Ok(CertificateRole::EndEntity | CertificateRole::Authority) => {
                    return NamedCertificate::Found(certificate);
                }
                Err(_) => break,
            }
        }
        NamedCertificate::None
    }
}

/// The certificate of a chain that may name a host.
enum NamedCertificate {
    Found(X509),
    BehindIndependentProxy,
    /// The chain has proxies alone.
    None,
}
