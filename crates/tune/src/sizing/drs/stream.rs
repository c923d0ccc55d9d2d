//! Receive buffer of one stream.

use std::time::Duration;

use super::bandwidth::StreamBandwidth;
use super::bandwidth_interval::DrsInterval;
use super::granted_size::GrantedSize;
use crate::sample::TcpSample;
use crate::sizing::BufferBounds;
use crate::sizing::arrivals::ArrivalCounter;

/// Time after which a buffer is halved if less than half of it was needed.
const TOO_LARGE_TIME: Duration = Duration::from_secs(5);
/// The same in round trips; the longer time counts.
const TOO_LARGE_ROUND_TRIPS: u32 = 8;
/// Inverse of the smallest relative increase that is worth a system call and a message.
const MIN_RAISE_PART: u64 = 8;

/// Tuner of one stream.
#[derive(Debug, Clone)]
pub(super) struct DrsStream {
    size: GrantedSize,
    arrived: ArrivalCounter,
    bandwidth: StreamBandwidth,
    /// Window that the kernel shows, bytes.
    window: u64,
    /// Current round trip, queue included.
    current_rtt: Duration,
    /// Time since which the buffer has been too large.
    too_large_since: Option<Duration>,
    /// Size at the start of a trial of a longer round trip.
    before_trial: Option<u64>,
}

impl DrsStream {
    /// Tuner of a new stream.
    pub(super) fn new(bounds: BufferBounds, interval: DrsInterval, first: &TcpSample) -> Self {
        Self {
            size: GrantedSize::new(bounds, first),
            arrived: ArrivalCounter::default(),
            bandwidth: StreamBandwidth::new(interval),
            window: 0,
            current_rtt: Duration::ZERO,
            too_large_since: None,
            before_trial: None,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size.bytes()
    }

    pub(super) fn bandwidth(&self) -> &StreamBandwidth {
        &self.bandwidth
    }

    /// Takes a sample; returns the bytes that arrived since the last one.
    pub(super) fn on_sample(&mut self, sample: &TcpSample, round_trip: Duration) -> u64 {
        self.size.on_sample(sample);
        self.window = sample.receive_window;
        self.current_rtt = round_trip;
        let arrived = self.arrived.total_at(sample);
        self.bandwidth.note(sample.at, arrived, round_trip)
    }

    /// Whether the window limits the stream at this round trip.
    pub(super) fn fills_window(&self, round_trip: Duration) -> bool {
        let window = self.size().max(self.window);
        // A sender that waits for the window sends whole segments only, and a flight may straddle two
        // intervals: three quarters count as full.
        self.bandwidth.latest(round_trip) >= window - window / 4
    }

    /// Begins a trial of a longer round trip.
    pub(super) fn begin_trial(&mut self) {
        self.before_trial = Some(self.size());
        self.bandwidth.start_over();
    }

    /// Ends the trial. Without a gain the buffer returns to its size before.
    pub(super) fn end_trial(&mut self, gained: bool) {
        let before = self.before_trial.take();
        if !gained {
            self.size.set(self.size().min(before.unwrap_or(u64::MAX)));
            self.bandwidth.start_over();
        }
    }

    /// Sets the size that the stream needs now. `share` bounds the bytes that it may bring in a round trip.
    pub(super) fn resize(&mut self, at: Duration, round_trip: Duration, share: u64) {
        let next_round_trip_bytes = self.bandwidth.next_round_trip_bytes(round_trip, share);
        let need = self.size.nearest(next_round_trip_bytes.saturating_mul(2));
        if need > self.size().saturating_add(self.size() / MIN_RAISE_PART) {
            self.size.set(need);
            self.too_large_since = None;
        } else {
            self.shrink(at, need, round_trip);
        }
    }

    /// Halves the size if it has been too large for long.
    fn shrink(&mut self, at: Duration, need: u64, round_trip: Duration) {
        let used = self.bandwidth.latest(self.current_rtt);
        // The headroom of a quarter keeps the next burst from raising the size again.
        if need.max(used.saturating_add(used / 4)) >= self.size() / 2 {
            self.too_large_since = None;
            return;
        }
        let since = *self.too_large_since.get_or_insert(at);
        let patience = TOO_LARGE_TIME.max(TOO_LARGE_ROUND_TRIPS * round_trip);
        if at.saturating_sub(since) >= patience {
            self.size.set(self.size() / 2);
            self.too_large_since = None;
        }
    }
}
