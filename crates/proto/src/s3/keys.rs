//! Paths of a bucket and the keys of its objects.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Longest key, bytes.
pub const MAX_KEY: usize = 1024;

/// Characters that a signature escapes (RFC 3986 §2.3: all but the unreserved ones).
const SIGNED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Why a path can have no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The bucket itself.
    #[error("this is the bucket, not an object in it")]
    Empty,
    /// Keys are UTF-8.
    #[error("the keys of a bucket are UTF-8, and this name is not")]
    NotUtf8,
    /// Longer than [`MAX_KEY`].
    #[error("a key has at most {MAX_KEY} bytes, and this one is longer")]
    TooLong,
    /// A component is `.` or `..`, which URLs do not have.
    #[error("a component is . or .., which no URL can have")]
    DotComponent,
}

/// The key of the object at an absolute path. A slash at its end is kept.
///
/// # Errors
/// See [`KeyError`].
pub fn key_of(path: &[u8]) -> Result<&str, KeyError> {
    let key = path.strip_prefix(b"/").unwrap_or(path);
    let key = std::str::from_utf8(key).map_err(|_| KeyError::NotUtf8)?;
    match key {
        "" => Err(KeyError::Empty),
        key if key.len() > MAX_KEY => Err(KeyError::TooLong),
        key if key.split('/').any(|part| matches!(part, "." | "..")) => Err(KeyError::DotComponent),
        key => Ok(key),
    }
}

/// The prefix of the keys below a directory: empty for the bucket itself, otherwise with a slash at its end.
///
/// # Errors
/// See [`KeyError`].
pub fn prefix_of(path: &[u8]) -> Result<String, KeyError> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    match key_of(path) {
        Ok(key) => Ok(format!("{key}/")),
        Err(KeyError::Empty) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// A key, or a value of a query, as a signature has it: everything but unreserved characters percent-encoded. `slashes`:
/// these are kept.
pub fn encode(text: &[u8], slashes: bool) -> String {
    let encoded = percent_encode(text, SIGNED).to_string();
    match slashes {
        true => encoded.replace("%2F", "/"),
        false => encoded,
    }
}

/// The name of an entry below `prefix`; `None` if no path can have it.
pub fn name_below<'k>(key: &'k [u8], prefix: &str) -> Option<&'k [u8]> {
    let name = key.strip_prefix(prefix.as_bytes())?;
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let is_path = !name.is_empty() && !name.contains(&b'/') && !matches!(name, b"." | b"..");
    // No URL of a path has these (see the crate `ftp`).
    let is_plain = !name.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
    (is_path && is_plain).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_keys_without_their_first_slash() {
        assert_eq!(key_of(b"/a/b c"), Ok("a/b c"));
        assert_eq!(key_of(b"/a/"), Ok("a/"));
        assert_eq!(key_of(b"/"), Err(KeyError::Empty));
        assert_eq!(key_of(b"/a/../b"), Err(KeyError::DotComponent));
        assert_eq!(key_of(b"/\xff"), Err(KeyError::NotUtf8));
        assert_eq!(key_of(&[b'x'; MAX_KEY + 1]), Err(KeyError::TooLong));
        assert_eq!(prefix_of(b"/").as_deref(), Ok(""));
        assert_eq!(prefix_of(b"/a").as_deref(), Ok("a/"));
        assert_eq!(prefix_of(b"/a/").as_deref(), Ok("a/"));
    }

    #[test]
    fn everything_but_unreserved_characters_is_escaped() {
        assert_eq!(encode("a b/ü'(~".as_bytes(), true), "a%20b/%C3%BC%27%28~");
        assert_eq!(encode(b"a/b", false), "a%2Fb");
    }

    #[test]
    fn names_that_no_path_can_have_are_none() {
        assert_eq!(name_below(b"d/x", "d/"), Some(&b"x"[..]));
        assert_eq!(name_below(b"d/x/", "d/"), Some(&b"x"[..]));
        for key in [&b"d/"[..], b"d//", b"d/..", b"e/x", b"d/a\nb"] {
            assert_eq!(name_below(key, "d/"), None, "{key:?}");
        }
    }
}
