//! Starting a transfer: is there a data channel, does it fit the mode, what moves (RETR, ERET).

use super::replies::{self, CommandFailure, CommandResult, CommandTarget};
use super::running_transfer::RunningTransfer;
use super::session_state::{DataChannel, LoggedInSession, PendingTask};
use super::{SessionAction, TransferError, TransferKind, TransferRequest};
use crate::command::{DataType, ExtendedRetrieve, RestartMarker, TransferMode};
use crate::path::VPath;
use crate::ranges::RangeSet;

impl LoggedInSession {
    /// RETR and ERET. Offsets of REST are those of the wire: with ERET they count from the part.
    pub(super) fn retr(
        &mut self,
        verb: &'static str,
        part: Option<ExtendedRetrieve>,
        argument: &[u8],
    ) -> CommandResult {
        let restart = self.next_transfer.restart.take();
        let path = self.resolve(argument)?;
        let have = self.restart_ranges(restart)?.unwrap_or_default();
        let part = part.map(|ExtendedRetrieve::Partial { offset, length }| (offset, length));
        let kind = TransferKind::Retrieve {
            path: path.clone(),
            partial: part,
            already_received: have,
        };
        Ok(self.start_transfer(verb, path, kind))
    }

    /// The ranges that REST says are there; `None` without REST or with `REST 0`, which both mean
    /// the whole file. A marker counts bytes of the file and those of the wire alike, so TYPE A
    /// has none but 0: RFC 3659 §5.4 lets the transfer command answer 554.
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

    /// Starts a transfer, or says why it cannot be.
    pub(super) fn start_transfer(
        &mut self,
        verb: &'static str,
        path: VPath,
        what: TransferKind,
    ) -> Vec<SessionAction> {
        let stores = matches!(what, TransferKind::Store { .. });
        let subject = CommandTarget { verb, path };
        if stores && !self.rights.write {
            let error = TransferError::File(replies::read_only_error());
            return replies::refuse(&CommandFailure::Transfer(&subject, &error));
        }
        if let Some(why) = self.channel_refusal(stores) {
            return replies::reply(425, why);
        }
        let request = self.transfer_request(what);
        let delayed = match self.data_channel {
            DataChannel::DelayedPassive(form) => Some(form),
            _ => None,
        };
        self.pending =
            PendingTask::Transfer(Box::new(RunningTransfer::new(subject, &request, delayed)));
        vec![SessionAction::Transfer(Box::new(request))]
    }

    /// In MODE E the sender of data connects (GFD.20 §3.4); in MODE S either may.
    fn channel_refusal(&self, stores: bool) -> Option<&'static str> {
        let extended = self.parameters.mode == TransferMode::Extended;
        match &self.data_channel {
            DataChannel::None => {
                Some("Cannot open data connection: use PASV, EPSV, PORT or EPRT first.")
            }
            DataChannel::Passive { .. } | DataChannel::DelayedPassive(_) if extended && !stores => {
                Some(
                    "Cannot open data connection: in MODE E the sender connects; \
                 use PORT, EPRT or SPOR before this command.",
                )
            }
            DataChannel::Active { .. } if extended && stores => Some(
                "Cannot open data connection: in MODE E the receiver listens; \
                 use PASV, EPSV or SPAS before this command.",
            ),
            _ => None,
        }
    }

    fn transfer_request(&self, what: TransferKind) -> TransferRequest {
        let settings = &self.parameters;
        let buffers = self.transfer_buffers(&what);
        let (perf, range) = match (settings.mode, &what) {
            (TransferMode::Stream, _) | (_, TransferKind::List(_)) => (0, 0),
            (_, TransferKind::Retrieve { .. }) => (settings.retrieve_perf_seconds, 0),
            (_, TransferKind::Store { .. }) => {
                (settings.store_perf_seconds, settings.store_range_seconds)
            }
        };
        TransferRequest {
            kind: what,
            mode: settings.mode,
            type_: settings.type_,
            streams: settings.parallelism,
            congestion_control: settings.congestion_control.clone(),
            delayed_passive: matches!(self.data_channel, DataChannel::DelayedPassive(_))
                .then(|| self.listen_request()),
            buffers,
            perf_marker_seconds: perf,
            range_marker_seconds: range,
        }
    }
}
