//! End of a MODE E transfer.

use super::{BlockError, MAX_STREAMS};

/// Counts the EODs of a transfer until they match the count in the EOF header.
///
/// EOF may arrive first, last, or alone on any connection. Data after EOF is legal (GFD.20 §3.4.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EodCounter {
    eods: u64,
    expected: Option<u64>,
}

impl EodCounter {
    /// Counts the EOD of one connection.
    ///
    /// # Errors
    /// The count exceeds [`MAX_STREAMS`].
    pub fn on_eod(&mut self) -> Result<(), BlockError> {
        self.eods += 1;
        // Without this bound a peer could open connections that only send EOD, forever.
        if self.eods > MAX_STREAMS {
            return Err(BlockError::EodCountTooLarge(self.eods));
        }
        Ok(())
    }

    /// Records an EOF header that announces `streams` EODs. Returns whether it is the first one.
    ///
    /// # Errors
    /// An earlier EOF header announced another count.
    pub fn on_eof(&mut self, streams: u64) -> Result<bool, BlockError> {
        match self.expected.replace(streams) {
            Some(before) if before != streams => Err(BlockError::EodCountMismatch(before, streams)),
            before => Ok(before.is_none()),
        }
    }

    /// Whether EOF and all announced EODs have arrived.
    pub fn is_complete(&self) -> bool {
        self.expected.is_some_and(|n| self.eods >= n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_complete_when_eof_and_all_eods_have_arrived_in_any_order() {
        let mut c = EodCounter::default();
        c.on_eod().unwrap();
        c.on_eod().unwrap();
        assert!(!c.is_complete(), "no EOF yet");
        c.on_eof(3).unwrap();
        assert!(!c.is_complete());
        c.on_eod().unwrap();
        assert!(c.is_complete());

        let mut none = EodCounter::default();
        none.on_eof(0).unwrap();
        assert!(none.is_complete(), "EOF with count 0 ends at once");
    }

    #[test]
    fn more_eods_than_streams_can_exist_are_refused() {
        let mut c = EodCounter::default();
        for _ in 0..MAX_STREAMS {
            c.on_eod().unwrap();
        }
        assert_eq!(
            c.on_eod(),
            Err(BlockError::EodCountTooLarge(MAX_STREAMS + 1))
        );
    }

    #[test]
    fn a_second_eof_must_announce_the_same_count() {
        let mut c = EodCounter::default();
        c.on_eof(2).unwrap();
        assert_eq!(c.on_eof(2), Ok(false));
        assert_eq!(c.on_eof(3), Err(BlockError::EodCountMismatch(2, 3)));
    }
}
