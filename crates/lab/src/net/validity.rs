//! Whether a run's figures can be believed: how late packets came, and how hard the emulator worked.
//!
//! A run is refused when the lateness changes what it measures: when it is a fair share of the
//! packets' delay for a fair share of the packets. A machine that stands still for a few
//! milliseconds now and then does not spoil a run of seconds; that is noted only.

use std::time::Duration;

use hdrhistogram::Histogram;
use units::show;

/// Lateness up to here is never held against a run.
const TOLERATED: Duration = Duration::from_millis(1);
/// On long paths, lateness up to this part of the delay is not either.
const PART_OF_DELAY: u32 = 50;
/// The part of the packets that may come later than that.
const LATE_PACKETS: f64 = 0.01;
/// Packets later than this are missed by a sender on any path.
const VERY_LATE: Duration = Duration::from_millis(5);
/// The part of the bytes that may be that late.
const VERY_LATE_BYTES: f64 = 0.005;
/// So many hand-overs must have been late before shares of them mean anything: one short stall
/// of the machine would spoil every direction that carried a hundred packets.
const FEWEST: u64 = 20;
/// The part of one core that the emulator can use for a second before it may fall behind.
const BUSY: f64 = 0.9;
/// It did fall behind if it found a device never empty for so long in that second. Without, it was
/// only awake all the time: with many small packets there is always one to look after.
const BACKLOG: Duration = Duration::from_millis(10);
/// Significant decimal digits of the lateness kept.
const DIGITS: u8 = 2;

/// How late one direction's packets were handed over.
#[derive(Debug)]
pub(crate) struct LatenessStats {
    /// Nanoseconds, a count a packet.
    histogram: Histogram<u64>,
    allowed: Duration,
    late: DeliveryCount,
    very_late: DeliveryCount,
    all: DeliveryCount,
}

/// A count of hand-overs and what they carried.
#[derive(Debug, Default, Clone, Copy)]
struct DeliveryCount {
    hand_overs: u64,
    packets: u64,
    bytes: u64,
}

/// Packets handed over together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliveredBatch {
    /// When the first of them arrives on the path.
    pub(crate) first: Duration,
    /// When the last does.
    pub(crate) last: Duration,
    /// When they were handed over.
    pub(crate) at: Duration,
    /// How many.
    pub(crate) packets: u32,
    /// Their bytes.
    pub(crate) bytes: u64,
}

impl LatenessStats {
    /// For a direction with this propagation delay.
    ///
    /// # Errors
    /// The histogram refuses its precision; it takes up to 5 digits.
    pub(crate) fn new(delay: Duration) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            histogram: Histogram::new(DIGITS)?,
            allowed: TOLERATED.max(delay / PART_OF_DELAY),
            late: DeliveryCount::default(),
            very_late: DeliveryCount::default(),
            all: DeliveryCount::default(),
        })
    }

    /// Takes note of packets that were handed over. Each is as late as it is itself, also where the
    /// first waited for the last.
    pub(crate) fn record(&mut self, packets: DeliveredBatch) {
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
            // The bottleneck spaces them evenly.
            let waited = waited * (gaps - index) / gaps.max(1);
            let nanos = u64::try_from((late + waited).as_nanos()).unwrap_or(u64::MAX);
            // The histogram grows with its values; a lateness of centuries is not one.
            let _ = self.histogram.record(nanos);
        }
    }

    /// Microseconds that this part of the packets, 0..=1, were late at most.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        micros(self.histogram.value_at_quantile(part))
    }

    /// Microseconds that the latest packet was late.
    pub(crate) fn max(&self) -> f64 {
        micros(self.histogram.max())
    }

    /// Why the lateness spoils the run; nothing: it does not. `name`: of the direction.
    pub(crate) fn invalid_reasons(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        let late = share(self.late.packets, self.all.packets);
        if late > LATE_PACKETS && self.late.hand_overs >= FEWEST {
            found.push(format!(
                "{name}: {:.1} % of the packets came more than {} late (99 of 100 within {}): \
                 the emulator could not keep up; try a lower rate or a quieter machine",
                late * 100.0,
                show::time(self.allowed),
                show::time(Duration::from_nanos(self.histogram.value_at_quantile(0.99))),
            ));
        }
        let very_late = share(self.very_late.bytes, self.all.bytes);
        if found.is_empty() && very_late > VERY_LATE_BYTES && self.very_late.hand_overs >= FEWEST {
            found.push(format!(
                "{name}: {:.1} % of the bytes came more than {} late, {} at most: \
                 the emulator could not keep up; try a lower rate or a quieter machine",
                very_late * 100.0,
                show::time(VERY_LATE),
                show::time(Duration::from_nanos(self.histogram.max())),
            ));
        }
        found
    }
}

impl DeliveryCount {
    fn add(&mut self, packets: DeliveredBatch) {
        self.hand_overs += 1;
        self.packets += u64::from(packets.packets);
        self.bytes += packets.bytes;
    }
}

/// How busy the emulator's thread was, second by second.
#[derive(Debug, Default)]
pub(crate) struct EmulatorLoad {
    /// When the second began, and the thread's processor time then.
    began: (Duration, Duration),
    /// The longest in this second that a device was not empty.
    backlog: Duration,
    /// Seconds in which it was too busy.
    busy_seconds: u64,
    /// The largest share of a core and the longest backlog in these.
    worst: (f64, Duration),
}

impl EmulatorLoad {
    /// Takes note of the thread's processor time so far, and of the longest time since the last
    /// call that a device had more packets to read; call it a few times a second.
    pub(crate) fn record(&mut self, now: Duration, processor: Duration, backlog: Duration) {
        self.backlog = self.backlog.max(backlog);
        let (began, before) = self.began;
        let passed = now.saturating_sub(began);
        if passed < Duration::from_secs(1) {
            return;
        }
        let used = processor.saturating_sub(before);
        let share = used.as_secs_f64() / passed.as_secs_f64();
        if share > BUSY && self.backlog > BACKLOG {
            self.busy_seconds += 1;
            self.worst.0 = self.worst.0.max(share);
            self.worst.1 = self.worst.1.max(self.backlog);
        }
        self.began = (now, processor);
        self.backlog = Duration::ZERO;
    }

    /// Why the load spoils the run.
    pub(crate) fn invalid_reason(&self) -> Option<String> {
        (self.busy_seconds > 0).then(|| {
            format!(
                "the emulator used {:.0} % of a core for {} s and was up to {} behind with reading: \
                 it was the bottleneck; try a lower rate",
                self.worst.0 * 100.0,
                self.busy_seconds,
                show::time(self.worst.1),
            )
        })
    }
}

/// A part of a whole, 0 of nothing.
#[allow(
    clippy::cast_precision_loss,
    reason = "a share of counts below 2^53, for people"
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

    fn lateness(delay: Duration, punctual: u32, late: u32, by: Duration) -> LatenessStats {
        let mut all = LatenessStats::new(delay).unwrap();
        (0..punctual).for_each(|_| all.record(packet(Duration::ZERO)));
        (0..late).for_each(|_| all.record(packet(by)));
        all
    }

    #[test]
    fn a_stall_of_a_few_packets_is_forgiven() {
        let all = lateness(MS, 90, 10, 9 * MS);
        assert_eq!(all.invalid_reasons("a to b"), [""; 0]);
    }

    #[test]
    fn one_in_fifty_late_is_not() {
        let all = lateness(MS, 4900, 100, 2 * MS);
        let found = all.invalid_reasons("a to b");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a to b: 2.0 % of the packets"));
    }

    #[test]
    fn a_long_path_allows_more() {
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
    fn few_but_very_late_bytes_count() {
        let found = lateness(MS, 4960, 40, 6 * MS).invalid_reasons("a to b");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("of the bytes"), "{found:?}");
    }

    #[test]
    fn packets_that_wait_for_the_last_of_their_run_are_late_each_by_itself() {
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
    fn a_busy_second_with_a_backlog_is_too_much() {
        let mut load = EmulatorLoad::default();
        load.record(500 * MS, 500 * MS, 50 * MS);
        load.record(1000 * MS, 600 * MS, MS);
        load.record(2000 * MS, 1400 * MS, 50 * MS);
        assert_eq!(load.invalid_reason(), None);
        load.record(2500 * MS, 1850 * MS, 50 * MS);
        load.record(3000 * MS, 2350 * MS, MS);
        let objection = load.invalid_reason().unwrap();
        assert!(objection.contains("95 % of a core for 1 s and was up to 50 ms"));
    }

    #[test]
    fn a_busy_second_without_backlog_is_not() {
        let mut load = EmulatorLoad::default();
        load.record(1000 * MS, 990 * MS, MS);
        assert_eq!(load.invalid_reason(), None);
    }
}
