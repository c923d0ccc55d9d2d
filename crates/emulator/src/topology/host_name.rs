//! Names of hosts and routers.

use super::error::TopologyError;

/// Maximum length of a host name.
const LONGEST_NAME: usize = 32;

/// Names that are not allowed, because their variables have another meaning (`LAB_HOSTS`).
const RESERVED: [&str; 3] = ["hosts", "namespaces", "program"];

/// Checks the name of a host or router.
///
/// # Errors
/// A name with other characters, too long, or with another meaning.
pub(super) fn check_name(name: &str) -> Result<(), TopologyError> {
    let shown = name.escape_debug();
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !is_valid || name.len() > LONGEST_NAME {
        return Err(TopologyError::new(format!(
            "host '{shown}': a name is at most {LONGEST_NAME} lower-case letters, digits and hyphens, \
             a letter first"
        )));
    }
    if RESERVED.contains(&name) {
        return Err(TopologyError::new(format!(
            "host '{shown}': LAB_{} has another meaning; choose another name",
            name.to_ascii_uppercase()
        )));
    }
    Ok(())
}
