//! One stream's receive buffer.

use std::time::Duration;

use super::bandwidth::StreamBandwidth;
use super::bandwidth_interval::DrsInterval;
use crate::sample::TcpSample;
use crate::sizing::BufferBounds;
use crate::sizing::arrivals::ArrivalCounter;

/// A buffer of which less than half was needed for so long is halved.
const TOO_LARGE_FOR: Duration = Duration::from_secs(5);
/// Or for so many round trips, if that is longer.
const TOO_LARGE_ROUND_TRIPS: u32 = 8;
/// A raise by less than 1/n of the size is not worth a system call and a message.
const LEAST_RAISE: u64 = 8;

/// One stream of a transfer.
#[derive(Debug, Clone)]
pub(super) struct DrsStream {
    bounds: BufferBounds,
    size: u64,
    /// The most that the kernel grants, as far as is known.
    ceiling: u64,
    arrived: ArrivalCounter,
    bandwidth: StreamBandwidth,
    /// The window as the kernel shows it, bytes.
    window: u64,
    /// The round trip as it is now, queue included.
    present: Duration,
    /// Since when the buffer has been too large.
    too_large: Option<Duration>,
    /// The size when a trial of a longer round trip began.
    before_trial: Option<u64>,
}

impl DrsStream {
    /// A stream that was not seen before. One of an earlier transfer goes on with the size that it
    /// has.
    pub(super) fn new(bounds: BufferBounds, interval: DrsInterval, first: &TcpSample) -> Self {
        let granted = first.receive_buffer / 2;
        Self {
            bounds,
            size: granted.max(bounds.initial).min(bounds.largest),
            ceiling: bounds.largest,
            arrived: ArrivalCounter::default(),
            bandwidth: StreamBandwidth::new(interval),
            window: 0,
            present: Duration::ZERO,
            too_large: None,
            before_trial: None,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn bandwidth(&self) -> &StreamBandwidth {
        &self.bandwidth
    }

    /// Takes a look; how many bytes came since the look before.
    pub(super) fn on_sample(&mut self, look: &TcpSample, round_trip: Duration) -> u64 {
        let granted = look.receive_buffer / 2;
        if granted > 0 && granted < self.size {
            self.size = granted;
            self.ceiling = granted;
        }
        self.window = look.receive_window;
        self.present = round_trip;
        let arrived = self.arrived.total_at(look);
        self.bandwidth.note(look.at, arrived, round_trip)
    }

    /// Whether the window is what limits the stream, if its round trip is `round_trip` now.
    pub(super) fn fills_window(&self, round_trip: Duration) -> bool {
        let window = self.size.max(self.window);
        self.bandwidth.latest(round_trip) >= window - window / 4
    }

    /// A longer round trip is tried from now on.
    pub(super) fn begin_trial(&mut self) {
        self.before_trial = Some(self.size);
        self.bandwidth.start_over();
    }

    /// The trial is over. If it won nothing, what it made the buffer grow is taken back.
    pub(super) fn end_trial(&mut self, won: bool) {
        let before = self.before_trial.take();
        if !won {
            self.size = self.size.min(before.unwrap_or(self.size));
            self.bandwidth.start_over();
        }
    }

    /// Gives the buffer the size that it needs now. `share` bounds what the stream may come to bring
    /// in a round trip.
    pub(super) fn resize(&mut self, at: Duration, round_trip: Duration, share: u64) {
        let outlook = self.bandwidth.outlook(round_trip, share);
        let need = self.within(outlook.saturating_mul(2));
        if need > self.size.saturating_add(self.size / LEAST_RAISE) {
            self.size = need;
            self.too_large = None;
        } else {
            self.shrink(at, need, round_trip);
        }
    }

    /// Halves the size, if so much was not needed for long.
    fn shrink(&mut self, at: Duration, need: u64, round_trip: Duration) {
        let used = self.bandwidth.latest(self.present);
        if need.max(used.saturating_add(used / 4)) >= self.size / 2 {
            self.too_large = None;
            return;
        }
        let since = *self.too_large.get_or_insert(at);
        let patience = TOO_LARGE_FOR.max(TOO_LARGE_ROUND_TRIPS * round_trip);
        if at.saturating_sub(since) >= patience {
            self.size = self.within(self.size / 2);
            self.too_large = None;
        }
    }

    fn within(&self, size: u64) -> u64 {
        size.max(self.bounds.initial)
            .min(self.bounds.largest)
            .min(self.ceiling)
    }
}
