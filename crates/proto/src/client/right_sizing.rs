//! Agreement with a server on dynamic right-sizing, as far as it is known: OPTS DRS, the DRS channel's
//! address. A server that does not announce it is never asked.

use super::{CommandPlanner, PlanStep, RefusalEffect, TransferRequirements};
use crate::command::{Command, OptsCommand};
use crate::drs::DrsAddress;
use crate::sizing::BufferSizing;

/// Message to the user, after the server's name, when [`BufferSizing::Drs1`] or [`BufferSizing::Drs`] is
/// wanted and the server has no part in it.
pub const RIGHT_SIZING_UNSUPPORTED: &str =
    "does not offer this way of right-sizing buffers; each end sizes its own (--buffer auto)";

/// The DRS channel's address that a server holds. It serves one transfer after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerDrsAddress {
    /// The server listens there (DPSV): whoever is the other end of the data channel connects.
    Listens(DrsAddress),
    /// The server connects there (DPRT).
    Connects(DrsAddress),
}

/// The state of one control connection.
#[derive(Debug, Clone, Default)]
pub(super) struct RightSizingState {
    /// The policy that OPTS DRS set; `None`: the server's own, which it does not tell, and which
    /// [`BufferSizing::Auto`] means.
    in_force: Option<BufferSizing>,
    drs_address: Option<ServerDrsAddress>,
    /// DPSV was refused for good.
    listening_refused: bool,
    /// DPRT was.
    connecting_refused: bool,
}

impl CommandPlanner {
    /// Who will size the buffers of a transfer for which `wish` was asked: `wish` itself where the
    /// server has a part in it or need not, else [`BufferSizing::Auto`].
    pub fn agreed_sizing(&self, wish: BufferSizing) -> BufferSizing {
        if wish.needs_peer_support() && !self.features.offers_buffer_sizing(wish) {
            BufferSizing::Auto
        } else {
            wish
        }
    }

    /// Whether the server may be asked to listen for a DRS channel (DPSV): OPTS DRS drs is in force.
    pub fn may_listen_for_drs(&self) -> bool {
        self.right_sizing.in_force == Some(BufferSizing::Drs)
            && !self.right_sizing.listening_refused
    }

    /// Whether DPSV was refused for good.
    pub fn is_drs_listening_refused(&self) -> bool {
        self.right_sizing.listening_refused
    }

    /// Whether DPRT was refused for good.
    pub fn is_drs_connecting_refused(&self) -> bool {
        self.right_sizing.connecting_refused
    }

    /// The DRS channel's address that the server holds.
    pub fn drs_address(&self) -> Option<ServerDrsAddress> {
        self.right_sizing.drs_address
    }

    /// Notes that the server took DPSV or DPRT.
    pub fn set_drs_address(&mut self, end: ServerDrsAddress) {
        self.right_sizing.drs_address = Some(end);
    }

    /// Notes that the server holds no address that could be relied on: DPSV or DPRT failed, which may
    /// be otherwise the next time. After a refusal for good, see [`CommandPlanner::refused`].
    pub fn clear_drs_address(&mut self) {
        self.right_sizing.drs_address = None;
    }

    /// OPTS DRS, when the server announced it and is not known to be set so already. A fresh login
    /// has the server's own default, which is right for [`BufferSizing::Auto`] and for a pinned size.
    pub(super) fn sizing_step(&self, need: &TransferRequirements) -> Option<PlanStep> {
        let wish = self.agreed_sizing(need.buffer_sizing?);
        let fits = match self.right_sizing.in_force {
            Some(in_force) => in_force == wish,
            None => wish == BufferSizing::Auto || need.buffer.is_some(),
        };
        if fits || !self.features.offers_buffer_sizing(wish) {
            return None;
        }
        let refusal = if wish.needs_peer_support() {
            RefusalEffect::Warn(RIGHT_SIZING_UNSUPPORTED)
        } else {
            RefusalEffect::Ignore
        };
        Some(PlanStep::Set(
            Command::Opts(OptsCommand::BufferSizing(wish)),
            refusal,
        ))
    }

    /// DPSV, when this end can reach the server's DRS channel only by a new address.
    pub(super) fn drs_step(&self, need: &TransferRequirements) -> Option<PlanStep> {
        let wanted =
            need.buffer_sizing.map(|wish| self.agreed_sizing(wish)) == Some(BufferSizing::Drs);
        let listens = matches!(
            self.right_sizing.drs_address,
            Some(ServerDrsAddress::Listens(_))
        );
        (wanted && !listens && !self.right_sizing.listening_refused).then_some(PlanStep::DrsListen)
    }

    /// Notes OPTS DRS. Data connections that were opened for another policy cannot be used: the
    /// window scale was fixed when they were made (RFC 7323 §2.2).
    pub(super) fn on_sizing_accepted(&mut self, sizing: BufferSizing) {
        if sizing != BufferSizing::Drs {
            self.right_sizing.drs_address = None;
        }
        if self.right_sizing.in_force.replace(sizing) != Some(sizing) {
            self.on_channel_lost();
        }
    }

    /// Notes that OPTS DRS was refused with this policy.
    pub(super) fn on_sizing_refused(&mut self, sizing: BufferSizing) {
        self.features
            .buffer_sizings
            .retain(|offered| *offered != sizing);
    }

    /// Notes that DPSV was refused for good.
    pub(super) fn on_drs_listening_refused(&mut self) {
        self.right_sizing.listening_refused = true;
        self.clear_drs_address();
    }

    /// Notes that DPRT was.
    pub(super) fn on_drs_connecting_refused(&mut self) {
        self.right_sizing.connecting_refused = true;
        self.clear_drs_address();
    }
}
