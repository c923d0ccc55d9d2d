//! The handshake of a GSI data connection.

use crate::tls::{Handshake, TlsConfig, TlsEngine, TlsError, TlsSession};

/// Form of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataHandshakeMode {
    /// TLS alone: the bytes stay inside TLS (FTPS; GSI with PROT S, E and P).
    Protected,
    /// GSI with DCAU and PROT C: the exchange of a context without delegation (the 00 byte of TLS
    /// 1.3, the flag `0` of the connecting end), then raw bytes.
    AuthenticateOnly,
}

/// The handshake of one data connection, up to its first byte of data. Received bytes behind the
/// handshake remain available: [`DataHandshake::take_raw_input`].
#[derive(Debug)]
pub struct DataHandshake {}

impl DataHandshake {
    /// Before the first byte.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn new(
        config: &TlsConfig,
        mode: DataHandshakeMode,
        resume: Option<&TlsSession>,
    ) -> Result<Self, TlsError> {
        let _ = (config, mode, resume);
        todo!()
    }

    /// The TLS connection below: feed it, send its `outgoing`.
    pub fn engine(&mut self) -> &mut TlsEngine {
        todo!()
    }

    /// Continues the handshake.
    ///
    /// # Errors
    /// As [`TlsEngine::handshake`].
    pub fn advance(&mut self) -> Result<Handshake, TlsError> {
        todo!()
    }

    /// After [`DataHandshakeMode::AuthenticateOnly`]: received bytes that are already data.
    pub fn take_raw_input(&mut self) -> Vec<u8> {
        todo!()
    }

    /// After [`DataHandshakeMode::Protected`]: the TLS connection.
    pub fn into_engine(self) -> TlsEngine {
        todo!()
    }
}
