//! A sender and a receiver connected by a pure delay. Each test says which segments are lost.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const ONE_WAY: Duration = Duration::from_millis(50);
const RTT: Duration = Duration::from_millis(100);
const MSS: u32 = 1000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn reno() -> TcpConfig {
    TcpConfig {
        mss: MSS,
        congestion: CongestionAlgorithm::NewReno,
        initial_window: 4,
        ..TcpConfig::default()
    }
}

/// The sender of ns-2 without SACK.
fn ns2_reno() -> TcpConfig {
    TcpConfig {
        recovery: LossRecovery::Ns2Reno,
        ..reno()
    }
}

/// An event of the delay line.
#[derive(Clone, Copy)]
enum DelayLineEvent {
    Segment(Segment),
    Ack(Ack),
    ReceiverTimer,
}

/// A path with a fixed delay. It loses the segments for which `lose` returns true, given the segment
/// number and how often it was sent before.
struct DelayLine<F> {
    now: Duration,
    sender: TcpSender,
    receiver: TcpReceiver,
    due: BTreeMap<(Duration, u64), DelayLineEvent>,
    made: u64,
    sent: Vec<(Duration, u64)>,
    acks: Vec<(Duration, u64)>,
    lose: F,
}

impl<F: FnMut(u64, usize) -> bool> DelayLine<F> {
    fn new(config: &TcpConfig, segments: u64, lose: F) -> Self {
        let mut wire = Self {
            now: Duration::ZERO,
            sender: TcpSender::new(config),
            receiver: TcpReceiver::new(config),
            due: BTreeMap::new(),
            made: 0,
            sent: Vec::new(),
            acks: Vec::new(),
            lose,
        };
        wire.sender.write(segments * u64::from(MSS));
        wire.sender.push();
        wire.pump();
        wire
    }

    fn deliver(&mut self, at: Duration, arrival: DelayLineEvent) {
        self.made += 1;
        self.due.insert((at, self.made), arrival);
    }

    fn pump(&mut self) {
        while let Some(segment) = self.sender.next_segment(self.now) {
            let number = segment.number;
            let before = self.sent.iter().filter(|(_, n)| *n == number).count();
            self.sent.push((self.now, number));
            if !(self.lose)(number, before) {
                self.deliver(self.now + ONE_WAY, DelayLineEvent::Segment(segment));
            }
        }
        self.sender.account_wait(self.now, false);
    }

    fn acknowledge(&mut self, ack: Option<Ack>) {
        match ack {
            Some(ack) => {
                self.acks.push((self.now, ack.next));
                self.deliver(self.now + ONE_WAY, DelayLineEvent::Ack(ack));
            }
            None => {
                let at = self.receiver.deadline().unwrap();
                self.deliver(at, DelayLineEvent::ReceiverTimer);
            }
        }
    }

    /// Runs until all data is acknowledged, or until `until`.
    fn run(&mut self, until: Duration) -> SenderStats {
        while !self.sender.is_fully_acked() {
            let packet = self.due.keys().next().map(|(at, _)| *at);
            let timer = self.sender.deadline();
            let next = packet.into_iter().chain(timer).min().unwrap();
            if next > until {
                break;
            }
            self.now = next;
            if packet == Some(next) {
                let (_, arrival) = self.due.pop_first().unwrap();
                self.arrive(arrival);
            } else {
                self.sender.on_timer(next);
                self.pump();
            }
        }
        self.sender.stats(self.now)
    }

    fn arrive(&mut self, arrival: DelayLineEvent) {
        match arrival {
            DelayLineEvent::Segment(segment) => {
                let ack = self
                    .receiver
                    .on_segment(self.now, segment.number, segment.bytes);
                self.acknowledge(ack);
            }
            DelayLineEvent::Ack(ack) => {
                self.sender.on_ack(self.now, &ack);
                self.pump();
            }
            DelayLineEvent::ReceiverTimer if self.receiver.deadline() == Some(self.now) => {
                let ack = self.receiver.on_timer();
                self.acknowledge(Some(ack));
            }
            DelayLineEvent::ReceiverTimer => {}
        }
    }

    fn sent_at(&self, number: u64) -> Vec<Duration> {
        let sent = self.sent.iter();
        sent.filter(|(_, n)| *n == number)
            .map(|(at, _)| *at)
            .collect()
    }
}

#[test]
fn slow_start_doubles_every_round_trip() {
    let mut wire = DelayLine::new(&reno(), 10_000, |_, _| false);
    wire.run(ms(650));
    let mut rounds = BTreeMap::new();
    for (at, _) in &wire.sent {
        *rounds.entry(at.as_millis() / RTT.as_millis()).or_insert(0) += 1;
    }
    let counts: Vec<i32> = rounds.into_values().collect();
    assert_eq!(counts, [4, 8, 16, 32, 64, 128, 256]);
}

#[test]
fn slow_start_doubles_with_delayed_acknowledgements_too() {
    let config = TcpConfig {
        delayed_ack: Some(ms(40)),
        ..reno()
    };
    let mut wire = DelayLine::new(&config, 10_000, |_, _| false);
    wire.run(ms(450));
    assert_eq!(wire.sent.len(), 4 + 8 + 16 + 32 + 64);
}

#[test]
fn one_loss_is_repaired_in_a_round_trip() {
    let mut wire = DelayLine::new(&reno(), 60, |number, before| number == 5 && before == 0);
    let stats = wire.run(ms(5000));
    assert_eq!(
        (stats.retransmits, stats.recoveries, stats.timeouts),
        (1, 1, 0)
    );
    // Sent in the second round; the loss is detected when later segments are acknowledged.
    assert_eq!(wire.sent_at(5), [ms(100), ms(200)]);
    assert_eq!(stats.acked_bytes, 60_000);
}

#[test]
fn ns2_reno_repairs_one_loss_by_a_fast_retransmit() {
    let mut wire = DelayLine::new(&ns2_reno(), 2000, |n, before| n == 40 && before == 0);
    let stats = wire.run(ms(60_000));
    assert_eq!(
        (stats.retransmits, stats.recoveries, stats.timeouts),
        (1, 1, 0)
    );
    // Sent in the fourth round; repaired when the segments behind it are acknowledged.
    assert_eq!(wire.sent_at(40), [ms(300), ms(400)]);
    assert_eq!(stats.acked_bytes, 2_000_000);
}

#[test]
fn ns2_reno_waits_for_the_timer_if_a_window_has_two_losses() {
    let lost = |n, before| before == 0 && (n == 40 || n == 44);
    let mut wire = DelayLine::new(&ns2_reno(), 2000, lost);
    let stats = wire.run(ms(60_000));
    assert_eq!((stats.recoveries, stats.timeouts), (1, 1));
    // The first new acknowledgement at 500 ms ends the recovery and restarts the timer.
    assert_eq!(wire.sent_at(40), [ms(300), ms(400)]);
    let again = wire.sent_at(44)[1];
    assert!(again >= ms(700), "{again:?}");
    let mut sack = DelayLine::new(&reno(), 2000, lost);
    assert_eq!(sack.run(ms(60_000)).timeouts, 0);
    assert!(sack.now < wire.now);
}

#[test]
fn ns2_reno_sends_everything_again_after_a_timeout() {
    let lost = |n, before| before == 0 && (n == 40 || n == 44);
    let mut wire = DelayLine::new(&ns2_reno(), 50, lost);
    let stats = wire.run(ms(60_000));
    assert_eq!(stats.timeouts, 1);
    assert_eq!(stats.acked_bytes, 50_000);
    assert_eq!(
        wire.sent_at(45).len(),
        1,
        "acknowledged with the repair of 44"
    );
}

#[test]
fn ns2_reno_starts_with_one_segment_after_an_idle_timeout() {
    let mut wire = DelayLine::new(&ns2_reno(), 200, |_, _| false);
    wire.run(ms(5000));
    wire.sender.on_timer(wire.sender.deadline().unwrap());
    wire.now += Duration::from_secs(10);
    let before = wire.sent.len();
    wire.sender.write(100 * u64::from(MSS));
    wire.pump();
    assert_eq!(wire.sent.len() - before, 1);
    assert_eq!(wire.sender.stats(wire.now).timeouts, 0);
}

#[test]
fn many_losses_of_one_window_are_repaired_without_a_timeout() {
    let lost = [28, 30, 31, 36, 41, 42, 43, 50, 55];
    let mut wire = DelayLine::new(&reno(), 2000, |number, before| {
        before == 0 && lost.contains(&number)
    });
    let stats = wire.run(ms(60_000));
    assert_eq!(stats.timeouts, 0);
    assert_eq!(stats.recoveries, 1);
    assert_eq!(stats.retransmits, lost.len() as u64);
    let last = *wire.sent_at(55).last().unwrap();
    assert!(last < ms(700), "{last:?}");
}

#[test]
fn a_loss_halves_the_window() {
    let mut wire = DelayLine::new(&reno(), 4000, |number, before| number == 40 && before == 0);
    wire.run(ms(420));
    // 32 and 64 segments were in flight in the rounds of the loss and of its repair.
    assert_eq!(wire.sender.cwnd(), wire.sender.ssthresh());
    let cwnd = wire.sender.cwnd();
    assert!((22.0..=32.0).contains(&cwnd), "{cwnd}");
}

#[test]
fn a_lost_last_segment_waits_for_the_timer() {
    let mut wire = DelayLine::new(&reno(), 10, |number, before| number == 9 && before == 0);
    let stats = wire.run(ms(5000));
    assert_eq!(
        (stats.timeouts, stats.retransmits, stats.recoveries),
        (1, 1, 0)
    );
    let times = wire.sent_at(9);
    // The last acknowledgement came at 200 ms and restarted the timer: 100 ms and 200 ms margin.
    assert_eq!(times, [ms(100), ms(500)]);
    assert_eq!(wire.sender.cwnd(), 2.0);
}

#[test]
fn timeouts_back_off_and_slow_start_follows() {
    // A round of 16 segments and the first four attempts to repair it are lost.
    let mut outage = 20;
    let mut wire = DelayLine::new(&reno(), 300, |number, _| {
        let lost = number >= 12 && outage > 0;
        outage -= u64::from(lost);
        lost
    });
    let stats = wire.run(ms(60_000));
    assert!(stats.timeouts >= 3);
    let times = wire.sent_at(12);
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let doubled = gaps[1..4].windows(2).all(|pair| pair[1] == 2 * pair[0]);
    assert!(gaps.len() == 5 && doubled, "{gaps:?}");
    assert_eq!(stats.acked_bytes, 300_000);
}

#[test]
fn a_lost_retransmission_is_detected_without_a_timeout() {
    let config = TcpConfig {
        min_rto: Duration::from_secs(1),
        ..reno()
    };
    let mut wire = DelayLine::new(&config, 4000, |number, before| number == 40 && before < 2);
    let stats = wire.run(ms(3000));
    assert_eq!(stats.timeouts, 0);
    assert_eq!(wire.sent_at(40).len(), 3);
}

#[test]
fn without_that_detection_a_lost_retransmission_waits_for_the_timer() {
    let config = TcpConfig {
        recovery: LossRecovery::SackAndTimer,
        ..reno()
    };
    let mut wire = DelayLine::new(&config, 2000, |number, before| number == 40 && before < 2);
    let stats = wire.run(ms(60_000));
    assert_eq!((stats.retransmits >= 2, stats.timeouts), (true, 1));
}

#[test]
fn two_losses_at_the_end_are_repaired_by_the_rescue_retransmission() {
    // Both are near the end: too few segments follow to mark them as lost.
    let mut wire = DelayLine::new(&reno(), 30, |number, before| {
        before == 0 && (number == 24 || number == 28)
    });
    let stats = wire.run(ms(5000));
    assert_eq!(stats.timeouts, 0);
    assert_eq!(stats.acked_bytes, 30_000);
}

#[test]
fn the_receive_window_bounds_the_flight_size() {
    let config = TcpConfig {
        receive_buffer: 8 * 1000 + 999,
        ..reno()
    };
    let mut wire = DelayLine::new(&config, 4000, |_, _| false);
    let stats = wire.run(ms(10_000));
    // 8 whole segments a round trip.
    let rounds = 10_000 / 100 - 1;
    assert_eq!(stats.segments, 4 + 8 * rounds + 8);
    // In the first two rounds the congestion window was no larger.
    assert_eq!(stats.limited_times.rwnd_limited, ms(10_000) - 2 * RTT);
    assert_eq!(stats.limited_times.busy, ms(10_000));
    assert!(
        wire.sender.cwnd() <= 9.0,
        "grew though it was not the limit"
    );
}

#[test]
fn rtt_samples_exclude_retransmissions_and_reordering() {
    let mut wire = DelayLine::new(&reno(), 500, |number, before| number == 40 && before == 0);
    let stats = wire.run(ms(60_000));
    assert_eq!(stats.rtt_min, RTT);
    // Neither the retransmission nor the segments behind the gap count as samples of a slow path.
    assert_eq!(
        stats.rtt_total,
        RTT * u32::try_from(stats.rtt_samples).unwrap()
    );
}

#[test]
fn every_second_segment_is_acknowledged_and_gaps_at_once() {
    let config = TcpConfig {
        delayed_ack: Some(ms(40)),
        ..reno()
    };
    let mut receiver = TcpReceiver::new(&config);
    let mut next = |at, number| receiver.on_segment(ms(at), number, MSS).map(|ack| ack.next);
    assert_eq!(next(0, 0), None);
    assert_eq!(next(1, 1), Some(2));
    assert_eq!(next(2, 3), Some(2));
    assert_eq!(next(3, 4), Some(2));
    assert_eq!(next(4, 2), Some(5));
    assert_eq!(next(5, 2), Some(5), "a copy");
    assert_eq!(next(6, 5), None);
    assert_eq!(receiver.deadline(), Some(ms(46)));
    assert_eq!(receiver.on_timer().next, 6);
    assert_eq!(receiver.deadline(), None);
    assert_eq!(receiver.delivered_bytes(), 6 * u64::from(MSS));
    assert_eq!(receiver.duplicates(), 1);
}

#[test]
fn sack_blocks_name_the_latest_first() {
    let mut receiver = TcpReceiver::new(&reno());
    let mut sacks = Vec::new();
    for number in [0, 2, 4, 6, 8, 7, 9] {
        let ack = receiver.on_segment(Duration::ZERO, number, MSS).unwrap();
        sacks = ack.sacks.iter().map(|s| (s.start, s.end)).collect();
    }
    assert_eq!(sacks, [(6, 10), (4, 5), (2, 3)]);
    let ack = receiver.on_segment(Duration::ZERO, 1, MSS).unwrap();
    assert_eq!(ack.next, 3);
    assert_eq!((ack.sacks[0].start, ack.sacks[1].start), (6, 4));
    assert!(ack.sacks[2].is_empty());
}

#[test]
fn an_idle_connection_restarts_from_the_initial_window() {
    let mut wire = DelayLine::new(&reno(), 200, |_, _| false);
    wire.run(ms(5000));
    assert!(wire.sender.cwnd() > 50.0);
    wire.now += Duration::from_secs(10);
    let before = wire.sent.len();
    wire.sender.write(100 * u64::from(MSS));
    wire.pump();
    assert_eq!(wire.sent.len() - before, 4);
}

proptest! {
    /// Whatever segments are lost, all data arrives exactly once in bounded time.
    #[test]
    fn all_data_arrives_whatever_is_lost(
        segments in 1u64..200,
        lost in proptest::collection::btree_set((0u64..200, 0usize..3), 0..80),
        cubic: bool,
        sack: bool,
        delayed: bool,
        buffer in 1u64..100,
    ) {
        let config = TcpConfig {
            congestion: if cubic { CongestionAlgorithm::Cubic } else { CongestionAlgorithm::NewReno },
            recovery: if sack { LossRecovery::Sack } else { LossRecovery::Ns2Reno },
            delayed_ack: delayed.then_some(ms(100)),
            receive_buffer: buffer * u64::from(MSS),
            ..reno()
        };
        let mut wire = DelayLine::new(&config, segments, |number, before| {
            lost.contains(&(number, before))
        });
        let stats = wire.run(Duration::from_secs(100_000));
        prop_assert!(wire.sender.is_fully_acked());
        prop_assert_eq!(stats.acked_bytes, segments * u64::from(MSS));
        prop_assert_eq!(wire.receiver.delivered_bytes(), segments * u64::from(MSS));
        prop_assert_eq!(stats.segments, wire.sent.len() as u64);
        prop_assert_eq!(stats.retransmits, stats.segments - segments);
        prop_assert!(wire.acks.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }
}
