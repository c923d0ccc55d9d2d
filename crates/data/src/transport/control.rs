//! The way of a control connection's bytes.

use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A control connection, and what its bytes go through. As a descriptor it is for options and for
/// what the kernel tells of it, never for bytes.
///
/// Reads and writes wait apart from doing: who waits holds no buffer.
#[derive(Debug)]
pub enum ControlTransport {
    /// Bytes go as they are.
    Clear(TcpStream),
}

impl ControlTransport {
    /// Connects. The handshake, if there is one, is still to come.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).await.map(Self::Clear)
    }

    /// A connection that was accepted. Its handshake is for the task that will serve it.
    pub fn accepted(stream: TcpStream) -> Self {
        Self::Clear(stream)
    }

    /// Ready for bytes, after whatever handshake comes before the first of them: none in the clear.
    ///
    /// # Errors
    /// The connection broke, or the other end's part is not right.
    pub fn handshake(self) -> impl Future<Output = io::Result<Self>> + Send + use<> {
        ready(Ok(self))
    }

    /// The other end.
    ///
    /// # Errors
    /// It is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let Self::Clear(stream) = self;
        stream.peer_addr()
    }

    /// This end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let Self::Clear(stream) = self;
        stream.local_addr()
    }

    /// Waits until [`ControlTransport::try_read`] may have something. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn readable(&self) -> io::Result<()> {
        let Self::Clear(stream) = self;
        stream.readable().await
    }

    /// Takes what is there; 0 is the other end's FIN.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there after all.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self::Clear(stream) = self;
        stream.try_read(buffer)
    }

    /// Waits for bytes and takes them; 0 is the other end's FIN. Cancelling loses nothing.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Waits until [`ControlTransport::try_write`] may take something. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn writable(&self) -> io::Result<()> {
        let Self::Clear(stream) = self;
        stream.writable().await
    }

    /// Sends as much as fits.
    ///
    /// # Errors
    /// `WouldBlock`: nothing fits now.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self::Clear(stream) = self;
        stream.try_write(bytes)
    }

    /// Sends all. When it is cancelled, nobody knows how much went out.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// The connection is gone.
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
    async fn more_than_fits_goes_out_as_it_is_read() {
        let (near, mut far) = connected().await;
        let mut near = near.handshake().await.unwrap();
        let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
        let expected = bytes.clone();
        let sending = tokio::spawn(async move {
            near.write_all(&bytes).await.unwrap();
            near.shutdown().await.unwrap();
            near
        });
        let mut came = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match far.read(&mut buffer).await.unwrap() {
                0 => break,
                n => came.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(came == expected);
        // The other direction is still open.
        let mut near = sending.await.unwrap();
        far.write_all(b"bye").await.unwrap();
        assert_eq!(near.read(&mut buffer).await.unwrap(), 3);
    }
}
