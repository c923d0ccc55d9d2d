//! Dynamic right-sizing (DRS): OPTS DRS, the address of the DRS channel (DPSV, DPRT), and buffer sizes
//! on the control channel during a transfer (SBUF, 126).
//!
//! A client that never sends OPTS DRS notices none of it: SBUF waits for the end of the transfer, and
//! no 126 is sent.
//!
//! Sources: Gardner, Feng and Fisk 2003 §4.2 (drs1); Engelhart, Gardner and Feng 2004 §3.2 (drs).

use super::logged_in::{LoggedInSession, PendingTask};
use super::replies::{self, CommandFailure};
use super::{FileError, SessionAction, SessionConfig, TransferKind};
use crate::command::BufferDirection;
use crate::drs::DrsAddress;
use crate::sizing::{BufferSizing, SocketBuffers};

impl LoggedInSession {
    /// OPTS DRS: sets the buffer sizing of the transfers that follow. `auto` selects the server's own
    /// default, which its administrator may have set to `kernel`. A change closes cached connections,
    /// whose buffers were set up for the previous sizing. All without a DRS channel drop its address.
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
        if sizing != self.parameters.buffers.sizing {
            actions.extend(self.drop_cached_connections());
        }
        self.parameters.buffers.sizing = sizing;
        // OPTS DRS is a longhaul extension, so its client also knows remarks.
        self.parameters.reads_remarks = true;
        if !sizing.uses_drs_channel() {
            actions.extend(self.drop_drs());
        }
        actions.extend(replies::options_accepted());
        actions
    }

    /// Drops the address of the DRS channel, if there is one.
    pub(super) fn drop_drs(&mut self) -> Option<SessionAction> {
        std::mem::take(&mut self.has_drs_address).then_some(SessionAction::DropDrs)
    }

    /// DPSV. It mirrors EPSV, and is allowed after EPSV ALL as EPSV is.
    pub(super) fn dpsv(&mut self) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_without_drs("DPSV") {
            return refusal;
        }
        // The driver closes the previous listener even if it cannot open a new one.
        self.has_drs_address = false;
        self.pending = PendingTask::ListenDrs;
        vec![SessionAction::ListenDrs(self.family())]
    }

    /// Handles the result of opening the listener of the DRS channel.
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

    /// DPRT. It mirrors EPRT: the same addresses are refused, and all addresses after EPSV ALL
    /// (RFC 2428 §4).
    pub(super) fn dprt(&mut self, to: DrsAddress) -> Vec<SessionAction> {
        if let Some(refusal) = self
            .refuse_after_epsv_all("DPRT")
            .or_else(|| self.refuse_without_drs("DPRT"))
        {
            return refusal;
        }
        if let Some(reason) = self.address_refusal(to.socket) {
            return replies::reply(501, format!("Illegal DPRT command: {reason}."));
        }
        self.has_drs_address = true;
        let mut actions = vec![SessionAction::ConnectDrs(to)];
        actions.extend(replies::reply(200, "DPRT Command Successful."));
        actions
    }

    fn refuse_without_drs(&self, verb: &str) -> Option<Vec<SessionAction>> {
        (!self.parameters.buffers.sizing.uses_drs_channel())
            .then(|| replies::reply(503, format!("Send OPTS DRS drs before {verb}.")))
    }

    /// Buffers of connections that a listener accepts. The direction of the data is not known yet. Only
    /// a receive buffer must be set before the connection is made, since the window scale is fixed by
    /// the handshake (RFC 7323 §2.2).
    pub(super) fn listener_buffers(&self) -> SocketBuffers {
        let buffers = self.parameters.buffers;
        match buffers.receive {
            Some(_) => buffers.with_kernel_sizing(),
            None => buffers,
        }
    }

    /// Buffers of a transfer. A pinned size disables sizing by this server, except in schemes that need
    /// both ends: the peer still gets size announcements and echoes. A listing is too short for any sizing.
    pub(super) fn transfer_buffers(&self, kind: &TransferKind) -> SocketBuffers {
        let buffers = self.parameters.buffers;
        let pinned = match kind {
            TransferKind::Store { .. } | TransferKind::StoreBundle { .. } => buffers.receive,
            TransferKind::Retrieve { .. } | TransferKind::RetrieveBundle { .. } => buffers.send,
            // A tuning thread would cost more than it brings in so short a transfer.
            TransferKind::List(_) => return buffers.with_kernel_sizing(),
        };
        match pinned {
            Some(_) if !buffers.sizing.needs_peer_support() => buffers.with_kernel_sizing(),
            _ => buffers,
        }
    }

    /// SBUF outside a transfer. With drs1 it is an announcement that arrived after the end of its
    /// transfer, and pins no size. SITE SBUF always does.
    pub(super) fn sbuf(&mut self, bytes: u64) -> Vec<SessionAction> {
        // A client with drs1 announces sizes without a reply during the transfer. The last one may
        // arrive after the 226, and must not pin the buffers of the next transfer.
        if self.parameters.buffers.sizing != BufferSizing::Drs1 {
            self.set_buffer(BufferDirection::Both, bytes);
        }
        replies::reply(200, "SBUF Command Successful.")
    }

    /// ABUF (GFD.20 §4): takes back what SBUF has pinned. The server sizes its buffers by what the connections show, better than
    /// by a test before.
    pub(super) fn abuf(&mut self, config: &SessionConfig) -> Vec<SessionAction> {
        let sizing = config.default_buffer_sizing();
        let automatic = SocketBuffers::sized_by(sizing);
        let mut actions = Vec::new();
        if automatic != self.parameters.buffers {
            actions.extend(self.drop_cached_connections());
            actions.extend(self.drop_drs());
        }
        self.parameters.buffers = automatic;
        actions.extend(replies::reply(200, "ABUF Command Successful."));
        actions
    }

    /// Whether SBUF is handled at once: with drs1, during a transfer.
    pub(super) fn accepts_buffer_size(&self) -> bool {
        self.parameters.buffers.sizing == BufferSizing::Drs1
            && matches!(self.pending, PendingTask::Transfer(_))
    }
}
