//! The bearer token of this run.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proto::command::Secret;
use zeroize::Zeroizing;

use crate::{CopyFailure, Exit};

/// Longest token, bytes; servers accept no longer ones.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// Reads the token of `--token`. The file must not be readable by others.
///
/// # Errors
/// `Refused`
pub(super) fn read_token_file(path: &Path) -> Result<Secret, CopyFailure> {
    let refused = |problem: String| {
        let message = format!("cannot use the token of {}: {problem}", path.display());
        CopyFailure::new(Exit::Refused, message)
    };
    let read = |error: std::io::Error| refused(format!("{error}; name a file with a token"));
    // The permissions are those of the opened file, not of one that takes its place meanwhile.
    let file = fs::File::open(path).map_err(read)?;
    let mode = file.metadata().map_err(read)?.mode();
    if mode & 0o077 != 0 {
        return Err(refused(format!(
            "others may read it; keep it to yourself (chmod 600 {})",
            path.display()
        )));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_TOKEN_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(read)?;
    parse_token(&text).map_err(refused)
}

/// The token of the environment, if there is one.
///
/// # Errors
/// One line: the place that has an unusable token, and the problem.
pub(super) fn discover() -> Result<Option<Secret>, String> {
    match security::token::discover_token() {
        Ok(Some(text)) => parse_token(&text)
            .map(Some)
            .map_err(|problem| format!("the token of the environment is not used: {problem}")),
        Ok(None) => Ok(None),
        Err(error) => Err(format!("the token of the environment is not used: {error}")),
    }
}

/// Checks that a text is one line that PASS and HTTP headers can carry.
fn parse_token(text: &str) -> Result<Secret, String> {
    let token = text.trim_ascii();
    if token.len() as u64 > MAX_TOKEN_BYTES {
        return Err(format!("it is longer than {MAX_TOKEN_BYTES} bytes"));
    }
    // RFC 6750 §2.1: b64token.
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(is_valid) {
        return Err("it is no bearer token (RFC 6750): get a new one".to_owned());
    }
    Ok(Secret::from(token))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(text: &str, mode: u32) -> Result<Secret, CopyFailure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read_token_file(&path)
    }

    #[test]
    fn a_token_file_is_read_without_its_line_end() {
        assert_eq!(
            read("eyJ.abc-_=\n", 0o600).unwrap(),
            Secret::from("eyJ.abc-_=")
        );
    }

    #[test]
    fn a_token_that_others_may_read_or_that_is_malformed_is_refused_without_being_shown() {
        for (text, mode, word) in [
            ("s3cret", 0o644, "chmod 600"),
            ("s3cret s3cret", 0o600, "RFC 6750"),
            ("s3cret\r\nDELE /x", 0o600, "RFC 6750"),
            ("", 0o600, "RFC 6750"),
        ] {
            let failure = read(text, mode).unwrap_err();
            assert_eq!(failure.exit, Exit::Refused);
            assert!(failure.message.contains(word), "{failure}");
            assert!(!failure.message.contains("s3cret"), "{failure}");
        }
        let missing = read_token_file(Path::new("/nonexistent/token")).unwrap_err();
        assert!(missing.message.contains("/nonexistent/token"));
    }
}
