//! The bearer token of this run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proto::command::Secret;
use security::token::{TokenDiscoveryError, discover_token};

use crate::{CopyFailure, Exit};

/// Permission bits of the group. A file that `--token` names is for its user alone, whereas one of
/// BEARER_TOKEN_FILE may be shared with a group, as those of batch systems are.
const GROUP_MODE: u32 = 0o070;

/// Reads the token of `--token`. The file must not be readable by others.
///
/// # Errors
/// `Refused`
pub(crate) fn read_token_file(path: &Path) -> Result<Secret, CopyFailure> {
    let refused = |problem: String| CopyFailure::new(Exit::Refused, problem);
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

/// The token of the environment, if there is one.
///
/// # Errors
/// One line: the place that has an unusable token, and the problem.
pub(super) fn discover() -> Result<Option<Secret>, String> {
    let unused =
        |error: TokenDiscoveryError| format!("the token of the environment is not used: {error}");
    let found = discover_token().map_err(unused)?;
    Ok(found.map(|token| Secret::from(token.as_str())))
}

#[cfg(test)]
mod tests;
