//! Verification of a JSON Web Token (RFC 7519, RFC 9068, SciTokens claims, WLCG profile 1.x).

use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;

use super::claims::{Claims, Issuer, TokenFacts, VerifiedToken};
use super::error::{BearerTokenError, refused, shown};
use super::{KeySet, MAX_TOKEN, provider};

/// Checks tokens.
#[derive(Debug, Clone)]
pub struct TokenVerifier {
    issuers: Vec<Issuer>,
}

/// The header of a token, as far as it matters. Keys that it contains or points to (`jwk`, `jku`,
/// `x5c`, `x5u`) are never looked at: only the issuer's key set counts.
#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<serde_json::Value>,
}

/// Reads the claims of a token without a check, for reports to its owner.
///
/// # Errors
/// [`BearerTokenError::Malformed`]: it is no JSON Web Token; some issuers give others.
pub fn describe_token(token: &[u8]) -> Result<TokenFacts, BearerTokenError> {
    let parts = parts_of(token)?;
    let claims: Claims = json_part(parts[1], "claims")?;
    Ok(claims.facts())
}

impl TokenVerifier {
    /// With these issuers.
    pub fn new(issuers: Vec<Issuer>) -> Self {
        Self { issuers }
    }

    /// The issuers.
    pub fn issuers(&self) -> &[Issuer] {
        &self.issuers
    }

    /// The issuer that a token names, from its unverified claims: whose keys to fetch.
    ///
    /// # Errors
    /// The token is malformed, too long (16 KiB), or its issuer is not trusted.
    pub fn issuer_of(&self, token: &[u8]) -> Result<&Issuer, BearerTokenError> {
        let parts = parts_of(token)?;
        let claims: Claims = json_part(parts[1], "claims")?;
        self.trusted(claims.issuer())
    }

    /// Verifies a token with the issuer's keys.
    ///
    /// # Errors
    /// See [`BearerTokenError`].
    pub fn verify(
        &self,
        token: &[u8],
        keys: &KeySet,
        now: SystemTime,
    ) -> Result<VerifiedToken, BearerTokenError> {
        provider::install();
        let parts = parts_of(token)?;
        let header: TokenHeader = json_part(parts[0], "header")?;
        let algorithm = header.check()?;
        let keys = keys.find(header.kid.as_deref(), algorithm)?;
        let claims = verified_claims(token, &keys, algorithm)?;
        let issuer = self.trusted(claims.issuer())?;
        claims.check(issuer, now)
    }

    fn trusted(&self, url: &str) -> Result<&Issuer, BearerTokenError> {
        let found = self.issuers.iter().find(|issuer| issuer.url == url);
        found.ok_or_else(|| refused("iss", format!("{} is no trusted issuer", shown(url))))
    }
}

impl TokenHeader {
    /// Checks the header and returns the algorithm.
    fn check(&self) -> Result<Algorithm, BearerTokenError> {
        if self.crit.is_some() {
            // RFC 7515 section 4.1.11: extensions that are not understood make the token invalid.
            return Err(refused(
                "crit",
                "the token requires an extension".to_owned(),
            ));
        }
        let is_known_type = |typ: &str| {
            let typ = typ.to_ascii_lowercase();
            let short = typ.strip_prefix("application/").unwrap_or(&typ);
            // An access token; other tokens of the issuer (RFC 9068 section 4) are not.
            matches!(short, "jwt" | "at+jwt")
        };
        if let Some(typ) = self.typ.as_deref().filter(|typ| !is_known_type(typ)) {
            let problem = format!("{} is no access token", shown(typ));
            return Err(refused("typ", problem));
        }
        match self.alg.parse::<Algorithm>() {
            Ok(Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) | Err(_) => Err(refused(
                "alg",
                format!(
                    "{} is not accepted; only signatures with RSA, ECDSA or Ed25519 are",
                    shown(&self.alg)
                ),
            )),
            Ok(algorithm) => Ok(algorithm),
        }
    }
}

/// The claims of a token that one of the keys has signed.
fn verified_claims(
    token: &[u8],
    keys: &[&jsonwebtoken::DecodingKey],
    algorithm: Algorithm,
) -> Result<Claims, BearerTokenError> {
    // The claims are checked by `Claims::check`, at the time that the caller gives and with the values
    // that failed.
    let mut signature_only = Validation::new(algorithm);
    signature_only.required_spec_claims.clear();
    signature_only.validate_exp = false;
    signature_only.validate_aud = false;
    for key in keys {
        match jsonwebtoken::decode::<Claims>(token, key, &signature_only) {
            Ok(decoded) => return Ok(decoded.claims),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => {}
            Err(error) => {
                let reason = shown(&error.to_string());
                return Err(BearerTokenError::Malformed(format!(
                    "not a token: {reason}"
                )));
            }
        }
    }
    Err(refused(
        "signature",
        "it does not fit the issuer's key".to_owned(),
    ))
}

/// The three parts of a token (RFC 7515 §7.1).
fn parts_of(token: &[u8]) -> Result<[&[u8]; 3], BearerTokenError> {
    if token.len() > MAX_TOKEN {
        return Err(BearerTokenError::Malformed(format!(
            "a token of {} bytes is longer than {MAX_TOKEN}",
            token.len()
        )));
    }
    let mut parts = token.split(|b| *b == b'.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => Ok([header, claims, signature]),
        _ => Err(BearerTokenError::Malformed(
            "not a JSON Web Token: it has not three parts".to_owned(),
        )),
    }
}

fn json_part<T: serde::de::DeserializeOwned>(
    part: &[u8],
    name: &str,
) -> Result<T, BearerTokenError> {
    let malformed = |reason: String| {
        BearerTokenError::Malformed(format!("not a JSON Web Token: its {name}: {reason}"))
    };
    let json = BASE64_URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| malformed("no base64url".to_owned()))?;
    serde_json::from_slice(&json).map_err(|error| malformed(shown(&error.to_string())))
}
