//! Loss recovery without SACK, as in ns-2's `Agent/TCP/Reno` with its defaults since version 2.28.
//!
//! Three duplicate acknowledgements repeat the first segment and halve the window. The first new
//! acknowledgement ends the recovery, even if more segments of the window are lost. A second fast
//! retransmit for the same window is not allowed (ns-2's `bug_fix_`), so further losses wait for the timer.
//! After a timeout all segments are sent again in order.

use super::scoreboard::DUP_THRESH;

/// How a sender finds and repeats lost segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LossRecovery {
    /// SACK (RFC 6675), as kernels do.
    #[default]
    Sack,
    /// SACK as RFC 6675 has it: a repeated segment that is lost again waits for the timer, because nothing shows its loss.
    SackAndTimer,
    /// ns-2's Reno: no SACK, a timer that counts in ticks of 10 ms with
    /// [`TcpConfig::min_rto`](super::TcpConfig::min_rto) as the lower bound of the whole timeout, and a window
    /// of one segment after an idle timeout.
    Ns2Reno,
}

/// The state of Reno's loss recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RenoRecovery {
    /// The next segment to send: a new one, or after a timeout one that was sent before.
    next: u64,
    duplicate_acks: u64,
    /// Between the fast retransmit and the first new acknowledgement.
    in_fast_recovery: bool,
    /// The first segment is to be repeated now.
    urgent: bool,
    /// The next new segment at the latest fast retransmit or timeout (`recover_`).
    recover: Option<u64>,
}

impl RenoRecovery {
    /// Handles the acknowledgement of all segments before `first`, some of them for the first time.
    pub(super) fn on_progress(&mut self, first: u64) {
        self.next = self.next.max(first);
        self.duplicate_acks = 0;
        self.in_fast_recovery = false;
        self.urgent = false;
    }

    /// Handles a duplicate acknowledgement; returns whether it starts a fast retransmit. `first` is the first
    /// outstanding segment, `end` the next new one.
    pub(super) fn on_duplicate(&mut self, first: u64, end: u64) -> bool {
        self.duplicate_acks += 1;
        let begins = self.duplicate_acks == DUP_THRESH && !self.is_repairing(first);
        if begins {
            self.in_fast_recovery = true;
            self.urgent = true;
            self.recover = Some(end);
        }
        begins
    }

    /// Handles a timeout: everything is sent again.
    pub(super) fn on_timeout(&mut self, first: u64, end: u64) {
        *self = Self {
            next: first,
            recover: Some(end),
            ..Self::default()
        };
    }

    /// Whether segments of the window of the latest fast retransmit or timeout may still be outstanding.
    pub(super) fn is_repairing(&self, first: u64) -> bool {
        self.recover.is_some_and(|recover| first <= recover)
    }

    /// The segment that the window allows now, with `cwnd` segments from `first` on.
    pub(super) fn allowed(&self, first: u64, cwnd: f64) -> Option<u64> {
        if self.urgent {
            return Some(first);
        }
        // Each duplicate acknowledgement is a segment that has left the path (RFC 5681 section 3.2, step 4); before the
        // third one this is limited transmit (RFC 3042).
        let inflates = self.in_fast_recovery || self.duplicate_acks < DUP_THRESH;
        let extra = if inflates { self.duplicate_acks } else { 0 };
        let used = (self.next - first) as f64;
        (used < cwnd.floor() + extra as f64).then_some(self.next)
    }

    /// Records that `segment`, which was allowed, was sent.
    pub(super) fn on_sent(&mut self, segment: u64) {
        if self.urgent {
            self.urgent = false;
        } else {
            self.next = segment + 1;
        }
    }

    /// Whether a segment that was sent before is to be sent again.
    pub(super) fn has_repeats(&self, end: u64) -> bool {
        self.urgent || self.next < end
    }
}
