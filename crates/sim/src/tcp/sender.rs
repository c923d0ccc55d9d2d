//! The sending end: what may be sent now, and what an acknowledgement or a silence means.

use std::time::Duration;

use super::pacing::SegmentPacer;
use super::rtt::RtoEstimator;
use super::scoreboard::{AckResult, DUP_THRESH, Scoreboard};
use super::window::CongestionWindow;
use super::{Ack, TcpConfig};

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its number, from 0.
    pub(crate) number: u64,
    /// Its payload.
    pub(crate) bytes: u32,
}

/// Time that a sender spent waiting, as Linux keeps it in `tcp_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitedTimes {
    /// Data was outstanding or could have been sent.
    pub busy: Duration,
    /// Of that, the receiver's window did not allow more.
    pub rwnd_limited: Duration,
    /// Of that, all that the send buffer held was in flight, and the application had more.
    pub sndbuf_limited: Duration,
}

/// Counts and sights of a sender so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderStats {
    /// Segments sent, again or not.
    pub segments: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Times the retransmission timer expired.
    pub timeouts: u64,
    /// Times loss recovery began without a timeout.
    pub recoveries: u64,
    /// Payload acknowledged, bytes.
    pub acked_bytes: u64,
    /// Round trips measured.
    pub rtt_samples: u64,
    /// Their sum.
    pub rtt_total: Duration,
    /// The smallest; zero before the first.
    pub rtt_min: Duration,
    /// Where the time went.
    pub limited_times: LimitedTimes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryPhase {
    /// Nothing is known to be lost.
    Open,
    /// RFC 6675's recovery, until segments before `until` are acknowledged.
    Recovery {
        until: u64,
        /// The first retransmission is due, whatever the window says.
        urgent: bool,
        /// The one rescue retransmission (`NextSeg` rule 4) was made.
        rescued: bool,
    },
    /// After a timeout, until segments before `until` are acknowledged.
    Loss { until: u64 },
}

/// Event that a sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendBlocker {
    /// For the application, with nothing in flight.
    Application,
    /// For acknowledgements of the last that the application gave.
    LastAcks,
    Congestion,
    /// For its turn, since it is paced.
    Pace,
    ReceiveWindow,
    SendBuffer,
}

/// One connection's sender.
#[derive(Debug)]
pub(crate) struct TcpSender {
    mss: u32,
    initial_window: u32,
    window: CongestionWindow,
    board: Scoreboard,
    rtt: RtoEstimator,
    phase: RecoveryPhase,
    duplicate_acks: u64,
    right_edge: u64,
    buffer: u64,
    /// In the buffer and not yet sent, bytes.
    unsent: u64,
    unsent_limit: u64,
    /// Unsent bytes may go out though they fill no segment.
    pushed: bool,
    deadline: Option<Duration>,
    last_sent: Duration,
    pace: SegmentPacer,
    waiting: SendBlocker,
    /// Since when `waiting` is accounted for.
    waiting_since: Duration,
    stats: SenderStats,
}

impl TcpSender {
    pub(crate) fn new(config: &TcpConfig) -> Self {
        Self {
            mss: config.mss.max(1),
            initial_window: config.initial_window,
            window: CongestionWindow::new(config),
            board: Scoreboard::default(),
            rtt: RtoEstimator::new(config.min_rto),
            phase: RecoveryPhase::Open,
            duplicate_acks: 0,
            right_edge: config.whole_segments(config.receive_buffer),
            buffer: config.whole_segments(config.send_buffer) * u64::from(config.mss.max(1)),
            unsent: 0,
            unsent_limit: config.not_sent_lowat.max(u64::from(config.mss)),
            pushed: false,
            deadline: None,
            last_sent: Duration::ZERO,
            pace: SegmentPacer::default(),
            waiting: SendBlocker::Application,
            waiting_since: Duration::ZERO,
            stats: SenderStats::default(),
        }
    }

    /// Bytes that the application may write now: as many as there is room for in the send buffer, and
    /// not too much ahead of TCP, so that what flows share goes to those that can send it.
    pub(crate) fn writable_bytes(&self) -> u64 {
        let kept = self.board.bytes() + self.unsent;
        let ahead = self.unsent_limit.saturating_sub(self.unsent);
        self.buffer.saturating_sub(kept).min(ahead)
    }

    /// The application writes; at most [`Self::writable_bytes`].
    pub(crate) fn write(&mut self, bytes: u64) {
        self.unsent += bytes;
        self.pushed = false;
    }

    /// The application has nothing more for now: a last, short segment may go.
    pub(crate) fn push(&mut self) {
        self.pushed = true;
    }

    /// Everything that was written has been acknowledged.
    pub(crate) fn is_fully_acked(&self) -> bool {
        self.unsent == 0 && self.board.outstanding() == 0
    }

    /// Sets the send buffer; one that is smaller than what it holds fills no further.
    pub(crate) fn set_send_buffer(&mut self, config: &TcpConfig) {
        self.buffer = config.whole_segments(config.send_buffer) * u64::from(self.mss);
    }

    /// Sends no more than `rate` from now on, bytes of payload per second; `None`: as the windows
    /// allow.
    pub(crate) fn set_pace(&mut self, now: Duration, rate: Option<u64>) {
        self.pace.set(now, rate);
    }

    /// When the pace allows the next segment, if it is what holds one back.
    pub(crate) fn next_pacing_time(&self) -> Option<Duration> {
        let paced = self.waiting == SendBlocker::Pace;
        paced.then(|| self.pace.next_send_time())
    }

    /// Takes an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Duration, ack: &Ack) {
        self.right_edge = self.right_edge.max(ack.right_edge);
        let delivered = self.board.acknowledge(ack.next, &ack.sacks);
        self.take_rtt_sample(now, &delivered);
        if delivered.acked > 0 {
            self.on_progress(now, &delivered);
        } else if delivered.sacked > 0 {
            self.duplicate_acks += 1;
        }
        let lost = self.board.is_first_lost() || self.duplicate_acks >= DUP_THRESH;
        if self.phase == RecoveryPhase::Open && lost && self.board.outstanding() > 0 {
            self.enter_recovery(now);
        }
    }

    fn take_rtt_sample(&mut self, now: Duration, delivered: &AckResult) {
        let Some((earliest, latest)) = delivered.sent else {
            return;
        };
        // The timeout must cover an acknowledgement that waited (RFC 7323 section 4); what users
        // are told is the path.
        self.rtt.sample(now - earliest);
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
        if self.waiting == SendBlocker::Congestion {
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

    /// When [`Self::on_timer`] is to be called.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The retransmission timer expired (RFC 6298 section 5, RFC 6675 section 5.1).
    pub(crate) fn on_timer(&mut self, now: Duration) {
        if self.board.outstanding() == 0 {
            self.deadline = None;
            return;
        }
        self.stats.timeouts += 1;
        let again = self.rtt.is_backed_off();
        self.window.on_timeout(self.board.outstanding(), again);
        self.rtt.back_off();
        self.board.mark_all_lost();
        self.duplicate_acks = 0;
        self.phase = RecoveryPhase::Loss {
            until: self.board.next(),
        };
        self.deadline = Some(now + self.rtt.timeout());
    }

    /// The next segment to send now; `None`: wait, and tell [`Self::account_wait`].
    pub(crate) fn next_segment(&mut self, now: Duration) -> Option<Segment> {
        if !self.pace.allows(now) {
            return None;
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
        let spare = self.next_speculative()?;
        Some(self.resend(now, spare))
    }

    /// RFC 6675 `NextSeg` rules 3 and 4: nothing is surely lost and nothing new may go.
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
        let rest = u32::try_from(self.unsent).ok()?;
        (rest > 0 && self.pushed).then_some(rest)
    }

    fn send(&mut self, now: Duration, bytes: u32) -> Segment {
        let idle = self.board.outstanding() == 0;
        if idle && now.saturating_sub(self.last_sent) > self.rtt.timeout() {
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

    /// Nothing more can be sent now; `more`: the application has bytes that the buffer has no room
    /// for. Accounts for the time until the next call.
    pub(crate) fn account_wait(&mut self, now: Duration, more: bool) {
        self.stats.limited_times = self.limited_times_at(now);
        self.waiting_since = now;
        let window_full = self.window.cwnd() - (self.board.pipe() as f64) < 1.0;
        // `poll` leaves it only when the pace does not allow it.
        let urgent = matches!(self.phase, RecoveryPhase::Recovery { urgent: true, .. });
        self.waiting = if window_full && !urgent {
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

    /// There is something to send, new or again, but for the pace.
    fn has_sendable_data(&self) -> bool {
        self.phase != RecoveryPhase::Open
            || (self.next_payload().is_some() && self.board.next() < self.right_edge)
    }

    fn limited_times_at(&self, now: Duration) -> LimitedTimes {
        let passed = now.saturating_sub(self.waiting_since);
        let mut waits = self.stats.limited_times;
        match self.waiting {
            SendBlocker::Application => return waits,
            SendBlocker::LastAcks | SendBlocker::Congestion | SendBlocker::Pace => {}
            SendBlocker::ReceiveWindow => waits.rwnd_limited += passed,
            SendBlocker::SendBuffer => waits.sndbuf_limited += passed,
        }
        waits.busy += passed;
        waits
    }

    /// Counts and sights until `now`.
    pub(crate) fn stats(&self, now: Duration) -> SenderStats {
        SenderStats {
            limited_times: self.limited_times_at(now),
            ..self.stats
        }
    }

    /// The congestion window, segments.
    pub(crate) fn cwnd(&self) -> f64 {
        self.window.cwnd()
    }

    /// The slow-start threshold, segments; infinite before the first loss.
    pub(crate) fn ssthresh(&self) -> f64 {
        self.window.ssthresh()
    }
}
