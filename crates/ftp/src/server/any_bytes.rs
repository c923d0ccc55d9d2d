//! Arguments of any bytes as text: a name of a file need not be UTF-8.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::percent_decode_str;

use crate::server::url::percent_encode;

/// Stands before the percent-encoded rest of `NAME:path`. No argument has it.
const ENCODED: char = '\0';

/// A text that [`Location::parse`](crate::location::Location::parse) reads as these bytes: the bytes themselves if they are UTF-8. In
/// a URL the other bytes are percent-encoded, and a local path becomes a `file:` URL. What may begin with the name of a
/// remote stays `NAME:`, with a percent-encoded rest that [`encoded_rest`] and [`local_bytes`] read.
///
/// # Errors
/// The path is relative, and the working directory is unknown.
pub(crate) fn text_of_bytes(bytes: &[u8]) -> io::Result<String> {
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
    if let Some((name, rest)) = named(bytes) {
        text.extend([name, ":", "\0"]);
        percent_encode(rest, true, &mut text);
        return Ok(text);
    }
    let path = std::path::absolute(Path::new(OsStr::from_bytes(bytes)))?;
    text.push_str("file://");
    percent_encode(path.as_os_str().as_bytes(), true, &mut text);
    Ok(text)
}

/// The parts before and behind the first colon, if the first may be the name of a remote.
fn named(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&bytes[..colon]).ok()?;
    (!name.is_empty() && !name.contains('/')).then_some((name, &bytes[colon + 1..]))
}

/// The percent-encoded path of `NAME:path`, if [`text_of_bytes`] has encoded it.
pub(crate) fn encoded_rest(path: &str) -> Option<&str> {
    path.strip_prefix(ENCODED)
}

/// The bytes of a local path.
pub(crate) fn local_bytes(text: &str) -> Cow<'_, [u8]> {
    match text.split_once(ENCODED) {
        Some((name, rest)) if name.ends_with(':') => {
            let bytes = name.bytes().chain(percent_decode_str(rest));
            Cow::Owned(bytes.collect())
        }
        _ => Cow::Borrowed(text.as_bytes()),
    }
}

/// A name for people: bytes that are not UTF-8 as `\xe9`, so that two names do not look alike.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
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
    use super::*;
    use crate::location::Location;

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
    fn names_that_differ_do_not_look_alike() {
        assert_eq!(shown("caf\u{e9}/\n".as_bytes()), "caf\u{e9}/\n");
        assert_eq!(shown(b"caf\xe9"), "caf\\xe9");
        assert_ne!(shown(b"caf\xe9"), shown(b"caf\xe8"));
    }

    #[test]
    fn a_local_path_keeps_its_bytes() {
        assert_eq!(path(b"/d/caf\xe9%20x?#"), b"/d/caf\xe9%20x?#");
        assert_eq!(path(b"/d\xff/"), b"/d\xff/");
        let here = std::env::current_dir().unwrap();
        let expected = here.join(OsStr::from_bytes(b"h:caf\xe9"));
        // It may be a path on a remote called h.
        assert_eq!(path(b"h:caf\xe9%41"), b"h:caf\xe9%41");
        assert_eq!(path(b"./h:caf\xe9"), expected.as_os_str().as_bytes());
    }
}
