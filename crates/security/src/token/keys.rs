//! Public keys of an issuer (RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::error::{BearerTokenError, refused, shown};
use super::provider;

/// Largest JWKS document, bytes.
const MAX_DOCUMENT: usize = 1 << 20;

/// Most keys of a set; issuers have a few.
const MAX_KEYS: usize = 100;

/// Public keys of an issuer (RFC 7517).
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<VerificationKey>,
}

/// One key with what it may be used for.
#[derive(Debug, Clone)]
struct VerificationKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// Reads a JWKS document of at most 1 MiB; keys of unsupported kinds are left out. Symmetric keys
    /// are never accepted.
    ///
    /// # Errors
    /// Not a JWKS.
    pub fn parse(json: &[u8]) -> Result<Self, BearerTokenError> {
        provider::install();
        if json.len() > MAX_DOCUMENT {
            return Err(BearerTokenError::Malformed(format!(
                "a key set of {} bytes is larger than {MAX_DOCUMENT}",
                json.len()
            )));
        }
        let document: KeySetDocument = serde_json::from_slice(json).map_err(|error| {
            let reason = shown(&error.to_string());
            BearerTokenError::Malformed(format!("not a JSON Web Key Set: {reason}"))
        })?;
        // A key that cannot be read does not make the others useless (RFC 7517 section 5).
        let keys = document.keys.into_iter().take(MAX_KEYS);
        Ok(Self {
            keys: keys.filter_map(VerificationKey::read).collect(),
        })
    }

    /// Number of usable keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is usable.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys for a token with this algorithm and `kid` header. A token without `kid` fits only a set
    /// with one key.
    ///
    /// # Errors
    /// No key fits; the claim `kid` is refused if its key is unknown, `alg` if the key is of another
    /// kind.
    pub(super) fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<&DecodingKey>, BearerTokenError> {
        let named: Vec<_> = match id {
            Some(id) => {
                let has_id = |key: &&VerificationKey| key.id.as_deref() == Some(id);
                self.keys.iter().filter(has_id).collect()
            }
            None if self.keys.len() == 1 => self.keys.iter().collect(),
            None => Vec::new(),
        };
        if named.is_empty() {
            let problem = match id {
                Some(id) => format!("the issuer has no key {}", shown(id)),
                None => format!(
                    "the token names no key, and the issuer has {}",
                    self.keys.len()
                ),
            };
            return Err(refused("kid", problem));
        }
        let fitting: Vec<_> = named
            .iter()
            .filter(|key| key.algorithms.contains(&algorithm))
            .map(|key| &key.key)
            .collect();
        if fitting.is_empty() {
            let problem = format!(
                "{algorithm:?} does not fit the issuer's key, which is for {:?}",
                named[0].algorithms
            );
            return Err(refused("alg", problem));
        }
        Ok(fitting)
    }
}

impl VerificationKey {
    /// Reads a key; `None` if it is unusable.
    fn read(value: serde_json::Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let is_for_signatures = match (&common.public_key_use, &common.key_operations) {
            (Some(PublicKeyUse::Signature), _) | (None, None) => true,
            (None, Some(operations)) => operations.contains(&KeyOperations::Verify),
            (Some(_), _) => false,
        };
        if !is_for_signatures {
            return None;
        }
        let mut algorithms = algorithms_of(&jwk.algorithm)?;
        if let Some(only) = common.key_algorithm {
            let only = Algorithm::try_from(only).ok()?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        // Tried now, so that a weak or broken key is never used.
        provider::verifier(algorithms.first()?, &key).ok()?;
        Some(Self {
            id: common.key_id.clone(),
            algorithms,
            key,
        })
    }
}

/// The algorithms that a kind of key can verify; `None` for symmetric and unsupported ones.
fn algorithms_of(parameters: &AlgorithmParameters) -> Option<Vec<Algorithm>> {
    match parameters {
        AlgorithmParameters::RSA(_) => Some(vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ]),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(vec![Algorithm::ES256]),
            EllipticCurve::P384 => Some(vec![Algorithm::ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(vec![Algorithm::EdDSA])
        }
        _ => None,
    }
}
