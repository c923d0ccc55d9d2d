//! STOR, APPE, STOU and ESTO, with and without REST.

use super::replies::{self, CommandResult};
use super::session_state::{LoggedInSession, NextStoreParameters};
use super::{SessionAction, StoreDisposition, TransferKind};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DataType, RestartMarker, TransferMode};
use crate::path::VPath;
use crate::ranges::RangeSet;

/// Base of the unique name for STOU without argument.
const UNIQUE_BASE: &[u8] = b"stou";

impl LoggedInSession {
    /// STOR: replaces the file, or completes it after REST.
    pub(super) fn stor(&mut self, argument: &[u8]) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => StoreDisposition::Truncate,
            Some(already_stored) => StoreDisposition::Resume { already_stored },
        };
        Ok(self.start_store("STOR", path, disposition, parameters))
    }

    /// APPE: appends to the file. After REST it acts as STOR (RFC 3659 §5.4).
    pub(super) fn appe(&mut self, argument: &[u8]) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => StoreDisposition::Append,
            Some(already_stored) => StoreDisposition::Resume { already_stored },
        };
        Ok(self.start_store("APPE", path, disposition, parameters))
    }

    /// STOU: stores under a unique name. REST is refused, since a new file has nothing to resume
    /// (RFC 3659 §5.4 leaves this open).
    pub(super) fn stou(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument.unwrap_or(UNIQUE_BASE))?;
        if self.stored_ranges(restart)?.is_some() {
            return Ok(replies::reply(554, "REST cannot precede STOU."));
        }
        Ok(self.start_store("STOU", path, StoreDisposition::Unique, parameters))
    }

    /// ESTO A: wire offset 0 is stored at file offset `offset`. REST ranges are wire offsets.
    pub(super) fn esto(&mut self, offset: u64, argument: &[u8]) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument)?;
        let already_stored = self.stored_ranges(restart)?;
        let start = match (self.parameters.mode, already_stored) {
            // In MODE S the first byte on the wire is the first missing one. MODE E blocks carry
            // their own offsets. A client chooses both numbers, so the sum may overflow.
            (TransferMode::Stream, Some(already_stored)) => {
                offset.checked_add(already_stored.prefix_len())
            }
            _ => Some(offset),
        };
        match start.filter(|start| *start <= i64::MAX as u64) {
            Some(start) => {
                Ok(self.start_store("ESTO", path, StoreDisposition::AtOffset(start), parameters))
            }
            None => Ok(replies::reply(554, "ESTO is beyond the end of any file.")),
        }
    }

    /// Consumes REST and the store parameters. Every store does so before any check, since they are
    /// meant for its file only; a refused store must not leave them to the next one.
    fn take_next_store(&mut self) -> (Option<RestartMarker>, NextStoreParameters) {
        let parameters = std::mem::take(&mut self.next_transfer);
        (parameters.restart, parameters.store)
    }

    /// Ranges that are stored already according to REST. MODE S carries no offsets, so there they must
    /// be a single prefix of the file.
    fn stored_ranges(
        &self,
        restart: Option<RestartMarker>,
    ) -> Result<Option<RangeSet>, Vec<SessionAction>> {
        let ranges = self.restart_ranges(restart)?;
        let has_gaps = ranges.as_ref().is_some_and(|r| r.prefix_len() != r.end());
        if self.parameters.mode == TransferMode::Stream && has_gaps {
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
        parameters: NextStoreParameters,
    ) -> Vec<SessionAction> {
        let kind = TransferKind::Store {
            path: path.clone(),
            checksum_algorithm: self.checksum_while_storing(&disposition),
            disposition,
            announced_size: parameters.announced_size,
            expected_checksum: parameters.expected_checksum,
            modified: parameters.modified,
        };
        self.start_transfer(verb, path, kind)
    }

    /// Checksum to compute while storing. It is possible only if the whole file arrives, without
    /// translation of line endings.
    fn checksum_while_storing(&self, disposition: &StoreDisposition) -> Option<ChecksumAlgorithm> {
        let is_whole_file = matches!(
            disposition,
            StoreDisposition::Truncate | StoreDisposition::Unique
        );
        (is_whole_file && self.parameters.type_ == DataType::Image)
            .then_some(self.parameters.store_checksum)
            .flatten()
    }
}
