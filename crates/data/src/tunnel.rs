//! Connections that are not direct: through a proxy, or carried by a program. The way to a server, and what can fail on it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proto::tunnel::{ProxyLogin, TunnelDialogue, TunnelError, TunnelProtocol, TunnelTarget};
use socket2::Socket;

/// A proxy that opens TCP connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyService {
    /// Its URL without the password, for messages.
    pub name: String,
    /// Its protocol.
    pub protocol: TunnelProtocol,
    /// The login, if it has one.
    pub login: Option<ProxyLogin>,
}

impl ProxyService {
    /// The dialogue that asks it for a connection to `target`.
    pub fn dialogue(&self, target: &TunnelTarget) -> TunnelDialogue {
        TunnelDialogue::new(self.protocol, target, self.login.as_ref())
    }
}

/// A connection through a proxy that is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tunnel<'t> {
    pub(crate) proxy: &'t ProxyService,
    pub(crate) target: &'t TunnelTarget,
}

/// The way to one server, as its control connection took it. Data connections take it, too.
#[derive(Debug, Clone)]
pub struct TunnelRoute {
    /// The proxy.
    pub proxy: Arc<ProxyService>,
    /// The address at which the proxy answered.
    pub at: SocketAddr,
    /// The server as the proxy was asked for it.
    pub server: TunnelTarget,
    /// The address that stands for the server among data addresses.
    pub server_ip: IpAddr,
}

impl TunnelRoute {
    /// The host that the proxy is asked for to reach a data address: the server itself by the name that the control connection
    /// had, any other host by its address.
    pub(crate) fn target(&self, to: SocketAddr) -> TunnelTarget {
        match to.ip().to_canonical() == self.server_ip {
            true => self.server.with_port(to.port()),
            false => TunnelTarget::at(to.ip(), to.port()),
        }
    }
}

/// A program that carries data connections to one server (ssh).
pub trait DataCarrier: fmt::Debug + Send + Sync {
    /// Its name, for messages.
    fn name(&self) -> String;

    /// Starts the program for one connection. Its answer to [`proto::carried::CarriedRequest`] is still to come. Does not wait.
    ///
    /// # Errors
    /// The program cannot be started.
    fn start(&self) -> io::Result<Socket>;
}

/// How data connections reach a server, if not directly.
#[derive(Debug, Clone)]
pub enum DataRoute {
    /// Through a proxy.
    Proxy(TunnelRoute),
    /// Carried by a program.
    Carried(Arc<dyn DataCarrier>),
}

impl DataRoute {
    /// The proxy; `None`: there is none on the way.
    pub fn proxy(&self) -> Option<&ProxyService> {
        match self {
            Self::Proxy(route) => Some(&route.proxy),
            Self::Carried(_) => None,
        }
    }
}

/// The reason why there is no connection through a proxy, or a program.
#[derive(Debug, thiserror::Error)]
pub enum TunnelFailure {
    /// No connection to the proxy itself.
    #[error("no connection to it: {0}")]
    NoProxy(io::Error),
    /// The connection to the proxy broke before it was through.
    #[error("{}", lost(.0))]
    Lost(io::Error),
    /// The proxy's answer.
    #[error(transparent)]
    Refused(#[from] TunnelError),
    /// The proxy, or the server behind it, was silent for too long.
    #[error("it did not open the connection in time")]
    TimedOut,
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection without an answer".to_owned(),
        _ => format!("the connection to it broke: {error}"),
    }
}
