//! Starting a transfer: is there a data channel, does it fit the mode, what moves (RETR, ERET).

use super::replies::{self, Failure, Step, Subject};
use super::running::Running;
use super::state::{Channel, LoggedIn, Pending};
use super::{Action, TransferError, TransferKind, TransferRequest};
use crate::command::{Mode, Restart, Retrieve, Type};
use crate::path::VPath;
use crate::ranges::RangeSet;

impl LoggedIn {
    /// RETR and ERET. Offsets of REST are those of the wire: with ERET they count from the part.
    pub(super) fn retr(
        &mut self,
        verb: &'static str,
        part: Option<Retrieve>,
        argument: &[u8],
    ) -> Step {
        let restart = self.next.restart.take();
        let path = self.resolve(argument)?;
        let have = self.restart_ranges(restart)?.unwrap_or_default();
        let part = part.map(|Retrieve::Partial { offset, length }| (offset, length));
        let kind = TransferKind::Retrieve {
            path: path.clone(),
            part,
            have,
        };
        Ok(self.start(verb, path, kind))
    }

    /// The ranges that REST says are there; `None` without REST or with `REST 0`, which both mean
    /// the whole file. A marker counts bytes of the file and those of the wire alike, so TYPE A
    /// has none but 0: RFC 3659 §5.4 lets the transfer command answer 554.
    pub(super) fn restart_ranges(
        &self,
        restart: Option<Restart>,
    ) -> Result<Option<RangeSet>, Vec<Action>> {
        let ranges = match restart {
            None | Some(Restart::Offset(0)) => return Ok(None),
            Some(Restart::Ranges(ranges)) => ranges,
            Some(Restart::Offset(offset)) => {
                let mut prefix = RangeSet::new();
                prefix.insert(0, offset);
                prefix
            }
        };
        if self.settings.type_ == Type::Ascii && !ranges.is_empty() {
            return Err(replies::reply(554, "REST needs TYPE I."));
        }
        Ok(Some(ranges))
    }

    /// Starts a transfer, or says why it cannot be.
    pub(super) fn start(
        &mut self,
        verb: &'static str,
        path: VPath,
        what: TransferKind,
    ) -> Vec<Action> {
        let stores = matches!(what, TransferKind::Store { .. });
        let subject = Subject { verb, path };
        if stores && !self.rights.write {
            let error = TransferError::File(replies::read_only());
            return replies::refuse(&Failure::Transfer(&subject, &error));
        }
        if let Some(why) = self.channel_objection(stores) {
            return replies::reply(425, why);
        }
        let request = self.transfer_request(what);
        let delayed = match self.channel {
            Channel::Delayed(form) => Some(form),
            _ => None,
        };
        self.pending = Pending::Transfer(Box::new(Running::new(subject, &request, delayed)));
        vec![Action::Transfer(Box::new(request))]
    }

    /// In MODE E the sender of data connects (GFD.20 §3.4); in MODE S either may.
    fn channel_objection(&self, stores: bool) -> Option<&'static str> {
        let extended = self.settings.mode == Mode::Extended;
        match &self.channel {
            Channel::None => {
                Some("Cannot open data connection: use PASV, EPSV, PORT or EPRT first.")
            }
            Channel::Passive { .. } | Channel::Delayed(_) if extended && !stores => Some(
                "Cannot open data connection: in MODE E the sender connects; \
                 use PORT, EPRT or SPOR before this command.",
            ),
            Channel::Active { .. } if extended && stores => Some(
                "Cannot open data connection: in MODE E the receiver listens; \
                 use PASV, EPSV or SPAS before this command.",
            ),
            _ => None,
        }
    }

    fn transfer_request(&self, what: TransferKind) -> TransferRequest {
        let settings = &self.settings;
        let buffers = self.buffers_of(&what);
        let (perf, range) = match (settings.mode, &what) {
            (Mode::Stream, _) | (_, TransferKind::List(_)) => (0, 0),
            (_, TransferKind::Retrieve { .. }) => (settings.retrieve_perf_seconds, 0),
            (_, TransferKind::Store { .. }) => (settings.perf_seconds, settings.range_seconds),
        };
        TransferRequest {
            what,
            mode: settings.mode,
            type_: settings.type_,
            streams: settings.parallelism,
            congestion: settings.congestion.clone(),
            delayed_passive: matches!(self.channel, Channel::Delayed(_))
                .then(|| self.listen_request()),
            buffers,
            perf_marker_seconds: perf,
            range_marker_seconds: range,
        }
    }
}
