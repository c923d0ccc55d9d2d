//! The cryptography of `jsonwebtoken`, by OpenSSL: verification with public keys, and nothing else.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Verifier as OpensslVerifier};

/// Sizes of RSA keys that are accepted, bits: RFC 7518 §3.3 requires 2048; larger ones than 8192 only
/// cost time.
const RSA_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;

/// Largest public exponent of an RSA key, bits; most keys have 65537.
const MAX_RSA_EXPONENT_BITS: i32 = 64;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: refuse_to_sign,
    verifier_factory: verifier,
    // Key sets are read from their documents; no key is turned into a JWK.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes OpenSSL the cryptography of `jsonwebtoken` in this process. Every use of that crate must be
/// behind a call of this function.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // Fails only if another provider is installed already; it would verify as well.
        let _ = PROVIDER.install_default();
    });
}

fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(new_error(ErrorKind::UnsupportedAlgorithm))
}

/// The verifier of an algorithm with a key.
///
/// # Errors
/// The algorithm does not fit the key, is symmetric, or the key is weak or invalid.
pub(super) fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let scheme = SignatureScheme::of(*algorithm)?;
    if key.family() != algorithm.family() {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    let key = public_key(scheme, key)?;
    Ok(Box::new(TokenSignature {
        algorithm: *algorithm,
        scheme,
        key,
    }))
}

/// How a signature is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureScheme {
    /// RSASSA-PKCS1-v1_5 (RFC 7518 §3.3).
    RsaPkcs1(Hash),
    /// RSASSA-PSS; the salt is as long as the hash (RFC 7518 §3.5).
    RsaPss(Hash),
    /// ECDSA; the signature is the two numbers side by side (RFC 7518 §3.4).
    Ecdsa {
        curve: Nid,
        bytes: usize,
        hash: Hash,
    },
    /// Ed25519 (RFC 8037 §3.1).
    Ed25519,
}

/// A hash function of SHA-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn digest(self) -> MessageDigest {
        match self {
            Self::Sha256 => MessageDigest::sha256(),
            Self::Sha384 => MessageDigest::sha384(),
            Self::Sha512 => MessageDigest::sha512(),
        }
    }
}

impl SignatureScheme {
    fn of(algorithm: Algorithm) -> Result<Self> {
        Ok(match algorithm {
            Algorithm::RS256 => Self::RsaPkcs1(Hash::Sha256),
            Algorithm::RS384 => Self::RsaPkcs1(Hash::Sha384),
            Algorithm::RS512 => Self::RsaPkcs1(Hash::Sha512),
            Algorithm::PS256 => Self::RsaPss(Hash::Sha256),
            Algorithm::PS384 => Self::RsaPss(Hash::Sha384),
            Algorithm::PS512 => Self::RsaPss(Hash::Sha512),
            Algorithm::ES256 => Self::Ecdsa {
                curve: Nid::X9_62_PRIME256V1,
                bytes: 32,
                hash: Hash::Sha256,
            },
            Algorithm::ES384 => Self::Ecdsa {
                curve: Nid::SECP384R1,
                bytes: 48,
                hash: Hash::Sha384,
            },
            Algorithm::EdDSA => Self::Ed25519,
            // HS256 and its like, and what later versions of the crate may add.
            _ => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
        })
    }
}

fn public_key(scheme: SignatureScheme, key: &DecodingKey) -> Result<PKey<Public>> {
    let read = match (scheme, key.kind()) {
        (
            SignatureScheme::RsaPkcs1(_) | SignatureScheme::RsaPss(_),
            DecodingKeyKind::RsaModulusExponent { n, e },
        ) => rsa_key(n, e),
        (SignatureScheme::Ecdsa { curve, bytes, .. }, DecodingKeyKind::SecretOrDer(point)) => {
            // Only the uncompressed form: 04, x, y.
            match point.len() == 1 + 2 * bytes {
                true => ec_key(curve, point).map(Some),
                false => Ok(None),
            }
        }
        (SignatureScheme::Ed25519, DecodingKeyKind::SecretOrDer(bytes)) => {
            PKey::public_key_from_raw_bytes(bytes, Id::ED25519).map(Some)
        }
        _ => Ok(None),
    };
    match read {
        Ok(Some(key)) => Ok(key),
        Ok(None) | Err(_) => Err(new_error(ErrorKind::InvalidKeyFormat)),
    }
}

/// An RSA key; `None` if it is too small, too large or has a strange exponent.
fn rsa_key(n: &[u8], e: &[u8]) -> std::result::Result<Option<PKey<Public>>, ErrorStack> {
    let (n, e) = (BigNum::from_slice(n)?, BigNum::from_slice(e)?);
    let is_usable_exponent = e.is_bit_set(0) && (2..=MAX_RSA_EXPONENT_BITS).contains(&e.num_bits());
    let has_usable_size = u32::try_from(n.num_bits()).is_ok_and(|bits| RSA_BITS.contains(&bits));
    if !(is_usable_exponent && has_usable_size) {
        return Ok(None);
    }
    PKey::from_rsa(Rsa::from_public_components(n, e)?).map(Some)
}

fn ec_key(curve: Nid, point: &[u8]) -> std::result::Result<PKey<Public>, ErrorStack> {
    let group = EcGroup::from_curve_name(curve)?;
    let mut context = BigNumContext::new()?;
    let point = EcPoint::from_bytes(&group, point, &mut context)?;
    let key = EcKey::from_public_key(&group, &point)?;
    key.check_key()?;
    PKey::from_ec_key(key)
}

/// Verifies the signatures of tokens with one key.
struct TokenSignature {
    algorithm: Algorithm,
    scheme: SignatureScheme,
    key: PKey<Public>,
}

impl TokenSignature {
    fn is_valid(&self, message: &[u8], signature: &[u8]) -> std::result::Result<bool, ErrorStack> {
        match self.scheme {
            SignatureScheme::RsaPkcs1(hash) => {
                OpensslVerifier::new(hash.digest(), &self.key)?.verify_oneshot(signature, message)
            }
            SignatureScheme::RsaPss(hash) => {
                let mut verifier = OpensslVerifier::new(hash.digest(), &self.key)?;
                verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                verifier.set_rsa_mgf1_md(hash.digest())?;
                verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
                verifier.verify_oneshot(signature, message)
            }
            SignatureScheme::Ecdsa { bytes, hash, .. } => {
                if signature.len() != 2 * bytes {
                    return Ok(false);
                }
                let (r, s) = signature.split_at(bytes);
                let (r, s) = (BigNum::from_slice(r)?, BigNum::from_slice(s)?);
                let der = EcdsaSig::from_private_components(r, s)?.to_der()?;
                OpensslVerifier::new(hash.digest(), &self.key)?.verify_oneshot(&der, message)
            }
            SignatureScheme::Ed25519 => {
                OpensslVerifier::new_without_digest(&self.key)?.verify_oneshot(signature, message)
            }
        }
    }
}

impl Verifier<Vec<u8>> for TokenSignature {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), signature::Error> {
        match self.is_valid(message, signature) {
            Ok(true) => Ok(()),
            // An error of OpenSSL says that the signature has a wrong form.
            Ok(false) | Err(_) => Err(signature::Error::new()),
        }
    }
}

impl JwtVerifier for TokenSignature {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
