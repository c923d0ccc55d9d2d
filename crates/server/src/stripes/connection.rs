//! A connection between a front end and a data node: a message a line, over TLS in which both have shown certificates.

use std::io;
use std::time::Duration;

use data::transport::ControlTransport;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// Longest message, bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Longest wait for the other end to take a message.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// Either end of the connection.
pub(crate) struct NodeConnection {
    transport: ControlTransport,
    /// Bytes behind the last message.
    input: Vec<u8>,
}

impl std::fmt::Debug for NodeConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeConnection").finish_non_exhaustive()
    }
}

impl NodeConnection {
    /// Its handshake is complete.
    pub(crate) fn new(transport: ControlTransport) -> Self {
        Self {
            transport,
            input: Vec::new(),
        }
    }

    /// Sends a message. After an error, or if the call is cancelled, the connection cannot be used.
    ///
    /// # Errors
    /// The connection broke, or the other end takes nothing.
    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let send = async {
            self.transport.write_all(&line).await?;
            self.transport.flush().await
        };
        timeout(SEND_LIMIT, send).await?
    }

    /// The next message. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke or has ended, or the message is none.
    pub(crate) async fn receive<M: DeserializeOwned>(&mut self) -> io::Result<M> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.input[seen..].iter().position(|byte| *byte == b'\n') {
                let message = serde_json::from_slice(&self.input[..seen + end]);
                self.input.drain(..=seen + end);
                return Ok(message?);
            }
            seen = self.input.len();
            if seen > MAX_MESSAGE {
                let text = format!("a message is longer than {MAX_MESSAGE} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            // Read without waiting, so that the buffer is no part of the task.
            self.transport.readable().await?;
            let mut buffer = [0; 16 << 10];
            match self.transport.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
