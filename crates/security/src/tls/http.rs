//! TLS below the HTTP client `ureq`: its connections pass through a [`TlsEngine`], so that https: has the
//! same library and the same rules as every other connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use ureq::Error;
use ureq::unversioned::transport::time::Duration;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

use super::{Handshake, ReadResult, TlsConfig, TlsEngine, TlsError, TlsOptions};
use crate::x509::TrustStore;

/// Is told of new connections: the host, and the fingerprint of its certificate.
pub type CertificateSink = Arc<dyn Fn(&str, String) + Send + Sync>;

/// Makes the connections of an agent secure if their URL is https:. It comes last in the chain of
/// connectors.
pub struct HttpsConnector {
    /// Authorities of servers.
    trust: Arc<TrustStore>,
    /// The configuration of the last host: an agent mostly speaks with one.
    last: Mutex<Option<(String, TlsConfig)>>,
    tell: Option<CertificateSink>,
}

impl HttpsConnector {
    /// Connections whose servers are verified by these authorities and by their name.
    pub fn new(trust: Arc<TrustStore>) -> Self {
        Self {
            trust,
            last: Mutex::default(),
            tell: None,
        }
    }

    /// Also tells of each new connection.
    #[must_use]
    pub fn telling(self, tell: CertificateSink) -> Self {
        Self {
            tell: Some(tell),
            ..self
        }
    }

    fn config(&self, host: &str) -> Result<TlsConfig, TlsError> {
        let mut last = self.last.lock();
        if let Some((name, config)) = &*last
            && name == host
        {
            return Ok(config.clone());
        }
        let trust = Arc::clone(&self.trust);
        let config = TlsConfig::new(TlsOptions::client().with_trust(trust).for_host(host))?;
        *last = Some((host.to_owned(), config.clone()));
        Ok(config)
    }
}

impl fmt::Debug for HttpsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpsConnector")
    }
}

impl<In: Transport> Connector<In> for HttpsConnector {
    type Out = Either<In, HttpsTransport<In>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(inner) = chained else {
            return Err(failed(TlsError::Config(
                "there is no connection for TLS to use".to_owned(),
            )));
        };
        if !details.needs_tls() || inner.is_tls() {
            return Ok(Some(Either::A(inner)));
        }
        let host = details.uri.host().unwrap_or_default();
        // An IPv6 address has brackets in a URL and none in a certificate.
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let engine = self
            .config(host)
            .and_then(|config| TlsEngine::new(&config, None))
            .map_err(failed)?;
        let config = details.config;
        let sizes = (config.input_buffer_size(), config.output_buffer_size());
        let mut transport = HttpsTransport {
            inner,
            engine,
            buffers: LazyBuffers::new(sizes.0, sizes.1),
        };
        transport.handshake(details.timeout)?;
        if let Some(tell) = &self.tell
            && let Some(fingerprint) = transport.engine.peer_fingerprint()
        {
            tell(host, fingerprint);
        }
        Ok(Some(Either::B(transport)))
    }
}

/// A connection with TLS.
pub struct HttpsTransport<In> {
    inner: In,
    engine: TlsEngine,
    buffers: LazyBuffers,
}

impl<In: Transport> HttpsTransport<In> {
    fn handshake(&mut self, timeout: NextTimeout) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let progress = self.engine.handshake();
            // Also after a failure: the server learns of it by an alert.
            let sent = flush(&mut self.engine, &mut self.inner, timeout, began);
            match progress.map_err(failed)? {
                Handshake::Complete => return sent,
                Handshake::NeedsInput => sent?,
            }
            receive(&mut self.engine, &mut self.inner, timeout, began)?;
        }
    }
}

/// Sends what the engine has for the peer.
fn flush(
    engine: &mut TlsEngine,
    inner: &mut impl Transport,
    timeout: NextTimeout,
    began: Instant,
) -> Result<(), Error> {
    while !engine.outgoing().is_empty() {
        let timeout = remaining(timeout, began)?;
        let space = inner.buffers().output();
        let count = space.len().min(engine.outgoing().len());
        space[..count].copy_from_slice(&engine.outgoing()[..count]);
        inner.transmit_output(count, timeout)?;
        engine.mark_sent(count);
    }
    Ok(())
}

/// Waits for bytes of the peer and hands them to the engine.
fn receive(
    engine: &mut TlsEngine,
    inner: &mut impl Transport,
    timeout: NextTimeout,
    began: Instant,
) -> Result<(), Error> {
    // No input is ever left in the buffer, so the wait is for new bytes.
    inner.await_input(remaining(timeout, began)?)?;
    let input = inner.buffers().input();
    let count = input.len();
    if count == 0 {
        // Without a close_notify a shortened response would pass for a whole one (RFC 8446 section 6.1).
        return Err(Error::Io(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed it without ending TLS",
        )));
    }
    engine.receive(input);
    inner.buffers().input_consume(count);
    Ok(())
}

/// The time that is left of a timeout.
fn remaining(mut timeout: NextTimeout, began: Instant) -> Result<NextTimeout, Error> {
    if let Duration::Exact(limit) = timeout.after {
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(Error::Timeout(timeout.reason));
        }
        timeout.after = Duration::Exact(left);
    }
    Ok(timeout)
}

fn failed(error: TlsError) -> Error {
    Error::Other(Box::new(error))
}

impl<In: Transport> Transport for HttpsTransport<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = &self.buffers.output()[..amount];
        self.engine.write(output).map_err(failed)?;
        flush(&mut self.engine, &mut self.inner, timeout, Instant::now())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let began = Instant::now();
        loop {
            let space = self.buffers.input_append_buf();
            match self.engine.read(space).map_err(failed)? {
                ReadResult::Bytes(count) => {
                    self.buffers.input_appended(count);
                    return Ok(true);
                }
                ReadResult::Closed => return Ok(false),
                ReadResult::NeedsInput => {}
            }
            // Reading may have made an answer, such as a new key (RFC 8446 section 4.6.3).
            flush(&mut self.engine, &mut self.inner, timeout, began)?;
            receive(&mut self.engine, &mut self.inner, timeout, began)?;
        }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl<In: fmt::Debug> fmt::Debug for HttpsTransport<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpsTransport").field(&self.inner).finish()
    }
}
