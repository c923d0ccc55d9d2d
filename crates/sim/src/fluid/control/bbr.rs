//! BBR version 1, as in net/ipv4/tcp_bbr.c.

use std::collections::VecDeque;

use super::AckedStep;

/// Gain of Startup: 2/ln 2.
const HIGH_GAIN: f64 = 2.885;
/// Rounds of the bandwidth filter.
const BW_ROUNDS: usize = 10;
/// Pacing gains of ProbeBW.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Share of the bandwidth at which it paces: 1 % below.
const PACING_MARGIN: f64 = 0.99;
/// Window of the minimum round trip, seconds.
const MIN_RTT_WINDOW: f64 = 10.0;
/// Time of ProbeRTT, seconds.
const PROBE_RTT_TIME: f64 = 0.2;
/// Smallest window, segments.
const LEAST_WINDOW: f64 = 4.0;
/// Bounds of a long-term sampling interval, rounds.
const LONG_TERM_ROUNDS: (u32, u32) = (4, 16);
/// Rounds for which a long-term rate is used.
const LONG_TERM_USE: u32 = 48;
/// Loss ratio of a policed interval: 50/256.
const LONG_TERM_LOSS: f64 = 50.0 / 256.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BbrMode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// Rate of a policer, found by two intervals with much loss and the same rate.
#[derive(Debug, Clone, Default)]
struct LongTermRate {
    sampling: bool,
    from: f64,
    delivered: f64,
    lost: f64,
    rounds: u32,
    bandwidth: f64,
    in_use: bool,
}

/// State of BBR. Rates are in segments per second.
#[derive(Debug, Clone)]
pub(super) struct Bbr {
    mode: BbrMode,
    phase: u32,
    pacing_gain: f64,
    cwnd_gain: f64,
    pacing: f64,
    /// Largest rate sample of each round, latest round last.
    maxima: [f64; BW_ROUNDS],
    bandwidth: f64,
    /// Times and delivered amounts of the last round trip.
    history: VecDeque<(f64, f64)>,
    round_ends: f64,
    full_bandwidth: f64,
    full_rounds: u32,
    min_rtt: f64,
    min_rtt_at: f64,
    probe_rtt_ends: Option<f64>,
    prior_cwnd: f64,
    cycle: usize,
    cycle_at: f64,
    conserves: bool,
    was_in_recovery: bool,
    lost_total: f64,
    long_term: LongTermRate,
}

impl Bbr {
    pub(super) fn new(cwnd: f64, rtt: f64, phase: u32) -> Self {
        Self {
            mode: BbrMode::Startup,
            phase,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing: HIGH_GAIN * cwnd / rtt.max(1e-4) * PACING_MARGIN,
            maxima: [0.0; BW_ROUNDS],
            bandwidth: 0.0,
            history: VecDeque::new(),
            round_ends: 0.0,
            full_bandwidth: 0.0,
            full_rounds: 0,
            min_rtt: f64::INFINITY,
            min_rtt_at: 0.0,
            probe_rtt_ends: None,
            prior_cwnd: 0.0,
            cycle: 0,
            cycle_at: 0.0,
            conserves: false,
            was_in_recovery: false,
            lost_total: 0.0,
            long_term: LongTermRate::default(),
        }
    }

    /// Pacing rate.
    pub(super) fn pacing(&self) -> f64 {
        self.pacing
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= 3
    }

    fn rate(&self) -> f64 {
        if self.long_term.in_use {
            self.long_term.bandwidth
        } else {
            self.bandwidth
        }
    }

    /// In-flight target for a gain, segments, with the budget for segmentation offload.
    fn target(&self, gain: f64) -> f64 {
        let burst = (self.pacing / 1024.0).clamp(2.0, 44.0);
        let extra = if self.mode == BbrMode::ProbeBw && self.cycle == 0 {
            2.0
        } else {
            0.0
        };
        gain * self.rate() * self.min_rtt + 3.0 * burst + extra
    }

    pub(super) fn on_step(&mut self, step: &AckedStep, cwnd: &mut f64, ssthresh: &mut f64) {
        self.lost_total += step.lost;
        if step.acked <= 0.0 {
            return;
        }
        let round_start = self.update_bandwidth(step);
        self.sample_long_term(step, round_start);
        self.advance_cycle(step);
        self.check_full(round_start);
        if self.mode == BbrMode::Startup && self.is_full() {
            self.mode = BbrMode::Drain;
            (self.pacing_gain, self.cwnd_gain) = (1.0 / HIGH_GAIN, HIGH_GAIN);
            *ssthresh = self.target(1.0);
        }
        if self.mode == BbrMode::Drain && step.in_flight <= self.target(1.0) {
            self.begin_probe_bw(step.now);
        }
        self.update_min_rtt(step, cwnd);
        self.set_pacing();
        self.set_cwnd(step, round_start, cwnd);
    }

    /// Updates the bandwidth filter; returns whether a round began.
    fn update_bandwidth(&mut self, step: &AckedStep) -> bool {
        let round_start = step.now >= self.round_ends;
        if round_start {
            self.round_ends = step.now + step.rtt;
            if !step.app_limited {
                self.maxima.rotate_left(1);
                self.maxima[BW_ROUNDS - 1] = 0.0;
            }
        }
        self.history.push_back((step.now, step.delivered));
        let from = step.now - step.rtt - step.step / 2.0;
        while self.history.len() > 2 && self.history[1].0 <= from + step.step {
            self.history.pop_front();
        }
        let sample = match self.history.front() {
            Some((at, delivered)) if self.history.len() > 1 => {
                (step.delivered - delivered) / (step.now - at).max(step.rtt)
            }
            _ => step.acked / step.rtt,
        };
        let latest = &mut self.maxima[BW_ROUNDS - 1];
        // A sample has at least one segment.
        *latest = latest.max(sample).max(1.0 / step.rtt);
        self.bandwidth = self.maxima.iter().copied().fold(0.0, f64::max);
        round_start
    }

    fn check_full(&mut self, round_start: bool) {
        if self.is_full() || !round_start {
            return;
        }
        if self.bandwidth >= self.full_bandwidth * 1.25 {
            self.full_bandwidth = self.bandwidth;
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
        }
    }

    fn begin_probe_bw(&mut self, now: f64) {
        self.mode = BbrMode::ProbeBw;
        self.cwnd_gain = 2.0;
        // Any phase but the one that drains.
        self.cycle = (7 - self.phase.min(6) as usize + 1) % CYCLE.len();
        self.cycle_at = now;
        self.pacing_gain = CYCLE[self.cycle];
    }

    fn advance_cycle(&mut self, step: &AckedStep) {
        if self.mode != BbrMode::ProbeBw {
            return;
        }
        let full_length = step.now - self.cycle_at > self.min_rtt;
        let is_over = if self.pacing_gain > 1.0 {
            full_length && (step.lost > 0.0 || step.in_flight >= self.target(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            full_length || step.in_flight <= self.target(1.0)
        } else {
            full_length
        };
        if is_over {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = step.now;
            self.pacing_gain = if self.long_term.in_use {
                1.0
            } else {
                CYCLE[self.cycle]
            };
        }
    }

    fn update_min_rtt(&mut self, step: &AckedStep, cwnd: &mut f64) {
        let expired = step.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if step.rtt <= self.min_rtt || expired {
            self.min_rtt = step.rtt;
            let first = self.min_rtt_at == 0.0;
            self.min_rtt_at = step.now;
            if expired && !first && self.mode != BbrMode::ProbeRtt {
                self.mode = BbrMode::ProbeRtt;
                (self.pacing_gain, self.cwnd_gain) = (1.0, 1.0);
                self.prior_cwnd = self.prior_cwnd.max(*cwnd);
                self.probe_rtt_ends = None;
            }
        }
        if self.mode != BbrMode::ProbeRtt {
            return;
        }
        match self.probe_rtt_ends {
            None if step.in_flight <= LEAST_WINDOW => {
                self.probe_rtt_ends = Some(step.now + PROBE_RTT_TIME.max(step.rtt));
            }
            Some(ends) if step.now >= ends => {
                self.min_rtt_at = step.now;
                *cwnd = cwnd.max(self.prior_cwnd);
                self.prior_cwnd = 0.0;
                if self.is_full() {
                    self.begin_probe_bw(step.now);
                } else {
                    self.mode = BbrMode::Startup;
                    (self.pacing_gain, self.cwnd_gain) = (HIGH_GAIN, HIGH_GAIN);
                }
            }
            _ => {}
        }
    }

    fn set_pacing(&mut self) {
        let rate = self.pacing_gain * self.rate() * PACING_MARGIN;
        if self.is_full() || rate > self.pacing {
            self.pacing = rate;
        }
    }

    fn set_cwnd(&mut self, step: &AckedStep, round_start: bool, cwnd: &mut f64) {
        if step.lost > 0.0 {
            *cwnd = (*cwnd - step.lost).max(1.0);
        }
        if self.was_in_recovery && !step.in_recovery {
            *cwnd = cwnd.max(self.prior_cwnd);
            self.prior_cwnd = 0.0;
            self.conserves = false;
        } else if round_start {
            self.conserves = false;
        }
        self.was_in_recovery = step.in_recovery;
        if self.conserves {
            *cwnd = cwnd.max(step.in_flight + step.acked);
        } else {
            let target = self.target(self.cwnd_gain);
            if self.is_full() {
                *cwnd = (*cwnd + step.acked).min(target);
            } else if *cwnd < target || step.delivered < super::INITIAL_WINDOW {
                *cwnd += step.acked;
            }
        }
        *cwnd = cwnd.max(LEAST_WINDOW);
        if self.mode == BbrMode::ProbeRtt {
            *cwnd = cwnd.min(LEAST_WINDOW);
        }
    }

    /// Recovery begins: packet conservation for one round. Not if it follows another at once.
    pub(super) fn on_recovery(&mut self, step: &AckedStep, cwnd: &mut f64) {
        if self.was_in_recovery {
            return;
        }
        if self.mode != BbrMode::ProbeRtt {
            self.prior_cwnd = self.prior_cwnd.max(*cwnd);
        }
        self.conserves = true;
        self.was_in_recovery = true;
        self.round_ends = step.now + step.rtt;
        *cwnd = (step.in_flight + step.acked).max(1.0);
    }

    pub(super) fn on_timeout(&mut self, cwnd: f64) {
        self.prior_cwnd = self.prior_cwnd.max(cwnd);
        self.was_in_recovery = true;
        self.conserves = false;
        if !self.is_full() {
            self.full_bandwidth = 0.0;
        }
    }

    /// Long-term sampling, which finds policers.
    fn sample_long_term(&mut self, step: &AckedStep, round_start: bool) {
        let restart = |lost: f64| LongTermRate {
            sampling: true,
            from: step.now,
            delivered: step.delivered,
            lost,
            ..LongTermRate::default()
        };
        let lt = &mut self.long_term;
        if lt.in_use {
            lt.rounds += u32::from(round_start && self.mode == BbrMode::ProbeBw);
            if lt.rounds >= LONG_TERM_USE {
                *lt = LongTermRate::default();
                self.begin_probe_bw(step.now);
            }
            return;
        }
        if !lt.sampling {
            if step.lost > 0.0 {
                *lt = restart(self.lost_total);
            }
            return;
        }
        if step.app_limited {
            *lt = LongTermRate::default();
            return;
        }
        lt.rounds += u32::from(round_start);
        let (least, most) = LONG_TERM_ROUNDS;
        if lt.rounds > most {
            *lt = LongTermRate::default();
            return;
        }
        if lt.rounds < least || step.lost <= 0.0 {
            return;
        }
        let lost = self.lost_total - lt.lost;
        let delivered = step.delivered - lt.delivered;
        let time = step.now - lt.from;
        if delivered <= 0.0 || time <= 0.0 || lost < LONG_TERM_LOSS * delivered {
            return;
        }
        let bandwidth = delivered / time;
        let before = lt.bandwidth;
        *lt = restart(self.lost_total);
        lt.bandwidth = bandwidth;
        if before > 0.0 && (bandwidth - before).abs() <= before / 8.0 {
            lt.bandwidth = f64::midpoint(bandwidth, before);
            lt.in_use = true;
            self.pacing_gain = 1.0;
        }
    }
}
