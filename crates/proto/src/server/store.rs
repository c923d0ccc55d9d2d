//! Stores and their effect on the file: STOR, APPE, STOU, ESTO with and without REST.

use super::replies::{self, CommandResult};
use super::session_state::{LoggedInSession, NextStoreParameters};
use super::{SessionAction, StoreDisposition, TransferKind};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DataType, RestartMarker, TransferMode};
use crate::path::VPath;
use crate::ranges::RangeSet;

/// Name that STOU without argument starts from.
const UNIQUE_BASE: &[u8] = b"stou";

impl LoggedInSession {
    /// STOR: the file is replaced, or with REST completed.
    pub(super) fn stor(&mut self, argument: &[u8]) -> CommandResult {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => StoreDisposition::Truncate,
            Some(have) => StoreDisposition::Resume {
                already_stored: have,
            },
        };
        Ok(self.start_store("STOR", path, disposition, next))
    }

    /// APPE; after REST it acts as STOR does (RFC 3659 §5.4).
    pub(super) fn appe(&mut self, argument: &[u8]) -> CommandResult {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => StoreDisposition::Append,
            Some(have) => StoreDisposition::Resume {
                already_stored: have,
            },
        };
        Ok(self.start_store("APPE", path, disposition, next))
    }

    /// STOU; there is nothing to restart in a file that is new (RFC 3659 §5.4 leaves it open).
    pub(super) fn stou(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument.unwrap_or(UNIQUE_BASE))?;
        if self.stored_ranges(restart)?.is_some() {
            return Ok(replies::reply(554, "REST cannot precede STOU."));
        }
        Ok(self.start_store("STOU", path, StoreDisposition::Unique, next))
    }

    /// ESTO A: offset 0 of the wire is `offset` of the file, and REST counts on the wire.
    pub(super) fn esto(&mut self, offset: u64, argument: &[u8]) -> CommandResult {
        let (restart, next) = self.take_next_store();
        let path = self.resolve(argument)?;
        let have = self.stored_ranges(restart)?;
        let start = match (self.parameters.mode, have) {
            // The first byte of the stream is the first that is missing; blocks tell their place.
            (TransferMode::Stream, Some(have)) => offset.checked_add(have.prefix_len()),
            _ => Some(offset),
        };
        match start.filter(|start| *start <= i64::MAX as u64) {
            Some(start) => {
                Ok(self.start_store("ESTO", path, StoreDisposition::AtOffset(start), next))
            }
            None => Ok(replies::reply(554, "ESTO is beyond the end of any file.")),
        }
    }

    /// Both are taken at once, so that a store that is refused consumes them too: they were meant
    /// for that file and no other.
    fn take_next_store(&mut self) -> (Option<RestartMarker>, NextStoreParameters) {
        let next = std::mem::take(&mut self.next_transfer);
        (next.restart, next.store)
    }

    /// Ranges that REST says are there. A stream has no offsets, so in MODE S the missing part must be
    /// one piece: the end.
    fn stored_ranges(
        &self,
        restart: Option<RestartMarker>,
    ) -> Result<Option<RangeSet>, Vec<SessionAction>> {
        let ranges = self.restart_ranges(restart)?;
        let in_pieces = ranges.as_ref().is_some_and(|r| r.prefix_len() != r.end());
        if self.parameters.mode == TransferMode::Stream && in_pieces {
            let text = "REST with ranges other than 0-n needs MODE E for a store.";
            return Err(replies::reply(554, text));
        }
        Ok(ranges)
    }

    fn start_store(
        &mut self,
        verb: &'static str,
        path: VPath,
        disposition: StoreDisposition,
        next: NextStoreParameters,
    ) -> Vec<SessionAction> {
        let kind = TransferKind::Store {
            path: path.clone(),
            checksum_algorithm: self.checksum_while_storing(&disposition),
            disposition,
            announced_size: next.announced_size,
            expected_checksum: next.expected_checksum,
            modified: next.modified,
        };
        self.start_transfer(verb, path, kind)
    }

    /// Only a file that comes whole and unchanged can be summed on its way in.
    fn checksum_while_storing(&self, disposition: &StoreDisposition) -> Option<ChecksumAlgorithm> {
        let whole = matches!(
            disposition,
            StoreDisposition::Truncate | StoreDisposition::Unique
        );
        (whole && self.parameters.type_ == DataType::Image)
            .then_some(self.parameters.store_checksum)
            .flatten()
    }
}
