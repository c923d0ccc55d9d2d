//! End of a MODE E transfer.

use super::{BlockError, MAX_STREAMS};

/// Counts the EODs of a transfer until they match the count in the EOF header.
///
/// EOF may arrive first, last, or alone on any connection. Data after EOF is legal (GFD.20 §3.4.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EodCounter {
    eods: u64,
    /// EODs that EOF headers have announced, of all senders together.
    expected: Option<u64>,
    /// EOF headers that have arrived, and those that will; 0 counts as 1.
    eofs: u32,
    senders: u32,
}

impl EodCounter {
    /// The counter of a transfer from several senders, each of which announces its own EODs by one EOF header (striped, GFD.20
    /// §3.4).
    pub fn of_senders(senders: u32) -> Self {
        Self {
            senders,
            ..Self::default()
        }
    }

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

    /// Records an EOF header that announces `streams` EODs. Returns whether all counts are known by it.
    ///
    /// # Errors
    /// An earlier EOF header announced another count.
    pub fn on_eof(&mut self, streams: u64) -> Result<bool, BlockError> {
        self.eofs = self.eofs.saturating_add(1);
        if self.senders > 1 {
            let before = self.expected.unwrap_or(0);
            self.expected = Some(before.saturating_add(streams));
            return match self.eofs <= self.senders {
                true => Ok(self.eofs == self.senders),
                false => Err(BlockError::EodCountMismatch(before, streams)),
            };
        }
        match self.expected.replace(streams) {
            Some(before) if before != streams => Err(BlockError::EodCountMismatch(before, streams)),
            before => Ok(before.is_none()),
        }
    }

    /// Whether EOF and all announced EODs have arrived.
    pub fn is_complete(&self) -> bool {
        self.eofs >= self.senders && self.expected.is_some_and(|n| self.eods >= n)
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
    fn each_of_several_senders_announces_its_own_eods() {
        let mut c = EodCounter::of_senders(2);
        c.on_eod().unwrap();
        assert_eq!(c.on_eof(1), Ok(false));
        assert!(
            !c.is_complete(),
            "the other sender may have anything to send"
        );
        assert_eq!(c.on_eof(2), Ok(true));
        c.on_eod().unwrap();
        assert!(!c.is_complete());
        c.on_eod().unwrap();
        assert!(c.is_complete());
        assert_eq!(c.on_eof(1), Err(BlockError::EodCountMismatch(3, 1)));
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
