//! New proxy certificates (RFC 3820 and the older forms): requested, signed, and joined with their key.

mod sign;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::stack::Stack;
use openssl::x509::{X509, X509Name, X509Req};

use super::credential::CertifiedKey;
use super::proxy::{CertificateRole, ProxyKind, ProxyStyle, role, verify_proxies};

/// Options of a new proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOptions {
    /// Kind.
    pub kind: ProxyKind,
    /// Longest validity; the issuer's end bounds it.
    pub valid: Duration,
    /// Number of further proxies that may be made from it; `None`: any.
    pub path_length: Option<u32>,
    /// RSA key size, bits; 2048 to 8192. Used where the key is made, not in [`sign_proxy`].
    pub key_bits: u32,
}

/// The reason why a proxy cannot be made or delegated.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// OpenSSL refused a step.
    #[error("cannot {step}: {source}")]
    OpenSsl {
        /// The step.
        step: &'static str,
        /// OpenSSL's reason.
        source: openssl::error::ErrorStack,
    },
    /// The request or the certificate of the peer is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// The acceptor's side of a delegation: a new key that never leaves this process, and its request.
pub struct ProxyRequest {
    key: PKey<Private>,
}

/// RSA key sizes that are made, bits.
const KEY_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;
/// Smallest strength of a key that a proxy is signed for, bits of security: RSA 2048.
const REQUEST_SECURITY_BITS: u32 = 112;

/// Names a step that OpenSSL refuses.
fn step(step: &'static str) -> impl Fn(openssl::error::ErrorStack) -> ProxyError {
    move |source| ProxyError::OpenSsl { step, source }
}

fn make_key(bits: u32) -> Result<PKey<Private>, ProxyError> {
    if !KEY_BITS.contains(&bits) {
        return Err(ProxyError::Invalid(format!(
            "a proxy's key may have {} to {} bits, not {bits}",
            KEY_BITS.start(),
            KEY_BITS.end()
        )));
    }
    Rsa::generate(bits)
        .and_then(PKey::from_rsa)
        .map_err(step("make a key"))
}

impl ProxyRequest {
    /// Makes a key (RSA, `key_bits`) and a request for it.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn new(key_bits: u32) -> Result<Self, ProxyError> {
        Ok(Self {
            key: make_key(key_bits)?,
        })
    }

    /// The PKCS#10 request, DER. Its subject has no meaning; it asks for a proxy with all rights, and
    /// the signer decides.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn to_der(&self) -> Result<Vec<u8>, ProxyError> {
        let build = || {
            let mut subject = X509Name::builder()?;
            subject.append_entry_by_nid(Nid::COMMONNAME, "NULL SUBJECT NAME ENTRY")?;
            let mut extensions = Stack::new()?;
            extensions.push(sign::information(ProxyStyle::Rfc, ProxyKind::Full, None)?)?;
            let mut request = X509Req::builder()?;
            request.set_version(0)?;
            request.set_subject_name(&subject.build())?;
            request.set_pubkey(&self.key)?;
            request.add_extensions(&extensions)?;
            request.sign(&self.key, MessageDigest::sha256())?;
            request.build().to_der()
        };
        build().map_err(step("make a certificate request"))
    }

    /// Joins the signed certificate (DER) with the key and the chain of the delegating peer, leaf
    /// first, which the certificate must fit: issuer, public key, subject, signature, and the rules
    /// of RFC 3820 for the proxies of the chain.
    ///
    /// # Errors
    /// [`ProxyError::Invalid`]
    pub fn complete(
        self,
        certificate: &[u8],
        peer_chain: &[X509],
    ) -> Result<CertifiedKey, ProxyError> {
        let invalid = |problem: String| {
            ProxyError::Invalid(format!("the delegated certificate is refused: {problem}"))
        };
        let leaf = X509::from_der(certificate)
            .map_err(|_| invalid("it is no X.509 certificate".to_owned()))?;
        let is_own = leaf.public_key().is_ok_and(|key| key.public_eq(&self.key));
        if !is_own {
            return Err(invalid("it is for another key".to_owned()));
        }
        let mut proxies = Vec::new();
        let mut end_entity = None;
        for certificate in std::iter::once(&leaf).chain(peer_chain) {
            match role(certificate).map_err(invalid)? {
                CertificateRole::Proxy(proxy) => proxies.push((certificate.clone(), proxy)),
                CertificateRole::EndEntity | CertificateRole::Authority => {
                    end_entity = Some(certificate);
                    break;
                }
            }
        }
        let Some(end_entity) = end_entity.filter(|_| !proxies.is_empty()) else {
            return Err(invalid(
                "it is no proxy of the certificate that the peer has shown".to_owned(),
            ));
        };
        verify_proxies(&proxies, end_entity, SystemTime::now())
            .map_err(|problem| invalid(problem.to_string()))?;
        CertifiedKey::from_parts(leaf, self.key, peer_chain.to_vec())
            .map_err(|problem| invalid(problem.to_string()))
    }
}

/// Signs a peer's request (PKCS#10 DER) with a credential: the delegating side. Returns the
/// certificate, DER. Subject, key usage and extensions of the request are ignored. The form of the
/// proxy (RFC 3820, draft, legacy) is the issuer's, because a chain has only one.
///
/// # Errors
/// See [`ProxyError`].
pub fn sign_proxy(
    issuer: &CertifiedKey,
    request: &[u8],
    options: &ProxyOptions,
) -> Result<Vec<u8>, ProxyError> {
    let invalid = |problem: &str| ProxyError::Invalid(format!("the certificate request {problem}"));
    let request =
        X509Req::from_der(request).map_err(|_| invalid("of the peer is no PKCS#10 request"))?;
    let key = request
        .public_key()
        .map_err(|_| invalid("of the peer has no usable key"))?;
    if !request.verify(&key).unwrap_or(false) {
        return Err(invalid("of the peer is not signed with its own key"));
    }
    if key.security_bits() < REQUEST_SECURITY_BITS {
        return Err(invalid(
            "of the peer has a key that is too short (RSA needs 2048 bits)",
        ));
    }
    let proxy = sign::sign(issuer, &key, options)?;
    proxy.to_der().map_err(step("encode a proxy"))
}

impl CertifiedKey {
    /// A new proxy of this credential, with a key of its own (`longhaul proxy init`).
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn new_proxy(&self, options: &ProxyOptions) -> Result<Self, ProxyError> {
        let key = make_key(options.key_bits)?;
        let leaf = sign::sign(self, &key, options)?;
        let mut chain = vec![self.leaf().clone()];
        chain.extend_from_slice(self.chain());
        Self::from_parts(leaf, key, chain)
            .map_err(|problem| ProxyError::Invalid(problem.to_string()))
    }
}
