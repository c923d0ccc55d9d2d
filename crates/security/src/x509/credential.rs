//! A certificate chain with its private key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use zeroize::Zeroizing;

use super::DistinguishedName;

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
        /// What is wrong and the command that mends it.
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
    /// others may read, or that belongs to another user than root or this one, is refused. An
    /// encrypted key is refused with a message that says how to decrypt it, unless `passphrase` is given.
    ///
    /// # Errors
    /// See [`CredentialError`]; also a key that does not belong to the certificate.
    pub fn from_files(
        chain: &Path,
        key: &Path,
        passphrase: Option<&[u8]>,
    ) -> Result<Self, CredentialError> {
        let _ = (chain, key, passphrase);
        todo!()
    }

    /// Reads a file that holds certificate, key and chain (a proxy, RFC 3820; also `cat cert key`).
    ///
    /// # Errors
    /// As [`CertifiedKey::from_files`].
    pub fn from_proxy_file(path: &Path) -> Result<Self, CredentialError> {
        let _ = path;
        todo!()
    }

    /// From PEM text with certificate, key and chain in any order; the leaf is the first certificate
    /// (DCSC, GFD.47). `what` names the text in errors.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`]
    pub fn from_pem(pem: &[u8], what: &str) -> Result<Self, CredentialError> {
        let _ = (pem, what);
        todo!()
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
        Ok(Self(Arc::new(Parts { leaf, key, chain })))
    }

    /// A new self-signed certificate (ECDSA P-256) with these names (DNS names or addresses) for a
    /// server.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`] if OpenSSL refuses a name.
    pub fn self_signed(names: &[String], valid: Duration) -> Result<Self, CredentialError> {
        let _ = (names, valid);
        todo!()
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
        todo!()
    }

    /// The identity: the subject of the first certificate, from the leaf on, that is no
    /// impersonation proxy.
    pub fn identity(&self) -> DistinguishedName {
        todo!()
    }

    /// End of validity: the earliest of the leaf's and its chain's.
    pub fn expires(&self) -> SystemTime {
        todo!()
    }

    /// SHA-256 of the leaf, in lower-case hexadecimal with colons.
    pub fn fingerprint(&self) -> String {
        todo!()
    }

    /// Leaf, key and chain as PEM, the order of a proxy file. Wiped when dropped.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`] if OpenSSL cannot encode it.
    pub fn to_pem(&self) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        todo!()
    }
}

impl std::fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertifiedKey")
    }
}
