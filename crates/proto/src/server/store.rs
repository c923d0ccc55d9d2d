//! Stores and their effect on the file: STOR, APPE, STOU, ESTO with and without REST.

use super::replies::{self, Step};
use super::state::{LoggedIn, NextStore};
use super::{Action, Disposition, TransferKind};
use crate::checksum::Algorithm;
use crate::command::{Mode, Restart, Type};
use crate::path::VPath;
use crate::ranges::RangeSet;

/// Name that STOU without argument starts from.
const UNIQUE_BASE: &[u8] = b"stou";

impl LoggedIn {
    /// STOR: the file is replaced, or with REST completed.
    pub(super) fn stor(&mut self, argument: &[u8]) -> Step {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => Disposition::Truncate,
            Some(have) => Disposition::Resume { have },
        };
        Ok(self.store("STOR", path, disposition, next))
    }

    /// APPE; after REST it acts as STOR does (RFC 3659 §5.4).
    pub(super) fn appe(&mut self, argument: &[u8]) -> Step {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => Disposition::Append,
            Some(have) => Disposition::Resume { have },
        };
        Ok(self.store("APPE", path, disposition, next))
    }

    /// STOU; there is nothing to restart in a file that is new (RFC 3659 §5.4 leaves it open).
    pub(super) fn stou(&mut self, argument: Option<&[u8]>) -> Step {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument.unwrap_or(UNIQUE_BASE))?;
        if self.stored_ranges(restart)?.is_some() {
            return Ok(replies::reply(554, "REST cannot precede STOU."));
        }
        Ok(self.store("STOU", path, Disposition::Unique, next))
    }

    /// ESTO A: offset 0 of the wire is `offset` of the file, and REST counts on the wire.
    pub(super) fn esto(&mut self, offset: u64, argument: &[u8]) -> Step {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument)?;
        let have = self.stored_ranges(restart)?;
        let start = match (self.settings.mode, have) {
            // The first byte of the stream is the first that is missing; blocks tell their place.
            (Mode::Stream, Some(have)) => offset.checked_add(have.prefix()),
            _ => Some(offset),
        };
        match start.filter(|start| *start <= i64::MAX as u64) {
            Some(start) => Ok(self.store("ESTO", path, Disposition::At(start), next)),
            None => Ok(replies::reply(554, "ESTO is beyond the end of any file.")),
        }
    }

    /// Both are taken at once, so that a store that is refused consumes them too: they were meant
    /// for that file and no other.
    fn take_next_store(&mut self) -> (Option<Restart>, NextStore) {
        let next = std::mem::take(&mut self.next);
        (next.restart, next.store)
    }

    /// Ranges that REST says are there. A stream has no offsets, so in MODE S the missing part must be
    /// one piece: the end.
    fn stored_ranges(&self, restart: Option<Restart>) -> Result<Option<RangeSet>, Vec<Action>> {
        let ranges = self.restart_ranges(restart)?;
        let in_pieces = ranges.as_ref().is_some_and(|r| r.prefix() != r.end());
        if self.settings.mode == Mode::Stream && in_pieces {
            let text = "REST with ranges other than 0-n needs MODE E for a store.";
            return Err(replies::reply(554, text));
        }
        Ok(ranges)
    }

    fn store(
        &mut self,
        verb: &'static str,
        path: VPath,
        disposition: Disposition,
        next: NextStore,
    ) -> Vec<Action> {
        let kind = TransferKind::Store {
            path: path.clone(),
            sum: self.sum_of(&disposition),
            disposition,
            allocate: next.allocate,
            expect: next.expect,
            modify: next.modify,
        };
        self.start(verb, path, kind)
    }

    /// Only a file that comes whole and unchanged can be summed on its way in.
    fn sum_of(&self, disposition: &Disposition) -> Option<Algorithm> {
        let whole = matches!(disposition, Disposition::Truncate | Disposition::Unique);
        (whole && self.settings.type_ == Type::Image)
            .then_some(self.settings.store_sum)
            .flatten()
    }
}
