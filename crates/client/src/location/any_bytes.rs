//! Arguments of any bytes as text: a name of a file need not be UTF-8.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::url::percent_encode;

/// A text that [`Location::parse`](super::Location::parse) reads as these bytes: the bytes themselves if they are UTF-8. In
/// a URL the other bytes are percent-encoded, and a local path becomes a `file:` URL.
///
/// # Errors
/// The path is relative, and the working directory is unknown.
pub(super) fn text_of_bytes(bytes: &[u8]) -> io::Result<String> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    if is_url(bytes) {
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            percent_encode(chunk.invalid(), true, &mut text);
        }
        return Ok(text);
    }
    let path = std::path::absolute(Path::new(OsStr::from_bytes(bytes)))?;
    text.push_str("file://");
    percent_encode(path.as_os_str().as_bytes(), true, &mut text);
    Ok(text)
}

/// Whether the bytes begin with a scheme, and with `//` after it unless the scheme is `file:`.
fn is_url(bytes: &[u8]) -> bool {
    let Some(colon) = bytes.iter().position(|b| *b == b':') else {
        return false;
    };
    let (scheme, rest) = (&bytes[..colon], &bytes[colon + 1..]);
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    is_scheme && (rest.starts_with(b"//") || scheme.eq_ignore_ascii_case(b"file"))
}

#[cfg(test)]
mod tests {
    use super::super::Location;
    use super::*;

    fn path(bytes: &[u8]) -> Vec<u8> {
        let text = text_of_bytes(bytes).unwrap();
        Location::parse(&text).unwrap().path().to_vec()
    }

    #[test]
    fn utf8_stays_as_it_is() {
        for text in ["a b", "ftp://h/caf%C3%A9", "-", "caf\u{e9}", "a:%41", ""] {
            assert_eq!(text_of_bytes(text.as_bytes()).unwrap(), text);
        }
    }

    #[test]
    fn other_bytes_are_percent_encoded_in_urls() {
        let url = text_of_bytes(b"ftp://h/caf\xe9/\xc3\xa9%20x").unwrap();
        assert_eq!(url, "ftp://h/caf%E9/\u{e9}%20x");
        assert_eq!(path(b"ftp://h/caf\xe9%20x"), b"/caf\xe9 x");
        assert_eq!(path(b"file:///caf\xe9%20x"), b"/caf\xe9 x");
        assert_eq!(path(b"FILE:/\xff"), b"/\xff");
    }

    #[test]
    fn a_local_path_keeps_its_bytes() {
        assert_eq!(path(b"/d/caf\xe9%20x?#"), b"/d/caf\xe9%20x?#");
        assert_eq!(path(b"/d\xff/"), b"/d\xff/");
        let here = std::env::current_dir().unwrap();
        let expected = here.join(OsStr::from_bytes(b"h:caf\xe9"));
        assert_eq!(path(b"h:caf\xe9"), expected.as_os_str().as_bytes());
        assert_eq!(path(b"./h:caf\xe9"), expected.as_os_str().as_bytes());
    }
}
