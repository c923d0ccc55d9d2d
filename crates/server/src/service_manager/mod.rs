//! Messages to the service manager that started the process: `sd_notify(3)` and the watchdog of systemd.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use sd_notify::NotifyState;

mod passed_listeners;

pub use passed_listeners::{PassedListeners, PassedListenersError};

/// Longest wait for a manager that does not read its messages.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The variable with the address of the manager's socket: a path, or `@` and an abstract name (unix(7)).
const ADDRESS: &str = "NOTIFY_SOCKET";

/// The service manager.
#[derive(Debug)]
pub struct ServiceManager {
    /// Connected before the process confines itself, which closes the way to sockets of other processes.
    socket: UnixDatagram,
    /// The manager ends a process that is silent for this time.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The manager that the environment names (NOTIFY_SOCKET, WATCHDOG_USEC); `None`: there is none. Call it before
    /// [`crate::sandbox::enter`].
    ///
    /// # Errors
    /// Its socket cannot be reached.
    pub fn from_environment() -> io::Result<Option<Self>> {
        std::env::var_os(ADDRESS)
            .map(|address| Self::connect(Path::new(&address), sd_notify::watchdog_enabled()))
            .transpose()
    }

    fn connect(address: &Path, watchdog: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        match address.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            None => socket.connect(address)?,
        }
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket, watchdog })
    }

    /// The server serves; also the end of [`ServiceManager::reloading`].
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready, NotifyState::Status("serving")]);
    }

    /// The server reads its settings again.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => {
                tracing::warn!(%error, "the service manager does not learn of the reload");
            }
        }
    }

    /// The server drains, for at most this time.
    pub(crate) fn stopping(&self, longest: Duration) {
        let longest = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
        self.send(&[
            NotifyState::Stopping,
            NotifyState::Status("finishing running transfers"),
            NotifyState::ExtendTimeoutUsec(longest),
        ]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
        if let Err(error) = self.socket.send(lines.as_bytes()) {
            tracing::warn!(%error, "the service manager cannot be told: {}", lines.trim_end());
        }
    }
}

/// Tells the watchdog at half of its time that the task that polls this lives. Never ends.
pub(crate) async fn keep_alive(manager: Option<&ServiceManager>) {
    let Some((manager, longest)) = manager.and_then(|manager| Some((manager, manager.watchdog?)))
    else {
        return std::future::pending().await;
    };
    loop {
        manager.send(&[NotifyState::Watchdog]);
        tokio::time::sleep(longest / 2).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_learns_each_phase() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::connect(&path, None).unwrap();
        manager.ready();
        assert_eq!(received(&socket), "READY=1\nSTATUS=serving\n");
        manager.reloading();
        let reload = received(&socket);
        assert!(
            reload.starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{reload}"
        );
        manager.stopping(Duration::from_secs(62));
        let stop = received(&socket);
        assert!(stop.starts_with("STOPPING=1\n"), "{stop}");
        assert!(stop.contains("EXTEND_TIMEOUT_USEC=62000000\n"), "{stop}");
    }

    #[tokio::test]
    async fn the_watchdog_is_told_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::connect(&path, Some(Duration::from_millis(2))).unwrap();
        let messages = tokio::task::spawn_blocking(move || [(); 3].map(|()| received(&socket)));
        tokio::select! {
            messages = messages => assert_eq!(messages.unwrap(), ["WATCHDOG=1\n"; 3]),
            () = keep_alive(Some(&manager)) => unreachable!("it never ends"),
        }
    }

    #[test]
    fn a_manager_that_has_gone_away_does_not_stop_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::connect(&path, None).unwrap();
        drop(socket);
        manager.ready();
        assert!(ServiceManager::connect(&path, None).is_err());
    }
}
