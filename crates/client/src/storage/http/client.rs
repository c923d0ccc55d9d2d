//! One request at a time, over one connection that is kept: redirects, logins, bounds.

use std::io::Read;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data::dialer::Dialer;
use data::job::TransferSettings;
use proto::http::url::HttpUrl;
use ureq::http::{HeaderValue, Request, Response};
use ureq::{Agent, Body, SendBody};

use super::{agent, errors};
use crate::credentials::Credential;
use crate::{CopyFailure, Exit};

/// Most redirects of one request.
const MOST_REDIRECTS: usize = 10;
/// Bytes of a body that nobody wants, read so that the connection can be kept.
const MOST_SKIPPED: u64 = 64 << 10;

/// Who is asked first, and with which login.
#[derive(Clone)]
pub(super) struct HttpOrigin {
    /// The root of the server.
    pub(super) target: HttpUrl,
    /// Authorization, for this origin only.
    login: Option<HeaderValue>,
}

impl std::fmt::Debug for HttpOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.target.fmt(f)
    }
}

impl HttpOrigin {
    /// A server and its user.
    ///
    /// # Errors
    /// `Usage`: the credential cannot be told over HTTP.
    pub(super) fn new(target: HttpUrl, credential: &Credential) -> Result<Self, CopyFailure> {
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
            Credential::Certificate { .. } => {
                let message =
                    "logins with a certificate are not spoken over https: by this version";
                return Err(CopyFailure::new(Exit::Usage, message));
            }
        };
        let login = match text.map(|text| HeaderValue::from_str(&text)) {
            None => None,
            Some(Ok(mut value)) => {
                value.set_sensitive(true);
                Some(value)
            }
            Some(Err(_)) => {
                let message = "the login has characters that HTTP cannot carry";
                return Err(CopyFailure::new(Exit::Usage, message));
            }
        };
        Ok(Self { target, login })
    }
}

/// A request.
pub(super) struct HttpRequest<'a> {
    /// `GET`
    pub(super) method: &'a str,
    /// Of this.
    pub(super) target: &'a HttpUrl,
    /// Further fields.
    pub(super) fields: &'a [(&'a str, String)],
    /// `read http://host/f`, for messages.
    pub(super) doing: &'a str,
}

/// A body to be sent.
pub(super) enum HttpRequestBody<'b> {
    /// None.
    Empty,
    /// This text.
    Text(&'static str),
    /// As many bytes as are named among the fields, or in chunks.
    Bytes(&'b mut dyn Read),
}

/// An answer whose body is still to come.
pub(super) struct HttpResponse {
    response: Response<Body>,
    /// Who gave it, after redirects.
    pub(super) target: HttpUrl,
}

impl HttpResponse {
    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// A field by its lower-case name, the first of several; `None` also where it is no text.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let value = self.response.headers().get(name)?;
        value.to_str().ok().map(str::trim)
    }

    /// All fields that are text, lower-case names.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.response.headers().iter();
        fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// The body, as it comes.
    pub(super) fn into_body(self) -> impl Read + Send + 'static {
        self.response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader()
    }

    /// Reads what nobody wants, if it is little: the connection is kept then.
    pub(super) fn skip(self) {
        let mut rest = self.into_body().take(MOST_SKIPPED);
        let _ = std::io::copy(&mut rest, &mut std::io::sink());
    }
}

/// Asks one thing after the other.
#[derive(Debug)]
pub(super) struct HttpClient {
    home: HttpOrigin,
    pub(super) dialer: Arc<Dialer>,
    /// For `http:` and for `https:`, once needed.
    agents: [Option<Agent>; 2],
}

impl HttpClient {
    /// # Errors
    /// `Local`: no descriptor is left.
    pub(super) fn new(home: &HttpOrigin, settings: &TransferSettings) -> Result<Self, CopyFailure> {
        let dialer = Dialer::new(settings);
        let dialer = dialer.map_err(|e| CopyFailure::new(Exit::Local, e.to_string()))?;
        Ok(Self {
            home: home.clone(),
            dialer,
            agents: [None, None],
        })
    }

    /// Asks, and follows where the server leads; any status that is no redirect is an answer. A body is
    /// not sent a second time.
    ///
    /// # Errors
    /// By their class; transient where a connection was lost.
    pub(super) fn ask(
        &mut self,
        ask: &HttpRequest<'_>,
        mut payload: HttpRequestBody<'_>,
    ) -> Result<HttpResponse, CopyFailure> {
        let mut target = ask.target.clone();
        for _ in 0..=MOST_REDIRECTS {
            let sent = match &mut payload {
                HttpRequestBody::Empty => self.run(ask, &target, ()),
                HttpRequestBody::Text(text) => self.run(ask, &target, *text),
                HttpRequestBody::Bytes(bytes) => {
                    self.run(ask, &target, SendBody::from_reader(*bytes))
                }
            };
            let response = sent?;
            let status = response.status().as_u16();
            let reply = HttpResponse { response, target };
            let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
            let Some(location) = reply.field("location").filter(|_| is_redirect) else {
                return Ok(reply);
            };
            if !matches!(payload, HttpRequestBody::Empty) {
                let message = format!(
                    "cannot {}: the server leads elsewhere; write to that URL directly (HTTP {status})",
                    ask.doing
                );
                return Err(CopyFailure::new(Exit::Protocol, message));
            }
            let next = reply.target.resolve_redirect(location).map_err(|error| {
                let message = format!(
                    "cannot {}: the server leads elsewhere, but {error}",
                    ask.doing
                );
                CopyFailure::new(Exit::Protocol, message)
            })?;
            reply.skip();
            target = next;
        }
        let message = format!("cannot {}: the server leads in circles", ask.doing);
        Err(CopyFailure::new(Exit::Protocol, message))
    }

    fn run(
        &mut self,
        ask: &HttpRequest<'_>,
        to: &HttpUrl,
        body: impl ureq::AsSendBody,
    ) -> Result<Response<Body>, CopyFailure> {
        let mut request = Request::builder().method(ask.method).uri(to.uri());
        for (name, value) in ask.fields {
            request = request.header(*name, value);
        }
        if let Some(login) = &self.home.login
            && to.is_same_origin(&self.home.target)
        {
            request = request.header("authorization", login);
        }
        let request = request.body(body).map_err(|_| {
            let message = format!("cannot {}: it cannot be told over HTTP", ask.doing);
            CopyFailure::new(Exit::Usage, message)
        })?;
        let agent = self.agent(to.secure)?;
        let answered = agent.run(request);
        answered.map_err(|error| {
            let own = self.dialer.take_failure();
            errors::of_error(ask.doing, &error, own.as_ref())
        })
    }

    fn agent(&mut self, secure: bool) -> Result<Agent, CopyFailure> {
        let kept = &mut self.agents[usize::from(secure)];
        match kept {
            Some(agent) => Ok(agent.clone()),
            None => Ok(kept.insert(agent::agent(&self.dialer, secure)?).clone()),
        }
    }
}
