//! `http:` and `https:` URLs (RFC 9110 §4.2), and resolution of redirects (§10.2.2).

use std::fmt;

use percent_encoding::percent_decode_str;

/// Longest accepted Location field, bytes.
const MAX_LOCATION: usize = 8192;

/// A URL without credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    /// The scheme is `https:`.
    pub secure: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
    /// Percent-encoded path, starts with `/`.
    path: String,
    /// Percent-encoded query, without the `?`.
    query: Option<String>,
}

/// Reason why a redirect is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// The Location field is no `http:` or `https:` URL, or longer than 8192 bytes.
    #[error("its Location field is not an http: or https: URL of at most 8192 bytes")]
    Malformed,
    /// The redirect leads from `https:` to `http:`.
    #[error("it leads from https: to http:, where the file could be changed in transit")]
    Insecure,
}

impl HttpUrl {
    /// A URL with an unencoded path and an encoded query.
    pub fn new(secure: bool, host: &str, port: u16, path: &[u8], query: Option<&str>) -> Self {
        let mut encoded = String::with_capacity(path.len() + 1);
        if path.first() != Some(&b'/') {
            encoded.push('/');
        }
        encode_path(path, &mut encoded);
        Self {
            secure,
            host: host.to_owned(),
            port,
            path: encoded,
            query: query.map(encode_forbidden),
        }
    }

    /// The URL with the same server and query and another path.
    pub fn with_path(&self, path: &[u8]) -> Self {
        let query = self.query.as_deref();
        Self::new(self.secure, &self.host, self.port, path, query)
    }

    /// The URL of the directory that the path is in, with a slash at its end.
    pub fn parent(&self) -> Self {
        let path = self.path.strip_suffix('/').unwrap_or(&self.path);
        let end = path.rfind('/').map_or(0, |at| at + 1);
        Self {
            path: format!("/{}", path[..end].trim_start_matches('/')),
            ..self.clone()
        }
    }

    /// The complete URL, for requests. It must not be shown, since the query may hold a secret.
    pub fn uri(&self) -> String {
        self.origin() + &self.path_and_query()
    }

    /// The URL without scheme and host (`path-absolute`, RFC 3986 §3.3), with its query; not to be shown either.
    pub fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// `scheme://host[:port]`
    pub fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// `host[:port]`
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == default_port(self.secure) {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }

    /// Whether both URLs have the same origin, so that they share credentials (RFC 6454 §4).
    pub fn is_same_origin(&self, other: &Self) -> bool {
        self.secure == other.secure
            && self.port == other.port
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// The decoded segments of the path. The last one is empty if the path ends with a slash.
    pub fn segments(&self) -> Vec<Vec<u8>> {
        path_segments(&self.path)
    }

    /// The decoded names and values of the query.
    pub fn query_pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let query = self.query.as_deref().unwrap_or_default();
        let decode = |text: &str| percent_decode_str(text).collect();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(name), decode(value))
            })
            .collect()
    }

    /// Whether the path ends with a slash.
    pub fn has_trailing_slash(&self) -> bool {
        self.path.ends_with('/')
    }

    /// Resolves a Location field against this URL (RFC 3986 §5.2). Credentials and fragment are dropped.
    ///
    /// # Errors
    /// See [`RedirectError`].
    pub fn resolve_redirect(&self, location: &str) -> Result<Self, RedirectError> {
        if location.len() > MAX_LOCATION {
            return Err(RedirectError::Malformed);
        }
        // A fragment is never sent (RFC 9110 §4.2.5).
        let location = location.split('#').next().unwrap_or_default().trim();
        let (reference, query) = match location.split_once('?') {
            Some((reference, query)) => (reference, Some(encode_forbidden(query))),
            None => (location, None),
        };
        let next = match split_scheme(reference) {
            Some((name, rest)) => {
                let secure = match name.to_ascii_lowercase().as_str() {
                    "https" => true,
                    "http" => false,
                    _ => return Err(RedirectError::Malformed),
                };
                let rest = rest.strip_prefix("//").ok_or(RedirectError::Malformed)?;
                Self::parse_authority(secure, rest, query)?
            }
            None => match reference.strip_prefix("//") {
                Some(rest) => Self::parse_authority(self.secure, rest, query)?,
                None => self.resolve_relative(reference, query),
            },
        };
        // Encoding makes it longer, and this is what is sent.
        if next.uri().len() > MAX_LOCATION {
            return Err(RedirectError::Malformed);
        }
        // A downgrade would expose the request and let an attacker replace the content.
        match self.secure && !next.secure {
            true => Err(RedirectError::Insecure),
            false => Ok(next),
        }
    }

    fn parse_authority(
        secure: bool,
        rest: &str,
        query: Option<String>,
    ) -> Result<Self, RedirectError> {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // Credentials in a redirect are dropped: they would come from the server, not from the user.
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let (host, port) = parse_host_and_port(authority).ok_or(RedirectError::Malformed)?;
        Ok(Self {
            secure,
            host: host.to_owned(),
            port: port.unwrap_or(default_port(secure)),
            path: remove_dot_segments(&encode_forbidden(path)),
            query,
        })
    }

    fn resolve_relative(&self, reference: &str, query: Option<String>) -> Self {
        let reference = encode_forbidden(reference);
        let (path, query) = match reference.as_str() {
            // RFC 3986 §5.2.2: an empty reference keeps the path, and the query unless it has its own.
            "" => (self.path.clone(), query.or_else(|| self.query.clone())),
            path if path.starts_with('/') => (remove_dot_segments(path), query),
            path => {
                let directory = self.path.rfind('/').map_or("", |at| &self.path[..=at]);
                (remove_dot_segments(&format!("{directory}{path}")), query)
            }
        };
        Self {
            path,
            query,
            ..self.clone()
        }
    }
}

/// For messages; the query is shown as `...`.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query.is_some() { "?..." } else { "" };
        write!(f, "{}{}{query}", self.origin(), self.path)
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// Splits a reference into its scheme (RFC 3986 §3.1) and the rest; `None` without a scheme.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once(':')?;
    let mut letters = name.bytes();
    let valid = letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    valid.then_some((name, rest))
}

/// Parses `host`, `host:port`, `[v6]` or `[v6]:port`.
fn parse_host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, after) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            // RFC 3986 §3.2.2 allows only IPv6 addresses inside brackets (and IPvFuture, which is unused).
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, after)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    // The colon occurs only in IPv6 addresses here; a name is split at its first colon.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:".contains(&b);
    if host.is_empty() || !host.bytes().all(plain) {
        return None;
    }
    match after {
        "" | ":" => Some((host, None)),
        _ => {
            let port = super::content_range::parse_number(after.strip_prefix(':')?)?;
            let port = u16::try_from(port).ok().filter(|port| *port != 0);
            port.map(|port| (host, Some(port)))
        }
    }
}

/// Removes `.` and `..` segments (RFC 3986 §5.2.4). The result starts with `/`.
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

/// The decoded segments of a percent-encoded path.
fn path_segments(path: &str) -> Vec<Vec<u8>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let parts = path.split('/');
    parts
        .map(|part| percent_decode_str(part).collect())
        .collect()
}

/// Percent-encodes the bytes of a path (RFC 3986 §3.3).
fn encode_path(path: &[u8], out: &mut String) {
    for &b in path {
        // `pchar` of RFC 3986 §3.3, and the slash between segments. A `;` is permitted, but begins a parameter for some servers
        // (Tomcat), which then mean another file.
        if b.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&b) {
            out.push(char::from(b));
        } else {
            push_encoded(b, out);
        }
    }
}

/// Percent-encodes the bytes that are forbidden in URLs but sent by some servers. Existing percent-encoding
/// is kept.
fn encode_forbidden(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b) {
            out.push(char::from(b));
        } else {
            push_encoded(b, &mut out);
        }
    }
    out
}

fn push_encoded(b: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    for nibble in [b >> 4, b & 15] {
        out.push(char::from(DIGITS[usize::from(nibble)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &[u8], query: Option<&str>) -> HttpUrl {
        HttpUrl::new(true, "data.example", 443, path, query)
    }

    #[test]
    fn paths_are_encoded_and_queries_are_sent_unchanged() {
        let url = target("/a b/ü%?#;/x+y".as_bytes(), Some("X-Sig=a%2Fb;c=d"));
        let sent = "https://data.example/a%20b/%C3%BC%25%3F%23%3B/x+y?X-Sig=a%2Fb;c=d";
        assert_eq!(url.uri(), sent);
        assert_eq!(url.segments().concat(), "a bü%?#;x+y".as_bytes());
        assert_eq!(
            url.with_path(b"/z/").uri(),
            "https://data.example/z/?X-Sig=a%2Fb;c=d"
        );
        for (path, parent) in [("/a/b", "/a/"), ("/a/b/", "/a/"), ("/a", "/"), ("/", "/")] {
            let parent_of = target(path.as_bytes(), None).parent();
            assert_eq!(parent_of, target(parent.as_bytes(), None), "{path}");
        }
        assert_eq!(
            url.query_pairs(),
            [(b"X-Sig".to_vec(), b"a/b;c=d".to_vec())]
        );
        let v6 = HttpUrl::new(false, "::1", 8080, b"f", None);
        assert_eq!(v6.uri(), "http://[::1]:8080/f");
    }

    #[test]
    fn display_and_debug_output_hide_the_query() {
        let url = target(b"/f", Some("X-Sig=secret"));
        for shown in [url.to_string(), format!("{url:?}")] {
            assert!(
                shown.contains("/f?...") && !shown.contains("secret"),
                "{shown}"
            );
        }
    }

    #[test]
    fn redirects_are_resolved_as_in_rfc_3986() {
        let from = target(b"/a/b/f", Some("q"));
        for (location, to) in [
            ("https://other.example/x?y#z", "https://other.example/x?y"),
            (
                "HTTPS://user:pw@other.example:8443",
                "https://other.example:8443/",
            ),
            ("//cdn.example/x", "https://cdn.example/x"),
            ("/root?k=v", "https://data.example/root?k=v"),
            ("g", "https://data.example/a/b/g"),
            ("../g/./h/..", "https://data.example/a/g/"),
            ("../../../../g", "https://data.example/g"),
            ("./", "https://data.example/a/b/"),
            ("?p", "https://data.example/a/b/f?p"),
            ("", "https://data.example/a/b/f?q"),
            ("/with space/ü", "https://data.example/with%20space/%C3%BC"),
            (
                "/already%20encoded",
                "https://data.example/already%20encoded",
            ),
            ("https://[2001:db8::1]:81/", "https://[2001:db8::1]:81/"),
            ("dir/a:b", "https://data.example/a/b/dir/a:b"),
        ] {
            let next = from.resolve_redirect(location).map(|t| t.uri());
            assert_eq!(next.as_deref(), Ok(to), "{location}");
        }
    }

    #[test]
    fn insecure_and_malformed_redirects_are_refused() {
        let from = target(b"/f", None);
        assert_eq!(
            from.resolve_redirect("http://data.example/f"),
            Err(RedirectError::Insecure)
        );
        let long = format!("/{}", "x".repeat(MAX_LOCATION));
        // Nine bytes each when encoded.
        let grows = format!("/{}", "\u{fffd}".repeat(MAX_LOCATION / 9 + 1));
        for location in [
            "ftp://data.example/f",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https:/one-slash",
            "https://",
            "https:///f",
            "https://host:0/",
            "https://host:99999/",
            "https://ho st/",
            "https://[zz]/",
            long.as_str(),
            grows.as_str(),
        ] {
            assert_eq!(
                from.resolve_redirect(location),
                Err(RedirectError::Malformed),
                "{location}"
            );
        }
        let clear = HttpUrl::new(false, "data.example", 80, b"/f", None);
        assert!(clear.resolve_redirect("http://other.example/").is_ok());
        assert!(
            clear
                .resolve_redirect("https://other.example/")
                .unwrap()
                .secure
        );
    }

    #[test]
    fn urls_with_the_same_scheme_host_and_port_have_the_same_origin() {
        let one = target(b"/f", None);
        assert!(one.is_same_origin(&HttpUrl::new(true, "DATA.example", 443, b"/", None)));
        for other in [
            HttpUrl::new(false, "data.example", 443, b"/", None),
            HttpUrl::new(true, "data.example", 8443, b"/", None),
            HttpUrl::new(true, "data.example.net", 443, b"/", None),
        ] {
            assert!(!one.is_same_origin(&other), "{other}");
        }
    }
}
