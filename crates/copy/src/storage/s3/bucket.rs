//! A bucket: the URLs of its objects, and their names for people.

use ftp::Failure;
use ftp::failure::Operation;
use ftp::location::Location;
use proto::http::url::HttpUrl;
use proto::s3::keys::{self, KeyError};

use super::settings::{S3Settings, domain_of};

/// The default ports of the schemes.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// A bucket at its server.
#[derive(Debug, Clone)]
pub(super) struct S3Bucket {
    pub(super) name: String,
    /// URL of the server.
    pub(super) server: HttpUrl,
    /// Path of the bucket at the server, without a slash at its end: empty if the host has its name.
    path: String,
}

impl S3Bucket {
    pub(super) fn new(name: &str, settings: &S3Settings) -> Self {
        let is_path_style = settings.has_path_style(name);
        let host = |host: &str| match is_path_style {
            true => host.to_owned(),
            false => format!("{name}.{host}"),
        };
        let (server, prefix) = match &settings.endpoint {
            Some(endpoint) => {
                let secure = endpoint.scheme() == "https";
                let default = if secure { HTTPS_PORT } else { HTTP_PORT };
                let port = endpoint.port().unwrap_or(default);
                let named = endpoint.host_str().unwrap_or_default();
                let named = named.trim_start_matches('[').trim_end_matches(']');
                let prefix = endpoint.path().trim_end_matches('/').to_owned();
                (HttpUrl::new(secure, &host(named), port, b"/", None), prefix)
            }
            None => {
                let region = &settings.region;
                let domain = format!("s3.{region}.{}", domain_of(region));
                (
                    HttpUrl::new(true, &host(&domain), HTTPS_PORT, b"/", None),
                    String::new(),
                )
            }
        };
        Self {
            name: name.to_owned(),
            server,
            path: match is_path_style {
                true => format!("{prefix}/{name}"),
                false => prefix,
            },
        }
    }

    /// The URL of the bucket, for requests with this query.
    pub(super) fn url(&self, query: &[(&str, &str)]) -> HttpUrl {
        // Amazon's canonical form of a bucket in the path has no slash at its end, and of one in the host it has.
        let path = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        self.with_query(path.as_bytes(), query)
    }

    /// The URL of an object, for requests with this query.
    pub(super) fn object_url(&self, key: &str, query: &[(&str, &str)]) -> HttpUrl {
        self.with_query(format!("{}/{key}", self.path).as_bytes(), query)
    }

    /// Whether a URL of this server is that of an object, not of the bucket.
    pub(super) fn has_object_at(&self, url: &HttpUrl) -> bool {
        let above = self.path.split('/').filter(|part| !part.is_empty()).count();
        url.segments()
            .iter()
            .skip(above)
            .any(|part| !part.is_empty())
    }

    fn with_query(&self, path: &[u8], query: &[(&str, &str)]) -> HttpUrl {
        let pairs = query
            .iter()
            .map(|(name, value)| format!("{name}={}", keys::encode(value.as_bytes(), false)));
        let query = pairs.collect::<Vec<_>>().join("&");
        let query = Some(query.as_str()).filter(|query| !query.is_empty());
        let server = &self.server;
        HttpUrl::new(server.secure, &server.host, server.port, path, query)
    }

    /// The key of an object, as the source of a copy within the server.
    pub(super) fn copy_source(&self, key: &str) -> String {
        format!("{}/{}", self.name, keys::encode(key.as_bytes(), true))
    }

    /// A path of the bucket, for people.
    pub(super) fn shown(&self, path: &[u8]) -> String {
        format!("s3://{}{}", self.name, Location::url_name(path))
    }

    /// An operation on a path.
    pub(super) fn operation(&self, verb: &'static str, path: &[u8]) -> Operation {
        Operation::on(verb, self.shown(path))
    }

    /// The key of a path.
    ///
    /// # Errors
    /// `Usage`: no object has such a key.
    pub(super) fn key(&self, path: &[u8]) -> Result<String, Failure> {
        let key = keys::key_of(path);
        key.map(str::to_owned)
            .map_err(|error| self.key_failure(path, error))
    }

    /// The prefix of the keys below a path.
    ///
    /// # Errors
    /// `Usage`: no object has such a key.
    pub(super) fn prefix(&self, path: &[u8]) -> Result<String, Failure> {
        keys::prefix_of(path).map_err(|error| self.key_failure(path, error))
    }

    fn key_failure(&self, path: &[u8], error: KeyError) -> Failure {
        Failure::about(ftp::FailureKind::Usage, self.shown(path), error)
    }
}
