//! When a MODE E transfer is over.

use super::{BlockError, MAX_STREAMS};

/// Counts EODs of a whole transfer until they match the EOF header's announcement.
///
/// EOF may come first, last, or alone on any connection; data after EOF is legal (GFD.20 §3.4.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EodCounter {
    eods: u64,
    expected: Option<u64>,
}

impl EodCounter {
    /// One connection sent its EOD.
    ///
    /// # Errors
    /// More have come than any end of file may announce.
    pub fn on_eod(&mut self) -> Result<(), BlockError> {
        self.eods += 1;
        if self.eods > MAX_STREAMS {
            return Err(BlockError::EodCountTooLarge(self.eods));
        }
        Ok(())
    }

    /// An EOF header announced `streams` EODs. Returns whether it is the first one.
    ///
    /// # Errors
    /// An earlier one said something else.
    pub fn on_eof(&mut self, streams: u64) -> Result<bool, BlockError> {
        match self.expected.replace(streams) {
            Some(before) if before != streams => Err(BlockError::EodCountMismatch(before, streams)),
            before => Ok(before.is_none()),
        }
    }

    /// Whether every announced EOD has arrived.
    pub fn is_complete(&self) -> bool {
        self.expected.is_some_and(|n| self.eods >= n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_when_the_announced_eods_are_there_whatever_the_order() {
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
    fn end_marks_without_end_are_refused() {
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
    fn a_second_eof_must_say_the_same() {
        let mut c = EodCounter::default();
        c.on_eof(2).unwrap();
        assert_eq!(c.on_eof(2), Ok(false));
        assert_eq!(c.on_eof(3), Err(BlockError::EodCountMismatch(2, 3)));
    }
}
