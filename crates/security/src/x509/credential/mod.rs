//! A certificate chain with its private key: read from PEM files and texts, or made (self-signed).

mod data_credential;

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openssl::asn1::Asn1Integer;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName, SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Name};
use smallfile::regular_file;
use zeroize::Zeroizing;

use super::time::{certificate_time, end};
use super::{DistinguishedName, proxy};

/// Longest credential file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Longest common name (ub-common-name, RFC 5280 appendix A), characters.
const MAX_COMMON_NAME: usize = 64;

/// A certificate, its private key and the chain above it. [`std::fmt::Debug`] shows the subject
/// only. Cheap to clone.
#[derive(Clone)]
pub struct CertifiedKey(Arc<Parts>);

struct Parts {
    leaf: X509,
    key: PKey<Private>,
    /// Issuers of the leaf, nearest first: proxies, the end entity, possibly authorities.
    chain: Vec<X509>,
}

/// The reason why a credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Others may read the file with the private key, or it belongs to another user.
    #[error("{path} {problem}")]
    Permissions {
        /// The file.
        path: PathBuf,
        /// The problem and the command that mends it.
        problem: String,
    },
    /// The text holds no usable certificate or key.
    #[error("{what}: {problem}")]
    Invalid {
        /// The file, or what the text is.
        what: String,
        /// The problem in plain words.
        problem: String,
    },
}

impl CertifiedKey {
    /// Reads a certificate (with its chain, leaf first) and its key from PEM files. A key file that
    /// others may read, or that belongs to another user than root or this one, is refused; a group may
    /// read root's. An encrypted key is refused with a message that says how to decrypt it, unless
    /// `passphrase` is given.
    ///
    /// # Errors
    /// See [`CredentialError`]; also a key that does not belong to the certificate.
    pub fn from_files(
        chain: &Path,
        key: &Path,
        passphrase: Option<&[u8]>,
    ) -> Result<Self, CredentialError> {
        let certificates = certificates(&read(chain, Content::Public)?, &show(chain))?;
        let key = private_key(&read(key, Content::Private)?, &show(key), passphrase)?;
        Self::join(certificates, key, &show(chain))
    }

    /// From a certificate with its chain, leaf first (PEM), whose key is elsewhere: `key` has its public part
    /// and carries out its operations. `what` names the text in errors.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`]
    pub fn from_chain_pem(
        chain: &[u8],
        key: PKey<Private>,
        what: &str,
    ) -> Result<Self, CredentialError> {
        Self::join(certificates(chain, what)?, key, what)
    }

    /// Reads a file that holds certificate, key and chain (a proxy, RFC 3820; also `cat cert key`).
    ///
    /// # Errors
    /// As [`CertifiedKey::from_files`].
    pub fn from_proxy_file(path: &Path) -> Result<Self, CredentialError> {
        Self::from_pem(&read(path, Content::Private)?, &show(path))
    }

    /// From PEM text with certificate, key and chain in any order; the leaf is the first certificate
    /// (DCSC, GFD.47). `what` names the text in errors.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`]
    pub fn from_pem(pem: &[u8], what: &str) -> Result<Self, CredentialError> {
        let key = private_key(pem, what, None)?;
        Self::join(certificates(pem, what)?, key, what)
    }

    fn join(
        mut certificates: Vec<X509>,
        key: PKey<Private>,
        what: &str,
    ) -> Result<Self, CredentialError> {
        let chain = certificates.split_off(1);
        let leaf = certificates.remove(0);
        Self::from_parts(leaf, key, chain).map_err(|error| match error {
            CredentialError::Invalid { problem, .. } => invalid(what, problem),
            other => other,
        })
    }

    /// From parts that fit together.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`] if the key is not the leaf's.
    pub fn from_parts(
        leaf: X509,
        key: PKey<Private>,
        chain: Vec<X509>,
    ) -> Result<Self, CredentialError> {
        let is_leafs = leaf.public_key().is_ok_and(|public| public.public_eq(&key));
        if !is_leafs {
            let subject = DistinguishedName::of_subject(&leaf);
            return Err(invalid(
                subject.as_str(),
                "the private key does not belong to this certificate".to_owned(),
            ));
        }
        Ok(Self(Arc::new(Parts { leaf, key, chain })))
    }

    /// A new self-signed certificate (ECDSA P-256) with these names (DNS names or addresses) for a
    /// server. Its subject is the first name, or `longhaul`.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`] if OpenSSL refuses a name.
    pub fn self_signed(names: &[String], valid: Duration) -> Result<Self, CredentialError> {
        let (leaf, key) = make_self_signed(names, valid).map_err(|problem| {
            invalid(
                &format!("self-signed certificate for {}", names.join(", ")),
                problem.to_string(),
            )
        })?;
        Self::from_parts(leaf, key, Vec::new())
    }

    /// The certificate.
    pub fn leaf(&self) -> &X509 {
        &self.0.leaf
    }

    /// The issuers of the leaf, nearest first.
    pub fn chain(&self) -> &[X509] {
        &self.0.chain
    }

    /// The private key.
    pub fn key(&self) -> &PKey<Private> {
        &self.0.key
    }

    /// Subject of the leaf.
    pub fn subject(&self) -> DistinguishedName {
        DistinguishedName::of_subject(&self.0.leaf)
    }

    /// The identity: the subject of the first certificate, from the leaf on, that is no
    /// impersonation proxy.
    pub fn identity(&self) -> DistinguishedName {
        proxy::identity(self.certificates().map(|certificate| &**certificate))
    }

    /// End of validity: the earliest of the leaf's and its chain's.
    pub fn expires(&self) -> SystemTime {
        let end_of_leaf = end(&self.0.leaf);
        self.certificates()
            .map(|certificate| end(certificate))
            .fold(end_of_leaf, SystemTime::min)
    }

    fn certificates(&self) -> impl Iterator<Item = &X509> {
        std::iter::once(&self.0.leaf).chain(&self.0.chain)
    }

    /// SHA-256 of the leaf, in lower-case hexadecimal with colons.
    pub fn fingerprint(&self) -> String {
        // OpenSSL always has SHA-256; without it the text is empty and matches nothing.
        let digest = self.0.leaf.digest(MessageDigest::sha256());
        let bytes = digest.as_deref().unwrap_or_default();
        let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        pairs.join(":")
    }

    /// Leaf, key and chain as PEM, the order of a proxy file. Wiped when dropped.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`] if OpenSSL cannot encode it.
    pub fn to_pem(&self) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        let encode = || {
            let leaf = self.0.leaf.to_pem()?;
            let key = Zeroizing::new(self.0.key.private_key_to_pem_pkcs8()?);
            let mut chain = Vec::new();
            for certificate in &self.0.chain {
                chain.extend(certificate.to_pem()?);
            }
            // Made at its full size: a buffer that grows leaves copies of the key behind.
            let mut pem = Zeroizing::new(Vec::with_capacity(leaf.len() + key.len() + chain.len()));
            for part in [&leaf, &*key, &chain] {
                pem.extend_from_slice(part);
            }
            Ok(pem)
        };
        encode().map_err(|problem: ErrorStack| {
            invalid(
                self.subject().as_str(),
                format!("cannot be encoded: {problem}"),
            )
        })
    }
}

impl std::fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CertifiedKey")
            .field(&self.subject().as_str())
            .finish()
    }
}

fn invalid(what: &str, problem: String) -> CredentialError {
    CredentialError::Invalid {
        what: what.to_owned(),
        problem,
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Kind of a file's content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Certificates.
    Public,
    /// A private key.
    Private,
}

fn read(path: &Path, content: Content) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let failed = |source| CredentialError::Read {
        path: path.to_owned(),
        source,
    };
    let file = regular_file::open(path).map_err(failed)?;
    if content == Content::Private {
        check_permissions(path, &file.1)?;
    }
    let mut text = Zeroizing::new(Vec::new());
    regular_file::read(file, MAX_FILE, &mut text).map_err(failed)?;
    Ok(text)
}

fn check_permissions(path: &Path, metadata: &std::fs::Metadata) -> Result<(), CredentialError> {
    let refused = |problem: String| {
        Err(CredentialError::Permissions {
            path: path.to_owned(),
            problem,
        })
    };
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != user {
        return refused(format!(
            "belongs to user {}, not to root or this user ({user}): chown it or use a copy of your own",
            metadata.uid()
        ));
    }
    // Debian's convention for hosts: root's keys are readable by the group ssl-cert.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return refused(format!(
            "holds a private key but has mode {:03o}, so others can use it: chmod 600 {}",
            metadata.mode() & 0o777,
            path.display()
        ));
    }
    Ok(())
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<X509>, CredentialError> {
    let certificates = X509::stack_from_pem(pem)
        .map_err(|problem| invalid(what, format!("a certificate cannot be read: {problem}")))?;
    if certificates.is_empty() {
        return Err(invalid(
            what,
            "no certificate (a block -----BEGIN CERTIFICATE-----)".to_owned(),
        ));
    }
    Ok(certificates)
}

fn private_key(
    pem: &[u8],
    what: &str,
    passphrase: Option<&[u8]>,
) -> Result<PKey<Private>, CredentialError> {
    let mut is_encrypted = false;
    // Without a callback OpenSSL would ask at the terminal.
    let key = PKey::private_key_from_pem_callback(pem, |buffer| {
        is_encrypted = true;
        let passphrase = passphrase.unwrap_or_default();
        if passphrase.is_empty() || passphrase.len() > buffer.len() {
            return Err(ErrorStack::get());
        }
        buffer[..passphrase.len()].copy_from_slice(passphrase);
        Ok(passphrase.len())
    });
    key.map_err(|problem| {
        let problem = match (is_encrypted, passphrase) {
            (true, None) => format!(
                "the private key is encrypted; write a decrypted copy: (umask 077; openssl pkey -in {what} -out NEWKEY)"
            ),
            (true, Some(_)) => "the passphrase does not fit the private key".to_owned(),
            (false, _) if problem.errors().is_empty() => "no private key".to_owned(),
            (false, _) => {
                "no private key that can be read (a block -----BEGIN PRIVATE KEY-----)".to_owned()
            }
        };
        invalid(what, problem)
    })
}

/// Makes a key and its certificate.
fn make_self_signed(
    names: &[String],
    valid: Duration,
) -> Result<(X509, PKey<Private>), ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    let common_name = names
        .first()
        .filter(|name| (1..=MAX_COMMON_NAME).contains(&name.len()))
        .map_or("longhaul", String::as_str);
    let mut subject = X509Name::builder()?;
    subject.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    let subject = subject.build();
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::ONE, false)?;
    // Clocks differ: it is valid from five minutes ago on.
    let now = SystemTime::now();
    let start = now - Duration::from_secs(300);
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
    builder.set_subject_name(&subject)?;
    builder.set_issuer_name(&subject)?;
    builder.set_not_before(&*certificate_time(start)?)?;
    builder.set_not_after(&*certificate_time(now.checked_add(valid).unwrap_or(now))?)?;
    builder.set_pubkey(&key)?;
    let context = builder.x509v3_context(None, None);
    let mut extensions = vec![
        BasicConstraints::new().critical().build()?,
        KeyUsage::new().critical().digital_signature().build()?,
        ExtendedKeyUsage::new()
            .server_auth()
            .client_auth()
            .build()?,
        SubjectKeyIdentifier::new().build(&context)?,
    ];
    if !names.is_empty() {
        let mut alternative = SubjectAlternativeName::new();
        for name in names {
            if name.parse::<IpAddr>().is_ok() {
                alternative.ip(name);
            } else {
                alternative.dns(name);
            }
        }
        extensions.push(alternative.build(&context)?);
    }
    for extension in extensions {
        builder.append_extension(extension)?;
    }
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build(), key))
}

#[cfg(test)]
mod tests;
