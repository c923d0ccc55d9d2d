//! The reasons why tokens are refused.

/// Most characters of a peer's value in a message.
const SHOWN: usize = 96;

/// The reason why a token is refused, with the value that failed, for the log. Never the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BearerTokenError {
    /// Not a token, or a document that is not a key set.
    #[error("{0}")]
    Malformed(String),
    /// A check failed.
    #[error("{claim}: {problem}")]
    Refused {
        /// `iss`, `aud`, `sub`, `exp`, `nbf`, `iat`, `scope`, `signature`, `alg`, `kid`, `typ`, `crit`,
        /// `ver`.
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

impl BearerTokenError {
    /// Whether the token is signed with a key that the issuer's key set does not have: the issuer may
    /// have a new key.
    pub fn is_unknown_key(&self) -> bool {
        matches!(self, Self::Refused { claim: "kid", .. })
    }
}

pub(super) fn refused(claim: &'static str, problem: String) -> BearerTokenError {
    BearerTokenError::Refused { claim, problem }
}

/// A peer's text for a log line: escaped and shortened.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}
