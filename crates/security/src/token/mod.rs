//! Bearer tokens: JSON Web Tokens with the profiles of SciTokens and WLCG.

mod discovery;
mod jwt;
mod scope;

pub use discovery::{TokenDiscoveryError, discover_token};
pub use jwt::{Issuer, KeySet, TokenError, TokenVerifier, VerifiedToken};
pub use scope::{PathScopes, ScopeRights};
