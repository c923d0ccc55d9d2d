//! One response of an HTTP server.

use std::io::Read;

use proto::http::content_range::parse_number;
use proto::http::url::HttpUrl;
use ureq::Body;
use ureq::http::Response;

/// Longest unwanted response body that is read so that the connection can be reused, bytes.
const MAX_DISCARDED_BODY: u64 = 64 << 10;

/// A content coding that files are stored in.
struct FileCoding {
    /// Registered names and their older forms (RFC 9110 section 8.4.1).
    names: &'static [&'static str],
    suffixes: &'static [&'static str],
    /// Part of the media types of such files.
    media_type: &'static str,
}

const FILE_CODINGS: [FileCoding; 4] = [
    FileCoding {
        names: &["gzip", "x-gzip"],
        suffixes: &[".gz", ".tgz", ".svgz"],
        media_type: "gzip",
    },
    FileCoding {
        names: &["compress", "x-compress"],
        suffixes: &[".z", ".taz"],
        media_type: "x-compress",
    },
    FileCoding {
        names: &["x-bzip2", "bzip2"],
        suffixes: &[".bz2", ".tbz", ".tbz2"],
        media_type: "bzip",
    },
    FileCoding {
        names: &["zstd"],
        suffixes: &[".zst", ".tzst"],
        media_type: "zstd",
    },
];

/// A response whose body has not been read yet.
#[derive(Debug)]
pub(in crate::storage) struct HttpResponse {
    pub(in crate::storage) response: Response<Body>,
    /// URL that sent the response, after redirects.
    pub(in crate::storage) url: HttpUrl,
}

impl HttpResponse {
    pub(in crate::storage) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// A header that has one value, by its lower-case name. `None` also if it is not text, or appears with several values.
    pub(in crate::storage) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.response.headers().get_all(name).iter();
        let value = values.next()?;
        let is_single = values.all(|other| other == value);
        let text = value.to_str().ok().filter(|_| is_single);
        text.map(str::trim)
    }

    /// Length of the body, bytes, as announced. A Transfer-Encoding overrides Content-Length (RFC 9112 section 6.3).
    pub(in crate::storage) fn length(&self) -> Option<u64> {
        match self.response.headers().contains_key("transfer-encoding") {
            true => None,
            false => self.header("content-length").and_then(parse_number),
        }
    }

    /// All headers that are text, with lower-case names.
    pub(in crate::storage) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.response.headers().iter();
        fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// The content coding of the body, if it is not that of the file itself: the coding was not asked for. Servers name the coding
    /// of compressed files, too, which stay as they are.
    pub(in crate::storage) fn foreign_coding(&self, requested: &HttpUrl) -> Option<String> {
        // All lines are one list (RFC 9110 section 5.3).
        let lines = self.response.headers().get_all("content-encoding");
        let lines = lines
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_bytes()));
        let list = lines.collect::<Vec<_>>().join(",");
        let codings = list.split(',').map(str::trim);
        let codings: Vec<_> = codings
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
            .collect();
        let coding = codings.join(", ");
        let same = |other: &str| coding.eq_ignore_ascii_case(other);
        let known = FILE_CODINGS
            .iter()
            .find(|known| known.names.iter().any(|name| same(name)));
        let is_own = known.is_some_and(|known| {
            let names = [requested, &self.url].map(|url| url.segments().pop().unwrap_or_default());
            let has_suffix = |suffix: &&str| names.iter().any(|n| ends_with(n, suffix.as_bytes()));
            let media_type = self.header("content-type").unwrap_or_default();
            known.suffixes.iter().any(has_suffix) || media_type.contains(known.media_type)
        });
        (!codings.is_empty() && !is_own).then_some(coding)
    }

    /// The body as a stream.
    pub(in crate::storage) fn into_body(self) -> impl Read + Send + 'static {
        self.response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader()
    }

    /// Reads and discards a short body, so that the connection can be reused.
    pub(in crate::storage) fn discard_body(self) {
        let mut rest = self.into_body().take(MAX_DISCARDED_BODY);
        let _ = std::io::copy(&mut rest, &mut std::io::sink());
    }
}

fn ends_with(name: &[u8], suffix: &[u8]) -> bool {
    let end = name.len().checked_sub(suffix.len()).map(|at| &name[at..]);
    end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}
