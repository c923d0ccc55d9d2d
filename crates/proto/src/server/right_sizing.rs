//! Dynamic right-sizing: OPTS DRS, the DRS channel's address (DPSV, DPRT), and sizes that travel on
//! the control channel during a transfer (SBUF, 126).
//!
//! A session that never says OPTS DRS sees none of it: SBUF waits its turn, no 126 comes.
//!
//! Sources: Gardner, Feng and Fisk 2003 §4.2 (drs1); Engelhart, Gardner and Feng 2004 §3.2 (drs).

use super::options;
use super::replies::{self, CommandFailure};
use super::session_state::{DataChannel, LoggedInSession, PendingTask};
use super::{FileError, SessionAction, SessionConfig, TransferKind};
use crate::command::BufferDirection;
use crate::drs::DrsAddress;
use crate::sizing::{BufferSizing, SocketBuffers};

impl LoggedInSession {
    /// OPTS DRS: for the transfers that follow. `auto` is what the server does by itself, which its
    /// administrator may have set to `kernel`. Another policy closes cached connections, whose
    /// buffers were made for the last one; the DRS channel's address is of no use to it.
    pub(super) fn set_buffer_sizing(
        &mut self,
        config: &SessionConfig,
        sizing: BufferSizing,
    ) -> Vec<SessionAction> {
        let sizing = match sizing {
            BufferSizing::Auto => config.default_buffer_sizing(),
            other => other,
        };
        let mut actions = Vec::new();
        if sizing != self.parameters.buffers.sizing && self.data_channel.is_cached() {
            self.data_channel = DataChannel::None;
            actions.push(SessionAction::DropChannel);
        }
        self.parameters.buffers.sizing = sizing;
        self.parameters.reads_remarks = true;
        if sizing != BufferSizing::Drs {
            actions.extend(self.drop_drs());
        }
        actions.extend(options::success());
        actions
    }

    /// Forgets the DRS channel's address, if there is one.
    pub(super) fn drop_drs(&mut self) -> Option<SessionAction> {
        std::mem::take(&mut self.has_drs_address).then_some(SessionAction::DropDrs)
    }

    /// DPSV. It mirrors EPSV and is allowed after EPSV ALL as EPSV is.
    pub(super) fn dpsv(&mut self) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_without_drs("DPSV") {
            return refusal;
        }
        self.has_drs_address = false;
        self.pending = PendingTask::ListenDrs;
        vec![SessionAction::ListenDrs(self.family())]
    }

    /// The DRS channel's listener is open, or is not.
    pub(super) fn on_drs_listening(
        &mut self,
        address: Result<DrsAddress, FileError>,
    ) -> Vec<SessionAction> {
        match address {
            Ok(address) => {
                self.has_drs_address = true;
                let text = format!("Entering DRS Passive Mode ({})", address.format());
                replies::reply(229, text)
            }
            Err(error) => replies::refuse(&CommandFailure::Listen(&error)),
        }
    }

    /// DPRT. It mirrors EPRT: the same addresses are refused, and all of them after EPSV ALL
    /// (RFC 2428 §4).
    pub(super) fn dprt(&mut self, to: DrsAddress) -> Vec<SessionAction> {
        if let Some(refusal) = self
            .refuse_after_epsv_all("DPRT")
            .or_else(|| self.refuse_without_drs("DPRT"))
        {
            return refusal;
        }
        if let Some(why) = self.address_refusal(to.socket) {
            return replies::reply(501, format!("Illegal DPRT command: {why}."));
        }
        self.has_drs_address = true;
        let mut actions = vec![SessionAction::ConnectDrs(to)];
        actions.extend(replies::reply(200, "DPRT Command Successful."));
        actions
    }

    fn refuse_without_drs(&self, verb: &str) -> Option<Vec<SessionAction>> {
        (self.parameters.buffers.sizing != BufferSizing::Drs)
            .then(|| replies::reply(503, format!("Send OPTS DRS drs before {verb}.")))
    }

    /// The buffers of connections that a listener takes. Which way data will go is not known yet; only a
    /// receiver's buffer has to be right before the connection is made.
    pub(super) fn listener_buffers(&self) -> SocketBuffers {
        let buffers = self.parameters.buffers;
        match buffers.receive {
            Some(_) => buffers.with_kernel_sizing(),
            None => buffers,
        }
    }

    /// A transfer's buffers, and who sizes them. A pinned size is left alone; where the two ends work together,
    /// the other one is still served: sizes are told and answered. A listing is over before there is
    /// anything to agree on.
    pub(super) fn transfer_buffers(&self, what: &TransferKind) -> SocketBuffers {
        let buffers = self.parameters.buffers;
        let pinned = match what {
            TransferKind::Store { .. } => buffers.receive,
            TransferKind::Retrieve { .. } => buffers.send,
            // Not worth a thread that watches it.
            TransferKind::List(_) => return buffers.with_kernel_sizing(),
        };
        match pinned {
            Some(_) if !buffers.sizing.needs_peer_support() => buffers.with_kernel_sizing(),
            _ => buffers,
        }
    }

    /// SBUF outside a transfer. With drs1 in force it is what the client's buffers grew to at the
    /// end of a transfer that is over by now, and pins nothing (SITE SBUF does).
    pub(super) fn sbuf(&mut self, bytes: u64) -> Vec<SessionAction> {
        if self.parameters.buffers.sizing != BufferSizing::Drs1 {
            self.set_buffer(BufferDirection::Both, bytes);
        }
        replies::reply(200, "SBUF Command Successful.")
    }

    /// Whether SBUF is taken at once: with drs1 in force, while data moves.
    pub(super) fn accepts_buffer_size(&self) -> bool {
        self.parameters.buffers.sizing == BufferSizing::Drs1
            && matches!(self.pending, PendingTask::Transfer(_))
    }
}
