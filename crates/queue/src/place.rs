//! Sources and destinations of a queued copy: a URL, or an absolute path that each worker has.

/// Longest source or destination, bytes.
const LONGEST: usize = 4096;

/// Fields of a URL's query that give access to whoever has the URL.
const SECRET_FIELDS: &[&str] = &[
    "x-amz-signature",
    "x-goog-signature",
    "x-amz-security-token",
    "signature",
    "sig",
    "token",
    "access_token",
    "authz",
];

/// Schemes of servers that may send to each other directly.
const DIRECT: &[&str] = &["ftp", "ftps", "gsiftp", "ssh", "sshftp"];

/// Why a source or destination cannot be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlaceRefused {
    /// It is empty, too long, or has control characters.
    #[error("is empty, longer than 4096 bytes, or has control characters")]
    Malformed,
    /// A relative path, standard input, or the name of a server in somebody's configuration.
    #[error(
        "is neither a URL nor an absolute path: a worker is in another directory and has another configuration"
    )]
    Relative,
    /// A URL without a host.
    #[error("names no host")]
    NoHost,
    /// A URL with a password or a signature.
    #[error(
        "holds a password or a signature, and a queue keeps none: name a credential of the workers (--credential), or use their ~/.netrc"
    )]
    Secret,
}

/// The parts of a place that the queue decides by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlaceFacts {
    /// The host in lower case; `None`: a path of the worker's machine.
    pub(crate) endpoint: Option<String>,
    /// Whether a server of this kind can exchange data with another one.
    pub(crate) is_direct: bool,
}

/// Reads a source or destination.
pub(crate) fn read(text: &str) -> Result<PlaceFacts, PlaceRefused> {
    if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(PlaceRefused::Malformed);
    }
    let local = PlaceFacts {
        endpoint: None,
        is_direct: false,
    };
    if text.starts_with('/') {
        return Ok(local);
    }
    let (scheme, rest) = text.split_once("://").ok_or(PlaceRefused::Relative)?;
    if !is_scheme(scheme) {
        return Err(PlaceRefused::Relative);
    }
    let scheme = scheme.to_ascii_lowercase();
    if has_secret(text) {
        return Err(PlaceRefused::Secret);
    }
    if scheme == "file" {
        return Ok(local);
    }
    let endpoint = host(rest).ok_or(PlaceRefused::NoHost)?;
    Ok(PlaceFacts {
        endpoint: Some(endpoint),
        is_direct: DIRECT.contains(&scheme.as_str()),
    })
}

/// The host of an authority, in lower case, without user and port.
fn host(rest: &str) -> Option<String> {
    let authority = rest.split(['/', '?', '#']).next()?;
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty() && !host.contains(char::is_whitespace)).then(|| host.to_ascii_lowercase())
}

/// Whether a word holds a password of a URL or a signature. A word without a scheme counts as one of a proxy: `user:password@host`.
pub(crate) fn has_secret(word: &str) -> bool {
    let rest = word.split_once("://").map_or(word, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The path of a URL may have an @, too; only what stands before the first slash is a login.
    let login = authority.rsplit_once('@').map_or("", |(login, _)| login);
    let has_password = login
        .split_once(':')
        .is_some_and(|(_, password)| !password.is_empty());
    let query = word.split_once('?').map_or("", |(_, query)| query);
    let has_signature = query.split('&').any(|field| {
        let name = field.split('=').next().unwrap_or_default();
        SECRET_FIELDS.contains(&name.to_ascii_lowercase().as_str())
    });
    has_password || has_signature
}

fn is_scheme(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Option<String> {
        read(text).unwrap().endpoint
    }

    #[test]
    fn the_endpoint_is_the_host_whatever_user_port_and_case() {
        for text in [
            "gsiftp://Data.Example/x",
            "ftp://joe@data.example:2811/x",
            "https://data.example?list",
        ] {
            assert_eq!(endpoint(text).as_deref(), Some("data.example"), "{text}");
        }
        assert_eq!(
            endpoint("ftp://[2001:DB8::1]:21/x").as_deref(),
            Some("2001:db8::1")
        );
        assert_eq!(endpoint("/data/a:b@c"), None);
        assert_eq!(endpoint("file:///data/x"), None);
    }

    #[test]
    fn what_another_machine_cannot_find_is_refused() {
        for text in ["x", "./x", "-", "cern:run7/x", "://h/x", "~/x"] {
            assert_eq!(read(text), Err(PlaceRefused::Relative), "{text}");
        }
        assert_eq!(read("ftp:///x"), Err(PlaceRefused::NoHost));
        assert_eq!(read(""), Err(PlaceRefused::Malformed));
        assert_eq!(read("/a\nb"), Err(PlaceRefused::Malformed));
        assert_eq!(read(&"/a".repeat(3000)), Err(PlaceRefused::Malformed));
    }

    #[test]
    fn passwords_and_signatures_are_refused() {
        for text in [
            "ftp://joe:secret@h/x",
            "https://h/x?X-Amz-Signature=0&y",
            "https://h/x?y&token=1",
        ] {
            assert_eq!(read(text), Err(PlaceRefused::Secret), "{text}");
        }
        for text in ["ftp://joe:@h/x", "ftp://h/a:b@c", "https://h/x?tokens=1"] {
            assert!(read(text).is_ok(), "{text}");
        }
    }
}
