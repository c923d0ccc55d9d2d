//! One TCP flow as a fluid: what its sender, its receiver and their buffers do in a step.
//!
//! Amounts are segments, times seconds.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng, RngExt};

use tune::sample::TcpSample;

use super::SEGMENT;
use super::control::{AckedStep, CongestionState, FluidControl};

/// Initial receive window, bytes.
const FIRST_WINDOW: f64 = 65_536.0;
/// Initial send buffer, bytes as the kernel reports it.
const FIRST_SEND_BUFFER: f64 = 87_040.0;
/// Part of a reported send buffer that can be payload in flight.
const PAYLOAD_OF_BUFFER: f64 = 2.0 / 3.0;
/// Unsent data that the kernel accepts (TCP_NOTSENT_LOWAT), segments.
const LOWAT: f64 = 1_048_576.0 / SEGMENT;
/// The same near the end of a file.
const LOWAT_NEAR_END: f64 = 131_072.0 / SEGMENT;
/// Smallest retransmission timeout above the round trip, seconds.
const MIN_TIMEOUT: f64 = 0.2;
/// Share of the time limited by the send buffer that the kernel reports.
const SHOWN_SNDBUF_LIMITED: f64 = 0.05;

/// Limits of one flow's ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowLimits {
    /// Largest receive window, bytes.
    pub(super) receive_window: f64,
    /// Largest send buffer, bytes as reported.
    pub(super) send_buffer: f64,
}

/// The network at one step, as every flow sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepContext {
    pub(super) index: u64,
    pub(super) now: f64,
    pub(super) step: f64,
    /// Steps of the round trip without queue.
    pub(super) delay_steps: u64,
    /// Segments per second of the bottleneck.
    pub(super) capacity: f64,
    /// Windows of the flows in slow start, summed.
    pub(super) slow_start_windows: f64,
    /// Loss ratio and mean burst.
    pub(super) loss: f64,
    pub(super) burst: f64,
}

/// Counters of a flow. Amounts are segments, times seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FluidCounters {
    pub(super) delivered: f64,
    pub(super) sent: f64,
    pub(super) retransmits: f64,
    pub(super) busy: f64,
    pub(super) rwnd_limited: f64,
    pub(super) sndbuf_limited: f64,
}

/// A flow.
#[derive(Debug, Clone)]
pub(super) struct FluidFlow {
    pub(super) id: u64,
    pub(super) congestion: CongestionState,
    limits: FlowLimits,
    /// Pacing rate set on the socket, segments per second.
    pub(super) pacing_limit: f64,
    pub(super) in_flight: f64,
    /// In the bottleneck's queue.
    pub(super) queued: f64,
    /// Arrivals at the bottleneck in this step.
    pub(super) arrivals: f64,
    /// Served segments whose acknowledgements arrive at a later step.
    acks: Vec<f64>,
    /// Losses by the step at which the sender learns of them.
    losses: VecDeque<(u64, f64)>,
    /// Lost segments that still have to be removed from arrivals: losses are whole segments.
    lost_debt: f64,
    to_resend: f64,
    recovery_until: f64,
    pub(super) silent_until: f64,
    /// Holes in the sequence space: repair time, and what had been delivered before each.
    holes: VecDeque<(f64, f64)>,
    /// Written and not sent.
    pub(super) unsent: f64,
    /// The file's parts have become smaller than a block.
    pub(super) is_near_end: bool,
    /// Received and not read by the program.
    pub(super) backlog: f64,
    /// The program reads at its own pace, so that `backlog` counts.
    pub(super) has_slow_reader: bool,
    window: f64,
    send_buffer: f64,
    pub(super) rtt: f64,
    pub(super) min_rtt: f64,
    limited_at: f64,
    buffer_full_at: f64,
    peak_in_flight: f64,
    had_data: bool,
    /// Segments until the next random loss, and drops until the next one at the queue.
    until_loss: f64,
    until_drop: f64,
    pub(super) counters: FluidCounters,
    /// Delivery rate, segments per second.
    pub(super) rate: f64,
    /// State of CoDel: since when the delay is above the target, drops in a row, next drop.
    pub(super) codel: (f64, f64, f64),
}

impl FluidFlow {
    /// A flow that may send from `start` on.
    pub(super) fn new(
        id: u64,
        control: FluidControl,
        limits: FlowLimits,
        start: f64,
        (rtt, max_delay_steps): (f64, usize),
        random: &mut impl Rng,
    ) -> Self {
        Self {
            id,
            congestion: CongestionState::new(control, rtt, random.random_range(0..7)),
            limits,
            pacing_limit: f64::INFINITY,
            in_flight: 0.0,
            queued: 0.0,
            arrivals: 0.0,
            acks: vec![0.0; max_delay_steps + 1],
            losses: VecDeque::new(),
            lost_debt: 0.0,
            to_resend: 0.0,
            recovery_until: 0.0,
            silent_until: start,
            holes: VecDeque::new(),
            unsent: 0.0,
            is_near_end: false,
            backlog: 0.0,
            has_slow_reader: false,
            window: FIRST_WINDOW.min(limits.receive_window) / SEGMENT,
            send_buffer: FIRST_SEND_BUFFER.min(limits.send_buffer),
            rtt,
            min_rtt: rtt,
            limited_at: f64::NEG_INFINITY,
            buffer_full_at: f64::NEG_INFINITY,
            peak_in_flight: 0.0,
            had_data: true,
            until_loss: exponential(random),
            until_drop: exponential(random),
            counters: FluidCounters::default(),
            rate: 0.0,
            codel: (f64::INFINITY, 0.0, 0.0),
        }
    }

    /// Segments that can be in flight by the send buffer.
    fn buffer_window(&self) -> f64 {
        self.send_buffer * PAYLOAD_OF_BUFFER / SEGMENT
    }

    /// Segments that the program may write before the next step: all that the step can send, and then the unsent
    /// data that the kernel accepts.
    pub(super) fn writable(&self, next_step: u64, step: f64) -> f64 {
        let acked = self.acks[(next_step % self.acks.len() as u64) as usize];
        let paced = self.congestion.pacing.min(self.pacing_limit) * step;
        let free = (self.usable_window() - self.in_flight).max(0.0) + 2.0 * acked;
        let lowat = if self.is_near_end {
            LOWAT_NEAR_END
        } else {
            LOWAT
        };
        let kept = lowat.min(self.buffer_window() / 4.0);
        (free.min(paced) + kept - self.unsent - self.to_resend).max(0.0)
    }

    fn usable_window(&self) -> f64 {
        let receiver = (self.window - self.backlog).max(0.0);
        self.congestion.cwnd.min(receiver).min(self.buffer_window())
    }

    /// Nothing is left to deliver.
    pub(super) fn is_drained(&self) -> bool {
        self.unsent + self.to_resend + self.in_flight + self.backlog < 0.01
    }

    /// Acknowledgements, losses and new segments of a step.
    pub(super) fn step(&mut self, context: &StepContext, random: &mut impl Rng) {
        let slot = (context.index % self.acks.len() as u64) as usize;
        let acked = std::mem::take(&mut self.acks[slot]);
        self.in_flight = (self.in_flight - acked).max(0.0);
        self.counters.delivered += acked;
        if self.has_slow_reader {
            self.backlog += acked;
        }
        let share = (context.step / self.rtt).min(1.0);
        self.rate += (acked / context.step - self.rate) * share;
        self.peak_in_flight += (self.in_flight - self.peak_in_flight) * share / 2.0;
        self.min_rtt = self.min_rtt.min(self.rtt);
        while self
            .holes
            .front()
            .is_some_and(|(repaired, _)| *repaired <= context.now)
        {
            self.holes.pop_front();
        }
        let lost = self.take_detected(context.index);
        if acked > 0.0 || lost > 0.0 {
            self.on_acks(context, acked, lost);
        }
        self.grow_buffers();
        self.send(context, acked);
        self.lose(context, random);
    }

    fn take_detected(&mut self, index: u64) -> f64 {
        let mut lost = 0.0;
        while let Some((at, count)) = self.losses.front()
            && *at <= index
        {
            lost += count;
            self.losses.pop_front();
        }
        lost
    }

    fn on_acks(&mut self, context: &StepContext, acked: f64, lost: f64) {
        let now = context.now;
        let in_slow_start =
            self.congestion.cwnd / context.slow_start_windows.max(self.congestion.cwnd);
        // Segments that could not be taken out of the network have not been lost after all.
        let is_lost = lost > 0.0;
        let unpaid = self.lost_debt.min(lost);
        self.lost_debt -= unpaid;
        let lost = (lost - unpaid).min(self.in_flight);
        self.in_flight -= lost;
        let cwnd_limited = if self.congestion.cwnd < self.congestion.ssthresh {
            self.congestion.cwnd < 2.0 * self.peak_in_flight || now - self.limited_at <= self.rtt
        } else {
            now - self.limited_at <= self.rtt + context.step
        };
        let was_in_recovery = now < self.recovery_until;
        let mut step = AckedStep {
            now,
            step: context.step,
            acked,
            lost,
            delivered: self.counters.delivered,
            in_flight: self.in_flight,
            rtt: self.rtt,
            min_rtt: self.min_rtt,
            cwnd_limited,
            app_limited: !self.had_data,
            in_recovery: was_in_recovery,
            slow_start_rate: context.capacity * in_slow_start,
        };
        if is_lost {
            self.to_resend += lost;
            self.counters.retransmits += lost;
            self.holes
                .push_back((now + self.rtt, self.counters.delivered));
            if self.in_flight + acked < 0.5 {
                self.congestion.on_timeout();
                self.silent_until = now + MIN_TIMEOUT.max(self.rtt);
                self.recovery_until = self.silent_until;
                return;
            }
            if !was_in_recovery {
                self.congestion.on_loss(&step);
                self.recovery_until = now + self.rtt + context.step;
                step.in_recovery = true;
            }
        }
        self.congestion.on_step(&step);
    }

    /// Autotuning: the buffers follow the window up to their limits.
    fn grow_buffers(&mut self) {
        let most = self.limits.receive_window / SEGMENT;
        if self.window < most {
            self.window = self.window.max(2.0 * self.in_flight + 32.0).min(most);
        }
        if self.send_buffer < self.limits.send_buffer {
            let wanted = 2.0 * self.congestion.cwnd * SEGMENT / PAYLOAD_OF_BUFFER;
            self.send_buffer = self.send_buffer.max(wanted).min(self.limits.send_buffer);
        }
    }

    fn send(&mut self, context: &StepContext, acked: f64) {
        self.arrivals = 0.0;
        let available = self.to_resend + self.unsent;
        if self.in_flight > 0.0 || available > 0.0 {
            self.counters.busy += context.step;
        }
        self.had_data = available > 0.0;
        if context.now < self.silent_until || available <= 0.0 {
            return;
        }
        let receiver = (self.window - self.backlog).max(0.0);
        let (cwnd, buffer) = (self.congestion.cwnd, self.buffer_window());
        let window = self.usable_window();
        let mut room = (window - self.in_flight).max(0.0);
        if context.now < self.recovery_until && self.congestion.pacing.is_infinite() {
            // Proportional rate reduction sends at most twice what is acknowledged.
            room = room.min(2.0 * acked + 1.0);
        }
        let paced = self.congestion.pacing.min(self.pacing_limit) * context.step;
        let sent = room.min(paced).min(available);
        if sent >= room && room <= paced {
            if window >= cwnd {
                self.limited_at = context.now;
            } else if receiver <= buffer {
                self.counters.rwnd_limited += context.step;
            } else {
                self.buffer_full_at = context.now;
                self.counters.sndbuf_limited += context.step * SHOWN_SNDBUF_LIMITED;
            }
        }
        let again = sent.min(self.to_resend);
        self.to_resend -= again;
        self.unsent -= sent - again;
        self.in_flight += sent;
        self.peak_in_flight = self.peak_in_flight.max(self.in_flight);
        self.counters.sent += sent;
        self.arrivals = sent;
        if self.unsent < 1e-9 {
            self.unsent = 0.0;
        }
    }

    /// Losses without congestion, and the debt of earlier ones.
    fn lose(&mut self, context: &StepContext, random: &mut impl Rng) {
        if context.loss > 0.0 && self.arrivals > 0.0 {
            let burst = context.burst.max(1.0);
            self.until_loss -= self.arrivals * context.loss / burst;
            let mut lost = 0.0;
            while self.until_loss < 0.0 {
                lost += geometric(burst, random);
                self.until_loss += exponential(random);
            }
            if lost > 0.0 {
                self.note_lost(context, lost.min(self.in_flight.ceil()));
            }
        }
        self.pay_from_arrivals();
    }

    /// Removes the debt of lost segments from this step's arrivals.
    pub(super) fn pay_from_arrivals(&mut self) {
        let paid = self.lost_debt.min(self.arrivals);
        self.lost_debt -= paid;
        self.arrivals -= paid;
    }

    /// Drops a part of this step's arrivals in whole segments: `expected` of them on average.
    pub(super) fn drop_arrivals(
        &mut self,
        context: &StepContext,
        expected: f64,
        random: &mut impl Rng,
    ) {
        let mut count = 0.0;
        if expected > 32.0 {
            count = expected.round();
        } else {
            self.until_drop -= expected;
            while self.until_drop < 0.0 {
                count += 1.0;
                self.until_drop += exponential(random);
            }
        }
        if count > 0.0 {
            self.note_lost(context, count);
        }
    }

    fn note_lost(&mut self, context: &StepContext, count: f64) {
        self.lost_debt += count;
        let queueing = ((self.rtt / context.step).round() as u64).max(context.delay_steps);
        let at = context.index + queueing.max(1);
        match self.losses.back_mut() {
            Some((last, lost)) if *last >= at => *lost += count,
            _ => self.losses.push_back((at, count)),
        }
    }

    /// Removes the debt of dropped segments from the queue; returns how much.
    pub(super) fn pay_from_queue(&mut self) -> f64 {
        let paid = self.lost_debt.min(self.queued);
        self.lost_debt -= paid;
        self.queued -= paid;
        paid
    }

    /// The bottleneck served `amount`, which is acknowledged a round trip without queue later.
    pub(super) fn on_served(&mut self, context: &StepContext, amount: f64) {
        let slots = self.acks.len() as u64;
        let slot = (context.index + context.delay_steps) % slots;
        self.acks[slot as usize] += amount;
    }

    /// Payload acknowledged in order, segments.
    pub(super) fn acked_in_order(&self) -> f64 {
        self.holes
            .front()
            .map_or(self.counters.delivered, |(_, delivered)| *delivered)
    }

    /// The flow as TCP_INFO and SO_MEMINFO show it; `at` is the time since the transfer began, seconds, and `now`
    /// that since the start of the simulation.
    pub(super) fn sample(&self, at: f64, now: f64) -> TcpSample {
        let bytes = |segments: f64| (segments.max(0.0) * SEGMENT) as u64;
        let counters = &self.counters;
        let is_full = now - self.buffer_full_at <= self.rtt.max(0.001);
        let (unsent, memory) = if is_full {
            (0.0, self.send_buffer * 0.9)
        } else {
            let payload = self.in_flight + self.to_resend + self.unsent;
            (
                self.unsent,
                (payload * SEGMENT * 1.35).min(self.send_buffer),
            )
        };
        let in_order = self.acked_in_order();
        let held = (counters.delivered - in_order).max(0.0);
        TcpSample {
            stream: self.id,
            at: Duration::from_secs_f64(at),
            bytes_acked: bytes(in_order),
            bytes_sent: bytes(counters.sent),
            smoothed_rtt: Duration::from_secs_f64(self.rtt),
            min_rtt: Duration::from_secs_f64(self.min_rtt),
            send_buffer: self.send_buffer as u64,
            send_queue_memory: memory as u64,
            unsent: bytes(unsent),
            unacked: bytes(self.in_flight + held),
            in_flight: bytes(self.in_flight),
            cwnd: bytes(self.congestion.cwnd.floor()),
            in_slow_start: self.congestion.ssthresh.is_infinite(),
            peer_window: bytes(self.window - self.backlog),
            busy_time: Duration::from_secs_f64(counters.busy),
            rwnd_limited: Duration::from_secs_f64(counters.rwnd_limited),
            sndbuf_limited: Duration::from_secs_f64(counters.sndbuf_limited),
            retransmits: counters.retransmits as u64,
            mss: SEGMENT as u64,
            delivery_rate: bytes(self.rate),
            max_receive_window: 1 << 30,
            ..TcpSample::default()
        }
    }
}

/// A draw of the exponential distribution with mean 1.
fn exponential(random: &mut impl Rng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

/// A draw of the geometric distribution with this mean, at least 1.
fn geometric(mean: f64, random: &mut impl Rng) -> f64 {
    if mean <= 1.0 {
        return 1.0;
    }
    1.0 + (exponential(random) / -(1.0 - 1.0 / mean).ln()).floor()
}
