//! The lines of a GSI session: each command in ENC, each reply in 631, 632 or 633 (RFC 2228 §3).

use proto::command::Secret;
use proto::reply::{ProtectedReplyError, ProtectedReplyReader};
use proto::security::SecurityToken;
use security::gsi::{GsiContext, GsiError};

/// A GSI context that protects the lines of a connection.
pub(super) struct ProtectedLines {
    context: Box<GsiContext>,
    reader: ProtectedReplyReader,
}

impl std::fmt::Debug for ProtectedLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProtectedLines")
    }
}

impl ProtectedLines {
    /// Protects the lines from here on.
    pub(super) fn new(context: Box<GsiContext>) -> Self {
        Self {
            context,
            reader: ProtectedReplyReader::default(),
        }
    }

    /// A command line with CR LF, inside ENC.
    ///
    /// # Errors
    /// Those of the context; also a line that is too long for a token.
    pub(super) fn wrap(&mut self, line: &Secret) -> Result<Secret, GsiError> {
        let bytes = self.context.wrap(&line.0)?;
        let token =
            SecurityToken::new(bytes).map_err(|error| GsiError::Token(error.to_string()))?;
        Ok(Secret::from(format!("ENC {}\r\n", token.encode())))
    }

    /// Received bytes with the protection of their lines removed.
    ///
    /// # Errors
    /// See [`ProtectedReplyError`].
    pub(super) fn unwrap(
        &mut self,
        bytes: &[u8],
    ) -> Result<Vec<u8>, ProtectedReplyError<GsiError>> {
        let mut plain = Vec::new();
        let context = &mut self.context;
        self.reader
            .feed(bytes, |token| context.unwrap(token), &mut plain)?;
        Ok(plain)
    }
}
