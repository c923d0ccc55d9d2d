//! Sockets that the service manager listens on for the server (`sd_listen_fds(3)`, `systemd.socket(5)`).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use listenfd::ListenFd;
use socket2::SockRef;

/// The variable with the names of the sockets, separated by colons (`FileDescriptorName=`).
const NAMES: &str = "LISTEN_FDNAMES";
/// Name of the socket with implicit TLS.
const IMPLICIT_TLS: &str = "implicit-tls";
/// Name of the socket for monitoring.
const METRICS: &str = "metrics";

/// Sockets that were passed to this process.
#[derive(Debug, Clone, Default)]
pub struct PassedListeners {
    /// The control port: the socket with any other name than those below.
    pub(crate) control: Option<Arc<TcpListener>>,
    /// `implicit-tls`
    pub(crate) implicit_tls: Option<Arc<TcpListener>>,
    /// `metrics`
    pub(crate) metrics: Option<Arc<TcpListener>>,
}

/// The reason why passed sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PassedListenersError {
    /// It is no listening TCP socket.
    #[error(
        "the service manager has passed a socket that does not listen for TCP connections \
         (socket unit: ListenStream=, Accept=no): {0}"
    )]
    NoListener(io::Error),
    /// There are two of a kind.
    #[error(
        "the service manager has passed two sockets for the {0}; use one, [::]:PORT takes IPv4 connections too"
    )]
    Twice(&'static str),
    /// The settings do not have this port.
    #[error("the service manager has passed a socket for {0}, but the settings have no {0}")]
    NoSetting(&'static str),
}

impl PassedListeners {
    /// The sockets that the environment names (LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES). Call it once, before the
    /// program starts threads or processes.
    ///
    /// # Errors
    /// See [`PassedListenersError`].
    pub fn from_environment() -> Result<Self, PassedListenersError> {
        let names = std::env::var(NAMES).unwrap_or_default();
        let mut sockets = ListenFd::from_env();
        let mut listeners = Vec::new();
        for index in 0..sockets.len() {
            let taken = sockets.take_tcp_listener(index);
            listeners.extend(taken.map_err(PassedListenersError::NoListener)?);
        }
        Self::named(&names, listeners)
    }

    fn named(names: &str, listeners: Vec<TcpListener>) -> Result<Self, PassedListenersError> {
        let mut passed = Self::default();
        let names = names.split(':').map(Some).chain(std::iter::repeat(None));
        for (listener, name) in listeners.into_iter().zip(names) {
            if !SockRef::from(&listener)
                .is_listener()
                .map_err(PassedListenersError::NoListener)?
            {
                let error = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(PassedListenersError::NoListener(error));
            }
            let (place, what) = match name {
                Some(IMPLICIT_TLS) => (&mut passed.implicit_tls, "port with implicit TLS"),
                Some(METRICS) => (&mut passed.metrics, "port for monitoring"),
                _ => (&mut passed.control, "control port"),
            };
            if place.replace(Arc::new(listener)).is_some() {
                return Err(PassedListenersError::Twice(what));
            }
        }
        Ok(passed)
    }

    /// Replaces the addresses of the settings by those of these sockets.
    ///
    /// # Errors
    /// [`PassedListenersError::NoSetting`]
    pub(crate) fn replace(
        &self,
        listen: &mut SocketAddr,
        implicit_tls: &mut Option<SocketAddr>,
        metrics: &mut Option<SocketAddr>,
    ) -> Result<(), PassedListenersError> {
        let address = |listener: &TcpListener| {
            let address = listener.local_addr();
            address.map_err(PassedListenersError::NoListener)
        };
        if let Some(control) = &self.control {
            *listen = address(control)?;
        }
        let optional = [
            (&self.implicit_tls, implicit_tls, IMPLICIT_TLS),
            (&self.metrics, metrics, METRICS),
        ];
        for (passed, setting, name) in optional {
            if let Some(passed) = passed {
                let setting = setting.as_mut();
                *setting.ok_or(PassedListenersError::NoSetting(name))? = address(passed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners<const N: usize>() -> Vec<TcpListener> {
        let bound = || TcpListener::bind("127.0.0.1:0").unwrap();
        std::iter::repeat_with(bound).take(N).collect()
    }

    /// The addresses of the settings after the sockets have replaced them.
    fn replaced(
        passed: &PassedListeners,
        optional: Option<SocketAddr>,
    ) -> Result<(SocketAddr, Option<SocketAddr>, Option<SocketAddr>), PassedListenersError> {
        let unused = SocketAddr::from(([127, 0, 0, 1], 1));
        let (mut listen, mut implicit_tls, mut metrics) = (unused, optional, optional);
        passed.replace(&mut listen, &mut implicit_tls, &mut metrics)?;
        Ok((listen, implicit_tls, metrics))
    }

    #[test]
    fn names_tell_what_the_sockets_are_for() {
        let sockets = listeners::<3>();
        let addresses: Vec<_> = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
        let names = "metrics:longhaul.socket:implicit-tls";
        let passed = PassedListeners::named(names, sockets).unwrap();
        let set = Some(([127, 0, 0, 1], 2).into());
        let expected = (addresses[1], Some(addresses[2]), Some(addresses[0]));
        assert_eq!(replaced(&passed, set).unwrap(), expected);
    }

    #[test]
    fn one_socket_without_a_name_is_the_control_port() {
        let sockets = listeners::<1>();
        let address = sockets[0].local_addr().unwrap();
        let passed = PassedListeners::named("", sockets).unwrap();
        assert_eq!(replaced(&passed, None).unwrap(), (address, None, None));
    }

    #[test]
    fn sockets_that_nothing_uses_are_refused() {
        let two = PassedListeners::named("a:b", listeners::<2>()).unwrap_err();
        assert!(matches!(two, PassedListenersError::Twice(_)), "{two}");
        let metrics = PassedListeners::named("metrics", listeners::<1>()).unwrap();
        let error = replaced(&metrics, None).unwrap_err();
        assert!(
            matches!(error, PassedListenersError::NoSetting("metrics")),
            "{error}"
        );
    }

    #[test]
    fn the_socket_of_one_connection_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = TcpListener::from(std::os::fd::OwnedFd::from(client));
        let error = PassedListeners::named("", vec![connection]).unwrap_err();
        assert!(
            matches!(error, PassedListenersError::NoListener(_)),
            "{error}"
        );
    }
}
