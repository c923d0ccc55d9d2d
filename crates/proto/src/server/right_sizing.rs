//! Dynamic right-sizing: OPTS DRS, the DRS channel's address (DPSV, DPRT), and sizes that travel on
//! the control channel during a transfer (SBUF, 126).
//!
//! A session that never says OPTS DRS sees none of it: SBUF waits its turn, no 126 comes.
//!
//! Sources: Gardner, Feng and Fisk 2003 §4.2 (drs1); Engelhart, Gardner and Feng 2004 §3.2 (drs).

use super::options;
use super::replies::{self, Failure};
use super::state::{LoggedIn, Pending};
use super::{Action, FileError, TransferKind, TransferRequest};
use crate::command::BufferSide;
use crate::drs::DrsAddress;
use crate::reply::Reply;
use crate::sizing::{MAX_BUFFER, Sizing, buffer_reply};

/// Sizes told during a transfer with [`Sizing::Drs1`].
#[derive(Debug)]
pub(super) struct Told {
    /// This server receives and tells; otherwise it sends and follows.
    receives: bool,
    /// The last size, bytes.
    last: u64,
}

impl Told {
    /// `None` for a transfer in which no sizes travel on the control channel.
    pub(super) fn new(request: &TransferRequest) -> Option<Self> {
        (request.sizing == Sizing::Drs1).then_some(Self {
            receives: matches!(request.what, TransferKind::Store { .. }),
            last: 0,
        })
    }

    /// The size to follow when the client, which receives, has told one. The same size again is
    /// nothing new.
    pub(super) fn follow(&mut self, bytes: u64) -> Option<u64> {
        if self.receives {
            None
        } else {
            self.change(bytes)
        }
    }

    /// The 126 when this server's buffers have grown.
    pub(super) fn tell(&mut self, bytes: u64) -> Option<Reply> {
        if self.receives {
            self.change(bytes).map(buffer_reply)
        } else {
            None
        }
    }

    fn change(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.min(MAX_BUFFER);
        if bytes == 0 || bytes == self.last {
            return None;
        }
        self.last = bytes;
        Some(bytes)
    }
}

impl LoggedIn {
    /// OPTS DRS: for the transfers that follow. The DRS channel's address is of no use to another
    /// policy.
    pub(super) fn set_sizing(&mut self, sizing: Sizing) -> Vec<Action> {
        self.settings.sizing = sizing;
        let mut actions = Vec::new();
        if sizing != Sizing::Drs {
            actions.extend(self.drop_drs());
        }
        actions.extend(options::success());
        actions
    }

    /// Forgets the DRS channel's address, if there is one.
    pub(super) fn drop_drs(&mut self) -> Option<Action> {
        std::mem::take(&mut self.has_drs).then_some(Action::DropDrs)
    }

    /// DPSV. It mirrors EPSV and is allowed after EPSV ALL as EPSV is.
    pub(super) fn dpsv(&mut self) -> Vec<Action> {
        if let Some(refusal) = self.without_drs("DPSV") {
            return refusal;
        }
        self.has_drs = false;
        self.pending = Pending::ListenDrs;
        vec![Action::ListenDrs(self.family())]
    }

    /// The DRS channel's listener is open, or is not.
    pub(super) fn on_drs_listening(
        &mut self,
        address: Result<DrsAddress, FileError>,
    ) -> Vec<Action> {
        match address {
            Ok(address) => {
                self.has_drs = true;
                let text = format!("Entering DRS Passive Mode ({})", address.format());
                replies::reply(229, text)
            }
            Err(error) => replies::refuse(&Failure::Listen(&error)),
        }
    }

    /// DPRT. It mirrors EPRT: the same addresses are refused, and all of them after EPSV ALL
    /// (RFC 2428 §4).
    pub(super) fn dprt(&mut self, to: DrsAddress) -> Vec<Action> {
        if let Some(refusal) = self
            .after_epsv_all("DPRT")
            .or_else(|| self.without_drs("DPRT"))
        {
            return refusal;
        }
        if let Some(why) = self.objection(to.at) {
            return replies::reply(501, format!("Illegal DPRT command: {why}."));
        }
        self.has_drs = true;
        let mut actions = vec![Action::ConnectDrs(to)];
        actions.extend(replies::reply(200, "DPRT Command Successful."));
        actions
    }

    fn without_drs(&self, verb: &str) -> Option<Vec<Action>> {
        (self.settings.sizing != Sizing::Drs)
            .then(|| replies::reply(503, format!("Send OPTS DRS drs before {verb}.")))
    }

    /// Who sizes the buffers of connections that a listener takes. Which way data will go is not
    /// known yet; only a receiver's buffer has to be right before the connection is made.
    pub(super) fn sizing_of_listener(&self) -> Sizing {
        match self.settings.receive_buffer {
            Some(_) => Sizing::Kernel,
            None => self.settings.sizing,
        }
    }

    /// Who sizes a transfer's buffers: nobody but the kernel where the size is pinned. A listing is
    /// over before there is anything to agree on with the other end.
    pub(super) fn sizing_of(&self, what: &TransferKind) -> Sizing {
        let (pinned, policy) = match what {
            TransferKind::Store { .. } => (self.settings.receive_buffer, self.settings.sizing),
            TransferKind::Retrieve { .. } => (self.settings.send_buffer, self.settings.sizing),
            // Not worth a thread that watches it.
            TransferKind::List(_) => (self.settings.send_buffer, Sizing::Kernel),
        };
        match pinned {
            Some(_) => Sizing::Kernel,
            None => policy,
        }
    }

    /// SBUF outside a transfer. With drs1 in force it is what the client's buffers grew to at the
    /// end of a transfer that is over by now, and pins nothing (SITE SBUF does).
    pub(super) fn sbuf(&mut self, bytes: u64) -> Vec<Action> {
        if self.settings.sizing != Sizing::Drs1 {
            self.set_buffer(BufferSide::Both, bytes);
        }
        replies::reply(200, "SBUF Command Successful.")
    }

    /// Whether SBUF is taken at once: with drs1 in force, while data moves.
    pub(super) fn takes_sizes(&self) -> bool {
        self.settings.sizing == Sizing::Drs1 && matches!(self.pending, Pending::Transfer(_))
    }
}
