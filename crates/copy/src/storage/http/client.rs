//! Sends one request at a time over one persistent connection. Handles redirects, logins and size
//! limits.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data::dialer::Dialer;
use data::job::TransferSettings;
use parking_lot::Mutex;
use proto::http::date;
use proto::http::url::HttpUrl;
use proto::timestamp::Timestamp;
use ureq::http::{HeaderValue, Request, Response};
use ureq::{Agent, Body, SendBody};
use ureq_proto::client::header_raw;

use super::dialect::{DialectRequest, HttpDialect};
use super::request::{HttpRequest, HttpRequestBody};
use super::response::HttpResponse;
use super::{agent, dialogue, errors};
use ftp::credentials::Credential;
use ftp::failure::Operation;
use ftp::location::Scheme;
use ftp::network_proxy::NetworkProxy;
use ftp::{ConnectionSecurity, DelegationChoice, Failure, FailureKind, ServerIdentity};

/// Most redirects of one request.
const MAX_REDIRECTS: usize = 10;

/// The server that is asked first, with the login for it.
#[derive(Clone)]
pub(in crate::storage) struct HttpOrigin {
    /// URL of the server's root.
    pub(in crate::storage) root_url: HttpUrl,
    /// Value of the Authorization header, sent to this origin only.
    authorization: Option<HeaderValue>,
    /// How requests are signed, and refusals understood, where plain HTTP is not enough.
    dialect: Option<Arc<dyn HttpDialect>>,
    /// Which authorities verify servers.
    security: Arc<ConnectionSecurity>,
}

impl std::fmt::Debug for HttpOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.root_url.fmt(f)
    }
}

impl HttpOrigin {
    /// A server and its user.
    ///
    /// # Errors
    /// `Usage`: the credential cannot be expressed in HTTP.
    pub(in crate::storage) fn new(
        target: HttpUrl,
        credential: &Credential,
        security: &Arc<ConnectionSecurity>,
    ) -> Result<Self, Failure> {
        let text = match credential {
            Credential::Anonymous => None,
            Credential::Password { user, .. } if credential.user().is_none() || user.is_empty() => {
                None
            }
            Credential::Password { user, password } => {
                let mut pair = format!("{user}:").into_bytes();
                pair.extend_from_slice(&password.0);
                Some(format!("Basic {}", BASE64_STANDARD.encode(pair)))
            }
            Credential::Token(token) => {
                Some(format!("Bearer {}", String::from_utf8_lossy(&token.0)))
            }
            Credential::GridMapping => None,
        };
        let login = match text.map(|text| HeaderValue::from_str(&text)) {
            None => None,
            Some(Ok(mut value)) => {
                // Keeps the password out of ureq's debug log.
                value.set_sensitive(true);
                Some(value)
            }
            Some(Err(_)) => {
                return Err(Failure::usage(
                    "the login has characters that HTTP cannot carry",
                ));
            }
        };
        Ok(Self {
            root_url: target,
            authorization: login,
            dialect: None,
            security: Arc::clone(security),
        })
    }

    /// A server whose requests and refusals are those of `dialect`.
    pub(in crate::storage) fn with_dialect(
        target: HttpUrl,
        dialect: Arc<dyn HttpDialect>,
        security: &Arc<ConnectionSecurity>,
    ) -> Self {
        Self {
            root_url: target,
            authorization: None,
            dialect: Some(dialect),
            security: Arc::clone(security),
        }
    }
}

impl HttpOrigin {
    /// Whether requests carry a login.
    pub(super) fn has_login(&self) -> bool {
        self.authorization.is_some()
    }

    /// The token of the login, if it is one.
    pub(super) fn bearer(&self) -> Option<&str> {
        let login = self.authorization.as_ref()?;
        login.to_str().ok()?.strip_prefix("Bearer ")
    }

    /// Whether other servers get the user's own credential.
    pub(super) fn delegation(&self) -> DelegationChoice {
        self.security.options().delegation
    }
}

/// Sends one request after the other.
#[derive(Debug)]
pub(in crate::storage) struct HttpClient {
    origin: HttpOrigin,
    pub(in crate::storage) dialer: Arc<Dialer>,
    /// The wait that the last response asks for.
    pub(in crate::storage) retry_after: Option<Duration>,
    /// Agents by scheme and proxy, created on first use: a redirect may lead to a host that has another one.
    agents: Vec<RoutedAgent>,
    /// How the server of the origin has shown itself.
    shown: Arc<Mutex<ServerIdentity>>,
}

/// An agent, and which connections it makes.
#[derive(Debug)]
struct RoutedAgent {
    secure: bool,
    proxy: Option<Arc<NetworkProxy>>,
    agent: Agent,
}

impl HttpClient {
    /// A client for one server.
    ///
    /// # Errors
    /// `Local`: no descriptor is left.
    pub(in crate::storage) fn new(
        origin: &HttpOrigin,
        settings: &TransferSettings,
    ) -> Result<Self, Failure> {
        let dialer = Dialer::new(settings);
        let dialer = dialer.map_err(|e| Failure::local(e.to_string()))?;
        Ok(Self {
            origin: origin.clone(),
            dialer,
            retry_after: None,
            agents: Vec::new(),
            shown: Arc::default(),
        })
    }

    /// Sends a request, and follows redirects of one that changes nothing. Any status that is not a redirect is returned.
    ///
    /// # Errors
    /// Failures by class. Transient if a connection was lost. `Protocol` for a redirect that is not followed.
    pub(in crate::storage) fn send(
        &mut self,
        request: &HttpRequest<'_>,
        mut body_source: HttpRequestBody<'_>,
    ) -> Result<HttpResponse, Failure> {
        let mut target = request.url.clone();
        // Bounded, because redirects may form a loop.
        for _ in 0..=MAX_REDIRECTS {
            self.retry_after = None;
            let result = match &mut body_source {
                HttpRequestBody::Empty => self.send_once(request, &target, None, ()),
                HttpRequestBody::Text(text) => {
                    self.send_once(request, &target, Some(text.len()), *text)
                }
                HttpRequestBody::Bytes(bytes) => {
                    self.send_once(request, &target, None, SendBody::from_reader(*bytes))
                }
            };
            let response = result?;
            let status = response.status().as_u16();
            let reply = HttpResponse {
                response,
                url: target,
            };
            self.retry_after = reply
                .header("retry-after")
                .and_then(|text| date::retry_after(text, Timestamp(now())));
            // RFC 9110 section 15.4. 300 offers a choice and 304 is an answer to a condition.
            let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
            let Some(location) = reply.header("location").filter(|_| is_redirect) else {
                return Ok(reply);
            };
            let next_url = reply.url.resolve_redirect(location).map_err(|error| {
                let reason = format_args!("the server redirects the request, but {error}");
                request.action.failed(FailureKind::Protocol, reason)
            })?;
            if !request.follows(status) {
                return Err(errors::redirected(request.action, &next_url));
            }
            reply.discard_body();
            target = next_url;
        }
        let reason = "too many redirects";
        Err(request.action.failed(FailureKind::Protocol, reason))
    }

    fn send_once(
        &mut self,
        request: &HttpRequest<'_>,
        to: &HttpUrl,
        length: Option<usize>,
        body: impl ureq::AsSendBody,
    ) -> Result<Response<Body>, Failure> {
        let prepared = match &self.origin.dialect {
            Some(dialect) => dialect.prepare(request, to)?,
            None => DialectRequest {
                uri: to.uri(),
                headers: Vec::new(),
            },
        };
        let mut message = Request::builder().method(request.method).uri(prepared.uri);
        if let Some(length) = length {
            message = header_raw(message, "Content-Length", length.to_string().as_bytes());
        }
        for (name, value) in request.headers.iter().chain(&prepared.headers) {
            message = match HeaderValue::from_str(value) {
                // Keeps it out of ureq's debug log. Servers want the usual case of what they read by themselves.
                Ok(mut value) if dialogue::is_secret(name) && !name.starts_with("Transfer") => {
                    value.set_sensitive(true);
                    message.header(*name, value)
                }
                _ => header_raw(message, &usual_case(name), value.as_bytes()),
            };
        }
        // Never to the target of a redirect: another server must not learn the password.
        let login = self.origin.authorization.as_ref();
        let login = login.filter(|_| to.is_same_origin(&self.origin.root_url));
        if let Some(login) = login {
            message = header_raw(message, "Authorization", login.as_bytes());
        }
        dialogue::log_request(request, to, login.is_some());
        let message = message.body(body).map_err(|_| {
            let reason = "HTTP cannot express this request";
            request.action.failed(FailureKind::Usage, reason)
        })?;
        let agent = self.agent(to)?;
        let result = agent.run(message);
        if let Ok(response) = &result {
            dialogue::log_response(response, to, self.origin.authorization.as_ref());
            let software = response.headers().get("server");
            if let Some(software) = software.and_then(|value| value.to_str().ok())
                && to.is_same_origin(&self.origin.root_url)
            {
                let told = ServerIdentity::of_software(software);
                self.shown.lock().learn(told);
            }
            // Some servers send the page of an error all the same, which would be taken for the next response (wsgidav).
            if request.method == "HEAD" && response.status().as_u16() >= 400 {
                self.agents.clear();
            }
        }
        result.map_err(|error| {
            let dialer_error = self.dialer.take_failure();
            errors::request_failure(request.action, &error, dialer_error.as_ref())
        })
    }

    /// Notes how the server has shown itself.
    pub(super) fn note_identity(&self) {
        let (server, shown) = (self.origin.root_url.authority(), self.shown.lock().clone());
        self.origin.security.note_identity(&server, shown);
    }

    /// The failure of a request that was answered with a status that is none of its successes.
    pub(in crate::storage) fn failure_of(
        &self,
        action: &Operation,
        response: HttpResponse,
    ) -> Failure {
        match &self.origin.dialect {
            Some(dialect) => dialect.failure(action, response),
            None => {
                let failure = errors::status_failure(action, &response);
                // The connection can then carry the next request.
                response.discard_body();
                failure
            }
        }
    }

    /// The body of a response, at most `limit` bytes and one more.
    ///
    /// # Errors
    /// The connection was lost.
    pub(in crate::storage) fn read_body(
        &self,
        response: HttpResponse,
        action: &Operation,
        limit: usize,
    ) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        let mut bounded = response.into_body().take(limit as u64 + 1);
        bounded.read_to_end(&mut body).map_err(|error| {
            let dialer_error = self.dialer.take_failure();
            errors::request_failure(action, &ureq::Error::Io(error), dialer_error.as_ref())
        })?;
        Ok(body)
    }

    fn agent(&mut self, to: &HttpUrl) -> Result<Agent, Failure> {
        let security = &self.origin.security;
        let scheme = match to.secure {
            true => Scheme::Https,
            false => Scheme::Http,
        };
        let choice = &security.options().proxy;
        let proxy = choice.proxy_for(scheme.name(), &to.host)?;
        let is_same = |known: &&RoutedAgent| known.secure == to.secure && known.proxy == proxy;
        if let Some(known) = self.agents.iter().find(is_same) {
            return Ok(known.agent.clone());
        }
        // A redirect, or a proxy, has another host.
        let (shown, origin) = (Arc::clone(&self.shown), self.origin.root_url.host.clone());
        let tell = move |host: &str, fingerprint: String| {
            if host == origin {
                let told = ServerIdentity {
                    certificate_sha256: Some(fingerprint),
                    ..ServerIdentity::default()
                };
                shown.lock().learn(told);
            }
        };
        let tell = Arc::new(tell);
        let agent = agent::new_agent(&self.dialer, to.secure, security, proxy.as_ref(), tell)?;
        self.agents.push(RoutedAgent {
            secure: to.secure,
            proxy,
            agent: agent.clone(),
        });
        Ok(agent)
    }
}

/// The name of a header as it is written in the standards. XRootD 5 knows many only so.
fn usual_case(name: &str) -> String {
    let mut is_first = true;
    let letters = name.chars().map(|letter| {
        let usual = match is_first {
            true => letter.to_ascii_uppercase(),
            false => letter,
        };
        is_first = letter == '-';
        usual
    });
    letters.collect()
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}
