//! The transport of a control connection's bytes.

use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A control connection and the layer of its bytes. As a descriptor it is for options and the
/// kernel's state, never for bytes.
///
/// Waiting is separate from reading and writing, so that a waiting task holds no buffer.
#[derive(Debug)]
pub enum ControlTransport {
    /// Bytes pass unchanged.
    Clear(TcpStream),
}

impl ControlTransport {
    /// Connects. The handshake, if any, is still to come.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).await.map(Self::Clear)
    }

    /// Wraps an accepted connection. Its handshake runs in the task that will serve it.
    pub fn accepted(stream: TcpStream) -> Self {
        Self::Clear(stream)
    }

    /// Completes the handshake that precedes the first byte: none in the clear.
    ///
    /// # Errors
    /// The connection broke, or the peer's handshake is invalid.
    pub fn handshake(self) -> impl Future<Output = io::Result<Self>> + Send + use<> {
        ready(Ok(self))
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let Self::Clear(stream) = self;
        stream.peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let Self::Clear(stream) = self;
        stream.local_addr()
    }

    /// Waits until [`ControlTransport::try_read`] may return bytes. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn readable(&self) -> io::Result<()> {
        let Self::Clear(stream) = self;
        stream.readable().await
    }

    /// Takes the available bytes; 0 is the peer's FIN.
    ///
    /// # Errors
    /// `WouldBlock`: none are available.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self::Clear(stream) = self;
        stream.try_read(buffer)
    }

    /// Waits for bytes and takes them; 0 is the peer's FIN. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(buffer) {
                // `readable` may return for a false alarm.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Waits until [`ControlTransport::try_write`] may accept bytes. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn writable(&self) -> io::Result<()> {
        let Self::Clear(stream) = self;
        stream.writable().await
    }

    /// Sends as many bytes as fit.
    ///
    /// # Errors
    /// `WouldBlock`: none fit now.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self::Clear(stream) = self;
        stream.try_write(bytes)
    }

    /// Sends all bytes. If it is cancelled, the number of sent bytes is unknown.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                // A socket that accepts nothing without WouldBlock would loop for ever.
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends FIN: no more bytes follow.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        let Self::Clear(stream) = self;
        stream.shutdown().await
    }
}

impl AsFd for ControlTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let Self::Clear(stream) = self;
        stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (ControlTransport, ControlTransport) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = ControlTransport::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap(), ControlTransport::accepted(far.unwrap().0))
    }

    #[tokio::test]
    async fn a_write_larger_than_the_buffers_completes_as_the_peer_reads() {
        let (near, mut far) = connected().await;
        let mut near = near.handshake().await.unwrap();
        let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
        let expected = bytes.clone();
        let sending = tokio::spawn(async move {
            near.write_all(&bytes).await.unwrap();
            near.shutdown().await.unwrap();
            near
        });
        let mut received = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match far.read(&mut buffer).await.unwrap() {
                0 => break,
                n => received.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(received == expected);
        // The other direction is still open.
        let mut near = sending.await.unwrap();
        far.write_all(b"bye").await.unwrap();
        assert_eq!(near.read(&mut buffer).await.unwrap(), 3);
    }
}
