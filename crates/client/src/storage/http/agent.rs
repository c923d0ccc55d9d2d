//! The HTTP/1.1 client: ureq's dialogue over this house's own connections.

use std::fmt;
use std::sync::{Arc, OnceLock};

use data::dialer::{DialedConnection, Dialer};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, Transport,
};
use ureq::{Agent, Error, Proxy, ProxyProtocol};

use crate::{CopyFailure, Exit};

/// Bytes that are received, or sent, at a time.
const STEP: usize = 256 << 10;
/// Longest header of a reply, bytes.
const LONGEST_HEADER: usize = 64 << 10;

/// A client whose connections, one at a time, `dialer` makes.
///
/// # Errors
/// `Unreachable`: no certificate authority is known, or the proxy of the environment is none.
pub(super) fn agent(dialer: &Arc<Dialer>, secure: bool) -> Result<Agent, CopyFailure> {
    let mut tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    if secure {
        tls = tls.root_certs(RootCerts::Specific(Arc::clone(authorities()?)));
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .proxy(proxy(secure)?)
        .http_status_as_error(false)
        .max_redirects(0)
        .allow_non_standard_methods(true)
        .max_response_header_size(LONGEST_HEADER)
        .input_buffer_size(STEP)
        .output_buffer_size(STEP)
        .max_idle_connections(1)
        .max_idle_connections_per_host(1)
        .accept_encoding("identity")
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .build();
    let connector =
        ().chain(ConnectProxyConnector::default())
            .chain(DialerConnector(Arc::clone(dialer)))
            .chain(RustlsConnector::default());
    Ok(Agent::with_parts(
        config,
        connector,
        DefaultResolver::default(),
    ))
}

/// The system's certificate authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR.
fn authorities() -> Result<&'static Arc<Vec<Certificate<'static>>>, CopyFailure> {
    static KNOWN: OnceLock<Arc<Vec<Certificate<'static>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(%error, "certificate authorities");
        }
        let own = found
            .certs
            .iter()
            .map(|der| Certificate::from_der(der).to_owned());
        Arc::new(own.collect())
    });
    match known.is_empty() {
        false => Ok(known),
        true => Err(CopyFailure::new(
            Exit::Unreachable,
            "this machine knows no certificate authority to check https: servers with: install \
             ca-certificates, or name a file of them in SSL_CERT_FILE",
        )),
    }
}

/// The proxy that the environment names for a scheme, as curl and wget read it. HTTP_PROXY in upper
/// case is left alone: a web server makes it of a request's header.
fn proxy(secure: bool) -> Result<Option<Proxy>, CopyFailure> {
    let names: &[&str] = match secure {
        true => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        false => &["http_proxy", "all_proxy", "ALL_PROXY"],
    };
    let set = |name: &&str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let Some(text) = names.iter().find_map(set) else {
        return Ok(None);
    };
    let wrong = |_| {
        CopyFailure::new(
            Exit::Usage,
            format!("{} names no HTTP proxy: write http://host:port", names[0]),
        )
    };
    let named = Proxy::new(&text).map_err(wrong)?;
    if !matches!(named.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) {
        return Err(wrong(Error::InvalidProxyUrl));
    }
    let mut proxy = Proxy::builder(named.protocol())
        .host(named.host())
        .port(named.port());
    if let Some(user) = named.username() {
        proxy = proxy.username(user);
    }
    if let Some(password) = named.password() {
        proxy = proxy.password(password);
    }
    let without = ["no_proxy", "NO_PROXY"].iter().find_map(set);
    for host in without.iter().flat_map(|hosts| hosts.split(',')) {
        proxy = proxy.no_proxy(host.trim());
    }
    proxy.build().map(Some).map_err(wrong)
}

/// Connects by the dialer.
#[derive(Debug)]
struct DialerConnector(Arc<Dialer>);

impl<In: Transport> Connector<In> for DialerConnector {
    type Out = Either<In, DialerTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
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

/// A connection and its buffers.
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
        // The one that is set is the wait for 100 (RFC 9110 §10.1.1); silence is the dialer's.
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
