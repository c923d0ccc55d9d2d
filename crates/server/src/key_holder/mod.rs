//! The process that holds the private key of the server.
//!
//! The process that serves sessions has no private key in its memory, and after `run-as` no right to
//! read the key's file. A child process, started before anything else, reads the key and signs
//! handshakes for it, over a socket pair. It does nothing else, is confined (see [`process`]), and
//! ends with its parent. A session that is taken over can ask for signatures while it lasts; it
//! cannot take the key away.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::os::remote_key::{RemoteKeyError, RemoteSigner, remote_key};
use openssl::rsa::Padding;
use openssl::x509::X509;
use parking_lot::Mutex;
use security::x509::CertifiedKey;

mod message;
pub mod process;

use message::{FrameReader, HolderAnswer, HolderRequest, KeyId, KeyPadding};
#[cfg(feature = "fuzzing")]
pub use message::{answer_again, first_frame, request_again};

/// Longest wait for a signature, which takes a millisecond.
const SIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait until the key is read, from a slow disk.
const LOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// The hidden verb of the program that runs [`process::run`].
pub const VERB: &str = "key-holder";

/// The process that holds the key, as seen from the one that serves.
#[derive(Debug)]
pub struct KeyHolder {
    connection: Arc<HolderConnection>,
    child: Child,
}

/// The socket pair; one request at a time.
#[derive(Debug)]
struct HolderConnection(Mutex<HolderSocket>);

/// This end of the socket pair.
#[derive(Debug)]
struct HolderSocket {
    stream: UnixStream,
    reader: FrameReader,
    /// Number of the last request.
    last: u32,
}

/// The reason why the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyHolderError {
    /// The process cannot be started.
    #[error("cannot start the process that holds the private key: {0}")]
    Start(io::Error),
    /// The process ended, or does not answer.
    #[error("the process that holds the private key does not answer: {0}; restart the server")]
    Lost(io::Error),
    /// It cannot read the key.
    #[error("{0}")]
    Key(String),
    /// OpenSSL cannot use a key that is elsewhere.
    #[error(transparent)]
    Remote(#[from] RemoteKeyError),
}

impl KeyHolder {
    /// Starts the process for a certificate chain and its key. Call it first in the program: what the
    /// parent gives up later, the child keeps until it has confined itself.
    ///
    /// # Errors
    /// [`KeyHolderError::Start`]
    pub fn start(chain: &Path, key: &Path) -> Result<Self, KeyHolderError> {
        let (ours, theirs) = UnixStream::pair().map_err(KeyHolderError::Start)?;
        ours.set_write_timeout(Some(SIGN_TIMEOUT))
            .map_err(KeyHolderError::Start)?;
        // The program itself: a binary that was replaced meanwhile would be another version.
        let child = Command::new("/proc/self/exe")
            .arg(VERB)
            .arg(chain)
            .arg(key)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(KeyHolderError::Start)?;
        Ok(Self {
            connection: Arc::new(HolderConnection(Mutex::new(HolderSocket {
                stream: ours,
                reader: FrameReader::default(),
                last: 0,
            }))),
            child,
        })
    }

    /// Has certificate and key read (again), and returns them for use with OpenSSL: the certificate's public
    /// key, with signatures by the process. Blocks on its answer.
    ///
    /// # Errors
    /// See [`KeyHolderError`].
    pub fn load(&self) -> Result<CertifiedKey, KeyHolderError> {
        match self
            .connection
            .ask(&HolderRequest::Load, LOAD_TIMEOUT)
            .map_err(KeyHolderError::Lost)?
        {
            HolderAnswer::Loaded { id, chain } => {
                let leaf = X509::from_pem(&chain).map_err(RemoteKeyError::from)?;
                let public = leaf.public_key().map_err(RemoteKeyError::from)?;
                let signer = HeldKey {
                    id,
                    connection: Arc::clone(&self.connection),
                };
                let key = remote_key(&public, Arc::new(signer))?;
                CertifiedKey::from_chain_pem(&chain, key, "the server's certificate")
                    .map_err(|error| KeyHolderError::Key(error.to_string()))
            }
            HolderAnswer::Failed(problem) => Err(KeyHolderError::Key(problem)),
            HolderAnswer::Signature(_) => {
                Err(KeyHolderError::Lost(io::ErrorKind::InvalidData.into()))
            }
        }
    }
}

impl KeyHolder {
    /// Another descriptor of the connection, whose end is that of the process.
    pub(crate) fn connection(&self) -> io::Result<OwnedFd> {
        let socket = &self.connection.0;
        let socket = socket.lock();
        socket.stream.try_clone().map(OwnedFd::from)
    }
}

impl Drop for KeyHolder {
    fn drop(&mut self) {
        // The end of the connection ends the process. A signal would not reach it: the sandbox permits none to
        // other processes. Nothing waits here, since the server itself ends now.
        self.connection.shut_down();
        let _ = self.child.try_wait();
    }
}

impl HolderConnection {
    fn ask(&self, request: &HolderRequest, patience: Duration) -> io::Result<HolderAnswer> {
        let mut socket = self.0.lock();
        socket.ask(&request.encode(), patience)
    }

    fn shut_down(&self) {
        let socket = self.0.lock();
        let _ = socket.stream.shutdown(Shutdown::Both);
    }
}

impl HolderSocket {
    fn ask(&mut self, request: &[u8], patience: Duration) -> io::Result<HolderAnswer> {
        self.last = self.last.wrapping_add(1);
        let deadline = Instant::now() + patience;
        self.stream.set_read_timeout(Some(patience))?;
        if let Err(error) = message::write_frame(&mut self.stream, self.last, request) {
            // A part of a request would spoil all that follow.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(error);
        }
        loop {
            let frame = self.reader.read(&mut self.stream, Some(deadline));
            // A read timeout of a socket is reported as WouldBlock.
            let frame = frame.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
                _ => error,
            })?;
            let (number, message) = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
            // The answer to an earlier request, which came too late, is passed over.
            if number == self.last {
                return HolderAnswer::decode(&message).ok_or(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// One key in the process.
struct HeldKey {
    id: KeyId,
    connection: Arc<HolderConnection>,
}

impl HeldKey {
    fn sign(&self, request: &HolderRequest) -> Option<Vec<u8>> {
        match self.connection.ask(request, SIGN_TIMEOUT) {
            Ok(HolderAnswer::Signature(bytes)) => Some(bytes),
            Ok(HolderAnswer::Failed(problem)) => {
                tracing::error!(problem, "the private key cannot sign");
                None
            }
            Ok(HolderAnswer::Loaded { .. }) => None,
            Err(error) => {
                tracing::error!(%error, "the process that holds the private key does not answer");
                None
            }
        }
    }
}

impl RemoteSigner for HeldKey {
    fn rsa_private_encrypt(&self, input: &[u8], padding: Padding) -> Option<Vec<u8>> {
        let padding = KeyPadding::of(padding)?;
        let (id, input) = (self.id, input.to_vec());
        self.sign(&HolderRequest::RsaPrivateEncrypt { id, padding, input })
    }

    fn ecdsa_sign(&self, digest: &[u8]) -> Option<Vec<u8>> {
        let (id, digest) = (self.id, digest.to_vec());
        self.sign(&HolderRequest::EcdsaSign { id, digest })
    }
}
