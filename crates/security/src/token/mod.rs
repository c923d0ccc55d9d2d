//! Bearer tokens: JSON Web Tokens with the profiles of SciTokens and WLCG.
//!
//! The crate `jsonwebtoken` takes tokens apart; signatures are verified by OpenSSL. What a token may
//! say, and until when, is checked here.

mod claims;
mod discovery;
mod error;
mod jwt;
mod keys;
mod provider;
mod scope;

#[cfg(test)]
mod tests;

pub use claims::{Issuer, TokenFacts, VerifiedToken};
pub use discovery::{TokenDiscoveryError, discover_token, read_token_file};
pub use error::BearerTokenError;
pub use jwt::{TokenVerifier, describe_token};
pub use keys::KeySet;
pub use scope::{PathScopes, ScopeRights, TokenProfile};

/// Longest token, bytes.
pub const MAX_TOKEN: usize = 16 << 10;
