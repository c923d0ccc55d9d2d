//! A digest as an HTTP POST with a JSON body.

use std::time::Duration;

use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

use super::anomaly::AnomalyBatch;
use super::{NotifyError, SendFailure, SendRetry};

/// A URL that cannot be a webhook's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a webhook needs a URL that begins with http:// or https:// and names a host")]
pub struct WebhookUrlError;

/// A webhook. The URL may hold a secret, so only its host appears in messages.
pub struct Webhook {
    url: String,
    host: String,
    authorization: Option<String>,
    agent: Agent,
    retry: SendRetry,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// A webhook at this URL; each attempt ends after the time-out. Certificates of https servers are judged by
    /// OpenSSL with the authorities of this machine.
    ///
    /// # Errors
    /// The URL has another scheme or no host.
    pub fn new(url: &str, timeout: Duration, retry: SendRetry) -> Result<Self, WebhookUrlError> {
        let uri: Uri = url.parse().map_err(|_| WebhookUrlError)?;
        let host = uri.host().ok_or(WebhookUrlError)?.to_owned();
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(WebhookUrlError);
        }
        let tls = TlsConfig::builder()
            .provider(TlsProvider::NativeTls)
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let agent = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            // A redirected POST would become a GET, or go to a host that nobody configured.
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls)
            .build()
            .into();
        Ok(Self {
            url: url.to_owned(),
            host,
            authorization: None,
            agent,
            retry,
        })
    }

    /// Sends this value of the Authorization field (RFC 9110 section 11.6.2) with each request.
    #[must_use]
    pub fn authorization(mut self, value: String) -> Self {
        self.authorization = Some(value);
        self
    }

    /// Sends a digest. Blocks for the time of all attempts.
    ///
    /// # Errors
    /// No attempt succeeded, or the server refused.
    pub fn send(&self, host: &str, batch: &AnomalyBatch) -> Result<(), NotifyError> {
        let body = batch.to_json(host).to_string();
        self.retry.run(&self.host, || self.attempt(&body))
    }

    fn attempt(&self, body: &str) -> Result<(), SendFailure> {
        let mut request = self.agent.post(&self.url).content_type("application/json");
        if let Some(value) = &self.authorization {
            request = request.header("Authorization", value);
        }
        // The error names no more than the host: the URL may hold a secret.
        let response = request.send(body).map_err(|error| match error {
            ureq::Error::Timeout(_) => SendFailure::Passing("no answer in time".to_owned()),
            ureq::Error::Io(error) => SendFailure::Passing(error.to_string()),
            ureq::Error::HostNotFound => SendFailure::Passing("host not found".to_owned()),
            ureq::Error::ConnectionFailed => {
                SendFailure::Passing("the connection failed".to_owned())
            }
            ureq::Error::Tls(reason) => SendFailure::Lasting(reason.to_owned()),
            _ => SendFailure::Lasting("the request failed".to_owned()),
        })?;
        let status = response.status();
        let reason = format!("HTTP status {}", status.as_u16());
        match status.as_u16() {
            200..=299 => Ok(()),
            // Request timeout, too early, too many requests (RFC 9110, RFC 8470, RFC 6585).
            408 | 425 | 429 | 500..=599 => Err(SendFailure::Passing(reason)),
            _ => Err(SendFailure::Lasting(reason)),
        }
    }
}
