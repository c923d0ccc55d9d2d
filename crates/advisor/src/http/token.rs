//! The token that requests need which change something (RFC 6750, RFC 7617).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use smallfile::regular_file;

/// Longest token file, bytes.
const MAX_FILE: u64 = 4096;
/// Shortest token, bytes.
const LEAST_LENGTH: usize = 16;

/// The reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("token-file {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Everybody may read or write it.
    #[error("token-file {}: others than its owner and group may access it (chmod o= FILE)", path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// Its first line is no token.
    #[error(
        "token-file {}: its first line has to be {LEAST_LENGTH} or more letters, digits and signs without spaces",
        path.display()
    )]
    Token {
        /// The file.
        path: PathBuf,
    },
}

/// The reason why a request may change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenRefused {
    #[error("this server takes no changes over the network: its settings name no token-file")]
    Unset,
    #[error("this needs the token: Authorization: Bearer TOKEN, or the token as password")]
    Missing,
    #[error("the token is wrong")]
    Wrong,
    #[error("a page of another site sent this request")]
    CrossSite,
}

/// The token of the server.
pub(super) struct WriteToken(Zeroizing<String>);

impl std::fmt::Debug for WriteToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteToken")
    }
}

/// Checks that a server could use this token file.
///
/// # Errors
/// It cannot be read, others may access it, or its first line is no token.
pub fn check_token_file(path: &Path) -> Result<(), TokenFileError> {
    WriteToken::read(path).map(drop)
}

impl WriteToken {
    /// Reads the first line of a file.
    pub(super) fn read(path: &Path) -> Result<Self, TokenFileError> {
        let failed = |cause| TokenFileError::Read {
            path: path.to_owned(),
            cause,
        };
        let text = Zeroizing::new(regular_file::read_to_string(path, MAX_FILE).map_err(failed)?);
        if std::fs::metadata(path).map_err(failed)?.mode() & 0o007 != 0 {
            return Err(TokenFileError::Open {
                path: path.to_owned(),
            });
        }
        let line = text.lines().next().unwrap_or_default().trim();
        let is_plain = line.chars().all(|c| c.is_ascii_graphic());
        if line.len() < LEAST_LENGTH || !is_plain {
            return Err(TokenFileError::Token {
                path: path.to_owned(),
            });
        }
        Ok(Self(Zeroizing::new(line.to_owned())))
    }

    /// The time does not depend on where the two differ.
    fn is(&self, given: &[u8]) -> bool {
        let expected = self.0.as_bytes();
        let differences = (0..expected.len()).fold(0_u8, |differences, place| {
            let byte = given.get(place).copied().unwrap_or(0);
            std::hint::black_box(differences | (expected[place] ^ byte))
        });
        differences == 0 && given.len() == expected.len()
    }
}

/// Whether a request with this header may change something.
pub(super) fn may_write(
    token: Option<&WriteToken>,
    headers: &HeaderMap,
) -> Result<(), TokenRefused> {
    let token = token.ok_or(TokenRefused::Unset)?;
    // A browser may know the token as a password of this server, and would send it for any page.
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site == "cross-site" || site == "same-site") {
        return Err(TokenRefused::CrossSite);
    }
    let given = headers.get(AUTHORIZATION).ok_or(TokenRefused::Missing)?;
    let given = given.to_str().map_err(|_| TokenRefused::Wrong)?;
    let (scheme, value) = given.split_once(' ').ok_or(TokenRefused::Missing)?;
    let value = value.trim();
    let is_right = if scheme.eq_ignore_ascii_case("bearer") {
        token.is(value.as_bytes())
    } else if scheme.eq_ignore_ascii_case("basic") {
        let pair = Zeroizing::new(STANDARD.decode(value).map_err(|_| TokenRefused::Wrong)?);
        let colon = pair.iter().position(|byte| *byte == b':');
        colon.is_some_and(|colon| token.is(&pair[colon + 1..]))
    } else {
        return Err(TokenRefused::Missing);
    };
    if is_right {
        Ok(())
    } else {
        Err(TokenRefused::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn file(content: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), permissions).unwrap();
        file
    }

    fn asked(authorization: Option<&str>) -> Result<(), TokenRefused> {
        let token = WriteToken(Zeroizing::new(TOKEN.to_owned()));
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        may_write(Some(&token), &headers)
    }

    #[test]
    fn a_token_is_the_first_line_of_a_file_that_is_not_for_everybody() {
        let good = file("0123456789abcdef \nsecond line\n", 0o640);
        assert_eq!(&*WriteToken::read(good.path()).unwrap().0, TOKEN);
        let open = WriteToken::read(file(TOKEN, 0o644).path()).unwrap_err();
        assert!(matches!(open, TokenFileError::Open { .. }), "{open}");
        for content in ["", "short\n", "0123456789 abcdef"] {
            let error = WriteToken::read(file(content, 0o600).path()).unwrap_err();
            assert!(matches!(error, TokenFileError::Token { .. }), "{error}");
        }
        let absent = WriteToken::read(Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(absent, TokenFileError::Read { .. }), "{absent}");
    }

    #[test]
    fn bearer_and_password_are_taken_and_nothing_else() {
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(asked(Some("Bearer 0123456789abcdef")), Ok(()));
        assert_eq!(asked(Some("bearer 0123456789abcdef")), Ok(()));
        assert_eq!(asked(Some(&basic("anyone:0123456789abcdef"))), Ok(()));
        assert_eq!(asked(None), Err(TokenRefused::Missing));
        for wrong in [
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer 0123456789abcdef\u{7f}",
            "Basic !",
        ] {
            let Ok(value) = wrong.parse::<axum::http::HeaderValue>() else {
                continue;
            };
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value);
            let token = WriteToken(Zeroizing::new(TOKEN.to_owned()));
            let refused = may_write(Some(&token), &headers);
            assert_eq!(refused, Err(TokenRefused::Wrong), "{wrong}");
        }
        assert_eq!(
            asked(Some(&basic("0123456789abcdef"))),
            Err(TokenRefused::Wrong)
        );
        assert_eq!(asked(Some("Digest a")), Err(TokenRefused::Missing));
    }

    #[test]
    fn a_server_without_a_token_and_another_sites_page_change_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer 0123456789abcdef".parse().unwrap());
        assert_eq!(may_write(None, &headers), Err(TokenRefused::Unset));
        headers.insert("sec-fetch-site", "cross-site".parse().unwrap());
        let token = WriteToken(Zeroizing::new(TOKEN.to_owned()));
        let refused = may_write(Some(&token), &headers);
        assert_eq!(refused, Err(TokenRefused::CrossSite));
    }
}
