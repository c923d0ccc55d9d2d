//! Verification of a JSON Web Token (RFC 7519, RFC 9068, SciTokens claims, WLCG profile 1.x).

use std::time::SystemTime;

use super::PathScopes;

/// A trusted issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The `iss` claim, exactly: an https URL.
    pub url: String,
    /// Accepted values of the `aud` claim; a token must have one of them (or WLCG's "any").
    pub audiences: Vec<String>,
    /// Path below which the token's scopes apply.
    pub base_path: Vec<u8>,
    /// Account whose root and rights bound the session.
    pub account: String,
}

/// Public keys of an issuer (RFC 7517).
#[derive(Debug, Clone)]
pub struct KeySet {}

impl KeySet {
    /// Reads a JWKS document of at most 1 MiB; keys of unsupported kinds are left out. Symmetric keys
    /// are never accepted.
    ///
    /// # Errors
    /// Not a JWKS.
    pub fn parse(json: &[u8]) -> Result<Self, TokenError> {
        let _ = json;
        todo!()
    }
}

/// A token that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The issuer's URL.
    pub issuer: String,
    /// The `sub` claim.
    pub subject: String,
    /// The `jti` claim.
    pub id: Option<String>,
    /// Rights.
    pub scopes: PathScopes,
    /// End of validity.
    pub expires: SystemTime,
    /// The issuer's account.
    pub account: String,
}

/// The reason why a token is refused, with the value that failed, for the log. Never the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token, or a document that is not a key set.
    #[error("{0}")]
    Malformed(String),
    /// A check failed.
    #[error("{claim}: {problem}")]
    Refused {
        /// `iss`, `aud`, `exp`, `nbf`, `scope`, `signature`, `alg`, `kid`, `ver`.
        claim: &'static str,
        /// The value and what was expected.
        problem: String,
    },
    /// The issuer's keys are not available.
    #[error("keys of {issuer}: {problem}")]
    Keys {
        /// The issuer.
        issuer: String,
        /// The problem.
        problem: String,
    },
}

/// Checks tokens.
#[derive(Debug, Clone)]
pub struct TokenVerifier {
    issuers: Vec<Issuer>,
}

impl TokenVerifier {
    /// With these issuers.
    pub fn new(issuers: Vec<Issuer>) -> Self {
        Self { issuers }
    }

    /// The issuer that a token names, from its unverified claims: whose keys to fetch.
    ///
    /// # Errors
    /// The token is malformed, too long (16 KiB), or its issuer is not trusted.
    pub fn issuer_of(&self, token: &[u8]) -> Result<&Issuer, TokenError> {
        let _ = (token, &self.issuers);
        todo!()
    }

    /// Verifies a token with the issuer's keys.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify(
        &self,
        token: &[u8],
        keys: &KeySet,
        now: SystemTime,
    ) -> Result<VerifiedToken, TokenError> {
        let _ = (token, keys, now);
        todo!()
    }
}
