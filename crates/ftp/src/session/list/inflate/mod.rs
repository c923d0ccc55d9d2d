//! Reads a compressed text (RFC 1950) as it arrives, in bounded memory.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};

/// Bytes of text that are passed on at a time.
const PART: usize = 32 << 10;

/// A text that arrives in pieces.
#[derive(Debug)]
pub(super) struct InflatedText {
    state: Decompress,
    has_ended: bool,
}

impl InflatedText {
    /// A text of which nothing has arrived.
    pub(super) fn new() -> Self {
        Self {
            state: Decompress::new(true),
            has_ended: false,
        }
    }

    /// Reads a piece, and passes its text on to `take`.
    ///
    /// # Errors
    /// The piece is damaged or beyond the end of the text; the error of `take`.
    pub(super) fn read(
        &mut self,
        mut piece: &[u8],
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut text = Vec::with_capacity(PART);
        loop {
            if self.has_ended {
                return match piece.is_empty() {
                    true => Ok(()),
                    false => Err(damaged("it goes on after its end")),
                };
            }
            let before = self.state.total_in();
            text.clear();
            let status = self
                .state
                .decompress_vec(piece, &mut text, FlushDecompress::None)
                .map_err(|error| damaged(&error.to_string()))?;
            let used = usize::try_from(self.state.total_in() - before).unwrap_or(piece.len());
            piece = piece.get(used..).unwrap_or_default();
            take(&text)?;
            self.has_ended = status == Status::StreamEnd;
            // Text may still be inside when all of the piece is read: then the part was full.
            if piece.is_empty() && text.len() < PART && !self.has_ended {
                return Ok(());
            }
            if used == 0 && text.is_empty() && !self.has_ended {
                return Err(damaged("it does not go on"));
            }
        }
    }

    /// Whether the text is complete.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

fn damaged(reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the compressed text is damaged: {reason}"),
    )
}

#[cfg(test)]
mod tests;
