//! The handshake of a GSI data connection.

use super::record::{FirstRecord, first_record};
use crate::tls::{Handshake, ReadResult, TlsConfig, TlsEngine, TlsError, TlsRole, TlsSession};

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
///
/// With [`DataHandshakeMode::AuthenticateOnly`], TLS is given one record at a time, and nothing
/// behind the last one.
#[derive(Debug)]
pub struct DataHandshake {
    engine: TlsEngine,
    mode: DataHandshakeMode,
    stage: Stage,
    /// TLS has been given a record in this stage.
    has_record: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshaking,
    /// Client, TLS 1.3: the server answers with one byte, or session tickets.
    AwaitsAnswer,
    /// Server: the client sends the flag.
    AwaitsFlag,
    Complete,
}

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
        let mut engine = TlsEngine::new(config, resume)?;
        if mode == DataHandshakeMode::AuthenticateOnly {
            engine.set_gate(Some(0));
        }
        Ok(Self {
            engine,
            mode,
            stage: Stage::Handshaking,
            has_record: false,
        })
    }

    /// The TLS connection below: feed it, send its `outgoing`.
    pub fn engine(&mut self) -> &mut TlsEngine {
        &mut self.engine
    }

    /// Most bytes to receive next, so that none behind the current record is received: up to the end of
    /// its header, or its own. Bytes that are no record end the handshake, so their number does not matter.
    pub fn missing_of_record(&self) -> usize {
        match first_record(self.engine.unprocessed_bytes()) {
            FirstRecord::Partial(missing) => missing,
            FirstRecord::Whole(_) | FirstRecord::Invalid => 1,
        }
    }

    /// Continues the handshake.
    ///
    /// # Errors
    /// As [`TlsEngine::handshake`].
    pub fn advance(&mut self) -> Result<Handshake, TlsError> {
        if self.mode == DataHandshakeMode::Protected {
            return self.engine.handshake();
        }
        loop {
            let needs_record = match self.stage {
                Stage::Handshaking => self.continue_handshake()?,
                Stage::AwaitsAnswer => self.read_answer()?,
                Stage::AwaitsFlag => self.read_flag()?,
                Stage::Complete => return Ok(Handshake::Complete),
            };
            if needs_record && !self.admit_record() {
                return Ok(Handshake::NeedsInput);
            }
        }
    }

    /// After [`DataHandshakeMode::AuthenticateOnly`]: received bytes that are already data.
    pub fn take_raw_input(&mut self) -> Vec<u8> {
        match self.stage {
            Stage::Complete => self.engine.take_unprocessed(),
            Stage::Handshaking | Stage::AwaitsAnswer | Stage::AwaitsFlag => Vec::new(),
        }
    }

    /// After [`DataHandshakeMode::Protected`]: the TLS connection.
    pub fn into_engine(self) -> TlsEngine {
        self.engine
    }

    /// Gives TLS the next record, if it is whole. Bytes that are no record are given, too: the
    /// error is TLS's.
    fn admit_record(&mut self) -> bool {
        let bytes = self.engine.unprocessed_bytes();
        let admitted = match first_record(bytes) {
            FirstRecord::Whole(length) => length,
            FirstRecord::Partial(_) => return false,
            FirstRecord::Invalid => bytes.len(),
        };
        self.engine.set_gate(Some(admitted));
        self.has_record = true;
        true
    }

    /// Returns whether a record is needed, as the following functions do.
    fn continue_handshake(&mut self) -> Result<bool, TlsError> {
        let sent_before = self.engine.outgoing().len();
        if self.engine.handshake()? == Handshake::NeedsInput {
            return Ok(true);
        }
        let has_output = self.engine.outgoing().len() > sent_before;
        match (self.engine.config().options().role, has_output) {
            (TlsRole::Client, true) => {
                self.stage = Stage::AwaitsAnswer;
                self.has_record = false;
            }
            (TlsRole::Client, false) => self.send_flag()?,
            (TlsRole::Server, has_output) => {
                if !has_output {
                    self.engine.write(&[0])?;
                }
                self.stage = Stage::AwaitsFlag;
            }
        }
        Ok(false)
    }

    /// The server waits for the flag before it sends data: until then, all that comes is TLS.
    fn read_answer(&mut self) -> Result<bool, TlsError> {
        let mut space = [0; 2];
        match self.engine.read(&mut space)? {
            ReadResult::Bytes(2..) => {
                return Err(self
                    .engine
                    .refuse("the server has sent data before the flag"));
            }
            ReadResult::Closed => return Err(self.engine.refuse("the server has closed")),
            ReadResult::Bytes(_) | ReadResult::NeedsInput => {}
        }
        if !self.has_record || self.engine.unprocessed() > 0 {
            return Ok(true);
        }
        self.send_flag()?;
        Ok(false)
    }

    fn read_flag(&mut self) -> Result<bool, TlsError> {
        let mut space = [0; 2];
        let problem = match self.engine.read(&mut space)? {
            ReadResult::NeedsInput => return Ok(true),
            ReadResult::Bytes(1) if space[0] == b'0' => {
                self.stage = Stage::Complete;
                return Ok(false);
            }
            ReadResult::Bytes(1) if space[0] == b'D' => {
                "the client wants to delegate a proxy on a data connection"
            }
            ReadResult::Bytes(_) => "the client has sent no flag of delegation",
            ReadResult::Closed => "the client has closed before its flag of delegation",
        };
        Err(self.engine.refuse(problem))
    }

    fn send_flag(&mut self) -> Result<(), TlsError> {
        self.engine.write(b"0")?;
        self.stage = Stage::Complete;
        Ok(())
    }
}
