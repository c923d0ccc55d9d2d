//! The HTTP/1.1 client: ureq's protocol code over connections of `data::dialer`.

use std::fmt;
use std::net::ToSocketAddrs as _;
use std::sync::Arc;

use data::dialer::{DialedConnection, Dialer};
use proto::tunnel::TunnelTarget;
use security::tls::{CertificateSink, HttpsConnector};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    Transport,
};
use ureq::{Agent, Error, Proxy, ProxyProtocol, Timeout};

use ftp::location::Scheme;
use ftp::network_proxy::{NetworkProxy, ProxyScheme};
use ftp::{ConnectionSecurity, Failure};

/// Size of the receive and send buffers, bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest header of a response, bytes.
const MAX_RESPONSE_HEADER: usize = 64 << 10;

/// A client whose connections are made by `dialer`, one at a time, through the proxy if there is one. `tell` is told of certificates.
///
/// # Errors
/// `Refused` if no certificate authority is known, or those of `--ca` cannot be read. `Usage` if the
/// login of an `https:` proxy is not text.
pub(super) fn new_agent(
    dialer: &Arc<Dialer>,
    secure: bool,
    security: &ConnectionSecurity,
    proxy: Option<&Arc<NetworkProxy>>,
    tell: CertificateSink,
) -> Result<Agent, Failure> {
    let is_over_tls = |proxy: &&Arc<NetworkProxy>| proxy.scheme == ProxyScheme::Https;
    let needs_tls = secure || proxy.as_ref().is_some_and(is_over_tls);
    let own_proxy = proxy.filter(|proxy| !is_over_tls(proxy)).cloned();
    let tls_proxy = proxy.filter(is_over_tls).map(|proxy| tls_proxy(proxy));
    let config = Agent::config_builder()
        // Proxies without TLS are the dialer's.
        .proxy(tls_proxy.transpose()?)
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
    let dialing = DialerConnector {
        dialer: Arc::clone(dialer),
        proxy: own_proxy.clone(),
    };
    let connector = ().chain(ConnectProxyConnector::default()).chain(dialing);
    let resolver = RoutedResolver {
        direct: DefaultResolver::default(),
        proxy: own_proxy,
    };
    // Without TLS no authorities are needed, and a machine may have none.
    Ok(match needs_tls {
        true => {
            let tls = HttpsConnector::new(security.tls_trust()?).telling(tell);
            Agent::with_parts(config, connector.chain(tls), resolver)
        }
        false => Agent::with_parts(config, connector, resolver),
    })
}

/// A proxy inside TLS, for the HTTP library.
fn tls_proxy(proxy: &NetworkProxy) -> Result<Proxy, Failure> {
    let mut built = Proxy::builder(ProxyProtocol::Https)
        .host(&proxy.host)
        .port(proxy.port);
    if let Some((user, password)) = proxy.login_texts() {
        built = built.username(&user).password(&password);
    }
    let invalid = |_| Failure::usage(format!("the proxy {proxy} cannot be used"));
    built.build().map_err(invalid)
}

/// Resolves the host to connect to: the server, or the proxy.
#[derive(Debug)]
struct RoutedResolver {
    direct: DefaultResolver,
    proxy: Option<Arc<NetworkProxy>>,
}

impl Resolver for RoutedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let Some(proxy) = &self.proxy else {
            let found = self.direct.resolve(uri, config, timeout);
            return found.map_err(|error| unknown_host(uri.host().unwrap_or_default(), &error));
        };
        let at = match proxy.host.contains(':') {
            true => format!("http://[{}]:{}/", proxy.host, proxy.port),
            false => format!("http://{}:{}/", proxy.host, proxy.port),
        };
        let at: Uri = at.parse().map_err(|_| Error::InvalidProxyUrl)?;
        self.direct
            .resolve(&at, config, timeout)
            .map_err(|error| unknown_host(format_args!("the proxy {proxy}"), &error))
    }
}

/// The address of a host cannot be found.
#[derive(Debug, thiserror::Error)]
#[error("cannot find the address of {host}: {reason}")]
pub(super) struct UnknownHost {
    host: String,
    reason: String,
}

fn unknown_host(host: impl fmt::Display, error: &dyn fmt::Display) -> Error {
    let unknown = UnknownHost {
        host: host.to_string(),
        reason: error.to_string(),
    };
    Error::Other(unknown.into())
}

/// Opens connections with the dialer.
#[derive(Debug)]
struct DialerConnector {
    dialer: Arc<Dialer>,
    proxy: Option<Arc<NetworkProxy>>,
}

impl DialerConnector {
    /// Opens a connection to the server of a URL through the proxy.
    fn dial_through(
        &self,
        proxy: &NetworkProxy,
        details: &ConnectionDetails<'_>,
    ) -> Result<DialedConnection, Error> {
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let default = match details.needs_tls() {
            true => Scheme::Https.default_port(),
            false => Scheme::Http.default_port(),
        };
        let port = details.uri.port_u16().unwrap_or(default);
        let named = TunnelTarget::new(host, port).map_err(|e| Error::Other(e.into()))?;
        let targets = match proxy.resolves_here() && named.ip().is_none() {
            true => {
                let found = (host, port).to_socket_addrs();
                let found = found.map_err(|error| unknown_host(host, &error))?;
                found.map(|at| TunnelTarget::at(at.ip(), port)).collect()
            }
            false => vec![named],
        };
        let mut failure = Error::HostNotFound;
        for target in &targets {
            let dialed = self
                .dialer
                .dial_through(&proxy.service, &details.addrs, target);
            match dialed {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = Error::Other(error.into()),
            }
        }
        Err(failure)
    }
}

impl<In: Transport> Connector<In> for DialerConnector {
    type Out = Either<In, DialerTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        // The proxy connector before this one has already connected.
        if let Some(tunnel) = chained {
            self.dialer.ends_at_proxy();
            return Ok(Some(Either::A(tunnel)));
        }
        let connection = match &self.proxy {
            Some(proxy) => self.dial_through(proxy, details)?,
            None => self
                .dialer
                .dial(&details.addrs)
                .map_err(|e| Error::Other(e.into()))?,
        };
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

/// Removes the fields of a response 100 at the start of `input[..length]`. RFC 9110 section 15.2 permits them, and XRootD 5 sends
/// `Connection: Close`; but ureq takes a response with fields for the final one, and then neither sends the body nor gets another.
/// `false`: its end is missing.
fn remove_continue_fields(input: &mut [u8], length: &mut usize) -> bool {
    let head = &input[..*length];
    if !head.starts_with(b"HTTP/1.1 100") {
        return true;
    }
    let place = |end: &[u8]| head.windows(end.len()).position(|found| found == end);
    let (Some(line), Some(end)) = (place(b"\r\n"), place(b"\r\n\r\n")) else {
        return false;
    };
    input.copy_within(end..*length, line);
    *length -= end - line;
    true
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
        let awaits_continue = timeout.reason == Timeout::Await100;
        let input = self.buffers.input_append_buf();
        let mut length = 0;
        loop {
            let n = self
                .connection
                .recv(&mut input[length..])
                .map_err(|e| Error::Other(e.into()))?;
            length += n;
            // Another response, or its first part, is ureq's.
            let is_whole = !awaits_continue || remove_continue_fields(input, &mut length);
            if is_whole || n == 0 || length == input.len() {
                break;
            }
        }
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        self.connection.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_100_has_no_fields_for_ureq() {
        for (received, left) in [
            (
                "HTTP/1.1 100 Continue\r\n\r\n",
                "HTTP/1.1 100 Continue\r\n\r\n",
            ),
            (
                "HTTP/1.1 100 Continue\r\nConnection: Close\r\nServer: x\r\n\r\nHTTP/1.1 201 ",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 ",
            ),
            (
                "HTTP/1.1 403 Forbidden\r\nServer: x\r\n\r\n",
                "HTTP/1.1 403 Forbidden\r\nServer: x\r\n\r\n",
            ),
        ] {
            let mut input = received.as_bytes().to_vec();
            let mut length = input.len();
            assert!(remove_continue_fields(&mut input, &mut length));
            assert_eq!(&input[..length], left.as_bytes());
        }
        let mut input = b"HTTP/1.1 100 Continue\r\nServer".to_vec();
        let mut length = input.len();
        assert!(!remove_continue_fields(&mut input, &mut length));
        assert_eq!(length, input.len());
    }
}
