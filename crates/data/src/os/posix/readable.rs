//! Asynchronous waits for descriptors that other threads read from.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until a descriptor is readable, and reads nothing.
#[derive(Debug)]
pub struct ReadableWait(AsyncFd<OwnedFd>);

impl ReadableWait {
    /// Watches a descriptor of its own: a copy of the one that is read from. Needs a running tokio
    /// runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor must stay open, and the same, as long as the AsyncFd lives. It owns
        // the OwnedFd, which is never taken out or replaced.
        unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
            .map(Self)
            .map_err(io::Error::from)
    }

    /// Waits until the descriptor is readable; a listener is while a connection waits to be accepted.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_listener_is_readable_when_a_connection_arrives() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wait = ReadableWait::new(listener.try_clone().unwrap().into()).unwrap();
        let pending = std::time::Duration::from_millis(20);
        assert!(
            tokio::time::timeout(pending, wait.readable())
                .await
                .is_err()
        );
        let _connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        wait.readable().await.unwrap();
        listener.accept().unwrap();
    }
}
