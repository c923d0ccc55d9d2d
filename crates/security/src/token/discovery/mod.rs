//! Where a client finds its token (WLCG Bearer Token Discovery).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::MAX_TOKEN;
use smallfile::regular_file;

/// Permission bits that a token file must not have: writing by the group, anything by others.
const FORBIDDEN_MODE: u32 = 0o027;

/// Longest token file, bytes: a token with white space around it.
const MAX_FILE: u64 = MAX_TOKEN as u64 + 1024;

/// The reason why a token that was named cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenDiscoveryError(pub String);

/// Looks in BEARER_TOKEN, the file of BEARER_TOKEN_FILE, `$XDG_RUNTIME_DIR/bt_u$ID`, `/tmp/bt_u$ID`,
/// in this order. `None`: none is there.
///
/// # Errors
/// A place that is set has no valid token, or others may read its file.
pub fn discover_token() -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    let uid = rustix::process::geteuid().as_raw();
    discover_in(|name| std::env::var_os(name), uid, Path::new("/tmp"))
}

/// Reads the token in a file that the user has named.
///
/// # Errors
/// The file cannot be read, others may read or change it, or it holds no token.
pub fn read_token_file(path: &Path) -> Result<Zeroizing<String>, TokenDiscoveryError> {
    let uid = rustix::process::geteuid().as_raw();
    token_of_file(path, uid, FileTrust::Named)?.ok_or_else(|| {
        let path = path.display();
        TokenDiscoveryError(format!(
            "cannot read the token {path}: there is no such file"
        ))
    })
}

/// How a token file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileTrust {
    /// The user has named it; it may be a link, as secrets of containers are.
    Named,
    /// It has a well-known name in a directory where others may make files.
    WellKnown,
}

fn discover_in(
    variable: impl Fn(&str) -> Option<OsString>,
    uid: u32,
    temporary: &Path,
) -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    // An empty variable is one that a script has cleared.
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(value) = set("BEARER_TOKEN") {
        let bytes = Zeroizing::new(value.into_encoded_bytes());
        return token_of(&bytes, "BEARER_TOKEN").map(Some);
    }
    if let Some(path) = set("BEARER_TOKEN_FILE") {
        let path = PathBuf::from(path);
        let found = token_of_file(&path, uid, FileTrust::Named)?;
        return found.map(Some).ok_or_else(|| {
            let path = path.display();
            TokenDiscoveryError(format!(
                "cannot read the token {path} of BEARER_TOKEN_FILE: there is no such file"
            ))
        });
    }
    let runtime = set("XDG_RUNTIME_DIR").map(PathBuf::from);
    for directory in runtime.iter().map(PathBuf::as_path).chain([temporary]) {
        let path = directory.join(format!("bt_u{uid}"));
        if let Some(token) = token_of_file(&path, uid, FileTrust::WellKnown)? {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

/// The token in a file; `None` if there is no file.
fn token_of_file(
    path: &Path,
    uid: u32,
    trust: FileTrust,
) -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    let name = path.display();
    let failed =
        |reason: String| TokenDiscoveryError(format!("cannot use the token {name}: {reason}"));
    let opened = match trust {
        FileTrust::Named => regular_file::open(path),
        FileTrust::WellKnown => regular_file::open_no_link(path),
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let metadata = &file.1;
    if metadata.uid() != uid && !(trust == FileTrust::Named && metadata.uid() == 0) {
        return Err(failed(format!(
            "it belongs to user number {}, not to you",
            metadata.uid()
        )));
    }
    if metadata.mode() & FORBIDDEN_MODE != 0 {
        return Err(failed(format!(
            "others may read or change it (mode {:04o}); write: chmod 600 {name}",
            metadata.mode() & 0o7777
        )));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    regular_file::read(file, MAX_FILE, &mut bytes).map_err(|error| failed(error.to_string()))?;
    token_of(&bytes, &name.to_string()).map(Some)
}

/// The token in the content of a variable or file: white space around it is removed.
fn token_of(content: &[u8], place: &str) -> Result<Zeroizing<String>, TokenDiscoveryError> {
    let token = content.trim_ascii();
    let failed = |reason: &str| TokenDiscoveryError(format!("{place} holds no token: {reason}"));
    if token.is_empty() {
        return Err(failed("it is empty"));
    }
    if token.len() > MAX_TOKEN {
        return Err(failed("it is longer than 16 KiB"));
    }
    // The characters of a bearer token (RFC 6750 section 2.1).
    let is_token_byte = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    match std::str::from_utf8(token) {
        Ok(text) if token.iter().all(is_token_byte) => Ok(Zeroizing::new(text.to_owned())),
        _ => Err(failed(
            "it has characters that a bearer token cannot have (RFC 6750)",
        )),
    }
}

#[cfg(test)]
mod tests;
