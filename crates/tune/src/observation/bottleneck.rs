//! Bottleneck of a stream, classified over two round trips. The order of the rules matters: each rule
//! assumes that those before it did not apply.

use std::time::Duration;

use units::{bytes_in, show};

use super::rate_meter::Rtt;
use super::stream_interval::StreamInterval;
use crate::limiter::{Limiter, Role};
use crate::sample::{IntervalStats, TcpSample, max_in_flight};

/// Bottleneck of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    /// Not classified yet.
    #[default]
    Unknown,
    /// The window that the receiver announces.
    ReceiveWindow,
    /// The sender's socket buffer.
    SendBuffer,
    /// The sending program.
    SenderApp,
    /// Slow start: the congestion window still grows.
    SlowStart,
    /// The bottleneck link: packets queue there.
    Link,
    /// The congestion window, reduced by losses without a queue.
    Loss,
    /// The congestion window, without queue or loss.
    Cwnd,
    /// The receiving program.
    ReceiverApp,
    /// The sender or the path: a receiver cannot tell which.
    SenderOrPath,
}

impl Bottleneck {
    pub(crate) fn limiter(self) -> Limiter {
        match self {
            Self::Unknown => Limiter::Unknown,
            Self::ReceiveWindow => Limiter::ReceiveWindow,
            Self::SendBuffer => Limiter::SendBuffer,
            Self::SenderApp => Limiter::StoreRead,
            Self::Link => Limiter::Link,
            Self::SlowStart | Self::Cwnd => Limiter::CongestionWindow,
            Self::Loss => Limiter::Loss,
            Self::ReceiverApp => Limiter::StoreWrite,
            Self::SenderOrPath => Limiter::ServerCap,
        }
    }

    /// Whether a program or store limits, at either end.
    pub(crate) fn is_program(self) -> bool {
        matches!(self, Self::SenderApp | Self::ReceiverApp)
    }

    /// Whether an end limits the sender, and not the path.
    pub(crate) fn is_at_an_end(self) -> bool {
        matches!(self, Self::ReceiveWindow | Self::SendBuffer) || self.is_program()
    }

    /// Explanation for people, with the figures of the latest sample. `rate` is in bytes per second.
    pub(crate) fn describe(self, role: Role, sample: &TcpSample, rate: u64) -> String {
        let rtt = Rtt::of_sample(sample, role);
        let speed = show::bits(rate.saturating_mul(8));
        match self {
            Self::Unknown => "no data has moved yet".to_owned(),
            Self::ReceiveWindow => {
                let window = match role {
                    Role::Sender => sample.peer_window,
                    Role::Receiver => sample.receive_window,
                };
                format!(
                    "{speed}: the receiver's window of {} is full every {}",
                    show::bytes(window),
                    show::time(rtt.for_window())
                )
            }
            Self::SendBuffer => format!(
                "{speed}: the send buffer of {} is full every {}",
                show::bytes(sample.send_buffer),
                show::time(rtt.smoothed)
            ),
            Self::SenderApp => format!("the sending program writes only {speed}"),
            Self::SlowStart => format!("slow start, {speed} so far"),
            Self::Link => format!(
                "the path is full at {speed}: a round trip takes {} instead of {}",
                show::time(rtt.smoothed),
                show::time(rtt.min)
            ),
            Self::Loss => format!(
                "losses keep the congestion window at {}",
                show::bytes(sample.cwnd)
            ),
            Self::Cwnd => format!(
                "the congestion window of {} allows {speed}",
                show::bytes(sample.cwnd)
            ),
            Self::ReceiverApp if role == Role::Sender => {
                format!("the receiving program reads only {speed}, so that its window closes")
            }
            Self::ReceiverApp => format!(
                "the receiving program reads only {speed}: {} wait in its buffer of {}",
                show::bytes(sample.readable),
                show::bytes(sample.receive_buffer)
            ),
            Self::SenderOrPath => format!("the sender or the path limits to {speed}"),
        }
    }
}

/// Whether the writer waits for space in the send buffer while everything written is in flight and the
/// peer's window has room. The kernel's own account (`tcpi_sndbuf_limited`) misses most of this time.
pub(crate) fn is_send_buffer_full(sample: &TcpSample) -> bool {
    /// Half of TCP_NOTSENT_LOWAT as crate `data` sets it: a buffer with space holds more unsent bytes.
    const UNSENT: u64 = 512 << 10;
    // The kernel wakes a writer when a third of the buffer is free (`sk_stream_write_space`), and a little more
    // may be free by the time it writes: a buffer that is 60 % full counts as full.
    sample.send_buffer > 0
        && sample.send_queue_memory >= sample.send_buffer / 5 * 3
        && sample.unsent < UNSENT.min(sample.send_buffer / 8)
        && (sample.peer_window == 0 || sample.in_flight < sample.peer_window / 10 * 9)
}

/// Whether the send buffer could limit this rate, bytes per second. During loss recovery the buffer is
/// full of data that arrived behind a gap, at any rate.
pub(crate) fn explains_rate_by_send_buffer(sample: &TcpSample, rtt: Rtt, rate: u64) -> bool {
    bytes_in(rate, rtt.smoothed) >= max_in_flight(sample.send_buffer) / 2
}

/// Whether half of the receive buffer holds data that waits to be read. A buffer is also full behind a
/// lost segment, but of data that cannot be read yet. Of readable data at least a quarter of the memory is
/// payload (with full segments a half to nearly all).
pub(crate) fn is_receive_buffer_backed_up(sample: &TcpSample) -> bool {
    sample.receive_buffer > 0
        && sample.receive_queue_memory >= sample.receive_buffer / 2
        && sample.readable >= sample.receive_queue_memory / 4
}

/// Whether one receive window per round trip explains the rate, bytes per second.
pub(crate) fn fills_receive_window(sample: &TcpSample, rtt: Rtt, rate: u64) -> bool {
    let in_flight = bytes_in(rate, rtt.for_window());
    sample.receive_window > 0 && in_flight >= sample.receive_window / 100 * 85
}

/// Collects samples over two round trips, at least 50 ms, and then classifies the bottleneck.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BottleneckClassifier {
    interval: Option<StreamInterval>,
    samples: u32,
    full_buffer_samples: u32,
    idle_samples: u32,
    backed_up_samples: u32,
    /// Largest window that the peer has announced, bytes, and the samples with less than half of it.
    largest_peer_window: u64,
    closing_samples: u32,
}

/// Bottleneck of a stream over an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassifiedInterval {
    pub(crate) bottleneck: Bottleneck,
    pub(crate) stats: IntervalStats,
}

/// Shortest interval: differences over less are noise.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// Fewest samples in an interval.
const FEWEST_SAMPLES: u32 = 3;

impl BottleneckClassifier {
    /// Takes a sample; returns the result at the end of an interval in which data moved.
    pub(crate) fn on_sample(
        &mut self,
        role: Role,
        sample: &TcpSample,
    ) -> Option<ClassifiedInterval> {
        let Some(interval) = &mut self.interval else {
            self.interval = Some(StreamInterval::new(role, sample));
            return None;
        };
        interval.on_sample(sample);
        let interval = *interval;
        self.samples += 1;
        self.full_buffer_samples += u32::from(is_send_buffer_full(sample));
        // A sender that leaves 30 % of its congestion window unused has nothing to send. (RFC 7661 §4.3 puts
        // the bound at half of it.)
        let is_idle = sample.unsent == 0 && sample.in_flight < sample.cwnd / 10 * 7;
        self.idle_samples += u32::from(is_idle && !is_send_buffer_full(sample));
        self.backed_up_samples += u32::from(is_receive_buffer_backed_up(sample));
        self.largest_peer_window = self.largest_peer_window.max(sample.peer_window);
        self.closing_samples += u32::from(sample.peer_window < self.largest_peer_window / 2);
        let stats = interval.stats();
        if stats.time < SHORTEST_INTERVAL.max(interval.rtt().smoothed * 2)
            || self.samples < FEWEST_SAMPLES
        {
            return None;
        }
        let bottleneck = match role {
            Role::Sender => self.classify_sender(&interval, sample),
            Role::Receiver => self.classify_receiver(sample, interval.rtt(), stats.rate()),
        };
        *self = Self {
            interval: Some(StreamInterval::new(role, sample)),
            largest_peer_window: self.largest_peer_window,
            ..Self::default()
        };
        (stats.bytes > 0).then_some(ClassifiedInterval { bottleneck, stats })
    }

    fn classify_sender(&self, interval: &StreamInterval, sample: &TcpSample) -> Bottleneck {
        let (stats, rtt) = (interval.stats(), interval.rtt());
        let (busy, window_limited) = (stats.busy_time, stats.rwnd_limited);
        // A window that limits is full in bursts: 30 % of the time with outstanding data is enough.
        if !busy.is_zero() && window_limited * 10 > busy * 3 {
            // A buffer that is too small is announced whole, as what arrives is read at once; one that is not read closes.
            return if self.closing_samples * 2 >= self.samples {
                Bottleneck::ReceiverApp
            } else if rtt.is_congested() {
                // Windows that do not fill the path cannot delay each other by more than half of its round trip.
                Bottleneck::Link
            } else {
                Bottleneck::ReceiveWindow
            };
        }
        if self.full_buffer_samples * 2 >= self.samples
            && explains_rate_by_send_buffer(sample, rtt, stats.rate())
        {
            return if interval.fills_path() {
                Bottleneck::Link
            } else {
                Bottleneck::SendBuffer
            };
        }
        // Without outstanding data for 30 % of the time, TCP waits for the program.
        if busy * 10 < stats.time * 7 || self.idle_samples * 3 >= self.samples * 2 {
            return Bottleneck::SenderApp;
        }
        if rtt.is_congested() {
            return Bottleneck::Link;
        }
        if stats.has_losses() {
            return Bottleneck::Loss;
        }
        if sample.in_slow_start {
            Bottleneck::SlowStart
        } else {
            Bottleneck::Cwnd
        }
    }

    fn classify_receiver(&self, sample: &TcpSample, rtt: Rtt, rate: u64) -> Bottleneck {
        if self.backed_up_samples * 2 >= self.samples {
            return Bottleneck::ReceiverApp;
        }
        if fills_receive_window(sample, rtt, rate) {
            return Bottleneck::ReceiveWindow;
        }
        if rtt.is_congested() {
            Bottleneck::Link
        } else {
            Bottleneck::SenderOrPath
        }
    }
}
