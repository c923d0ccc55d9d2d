//! Whether a listing has arrived whole. The end of a data connection alone does not show that: somebody on the path can end it
//! early, and what is missing would count as deleted.

use proto::command::Command;

use crate::Failure;
use crate::failure::{Operation, Sentence};
use crate::session::ClientSession;

/// A listing as far as it has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListingExtent {
    /// Lines that are not empty.
    pub(super) lines: u64,
    /// The last line has no line end.
    pub(super) ends_within_line: bool,
    /// Bytes on the data connection.
    pub(super) bytes: u64,
    /// How many of them there are, as the server says over the control connection.
    pub(super) announced: Option<u64>,
}

impl ListingExtent {
    /// How the answer to `command` shows that it was cut; `ends_unproved`: the end of its data connection may have been
    /// forged.
    fn cut(&self, command: &Command, ends_unproved: bool) -> Option<String> {
        let arrived = self.bytes;
        match self.announced {
            Some(announced) if announced == arrived => None,
            Some(announced) => Some(format!("{arrived} of {announced} bytes arrived")),
            None if !ends_unproved => None,
            None if self.ends_within_line => Some("its last line has no end".to_owned()),
            // The servers with private data connections list the directory itself, too.
            None if matches!(command, Command::Mlsd(_)) && self.lines == 0 => {
                Some("not even the directory itself is in it".to_owned())
            }
            None => None,
        }
    }
}

impl ClientSession {
    /// Refuses an answer to `command` that was cut.
    ///
    /// # Errors
    /// `Unreachable`, as after a lost data connection.
    pub(super) fn require_whole(
        &self,
        listing: ListingExtent,
        command: &Command,
        operation: &Operation,
    ) -> Result<(), Failure> {
        let Some(cut) = listing.cut(command, self.listings_end_unproved()) else {
            return Ok(());
        };
        let reason = Sentence::cannot(operation).words(format_args!(
            " at {}: the listing was cut on its way ({cut})",
            self.name()
        ));
        Err(Failure::unreachable(reason).advise("try again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_whole_if_nothing_shows_that_it_was_cut() {
        let facts = Command::Mlsd(None);
        let listing = |bytes, announced, lines, ends_within_line| ListingExtent {
            lines,
            ends_within_line,
            bytes,
            announced,
        };
        for (listing, cut_if_proved, cut_if_unproved) in [
            // The server's word decides.
            (listing(9, Some(9), 1, true), false, false),
            (listing(0, Some(0), 0, false), false, false),
            (listing(9, Some(10), 1, false), true, true),
            (listing(9, Some(8), 1, false), true, true),
            (listing(9, None, 1, false), false, false),
            (listing(9, None, 1, true), false, true),
            (listing(0, None, 0, false), false, true),
        ] {
            for (unproved, is_cut) in [(false, cut_if_proved), (true, cut_if_unproved)] {
                let cut = listing.cut(&facts, unproved);
                assert_eq!(cut.is_some(), is_cut, "{listing:?}: {cut:?}");
            }
        }
        // LIST and NLST name the entries alone.
        assert_eq!(
            listing(0, None, 0, false).cut(&Command::List(None), true),
            None
        );
    }
}
