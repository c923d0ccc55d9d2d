//! Agreement with a server on dynamic right-sizing, as far as it is known: OPTS DRS, the DRS channel's
//! address. A server that does not announce it is never asked.

use super::{Dialogue, Need, Refusal, Step};
use crate::command::{Command, Opts};
use crate::drs::DrsAddress;
use crate::sizing::Sizing;

/// Message to the user, after the server's name, when [`Sizing::Drs1`] or [`Sizing::Drs`] is
/// wanted and the server has no part in it.
pub const NO_RIGHT_SIZING: &str =
    "does not offer this way of right-sizing buffers; each end sizes its own (--buffer auto)";

/// The DRS channel's address that a server holds. It serves one transfer after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrsEnd {
    /// The server listens there (DPSV): whoever is the other end of the data channel connects.
    Listens(DrsAddress),
    /// The server connects there (DPRT).
    Connects(DrsAddress),
}

/// The state of one control connection.
#[derive(Debug, Clone, Default)]
pub(super) struct RightSizing {
    /// The policy that OPTS DRS set; `None`: the server's own, which it does not tell, and which
    /// [`Sizing::Auto`] means.
    in_force: Option<Sizing>,
    end: Option<DrsEnd>,
    /// DPSV was refused for good.
    listening_refused: bool,
    /// DPRT was.
    connecting_refused: bool,
}

impl Dialogue {
    /// Who will size the buffers of a transfer for which `wish` was asked: `wish` itself where the
    /// server has a part in it or need not, else [`Sizing::Auto`].
    pub fn agreed(&self, wish: Sizing) -> Sizing {
        if wish.needs_peer() && !self.features.offers(wish) {
            Sizing::Auto
        } else {
            wish
        }
    }

    /// Whether the server may be asked to listen for a DRS channel (DPSV): OPTS DRS drs is in force.
    pub fn may_listen_for_drs(&self) -> bool {
        self.right_sizing.in_force == Some(Sizing::Drs) && !self.right_sizing.listening_refused
    }

    /// Whether DPSV was refused for good.
    pub fn drs_listening_refused(&self) -> bool {
        self.right_sizing.listening_refused
    }

    /// Whether DPRT was refused for good.
    pub fn drs_connecting_refused(&self) -> bool {
        self.right_sizing.connecting_refused
    }

    /// The DRS channel's address that the server holds.
    pub fn drs(&self) -> Option<DrsEnd> {
        self.right_sizing.end
    }

    /// Notes that the server took DPSV or DPRT.
    pub fn drs_given(&mut self, end: DrsEnd) {
        self.right_sizing.end = Some(end);
    }

    /// Notes that the server holds no address that could be relied on: DPSV or DPRT failed, which may
    /// be otherwise the next time. After a refusal for good, see [`Dialogue::refused`].
    pub fn drs_failed(&mut self) {
        self.right_sizing.end = None;
    }

    /// OPTS DRS, when the server announced it and is not known to be set so already. A fresh login
    /// has the server's own default, which is right for [`Sizing::Auto`] and for a pinned size.
    pub(super) fn sizing_step(&self, need: &Need) -> Option<Step> {
        let wish = self.agreed(need.sizing?);
        let fits = match self.right_sizing.in_force {
            Some(in_force) => in_force == wish,
            None => wish == Sizing::Auto || need.buffer.is_some(),
        };
        if fits || !self.features.offers(wish) {
            return None;
        }
        let refusal = if wish.needs_peer() {
            Refusal::Warn(NO_RIGHT_SIZING)
        } else {
            Refusal::Harmless
        };
        Some(Step::Set(Command::Opts(Opts::Sizing(wish)), refusal))
    }

    /// DPSV, when this end can reach the server's DRS channel only by a new address.
    pub(super) fn drs_step(&self, need: &Need) -> Option<Step> {
        let wanted = need.sizing.map(|wish| self.agreed(wish)) == Some(Sizing::Drs);
        let listens = matches!(self.right_sizing.end, Some(DrsEnd::Listens(_)));
        (wanted && !listens && !self.right_sizing.listening_refused).then_some(Step::DrsListen)
    }

    /// Notes OPTS DRS. Data connections that were opened for another policy cannot be used: the
    /// window scale was fixed when they were made (RFC 7323 §2.2).
    pub(super) fn sizing_accepted(&mut self, sizing: Sizing) {
        if sizing != Sizing::Drs {
            self.right_sizing.end = None;
        }
        if self.right_sizing.in_force.replace(sizing) != Some(sizing) {
            self.channel_lost();
        }
    }

    /// Notes that OPTS DRS was refused with this policy.
    pub(super) fn sizing_refused(&mut self, sizing: Sizing) {
        self.features.drs.retain(|offered| *offered != sizing);
    }

    /// Notes that DPSV was refused for good.
    pub(super) fn drs_listening_is_refused(&mut self) {
        self.right_sizing.listening_refused = true;
        self.drs_failed();
    }

    /// Notes that DPRT was.
    pub(super) fn drs_connecting_is_refused(&mut self) {
        self.right_sizing.connecting_refused = true;
        self.drs_failed();
    }
}
