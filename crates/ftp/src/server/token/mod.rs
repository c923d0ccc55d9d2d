//! The bearer token of this run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proto::command::Secret;
use security::token::{TokenDiscoveryError, TokenFacts, describe_token, discover_token};

use crate::Failure;

/// Permission bits of the group. A file that `--token` names is for its user alone, whereas one of
/// BEARER_TOKEN_FILE may be shared with a group, as those of batch systems are.
const GROUP_MODE: u32 = 0o070;

/// Reads the token of `--token`. The file must not be readable by others.
///
/// # Errors
/// `Refused`
pub(crate) fn read_token_file(path: &Path) -> Result<Secret, Failure> {
    let refused = |problem: String| Failure::refused(problem);
    let token = security::token::read_token_file(path);
    let token = token.map_err(|error| refused(error.to_string()))?;
    let name = path.display();
    let meta =
        fs::metadata(path).map_err(|e| refused(format!("cannot use the token {name}: {e}")))?;
    if meta.mode() & GROUP_MODE != 0 {
        return Err(refused(format!(
            "cannot use the token {name}: others may read it; keep it to yourself (chmod 600 {name})"
        )));
    }
    Ok(Secret::from(token.as_str()))
}

/// The token of the environment. Nobody has said for which server it is, so it goes only to those that its audience names, and
/// to those that the user names.
#[derive(Debug)]
pub(crate) struct DiscoveredToken {
    token: Secret,
    /// `None`: it does not show whom it is for.
    facts: Option<TokenFacts>,
}

impl DiscoveredToken {
    /// Looks for it (WLCG Bearer Token Discovery).
    ///
    /// # Errors
    /// One line: the place that has an unusable token, and the problem.
    pub(crate) fn find() -> Result<Option<Self>, String> {
        let unused = |error: TokenDiscoveryError| {
            format!("the token of the environment is not used: {error}")
        };
        let found = discover_token().map_err(unused)?;
        Ok(found.map(|token| Self {
            facts: describe_token(token.as_bytes()).ok(),
            token: Secret::from(token.as_str()),
        }))
    }

    /// The token, if it is for this host; `named` are the hosts that the user names.
    pub(crate) fn for_host(&self, host: &str, named: &[String]) -> Option<Secret> {
        let is_named = named.iter().any(|named| named.eq_ignore_ascii_case(host));
        let is_its_audience = self
            .facts
            .as_ref()
            .is_some_and(|facts| facts.names_host(host));
        (is_named || is_its_audience).then(|| self.token.clone())
    }
}

#[cfg(test)]
mod tests;
