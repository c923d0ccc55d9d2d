//! The connection below a control connection: TCP, or the pipe of a program that carries it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub(super) enum TransportSocket {
    /// A TCP connection with the peer.
    Network(TcpStream),
    /// A socket pair, whose other end a program has as its standard input and output (ssh), or the bytes of this program's.
    Carried(UnixStream),
}

impl TransportSocket {
    /// Waits until `interest` may be served; false alarms happen.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Network(stream) => stream.ready(interest).await.map(drop),
            Self::Carried(stream) => stream.ready(interest).await.map(drop),
        }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Network(stream) => stream.try_read(buffer),
            Self::Carried(stream) => stream.try_read(buffer),
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Network(stream) => stream.try_write(bytes),
            Self::Carried(stream) => stream.try_write(bytes),
        }
    }

    /// Waits for bytes, and returns how many there are, up to the length of the buffer, without taking them.
    pub(super) async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
            let peeked = self.try_io(Interest::READABLE, || {
                rustix::net::recv(self.as_fd(), &mut *buffer, flags)
                    .map(|(_, count)| count)
                    .map_err(io::Error::from)
            });
            match peeked {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Runs an operation of the socket that may find it not ready.
    fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        match self {
            Self::Network(stream) => stream.try_io(interest, operation),
            Self::Carried(stream) => stream.try_io(interest, operation),
        }
    }

    /// Sends the end of this direction.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Network(stream) => stream.shutdown().await,
            Self::Carried(stream) => stream.shutdown().await,
        }
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.network()?.peer_addr()
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.network()?.local_addr()
    }

    fn network(&self) -> io::Result<&TcpStream> {
        match self {
            Self::Network(stream) => Ok(stream),
            Self::Carried(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl AsFd for TransportSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Network(stream) => stream.as_fd(),
            Self::Carried(stream) => stream.as_fd(),
        }
    }
}
