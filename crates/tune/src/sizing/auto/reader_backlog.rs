//! A reader that is slower than the path: what it is behind fills the receive buffer, and buys
//! nothing. A window of less than the reader's share of a round trip lets it catch up, one of a little
//! more keeps a cushion that bridges its pauses. It is taken back when the reader keeps up.

use std::time::Duration;

use units::{bytes_in, bytes_per_second, show};

use super::super::BufferSetting;
use super::BufferAction;
use super::imposed_window::ImposedWindow;
use crate::observation::{Bottleneck, Rtt, is_receive_buffer_backed_up};
use crate::sample::TcpSample;

/// A reader behind for less than this is busy, not slow; its rate is a mean over as much.
const SLOW: Duration = Duration::from_secs(1);
/// The cushion: a reader's pauses up to this do not reach the sender.
const CUSHION: Duration = Duration::from_millis(100);
/// No cushion is smaller, bytes.
const SMALLEST_CUSHION: u64 = 256 << 10;
/// Windows below this are too coarse to hold a rate, bytes.
const SMALLEST: u64 = 32 << 10;
/// A reader that has caught up for so long keeps up.
const KEEPS_UP: Duration = Duration::from_millis(100);

/// Reads of a program, whatever arrives.
#[derive(Debug, Clone, Copy, Default)]
struct ReaderRate {
    from: Option<TcpSample>,
    /// Bytes per second.
    rate: Option<u64>,
}

impl ReaderRate {
    fn on_sample(&mut self, look: &TcpSample) {
        let Some(from) = self.from else {
            self.from = Some(*look);
            return;
        };
        let time = look.at.saturating_sub(from.at);
        if time >= SLOW {
            let arrived = look.bytes.saturating_sub(from.bytes);
            let there = arrived.saturating_add(from.readable);
            let read = there.saturating_sub(look.readable);
            self.rate = Some(bytes_per_second(read, time));
            self.from = Some(*look);
        }
    }
}

/// One stream's backlog.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReaderBacklog {
    reader: ReaderRate,
    imposed: ImposedWindow,
    /// While a window is in force: the reader shall catch up; else it has, and keeps its cushion.
    draining: bool,
}

impl ReaderBacklog {
    pub(super) fn in_force(&self) -> bool {
        self.imposed.window().is_some()
    }

    /// Takes the window back, if it is in force.
    pub(super) fn release(&mut self, look: &TcpSample) -> Option<BufferSetting> {
        self.imposed.lift(look)
    }

    pub(super) fn on_sample(&mut self, look: &TcpSample, trip: Rtt) -> Option<BufferAction> {
        self.reader.on_sample(look);
        let rate = self.reader.rate?;
        let cushion = bytes_in(rate, CUSHION.max(trip.min * 2)).max(SMALLEST_CUSHION);
        match self.imposed.window() {
            None => self.consider(look, trip, rate, cushion),
            Some(clamped) if look.readable < cushion / 8 => self.lift(clamped, look),
            Some(clamped) => self.keep(clamped, look, trip, rate, cushion),
        }
    }

    fn consider(
        &mut self,
        look: &TcpSample,
        trip: Rtt,
        rate: u64,
        cushion: u64,
    ) -> Option<BufferAction> {
        if !is_receive_buffer_backed_up(look) {
            self.imposed.no_reason();
            return None;
        }
        let patience = self.imposed.patience(SLOW).max(trip.min * 4);
        let saves = look.receive_buffer / 4 >= cushion;
        let held = self.imposed.holds_for(look, patience);
        if !held || !saves || window(rate, trip, true) < SMALLEST {
            return None;
        }
        Some(self.apply(look, trip, rate, true))
    }

    fn lift(&mut self, clamped: u64, look: &TcpSample) -> Option<BufferAction> {
        if !self.imposed.holds_for(look, KEEPS_UP) {
            return None;
        }
        Some(BufferAction {
            change: self.imposed.lift(look),
            class: Bottleneck::SenderOrPath,
            reason: format!(
                "this end keeps up again; the window may grow beyond {}",
                show::bytes(clamped)
            ),
        })
    }

    /// Sets it again when the reader has caught up or fallen behind, when its rate has changed, and
    /// when the kernel has forgotten it.
    fn keep(
        &mut self,
        clamped: u64,
        look: &TcpSample,
        trip: Rtt,
        rate: u64,
        cushion: u64,
    ) -> Option<BufferAction> {
        self.imposed.no_reason();
        let draining = if self.draining {
            look.readable > cushion
        } else {
            look.readable > cushion * 3
        };
        let window = window(rate, trip, draining).max(SMALLEST);
        let moved = window > clamped / 4 * 5 || window < clamped / 4 * 3;
        let due = self.imposed.may_repeat(look, trip);
        (due && (moved || self.imposed.is_forgotten(look)))
            .then(|| self.apply(look, trip, rate, draining))
    }

    fn apply(&mut self, look: &TcpSample, trip: Rtt, rate: u64, draining: bool) -> BufferAction {
        let window = window(rate, trip, draining).max(SMALLEST);
        self.draining = draining;
        let aim = if draining {
            "lets it catch up"
        } else {
            "keeps it busy"
        };
        BufferAction {
            change: Some(self.imposed.impose(look, window)),
            class: Bottleneck::ReceiverApp,
            reason: format!(
                "this end reads {} and has {} waiting; a window of {} {aim}",
                show::bits(rate.saturating_mul(8)),
                show::bytes(look.readable),
                show::bytes(window)
            ),
        }
    }
}

/// Three quarters of what is read in a round trip, or five. The round trip may be somewhat longer
/// than the handshake's: too small a window would starve the reader.
fn window(rate: u64, trip: Rtt, draining: bool) -> u64 {
    let quarters = if draining { 3 } else { 5 };
    bytes_in(rate, trip.for_window()) / 4 * quarters
}
