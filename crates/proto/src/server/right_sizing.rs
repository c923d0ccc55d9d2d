//! Dynamic right-sizing: OPTS DRS, the DRS channel's address (DPSV, DPRT), and sizes that travel on
//! the control channel during a transfer (SBUF, 126).
//!
//! A session that never says OPTS DRS sees none of it: SBUF waits its turn, no 126 comes.
//!
//! Sources: Gardner, Feng and Fisk 2003 §4.2 (drs1); Engelhart, Gardner and Feng 2004 §3.2 (drs).

use super::options;
use super::replies::{self, Failure};
use super::state::{Channel, LoggedIn, Pending};
use super::{Action, FileError, SessionConfig, TransferKind};
use crate::command::BufferSide;
use crate::drs::DrsAddress;
use crate::sizing::{Buffers, Sizing};

impl LoggedIn {
    /// OPTS DRS: for the transfers that follow. `auto` is what the server does by itself, which its
    /// administrator may have set to `kernel`. Another policy closes cached connections, whose
    /// buffers were made for the last one; the DRS channel's address is of no use to it.
    pub(super) fn set_sizing(&mut self, config: &SessionConfig, sizing: Sizing) -> Vec<Action> {
        let sizing = match sizing {
            Sizing::Auto => config.own_sizing(),
            other => other,
        };
        let mut actions = Vec::new();
        if sizing != self.settings.buffers.sizing && self.channel.is_cached() {
            self.channel = Channel::None;
            actions.push(Action::DropChannel);
        }
        self.settings.buffers.sizing = sizing;
        self.settings.takes_remarks = true;
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
        (self.settings.buffers.sizing != Sizing::Drs)
            .then(|| replies::reply(503, format!("Send OPTS DRS drs before {verb}.")))
    }

    /// The buffers of connections that a listener takes. Which way data will go is not known yet; only a
    /// receiver's buffer has to be right before the connection is made.
    pub(super) fn buffers_of_listener(&self) -> Buffers {
        let buffers = self.settings.buffers;
        match buffers.receive {
            Some(_) => buffers.left_to_the_kernel(),
            None => buffers,
        }
    }

    /// A transfer's buffers, and who sizes them. A pinned size is left alone; where the two ends work together,
    /// the other one is still served: sizes are told and answered. A listing is over before there is
    /// anything to agree on.
    pub(super) fn buffers_of(&self, what: &TransferKind) -> Buffers {
        let buffers = self.settings.buffers;
        let pinned = match what {
            TransferKind::Store { .. } => buffers.receive,
            TransferKind::Retrieve { .. } => buffers.send,
            // Not worth a thread that watches it.
            TransferKind::List(_) => return buffers.left_to_the_kernel(),
        };
        match pinned {
            Some(_) if !buffers.sizing.needs_peer() => buffers.left_to_the_kernel(),
            _ => buffers,
        }
    }

    /// SBUF outside a transfer. With drs1 in force it is what the client's buffers grew to at the
    /// end of a transfer that is over by now, and pins nothing (SITE SBUF does).
    pub(super) fn sbuf(&mut self, bytes: u64) -> Vec<Action> {
        if self.settings.buffers.sizing != Sizing::Drs1 {
            self.set_buffer(BufferSide::Both, bytes);
        }
        replies::reply(200, "SBUF Command Successful.")
    }

    /// Whether SBUF is taken at once: with drs1 in force, while data moves.
    pub(super) fn takes_sizes(&self) -> bool {
        self.settings.buffers.sizing == Sizing::Drs1 && matches!(self.pending, Pending::Transfer(_))
    }
}
