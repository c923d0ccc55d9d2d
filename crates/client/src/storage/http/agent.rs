//! The HTTP/1.1 client: ureq's protocol code over connections of `data::dialer`.

use std::fmt;
use std::sync::Arc;

use data::dialer::{DialedConnection, Dialer};
use security::tls::HttpsConnector;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    Transport,
};
use ureq::{Agent, Error, Proxy, ProxyProtocol};

use crate::{ConnectionSecurity, CopyFailure, Exit};

/// Size of the receive and send buffers, bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest header of a response, bytes.
const MAX_RESPONSE_HEADER: usize = 64 << 10;

/// A client whose connections are made by `dialer`, one at a time.
///
/// # Errors
/// `Refused` if no certificate authority is known, or those of `--ca` cannot be read. `Usage` if the
/// environment names an invalid proxy.
pub(super) fn new_agent(
    dialer: &Arc<Dialer>,
    secure: bool,
    security: &ConnectionSecurity,
) -> Result<Agent, CopyFailure> {
    let proxy = environment_proxy(secure)?;
    let needs_tls = secure
        || proxy
            .as_ref()
            .is_some_and(|proxy| proxy.protocol() == ProxyProtocol::Https);
    let config = Agent::config_builder()
        .proxy(proxy)
        // Statuses are mapped to failures with a text of their own.
        .http_status_as_error(false)
        // Redirects are followed here, because the login must not go to another origin.
        .max_redirects(0)
        .allow_non_standard_methods(true)
        .max_response_header_size(MAX_RESPONSE_HEADER)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        // One client per stream: its connection carries one request at a time.
        .max_idle_connections(1)
        .max_idle_connections_per_host(1)
        // Compressed bodies would have other lengths, ranges and checksums.
        .accept_encoding("identity")
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .build();
    let connector =
        ().chain(ConnectProxyConnector::default())
            .chain(DialerConnector(Arc::clone(dialer)));
    let resolver = DefaultResolver::default();
    // Without TLS no authorities are needed, and a machine may have none.
    Ok(match needs_tls {
        true => {
            let tls = HttpsConnector::new(security.tls_trust()?);
            Agent::with_parts(config, connector.chain(tls), resolver)
        }
        false => Agent::with_parts(config, connector, resolver),
    })
}

/// The proxy that the environment names for a scheme, with the same variables as curl and wget.
/// HTTP_PROXY in upper case is ignored: in a CGI process it holds a header of the request
/// (CVE-2016-5385, "httpoxy").
fn environment_proxy(secure: bool) -> Result<Option<Proxy>, CopyFailure> {
    let names: &[&str] = match secure {
        true => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        false => &["http_proxy", "all_proxy", "ALL_PROXY"],
    };
    let env_var = |name: &&str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let Some(text) = names.iter().find_map(env_var) else {
        return Ok(None);
    };
    let invalid = |_| {
        CopyFailure::new(
            Exit::Usage,
            format!(
                "{} is not an HTTP proxy URL: write http://host:port",
                names[0]
            ),
        )
    };
    let parsed = Proxy::new(&text).map_err(invalid)?;
    if !matches!(
        parsed.protocol(),
        ProxyProtocol::Http | ProxyProtocol::Https
    ) {
        return Err(invalid(Error::InvalidProxyUrl));
    }
    let mut proxy = Proxy::builder(parsed.protocol())
        .host(parsed.host())
        .port(parsed.port());
    if let Some(user) = parsed.username() {
        proxy = proxy.username(user);
    }
    if let Some(password) = parsed.password() {
        proxy = proxy.password(password);
    }
    let excluded = ["no_proxy", "NO_PROXY"].iter().find_map(env_var);
    for host in excluded.iter().flat_map(|hosts| hosts.split(',')) {
        proxy = proxy.no_proxy(host.trim());
    }
    proxy.build().map(Some).map_err(invalid)
}

/// Opens connections with the dialer.
#[derive(Debug)]
struct DialerConnector(Arc<Dialer>);

impl<In: Transport> Connector<In> for DialerConnector {
    type Out = Either<In, DialerTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        // The proxy connector before this one has already connected.
        if let Some(tunnel) = chained {
            return Ok(Some(Either::A(tunnel)));
        }
        let connection = self
            .0
            .dial(&details.addrs)
            .map_err(|e| Error::Other(e.into()))?;
        let config = details.config;
        let sizes = (config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Either::B(DialerTransport {
            connection,
            buffers: LazyBuffers::new(sizes.0, sizes.1),
        })))
    }
}

/// A connection of the dialer with its buffers.
struct DialerTransport {
    connection: DialedConnection,
    buffers: LazyBuffers,
}

impl fmt::Debug for DialerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl Transport for DialerTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _timeout: NextTimeout) -> Result<(), Error> {
        let output = &self.buffers.output()[..amount];
        self.connection
            .send_all(output)
            .map_err(|e| Error::Other(e.into()))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // The only timeout that is set is the wait for 100 Continue (RFC 9110 section 10.1.1). The
        // dialer itself detects stalls.
        if let Some(limit) = timeout.not_zero()
            && !self.connection.has_input(*limit)
        {
            return Err(Error::Timeout(timeout.reason));
        }
        let input = self.buffers.input_append_buf();
        let n = self
            .connection
            .recv(input)
            .map_err(|e| Error::Other(e.into()))?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        self.connection.is_idle()
    }
}
