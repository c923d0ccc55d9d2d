//! Whether a run is valid, judged by the lateness of packets and the load of the emulator.
//!
//! A run is invalid if lateness distorts the measurement: if too many packets are late by too large a
//! part of the path's delay. A machine that occasionally stalls for a few milliseconds does not distort
//! a run of several seconds; such stalls are only noted.

use std::time::Duration;

use hdrhistogram::Histogram;
use units::show;

/// Lateness that is always tolerated.
const TOLERATED: Duration = Duration::from_millis(1);
/// On long paths, lateness up to the delay divided by this is tolerated as well.
const DELAY_DIVISOR: u32 = 50;
/// Share of packets that may be later than tolerated.
const MAX_LATE_SHARE: f64 = 0.01;
/// Lateness that distorts a measurement on any path.
const VERY_LATE: Duration = Duration::from_millis(5);
/// Share of bytes that may be very late.
const MAX_VERY_LATE_SHARE: f64 = 0.005;
/// Minimum number of late deliveries for a run to be invalid. Without it one short stall of the machine
/// would make every direction with a hundred packets invalid.
const MIN_LATE_DELIVERIES: u64 = 20;
/// Share of one core, over a second, above which the emulator may fall behind.
const BUSY_SHARE: f64 = 0.9;
/// Backlog above which the emulator did fall behind: in that second a device was never empty for this
/// long. Without a backlog the thread was merely busy, as it is with many small packets.
const BACKLOG: Duration = Duration::from_millis(10);
/// Significant decimal digits of the lateness histogram.
const DIGITS: u8 = 2;

/// Lateness of the packets of one direction.
#[derive(Debug)]
pub(crate) struct LatenessStats {
    /// Lateness in nanoseconds, one count per packet.
    histogram: Histogram<u64>,
    allowed: Duration,
    late: DeliveryCount,
    very_late: DeliveryCount,
    all: DeliveryCount,
}

/// Number of deliveries, with their packets and bytes.
#[derive(Debug, Default, Clone, Copy)]
struct DeliveryCount {
    deliveries: u64,
    packets: u64,
    bytes: u64,
}

/// Packets delivered together to the receiving host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliveredBatch {
    /// Arrival time of the first packet on the path.
    pub(crate) first: Duration,
    /// Arrival time of the last packet on the path.
    pub(crate) last: Duration,
    /// Time of the delivery.
    pub(crate) at: Duration,
    /// Number of packets.
    pub(crate) packets: u32,
    /// Bytes of these packets.
    pub(crate) bytes: u64,
}

impl LatenessStats {
    /// Statistics for a direction with this propagation delay.
    ///
    /// # Errors
    /// The histogram supports at most 5 digits.
    pub(crate) fn new(delay: Duration) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            histogram: Histogram::new(DIGITS)?,
            allowed: TOLERATED.max(delay / DELAY_DIVISOR),
            late: DeliveryCount::default(),
            very_late: DeliveryCount::default(),
            all: DeliveryCount::default(),
        })
    }

    /// Records a delivery. In the histogram, the lateness of each packet includes its wait for the last
    /// one.
    pub(crate) fn record(&mut self, packets: DeliveredBatch) {
        // A run is judged by the lateness after the last packet: the earlier ones wait for it on
        // purpose, and the batching interval bounds that wait.
        let late = packets.at.saturating_sub(packets.last);
        self.all.add(packets);
        if late > self.allowed {
            self.late.add(packets);
        }
        if late > VERY_LATE {
            self.very_late.add(packets);
        }
        let waited = packets.last.saturating_sub(packets.first);
        let gaps = packets.packets.saturating_sub(1);
        for index in 0..packets.packets {
            // Only the first and last arrival are known; the bottleneck spaces the packets evenly.
            let waited = waited * (gaps - index) / gaps.max(1);
            let nanos = u64::try_from((late + waited).as_nanos()).unwrap_or(u64::MAX);
            // Recording fails only for values that the histogram cannot hold, which are centuries.
            let _ = self.histogram.record(nanos);
        }
    }

    /// Quantile of the lateness, microseconds; `part` is 0..=1.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        micros(self.histogram.value_at_quantile(part))
    }

    /// Maximum lateness, microseconds.
    pub(crate) fn max(&self) -> f64 {
        micros(self.histogram.max())
    }

    /// Reasons why the lateness makes the run invalid; empty if it does not. `name` is the direction.
    pub(crate) fn invalid_reasons(&self, name: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        let late = share(self.late.packets, self.all.packets);
        if late > MAX_LATE_SHARE && self.late.deliveries >= MIN_LATE_DELIVERIES {
            reasons.push(format!(
                "{name}: {:.1} % of the packets were more than {} late (99th percentile {}): \
                 the emulator could not keep up; try a lower rate or a quieter machine",
                late * 100.0,
                show::time(self.allowed),
                show::time(Duration::from_nanos(self.histogram.value_at_quantile(0.99))),
            ));
        }
        let very_late = share(self.very_late.bytes, self.all.bytes);
        if reasons.is_empty()
            && very_late > MAX_VERY_LATE_SHARE
            && self.very_late.deliveries >= MIN_LATE_DELIVERIES
        {
            reasons.push(format!(
                "{name}: {:.1} % of the bytes were more than {} late (maximum {}): \
                 the emulator could not keep up; try a lower rate or a quieter machine",
                very_late * 100.0,
                show::time(VERY_LATE),
                show::time(Duration::from_nanos(self.histogram.max())),
            ));
        }
        reasons
    }
}

impl DeliveryCount {
    fn add(&mut self, packets: DeliveredBatch) {
        self.deliveries += 1;
        self.packets += u64::from(packets.packets);
        self.bytes += packets.bytes;
    }
}

/// Load of the emulator's thread, second by second.
#[derive(Debug, Default)]
pub(crate) struct EmulatorLoad {
    /// Start of the current second, and the thread's CPU time at that moment.
    start: (Duration, Duration),
    /// Longest time in this second that a device was never empty.
    backlog: Duration,
    /// Number of seconds in which the thread was overloaded.
    busy_seconds: u64,
    /// Largest share of a core and longest backlog in these seconds.
    worst: (f64, Duration),
}

impl EmulatorLoad {
    /// Records the thread's CPU time so far, and the longest time since the last call that a device had
    /// more packets to read. Call it several times per second.
    pub(crate) fn record(&mut self, now: Duration, processor: Duration, backlog: Duration) {
        self.backlog = self.backlog.max(backlog);
        let (start, before) = self.start;
        let passed = now.saturating_sub(start);
        // Over less than a second the share of a core would be too noisy.
        if passed < Duration::from_secs(1) {
            return;
        }
        let used = processor.saturating_sub(before);
        let share = used.as_secs_f64() / passed.as_secs_f64();
        if share > BUSY_SHARE && self.backlog > BACKLOG {
            self.busy_seconds += 1;
            self.worst.0 = self.worst.0.max(share);
            self.worst.1 = self.worst.1.max(self.backlog);
        }
        self.start = (now, processor);
        self.backlog = Duration::ZERO;
    }

    /// The reason why the load makes the run invalid.
    pub(crate) fn invalid_reason(&self) -> Option<String> {
        (self.busy_seconds > 0).then(|| {
            format!(
                "the emulator used {:.0} % of a core for {} s and was up to {} behind with reading, so \
                 it was the bottleneck; try a lower rate",
                self.worst.0 * 100.0,
                self.busy_seconds,
                show::time(self.worst.1),
            )
        })
    }
}

/// The ratio of two counts; 0 if `whole` is 0.
#[allow(
    clippy::cast_precision_loss,
    reason = "a share for display; the counts are below 2^53"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a lateness below 2^53 nanoseconds, 100 days"
)]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One packet of 1500 bytes.
    fn packet(late: Duration) -> DeliveredBatch {
        DeliveredBatch {
            first: MS,
            last: MS,
            at: MS + late,
            packets: 1,
            bytes: 1500,
        }
    }

    fn lateness(delay: Duration, on_time: u32, late: u32, by: Duration) -> LatenessStats {
        let mut all = LatenessStats::new(delay).unwrap();
        (0..on_time).for_each(|_| all.record(packet(Duration::ZERO)));
        (0..late).for_each(|_| all.record(packet(by)));
        all
    }

    #[test]
    fn a_stall_of_a_few_packets_does_not_make_a_run_invalid() {
        let all = lateness(MS, 90, 10, 9 * MS);
        assert_eq!(all.invalid_reasons("a to b"), [""; 0]);
    }

    #[test]
    fn two_percent_late_packets_make_a_run_invalid() {
        let all = lateness(MS, 4900, 100, 2 * MS);
        let reasons = all.invalid_reasons("a to b");
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].starts_with("a to b: 2.0 % of the packets"));
    }

    #[test]
    fn a_long_path_tolerates_more_lateness() {
        assert!(
            lateness(100 * MS, 4900, 100, 2 * MS)
                .invalid_reasons("")
                .is_empty()
        );
        assert!(
            !lateness(100 * MS, 4900, 100, 3 * MS)
                .invalid_reasons("")
                .is_empty()
        );
    }

    #[test]
    fn a_small_share_of_very_late_bytes_makes_a_run_invalid() {
        let reasons = lateness(MS, 4960, 40, 6 * MS).invalid_reasons("a to b");
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].contains("of the bytes"), "{reasons:?}");
    }

    #[test]
    fn the_lateness_of_each_packet_includes_its_wait_for_the_last_one() {
        let mut all = LatenessStats::new(MS).unwrap();
        all.record(DeliveredBatch {
            first: Duration::from_micros(1000),
            last: Duration::from_micros(1100),
            at: Duration::from_micros(1100),
            packets: 5,
            bytes: 7500,
        });
        assert!((all.max() - 100.0).abs() < 2.0, "{}", all.max());
        assert!((all.quantile(0.5) - 50.0).abs() < 2.0);
        assert!(all.quantile(0.0) < 1.0);
    }

    #[test]
    fn a_busy_second_with_a_backlog_makes_a_run_invalid() {
        let mut load = EmulatorLoad::default();
        load.record(500 * MS, 500 * MS, 50 * MS);
        load.record(1000 * MS, 600 * MS, MS);
        load.record(2000 * MS, 1400 * MS, 50 * MS);
        assert_eq!(load.invalid_reason(), None);
        load.record(2500 * MS, 1850 * MS, 50 * MS);
        load.record(3000 * MS, 2350 * MS, MS);
        let reason = load.invalid_reason().unwrap();
        assert!(reason.contains("95 % of a core for 1 s and was up to 50 ms"));
    }

    #[test]
    fn a_busy_second_without_a_backlog_does_not() {
        let mut load = EmulatorLoad::default();
        load.record(1000 * MS, 990 * MS, MS);
        assert_eq!(load.invalid_reason(), None);
    }
}
