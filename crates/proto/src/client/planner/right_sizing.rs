//! Dynamic right-sizing at the server: OPTS DRS and the address of the DRS channel. Neither is sent to a
//! server that does not announce DRS. Others are asked by ABUF (GFD.20) to size their buffers, if they announce that.

use super::{CommandPlanner, PlanStep, RefusalEffect, TransferRequirements};
use crate::command::{Command, OptsCommand};
use crate::drs::DrsAddress;
use crate::sizing::BufferSizing;

/// Message to the user, after the server's name, when a sizing that needs the peer is requested and the
/// server does not support it.
pub const RIGHT_SIZING_UNSUPPORTED: &str =
    "does not support this buffer sizing; each end sizes its own buffers (--buffer auto)";

/// Address of the DRS channel at the server. It serves any number of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerDrsAddress {
    /// The server listens at this address (DPSV), and the other end of the data channel connects.
    Listens(DrsAddress),
    /// The server connects to this address (DPRT).
    Connects(DrsAddress),
}

/// Right-sizing state of one control connection.
#[derive(Debug, Clone, Default)]
pub(super) struct RightSizingState {
    /// Buffer sizing set by OPTS DRS; `None` for the server's own default, which [`BufferSizing::Auto`]
    /// stands for.
    in_force: Option<BufferSizing>,
    drs_address: Option<ServerDrsAddress>,
    /// DPSV was refused permanently.
    listening_refused: bool,
    /// DPRT was refused permanently.
    connecting_refused: bool,
}

impl CommandPlanner {
    /// Buffer sizing that a transfer will use: `requested` if the server supports it or its support is not
    /// needed, otherwise [`BufferSizing::Auto`].
    pub fn agreed_sizing(&self, requested: BufferSizing) -> BufferSizing {
        // `kernel` and `auto` work without the peer: each end applies them to its own sockets.
        if requested.needs_peer_support() && !self.features.offers_buffer_sizing(requested) {
            BufferSizing::Auto
        } else {
            requested
        }
    }

    /// Whether DPSV may be sent: a sizing with a DRS channel is in force and DPSV was not refused.
    pub fn may_listen_for_drs(&self) -> bool {
        self.right_sizing
            .in_force
            .is_some_and(BufferSizing::uses_drs_channel)
            && !self.right_sizing.listening_refused
    }

    /// Whether DPSV was refused permanently.
    pub fn is_drs_listening_refused(&self) -> bool {
        self.right_sizing.listening_refused
    }

    /// Whether DPRT was refused permanently.
    pub fn is_drs_connecting_refused(&self) -> bool {
        self.right_sizing.connecting_refused
    }

    /// Address of the DRS channel at the server.
    pub fn drs_address(&self) -> Option<ServerDrsAddress> {
        self.right_sizing.drs_address
    }

    /// Records that the server accepted DPSV or DPRT.
    pub fn set_drs_address(&mut self, end: ServerDrsAddress) {
        self.right_sizing.drs_address = Some(end);
    }

    /// Records that DPSV or DPRT failed, so that the server has no usable address. Later attempts may
    /// succeed; for a permanent refusal see [`CommandPlanner::on_refused`].
    pub fn clear_drs_address(&mut self) {
        self.right_sizing.drs_address = None;
    }

    /// OPTS DRS or ABUF, if the server announced it and the sizing is not in force. After a fresh login the
    /// server's own default is in force, which suits [`BufferSizing::Auto`] and pinned sizes.
    pub(super) fn sizing_step(&self, requirements: &TransferRequirements) -> Option<PlanStep> {
        let requested = self.agreed_sizing(requirements.buffer_sizing?);
        let is_asked = requirements.buffer.is_none() && self.right_sizing.in_force.is_none();
        if requested == BufferSizing::Auto
            && is_asked
            && self.features.abuf
            && self.features.buffer_sizings.is_empty()
        {
            return Some(PlanStep::Set(Command::Abuf, RefusalEffect::Ignore));
        }
        let is_set = match self.right_sizing.in_force {
            Some(in_force) => in_force == requested,
            // A pinned size overrides the server's default, so OPTS DRS is not needed for it.
            None => requested == BufferSizing::Auto || requirements.buffer.is_some(),
        };
        if is_set || !self.features.offers_buffer_sizing(requested) {
            return None;
        }
        // A refused `kernel` or `auto` has no visible effect for the user, a refused DRS has.
        let refusal = if requested.needs_peer_support() {
            RefusalEffect::Warn(RIGHT_SIZING_UNSUPPORTED)
        } else {
            RefusalEffect::Ignore
        };
        Some(PlanStep::Set(
            Command::Opts(OptsCommand::BufferSizing(requested)),
            refusal,
        ))
    }

    /// DPSV, if the transfer uses DRS and the server does not listen for the DRS channel yet.
    pub(super) fn drs_step(&self, requirements: &TransferRequirements) -> Option<PlanStep> {
        let uses_drs = requirements
            .buffer_sizing
            .is_some_and(|requested| self.agreed_sizing(requested).uses_drs_channel());
        let listens = matches!(
            self.right_sizing.drs_address,
            Some(ServerDrsAddress::Listens(_))
        );
        (uses_drs && !listens && !self.right_sizing.listening_refused)
            .then_some(PlanStep::DrsListen)
    }

    /// Records an accepted OPTS DRS. Data connections opened under another sizing cannot be reused,
    /// since their window scale is fixed by the handshake (RFC 7323 §2.2).
    pub(super) fn on_sizing_accepted(&mut self, sizing: BufferSizing) {
        if !sizing.uses_drs_channel() {
            self.right_sizing.drs_address = None;
        }
        if self.right_sizing.in_force.replace(sizing) != Some(sizing) {
            self.on_channel_lost();
        }
    }

    /// Records that OPTS DRS was refused for this sizing.
    pub(super) fn on_sizing_refused(&mut self, sizing: BufferSizing) {
        self.features
            .buffer_sizings
            .retain(|offered| *offered != sizing);
    }

    /// Records that DPSV was refused permanently.
    pub(super) fn on_drs_listening_refused(&mut self) {
        self.right_sizing.listening_refused = true;
        self.clear_drs_address();
    }

    /// Records that DPRT was refused permanently.
    pub(super) fn on_drs_connecting_refused(&mut self) {
        self.right_sizing.connecting_refused = true;
        self.clear_drs_address();
    }
}
