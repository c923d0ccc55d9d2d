//! Start of a transfer: checks of the data channel, RETR and ERET.

use super::replies::{self, CommandFailure, CommandResult, CommandTarget};
use super::running_transfer::RunningTransfer;
use super::session_state::{DataChannel, LoggedInSession, PendingTask};
use super::{SessionAction, TransferError, TransferKind, TransferRequest};
use crate::command::{DataType, RestartMarker, TransferMode};
use crate::path::VPath;
use crate::ranges::RangeSet;

impl LoggedInSession {
    /// RETR and ERET P (with the offset and length of the part). REST holds wire offsets: with ERET they count from the start of the part.
    pub(super) fn retr(
        &mut self,
        verb: &'static str,
        partial: Option<(u64, u64)>,
        argument: &[u8],
    ) -> CommandResult {
        // REST is consumed first, so that a refused RETR does not leave it to the next transfer.
        let restart = self.next_transfer.restart.take();
        let path = self.resolve(argument)?;
        let already_received = self.restart_ranges(restart)?.unwrap_or_default();
        // Only if the whole file is sent, without translation of line endings.
        let is_whole_file = partial.is_none()
            && already_received.is_empty()
            && self.parameters.type_ == DataType::Image;
        let checksum_algorithm = self.parameters.retrieve_checksum;
        let kind = TransferKind::Retrieve {
            path: path.clone(),
            partial,
            already_received,
            checksum_algorithm: checksum_algorithm.filter(|_| is_whole_file),
        };
        Ok(self.start_transfer(verb, path, kind))
    }

    /// The ranges that the receiver has according to REST; `None` without REST or after `REST 0`, which
    /// both mean the whole file. File offsets and wire offsets differ in TYPE A, so there any other
    /// marker is refused with 554 by the transfer command, as RFC 3659 §5.4 allows.
    pub(super) fn restart_ranges(
        &self,
        restart: Option<RestartMarker>,
    ) -> Result<Option<RangeSet>, Vec<SessionAction>> {
        let ranges = match restart {
            None | Some(RestartMarker::Offset(0)) => return Ok(None),
            Some(RestartMarker::Ranges(ranges)) => ranges,
            Some(RestartMarker::Offset(offset)) => {
                let mut prefix = RangeSet::new();
                prefix.insert(0, offset);
                prefix
            }
        };
        if self.parameters.type_ == DataType::Ascii && !ranges.is_empty() {
            return Err(replies::reply(554, "REST needs TYPE I."));
        }
        Ok(Some(ranges))
    }

    /// Starts a transfer, or refuses it.
    pub(super) fn start_transfer(
        &mut self,
        verb: &'static str,
        path: VPath,
        kind: TransferKind,
    ) -> Vec<SessionAction> {
        let is_store = kind.is_store();
        let target = CommandTarget { verb, path };
        // The right is checked before the data channel, so that 550 does not depend on it.
        if is_store && !self.rights.write {
            let error = TransferError::File(replies::read_only_error());
            return replies::refuse(&CommandFailure::Transfer(&target, &error));
        }
        if let Some(reason) = self.protection.refusal() {
            return replies::reply(521, format!("Data connection cannot be opened: {reason}"));
        }
        if let Some(reason) = self.channel_refusal(is_store) {
            return replies::reply(425, reason);
        }
        let request = self.transfer_request(kind);
        let delayed = match self.data_channel {
            DataChannel::DelayedPassive(form) => Some(form),
            _ => None,
        };
        self.pending =
            PendingTask::Transfer(Box::new(RunningTransfer::new(target, &request, delayed)));
        vec![SessionAction::Transfer(Box::new(request))]
    }

    /// Reason why the data channel does not fit the transfer. In MODE E the data sender must connect
    /// (GFD.20 §3.4); in MODE S either end may.
    fn channel_refusal(&self, is_store: bool) -> Option<&'static str> {
        let extended = self.parameters.mode == TransferMode::Extended;
        match &self.data_channel {
            DataChannel::None => {
                Some("Cannot open data connection: use PASV, EPSV, PORT or EPRT first.")
            }
            DataChannel::Passive { .. } | DataChannel::DelayedPassive(_)
                if extended && !is_store =>
            {
                Some(
                    "Cannot open data connection: in MODE E the sender connects; \
                 use PORT, EPRT or SPOR before this command.",
                )
            }
            DataChannel::Active { .. } if extended && is_store => Some(
                "Cannot open data connection: in MODE E the receiver listens; \
                 use PASV, EPSV or SPAS before this command.",
            ),
            _ => None,
        }
    }

    fn transfer_request(&self, kind: TransferKind) -> TransferRequest {
        let parameters = &self.parameters;
        let buffers = self.transfer_buffers(&kind);
        let (perf, range) = match (parameters.mode, &kind) {
            (TransferMode::Stream, _) | (_, TransferKind::List(_)) => (0, 0),
            (_, kind) if kind.is_retrieve() => (parameters.retrieve_perf_seconds, 0),
            _ => (
                parameters.store_perf_seconds,
                parameters.store_range_seconds,
            ),
        };
        TransferRequest {
            kind,
            mode: parameters.mode,
            type_: parameters.type_,
            streams: parameters.parallelism,
            congestion_control: parameters.congestion_control.clone(),
            delayed_passive: matches!(self.data_channel, DataChannel::DelayedPassive(_))
                .then(|| self.listen_request()),
            buffers,
            perf_marker_seconds: perf,
            range_marker_seconds: range,
            protection: self.protection.channel.clone(),
        }
    }
}
