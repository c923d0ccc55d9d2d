//! The sending end: which segment may be sent now, and the reaction to acknowledgements and timeouts.

use std::time::Duration;

use super::pacing::SegmentPacer;
use super::reno::{LossRecovery, RenoRecovery};
use super::right_sizing::first_window;
use super::rtt::RtoEstimator;
use super::scoreboard::{AckResult, DUP_THRESH, Scoreboard};
use super::window::CongestionWindow;
use super::{Ack, TcpConfig};

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Segment number, from 0.
    pub(crate) number: u64,
    /// Payload, bytes.
    pub(crate) bytes: u32,
}

/// Times in which a sender was busy or limited, as in Linux's `tcp_info` (`tcpi_busy_time`,
/// `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitedTimes {
    /// Data was outstanding or waiting to be sent.
    pub busy: Duration,
    /// Part of `busy` in which the receive window did not allow more data.
    pub rwnd_limited: Duration,
    /// Part of `busy` in which the whole send buffer was in flight and the application had more data.
    pub sndbuf_limited: Duration,
}

/// Counters and measurements of a sender since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderStats {
    /// Segments sent, retransmissions included.
    pub segments: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Loss recoveries that began without a timeout.
    pub recoveries: u64,
    /// Acknowledged payload, bytes.
    pub acked_bytes: u64,
    /// Number of RTT samples.
    pub rtt_samples: u64,
    /// Sum of the RTT samples.
    pub rtt_total: Duration,
    /// Smallest RTT sample; zero before the first.
    pub rtt_min: Duration,
    /// Busy and limited times.
    pub limited_times: LimitedTimes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryPhase {
    /// No segment is considered lost.
    Open,
    /// Loss recovery (RFC 6675) until all segments before `until` are acknowledged.
    Recovery {
        until: u64,
        /// The first retransmission is due, even if the window is full (RFC 6675 section 5 step 4.3).
        urgent: bool,
        /// The rescue retransmission (`NextSeg` rule 4) was sent; only one is allowed.
        rescued: bool,
    },
    /// Recovery after a timeout until all segments before `until` are acknowledged.
    Loss { until: u64 },
}

/// Condition that currently prevents a sender from sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendBlocker {
    /// The application has no data, and nothing is in flight.
    Application,
    /// The application has no more data; the last segments are in flight.
    LastAcks,
    Congestion,
    /// The pacing rate.
    Pace,
    ReceiveWindow,
    SendBuffer,
}

/// The sender of one connection.
#[derive(Debug)]
pub(crate) struct TcpSender {
    mss: u32,
    initial_window: u32,
    window: CongestionWindow,
    board: Scoreboard,
    rtt: RtoEstimator,
    phase: RecoveryPhase,
    /// Reno's recovery instead of `phase`.
    reno: Option<RenoRecovery>,
    duplicate_acks: u64,
    right_edge: u64,
    buffer: u64,
    /// Unsent bytes in the send buffer.
    unsent: u64,
    unsent_limit: u64,
    /// The application has finished writing: a last short segment may be sent.
    finished_writing: bool,
    deadline: Option<Duration>,
    last_sent: Duration,
    pace: SegmentPacer,
    blocker: SendBlocker,
    /// Time up to which the busy and limited times are accounted.
    accounted_until: Duration,
    stats: SenderStats,
}

impl TcpSender {
    pub(crate) fn new(config: &TcpConfig) -> Self {
        let (rtt, reno) = match config.recovery {
            LossRecovery::Sack | LossRecovery::SackAndTimer => {
                (RtoEstimator::new(config.min_rto), None)
            }
            LossRecovery::Ns2Reno => (
                RtoEstimator::in_ticks(config.min_rto),
                Some(RenoRecovery::default()),
            ),
        };
        Self {
            mss: config.mss.max(1),
            initial_window: config.initial_window,
            window: CongestionWindow::new(config.congestion, config.initial_window),
            board: Scoreboard::new(config.recovery),
            rtt,
            phase: RecoveryPhase::Open,
            reno,
            duplicate_acks: 0,
            right_edge: first_window(config),
            buffer: config.whole_segments(config.send_buffer) * u64::from(config.mss.max(1)),
            unsent: 0,
            unsent_limit: config.not_sent_lowat.max(u64::from(config.mss)),
            finished_writing: false,
            deadline: None,
            last_sent: Duration::ZERO,
            pace: SegmentPacer::default(),
            blocker: SendBlocker::Application,
            accounted_until: Duration::ZERO,
            stats: SenderStats::default(),
        }
    }

    /// Bytes that the application may write now. The send buffer limits them, and so does the limit of
    /// unsent bytes: shared data then goes to the flows that can send it.
    pub(crate) fn writable_bytes(&self) -> u64 {
        let kept = self.board.bytes() + self.unsent;
        let ahead = self.unsent_limit.saturating_sub(self.unsent);
        self.buffer.saturating_sub(kept).min(ahead)
    }

    /// The application writes `bytes`, at most [`Self::writable_bytes`].
    pub(crate) fn write(&mut self, bytes: u64) {
        self.unsent += bytes;
        self.finished_writing = false;
    }

    /// The application has no more data for now: a last short segment may be sent.
    pub(crate) fn push(&mut self) {
        self.finished_writing = true;
    }

    /// Whether all written data has been acknowledged.
    pub(crate) fn is_fully_acked(&self) -> bool {
        self.unsent == 0 && self.board.outstanding() == 0
    }

    /// Sets the send buffer. If it holds more than a smaller size, no more is written until it drains.
    pub(crate) fn set_send_buffer(&mut self, config: &TcpConfig) {
        self.buffer = config.whole_segments(config.send_buffer) * u64::from(self.mss);
    }

    /// Sets the pacing rate, bytes of payload per second; `None`: no pacing.
    pub(crate) fn set_pace(&mut self, now: Duration, rate: Option<u64>) {
        self.pace.set(now, rate);
    }

    /// Time of the next segment, if only pacing prevents the sender from sending.
    pub(crate) fn next_pacing_time(&self) -> Option<Duration> {
        let paced = self.blocker == SendBlocker::Pace;
        paced.then(|| self.pace.next_send_time())
    }

    /// Processes an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Duration, ack: &Ack) {
        self.right_edge = self.right_edge.max(ack.right_edge);
        if let Some(reno) = self.reno {
            self.reno = Some(self.on_ack_with_reno(now, ack, reno));
            return;
        }
        let delivered = self.board.acknowledge(ack.next, &ack.sacks);
        self.take_rtt_sample(now, &delivered);
        if delivered.acked > 0 {
            self.on_progress(now, &delivered);
        } else if delivered.sacked > 0 {
            self.duplicate_acks += 1;
        }
        let lost = self.board.is_first_lost() || self.duplicate_acks >= DUP_THRESH;
        // One reduction per window of data: further losses before `until` belong to the same event
        // (RFC 6675 section 5).
        if self.phase == RecoveryPhase::Open && lost && self.board.outstanding() > 0 {
            self.enter_recovery(now);
        }
    }

    /// Processes an acknowledgement without its SACK blocks; returns the new state of the recovery.
    fn on_ack_with_reno(
        &mut self,
        now: Duration,
        ack: &Ack,
        mut reno: RenoRecovery,
    ) -> RenoRecovery {
        let repairing = reno.is_repairing(self.board.first());
        let delivered = self.board.acknowledge(ack.next, &[]);
        let (first, end) = (self.board.first(), self.board.next());
        if delivered.acked > 0 {
            reno.on_progress(first);
            self.stats.acked_bytes += delivered.acked_bytes;
            // While a window is repaired, acknowledgements cover segments that arrived long ago.
            if !repairing && delivered.sent.is_some() {
                self.take_rtt_sample(now, &delivered);
                self.rtt.on_progress();
            }
            // The timer runs on when nothing is outstanding: then it ends the window of an idle connection.
            self.deadline = Some(now + self.rtt.timeout());
            // ns-2 counts acknowledgements, and the window grows even if it is not the limit.
            let rtt = self.rtt.smoothed().unwrap_or_default();
            self.window.on_ack(now, rtt, 1, false);
        } else if ack.next == first && first < end && reno.on_duplicate(first, end) {
            self.stats.recoveries += 1;
            self.window.on_loss(self.usable_window());
            self.deadline = Some(now + self.rtt.timeout());
        }
        reno
    }

    /// The receive window, segments.
    fn usable_window(&self) -> u64 {
        self.right_edge.saturating_sub(self.board.first())
    }

    fn take_rtt_sample(&mut self, now: Duration, delivered: &AckResult) {
        let Some((earliest, latest)) = delivered.sent else {
            return;
        };
        // The timeout must also cover a delayed acknowledgement, so it uses the earliest segment (RFC
        // 7323 section 4). The statistics use the latest segment, which shows the path alone.
        self.rtt.sample(now, now - earliest);
        let rtt = now - latest;
        let stats = &mut self.stats;
        stats.rtt_min = if stats.rtt_samples == 0 {
            rtt
        } else {
            stats.rtt_min.min(rtt)
        };
        stats.rtt_samples += 1;
        stats.rtt_total += rtt;
    }

    fn on_progress(&mut self, now: Duration, delivered: &AckResult) {
        self.stats.acked_bytes += delivered.acked_bytes;
        self.duplicate_acks = 0;
        self.rtt.on_progress();
        // RFC 6298 sections 5.2 and 5.3: restart the timer if data is outstanding, else stop it.
        self.deadline = (self.board.outstanding() > 0).then(|| now + self.rtt.timeout());
        let first = self.board.first();
        match self.phase {
            RecoveryPhase::Open => self.open_window(now, delivered.acked, false),
            RecoveryPhase::Recovery { until, .. } if first >= until => {
                self.phase = RecoveryPhase::Open;
            }
            RecoveryPhase::Recovery { .. } => {}
            RecoveryPhase::Loss { until } => {
                self.open_window(now, delivered.acked, true);
                if first >= until {
                    self.phase = RecoveryPhase::Open;
                }
            }
        }
    }

    fn open_window(&mut self, now: Duration, acked: u64, recovering: bool) {
        if self.blocker == SendBlocker::Congestion {
            let rtt = self.rtt.smoothed().unwrap_or_default();
            self.window.on_ack(now, rtt, acked, recovering);
        } else {
            self.window.on_ack_not_cwnd_limited(now);
        }
    }

    fn enter_recovery(&mut self, now: Duration) {
        self.stats.recoveries += 1;
        self.window.on_loss(self.board.outstanding());
        self.phase = RecoveryPhase::Recovery {
            until: self.board.next(),
            urgent: true,
            rescued: false,
        };
        self.deadline = Some(now + self.rtt.timeout());
    }

    /// Time at which [`Self::on_timer`] must be called.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Handles the expiration of the retransmission timer (RFC 6298 section 5, RFC 6675 section 5.1).
    pub(crate) fn on_timer(&mut self, now: Duration) {
        if self.board.outstanding() == 0 {
            self.deadline = None;
            if self.reno.is_some() {
                self.window.restart_after_idle(now, 1);
            }
            return;
        }
        self.stats.timeouts += 1;
        if let Some(reno) = &mut self.reno {
            reno.on_timeout(self.board.first(), self.board.next());
            // ns-2 halves the window of each timeout.
            self.window.on_timeout(self.usable_window(), false);
        } else {
            let again = self.rtt.is_backed_off();
            self.window.on_timeout(self.board.outstanding(), again);
        }
        // RFC 6298 section 5.5. It comes after `again` was read, because it sets what `again` tests.
        self.rtt.back_off();
        self.board.mark_all_lost();
        self.duplicate_acks = 0;
        if self.reno.is_none() {
            self.phase = RecoveryPhase::Loss {
                until: self.board.next(),
            };
        }
        self.deadline = Some(now + self.rtt.timeout());
    }

    /// Returns the next segment to send now. After `None` the caller must call [`Self::account_wait`].
    pub(crate) fn next_segment(&mut self, now: Duration) -> Option<Segment> {
        if !self.pace.allows(now) {
            return None;
        }
        if self.reno.is_some() {
            return self.next_reno_segment(now);
        }
        if let RecoveryPhase::Recovery { urgent, .. } = &mut self.phase
            && std::mem::take(urgent)
            && let Some(first) = self.board.head_to_resend()
        {
            return Some(self.resend(now, first));
        }
        if self.window.cwnd() - (self.board.pipe() as f64) < 1.0 {
            return None;
        }
        // RFC 6675 section 5 (C): lost segments first, then new data, then speculative retransmissions.
        if self.phase != RecoveryPhase::Open
            && let Some(lost) = self.board.next_lost()
        {
            return Some(self.resend(now, lost));
        }
        if self.board.next() < self.right_edge
            && let Some(bytes) = self.next_payload()
        {
            return Some(self.send(now, bytes));
        }
        let speculative = self.next_speculative()?;
        Some(self.resend(now, speculative))
    }

    /// The segment that Reno sends now.
    fn next_reno_segment(&mut self, now: Duration) -> Option<Segment> {
        let number = self.reno?.allowed(self.board.first(), self.window.cwnd())?;
        let segment = if number < self.board.next() {
            self.resend(now, number)
        } else if number < self.right_edge {
            let bytes = self.next_payload()?;
            self.send(now, bytes)
        } else {
            return None;
        };
        if let Some(reno) = &mut self.reno {
            reno.on_sent(number);
        }
        Some(segment)
    }

    /// A segment according to RFC 6675 `NextSeg` rules 3 and 4: no segment is surely lost, and no new one
    /// may be sent.
    fn next_speculative(&mut self) -> Option<u64> {
        let RecoveryPhase::Recovery { rescued, .. } = &mut self.phase else {
            return None;
        };
        if let Some(hole) = self.board.next_hole() {
            return Some(hole);
        }
        if std::mem::replace(rescued, true) {
            return None;
        }
        self.board.last_unsacked()
    }

    fn next_payload(&self) -> Option<u32> {
        if self.unsent >= u64::from(self.mss) {
            return Some(self.mss);
        }
        // Nagle (RFC 1122 section 4.2.3.4) in its simplest form: a short segment only at the end of the
        // data.
        let rest = u32::try_from(self.unsent).ok()?;
        (rest > 0 && self.finished_writing).then_some(rest)
    }

    fn send(&mut self, now: Duration, bytes: u32) -> Segment {
        let idle = self.board.outstanding() == 0;
        // RFC 5681 section 4.1: after an idle time of more than the RTO restart from the initial window.
        // Reno's timer does this after the last acknowledgement instead.
        if idle && self.reno.is_some() {
            self.deadline = None;
        } else if idle && now.saturating_sub(self.last_sent) > self.rtt.timeout() {
            self.window.restart_after_idle(now, self.initial_window);
        }
        self.unsent -= u64::from(bytes);
        let number = self.board.send(now, bytes);
        self.on_sent(now, bytes);
        Segment { number, bytes }
    }

    fn resend(&mut self, now: Duration, number: u64) -> Segment {
        let bytes = self.board.resend(now, number);
        self.stats.retransmits += 1;
        self.on_sent(now, bytes);
        Segment { number, bytes }
    }

    fn on_sent(&mut self, now: Duration, bytes: u32) {
        self.stats.segments += 1;
        self.pace.on_sent(now, bytes);
        self.last_sent = now;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.rtt.timeout());
        }
    }

    /// Records what prevents sending from now on, and accounts the time since the last call. `more`: the
    /// application has data that does not fit into the send buffer.
    pub(crate) fn account_wait(&mut self, now: Duration, more: bool) {
        // The time since the last call belongs to the blocker that was in force until now.
        self.stats.limited_times = self.limited_times_at(now);
        self.accounted_until = now;
        let cwnd = self.window.cwnd();
        let window_full = match self.reno {
            Some(reno) => reno.allowed(self.board.first(), cwnd).is_none(),
            None => cwnd - (self.board.pipe() as f64) < 1.0,
        };
        // The urgent retransmission is still pending only if pacing prevented it.
        let urgent = matches!(self.phase, RecoveryPhase::Recovery { urgent: true, .. });
        self.blocker = if window_full && !urgent {
            SendBlocker::Congestion
        } else if !self.pace.allows(now) && self.has_sendable_data() {
            SendBlocker::Pace
        } else if self.next_payload().is_some() {
            SendBlocker::ReceiveWindow
        } else if more && self.board.outstanding() > 0 {
            SendBlocker::SendBuffer
        } else if self.is_fully_acked() {
            SendBlocker::Application
        } else {
            SendBlocker::LastAcks
        };
    }

    /// Whether there is a segment to send, new or again, apart from pacing.
    fn has_sendable_data(&self) -> bool {
        let end = self.board.next();
        self.phase != RecoveryPhase::Open
            || self.reno.is_some_and(|reno| reno.has_repeats(end))
            || (self.next_payload().is_some() && self.board.next() < self.right_edge)
    }

    fn limited_times_at(&self, now: Duration) -> LimitedTimes {
        let passed = now.saturating_sub(self.accounted_until);
        let mut waits = self.stats.limited_times;
        match self.blocker {
            SendBlocker::Application => return waits,
            SendBlocker::LastAcks | SendBlocker::Congestion | SendBlocker::Pace => {}
            SendBlocker::ReceiveWindow => waits.rwnd_limited += passed,
            SendBlocker::SendBuffer => waits.sndbuf_limited += passed,
        }
        waits.busy += passed;
        waits
    }

    /// Counters and measurements until `now`.
    pub(crate) fn stats(&self, now: Duration) -> SenderStats {
        SenderStats {
            limited_times: self.limited_times_at(now),
            ..self.stats
        }
    }

    /// Payload that is sent and not acknowledged, bytes.
    pub(crate) fn in_flight(&self) -> u64 {
        self.board.bytes()
    }

    /// Congestion window, segments.
    pub(crate) fn cwnd(&self) -> f64 {
        self.window.cwnd()
    }

    /// Slow-start threshold, segments; infinite before the first loss.
    pub(crate) fn ssthresh(&self) -> f64 {
        self.window.ssthresh()
    }
}
