//! Reads key sets of issuers: from files and over HTTPS, with bounds on size and time.

use std::io::{Read, Result as IoResult};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use security::tls::HttpsConnector;
use security::token::KeySet;
use security::x509::TrustStore;
use serde::Deserialize;
use smallfile::regular_file;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, ResponseExt};

use crate::config::KeySource;

/// Largest document, bytes.
const MAX_DOCUMENT: u64 = 1 << 20;
/// Longest time until a connection is made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for everything: metadata, key set and redirects.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Most redirects of a request; all targets must be https.
const MAX_REDIRECTS: u32 = 3;

/// Bounds on the time for which a key set is used before it is fetched again: an issuer that allows
/// caching for a moment only must not be asked at each login, and a withdrawn key must not last.
const FRESHNESS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5 * 60)..=Duration::from_secs(6 * 3600);
/// The time if the issuer says nothing.
const DEFAULT_FRESHNESS: Duration = Duration::from_secs(3600);

/// A key set, and the time for which it may be used.
#[derive(Debug, Clone)]
pub(super) struct FetchedKeys {
    pub(super) keys: KeySet,
    pub(super) fresh_for: Duration,
}

/// Reads key sets. Blocks.
pub(super) trait KeyFetcher: std::fmt::Debug + Send + Sync {
    /// Reads the key set of `issuer` from its place. The error is for the log.
    fn fetch(&self, issuer: &str, source: &KeySource) -> Result<FetchedKeys, String>;
}

/// Reads key sets from files and with HTTPS.
#[derive(Debug)]
pub(super) struct SystemFetcher {
    /// Authorities of issuers' servers; `None`: all key sets are in files.
    authorities: Option<Arc<TrustStore>>,
}

/// The metadata of an issuer, as far as they matter.
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

/// A document and its Cache-Control header.
struct Document {
    bytes: Vec<u8>,
    cache_control: Option<String>,
}

impl SystemFetcher {
    pub(super) fn new(authorities: Option<Arc<TrustStore>>) -> Self {
        Self { authorities }
    }

    fn get(&self, url: &str, deadline: Instant) -> Result<Document, String> {
        let authorities = self.authorities.clone();
        let authorities = authorities.ok_or("no certificate authorities are known")?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("{url}: no answer in {} s", TOTAL_TIMEOUT.as_secs()));
        }
        let config = Agent::config_builder()
            .https_only(true)
            // The proxy of the environment is one for users, not for a daemon.
            .proxy(None)
            .max_redirects(MAX_REDIRECTS)
            .timeout_connect(Some(CONNECT_TIMEOUT.min(left)))
            .timeout_global(Some(left))
            .accept("application/json")
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build();
        let connector = ().chain(TcpConnector::default()).chain(HttpsConnector::new(authorities));
        let agent = Agent::with_parts(config, connector, DefaultResolver::default());
        let failed = |error: ureq::Error| format!("{url}: {error}");
        let mut response = agent.get(url).call().map_err(failed)?;
        let cache_control = response.headers().get("cache-control");
        let cache_control = cache_control
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        tracing::debug!(url = %response.get_uri(), "key document read");
        let body = response.body_mut().with_config().limit(MAX_DOCUMENT);
        Ok(Document {
            bytes: body.read_to_vec().map_err(failed)?,
            cache_control,
        })
    }

    /// The URL of the key set, from the issuer's metadata.
    fn key_set_url(&self, issuer: &str, url: &str, deadline: Instant) -> Result<String, String> {
        let document = self.get(url, deadline)?;
        let metadata: IssuerMetadata = serde_json::from_slice(&document.bytes)
            .map_err(|error| format!("{url}: not the metadata of an issuer: {error}"))?;
        // OpenID Connect Discovery 1.0 section 4.3: otherwise one issuer could speak for another.
        if metadata.issuer != issuer {
            return Err(format!(
                "{url}: these are the metadata of {:?}",
                metadata.issuer
            ));
        }
        Ok(metadata.jwks_uri)
    }
}

impl KeyFetcher for SystemFetcher {
    fn fetch(&self, issuer: &str, source: &KeySource) -> Result<FetchedKeys, String> {
        let deadline = Instant::now() + TOTAL_TIMEOUT;
        let (place, document) = match source {
            KeySource::Metadata(url) => {
                let url = self.key_set_url(issuer, url, deadline)?;
                let document = self.get(&url, deadline)?;
                (url, document)
            }
            KeySource::Url(url) => (url.clone(), self.get(url, deadline)?),
            KeySource::File(path) => {
                let place = path.display().to_string();
                let bytes = read_key_file(path).map_err(|error| format!("{place}: {error}"))?;
                let document = Document {
                    bytes,
                    // Read again at the shortest interval: it costs nothing.
                    cache_control: Some("no-cache".to_owned()),
                };
                (place, document)
            }
        };
        let keys = KeySet::parse(&document.bytes).map_err(|error| format!("{place}: {error}"))?;
        if keys.is_empty() {
            return Err(format!("{place}: the key set has no usable key"));
        }
        Ok(FetchedKeys {
            keys,
            fresh_for: freshness(document.cache_control.as_deref()),
        })
    }
}

/// Reads a key file that only its owner may change.
fn read_key_file(path: &Path) -> IoResult<Vec<u8>> {
    let (file, metadata) = regular_file::open(path)?;
    if metadata.mode() & 0o022 != 0 {
        return Err(std::io::Error::other(
            "others may change it; write: chmod go-w",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// The time for which a response may be used (RFC 9111 §5.2.2), within our bounds.
fn freshness(cache_control: Option<&str>) -> Duration {
    let mut asked = DEFAULT_FRESHNESS;
    for directive in cache_control.unwrap_or_default().split(',') {
        let directive = directive.trim().to_ascii_lowercase();
        match directive.split_once('=') {
            Some(("max-age", seconds)) => {
                let seconds = seconds.trim_matches('"').parse();
                asked = seconds.map_or(asked, Duration::from_secs);
            }
            None if matches!(directive.as_str(), "no-store" | "no-cache") => {
                asked = Duration::ZERO;
                break;
            }
            _ => {}
        }
    }
    asked.clamp(*FRESHNESS.start(), *FRESHNESS.end())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_pipe::make_pipe;

    #[test]
    fn the_issuer_decides_the_freshness_within_bounds() {
        for (header, seconds) in [
            (None, 3600),
            (Some("public"), 3600),
            (Some("max-age=900"), 900),
            (Some("public, Max-Age=\"900\", must-revalidate"), 900),
            (Some("max-age=0"), 300),
            (Some("no-store"), 300),
            (Some("no-cache, max-age=900"), 300),
            (Some("max-age=31536000"), 6 * 3600),
            (Some("max-age=99999999999999999999"), 3600),
            (Some("max-age=x"), 3600),
        ] {
            assert_eq!(freshness(header).as_secs(), seconds, "{header:?}");
        }
    }

    #[test]
    fn a_key_file_that_is_a_pipe_or_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let source = KeySource::File(path.clone());
        let fetcher = SystemFetcher::new(None);
        let fetched = || {
            fetcher
                .fetch("https://i", &source)
                .map(|fetched| fetched.keys.len())
        };
        assert!(fetched().unwrap_err().contains("No such file"));
        make_pipe(&path);
        assert!(fetched().unwrap_err().contains("not a regular file"));
        std::fs::remove_file(&path).unwrap();
        let jwk = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        std::fs::write(&path, jwk).unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o644);
        assert_eq!(fetched(), Ok(1));
        set_mode(0o664);
        assert!(fetched().unwrap_err().contains("others may change it"));
        set_mode(0o644);
        std::fs::write(&path, "{\"keys\":[]}").unwrap();
        assert!(fetched().unwrap_err().contains("no usable key"));
        std::fs::write(&path, vec![b' '; (1 << 20) + 1]).unwrap();
        assert!(fetched().unwrap_err().contains("larger than 1 MiB"));
    }

    #[test]
    fn without_authorities_nothing_is_fetched() {
        let fetcher = SystemFetcher::new(None);
        let source = KeySource::Url("https://127.0.0.1:1/keys".to_owned());
        let error = fetcher.fetch("https://i", &source).unwrap_err();
        assert!(error.contains("authorities"), "{error}");
    }
}
