//! The default policy: the kernel's autotuning, overruled only where a larger buffer raises goodput.
//!
//! The policy is never worse than the kernel. It sets a buffer only if autotuning has reached its limit, the
//! buffer (not the path, the peer or a program) is the bottleneck, and a larger one is possible. It never
//! makes a buffer smaller. A receive buffer that was raised without effect goes back to autotuning. Only the
//! window is made smaller, in two cases in which that costs no goodput (`reader_backlog`,
//! `slow_path_clamp`).

mod action;
mod host_limit;
mod imposed_window;
mod reader_backlog;
mod receiver;
mod sender;
mod slow_path_clamp;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::action::BufferAction;
pub use self::host_limit::HostBound;
use self::host_limit::{HostLimit, HostLimitTimes};
use self::receiver::ReceiveBufferTuner;
use self::sender::SendBufferTuner;
use super::host_limits::HostBufferLimits;
use super::{BufferDecision, BufferSetting};
use crate::limiter::Role;
use crate::observation::{
    Bottleneck, BottleneckClassifier, ClassifiedInterval, Hysteresis, RateMeter, Rtt,
};
use crate::sample::TcpSample;

/// One end of one stream.
#[derive(Debug, Clone)]
pub struct BufferTuner {
    caps: HostBufferLimits,
    end: BufferEnd,
    meter: RateMeter,
    tally: BottleneckClassifier,
    standing: Hysteresis,
    account: HostLimitTimes,
    last: Option<TcpSample>,
}

#[derive(Debug, Clone)]
enum BufferEnd {
    Sender(SendBufferTuner),
    Receiver(ReceiveBufferTuner),
}

impl BufferTuner {
    /// Tuner of a stream that has just been opened.
    pub fn new(role: Role, caps: HostBufferLimits) -> Self {
        Self {
            caps,
            end: match role {
                Role::Sender => BufferEnd::Sender(SendBufferTuner::default()),
                Role::Receiver => BufferEnd::Receiver(ReceiveBufferTuner::default()),
            },
            meter: RateMeter::default(),
            tally: BottleneckClassifier::default(),
            standing: Hysteresis::default(),
            account: HostLimitTimes::default(),
            last: None,
        }
    }

    /// Sets the known size of the send buffer, bytes as reported. The first sample applies it if autotuning
    /// gives less. A receiver ignores it, since its buffer grows by itself.
    pub fn with_known_buffer(mut self, buffer: Option<u64>) -> Self {
        if let BufferEnd::Sender(sender) = &mut self.end {
            sender.set_known_buffer(buffer);
        }
        self
    }

    /// Takes a sample. It returns a decision when a setting is to change or when the limiter changes. A sample
    /// that is not newer than the last one is ignored.
    pub fn on_sample(&mut self, look: &TcpSample) -> Option<BufferDecision> {
        let role = self.role();
        let stale = |last: &TcpSample| look.at <= last.at || look.bytes(role) < last.bytes(role);
        if self.last.as_ref().is_some_and(stale) {
            return None;
        }
        self.last = Some(*look);
        let trip = Rtt::of_sample(look, role);
        self.meter.on_sample(role, look, trip);
        let verdict = self.tally.on_sample(role, look);
        let verdict = verdict.map(|verdict| self.without_imposed(verdict));
        if let Some(verdict) = verdict {
            let setting = self.host_limit(look, verdict.bottleneck);
            self.account.add_interval(look, verdict, setting);
        }
        if let Some(action) = self.adjust_buffer(look, trip) {
            self.standing.set_reported(look.at, action.class);
            return Some(decision(look, action));
        }
        let ClassifiedInterval {
            bottleneck: class,
            stats,
        } = verdict?;
        self.standing.is_change(look.at, class).then(|| {
            decision(
                look,
                BufferAction {
                    change: None,
                    class,
                    reason: class.describe(role, look, stats.rate()),
                },
            )
        })
    }

    /// Time from the last sample to the next: a quarter of a round trip, so that a full buffer is noticed
    /// within one; half a round trip where nothing changes.
    pub fn next_sample_in(&self) -> Duration {
        const EAGER: Duration = Duration::from_millis(10);
        const CALM: Duration = Duration::from_millis(100);
        let Some(look) = &self.last else {
            return EAGER;
        };
        let trip = Rtt::of_sample(look, self.role());
        if trip.min.is_zero() {
            return EAGER;
        }
        if trip.is_local() {
            return CALM;
        }
        let quarter = (trip.min / 4).clamp(EAGER, CALM);
        if self.standing.is_stable(look.at) {
            (quarter * 2).max(CALM / 2)
        } else {
            quarter
        }
    }

    /// A limit of this host that holds the stream back now. More streams would avoid it.
    pub fn host_bound(&self) -> Option<HostBound> {
        self.account.bound
    }

    /// Remark for people on a limit of this host that held the stream back: the setting to raise, its new
    /// value and the gain.
    pub fn remark(&self) -> Option<String> {
        self.account.remark(&self.caps)
    }

    /// Ends the tuning of this stream. It returns the setting that lifts a window clamp, which would otherwise
    /// stay for a later transfer over the same connection.
    pub fn release(&mut self) -> Option<BufferSetting> {
        match (&mut self.end, &self.last) {
            (BufferEnd::Receiver(receiver), Some(look)) => receiver.release(look),
            _ => None,
        }
    }

    /// Replaces the bottleneck if the window is small because this end has clamped it.
    fn without_imposed(&self, verdict: ClassifiedInterval) -> ClassifiedInterval {
        match &self.end {
            BufferEnd::Receiver(receiver) if verdict.bottleneck == Bottleneck::ReceiveWindow => {
                ClassifiedInterval {
                    bottleneck: receiver.imposed().unwrap_or(Bottleneck::ReceiveWindow),
                    ..verdict
                }
            }
            _ => verdict,
        }
    }

    fn role(&self) -> Role {
        match self.end {
            BufferEnd::Sender(_) => Role::Sender,
            BufferEnd::Receiver(_) => Role::Receiver,
        }
    }

    fn adjust_buffer(&mut self, look: &TcpSample, trip: Rtt) -> Option<BufferAction> {
        match &mut self.end {
            BufferEnd::Sender(sender) => {
                sender.on_sample(look, self.meter.best_recent(), &self.caps)
            }
            BufferEnd::Receiver(receiver) => {
                receiver.on_sample(look, trip, &self.meter, &self.caps)
            }
        }
    }

    fn host_limit(&self, look: &TcpSample, class: Bottleneck) -> Option<HostLimit> {
        if Rtt::of_sample(look, self.role()).is_local() {
            return None;
        }
        match (&self.end, class) {
            (BufferEnd::Sender(sender), Bottleneck::SendBuffer) => {
                sender.host_limit(look, &self.caps)
            }
            (BufferEnd::Receiver(receiver), Bottleneck::ReceiveWindow) => {
                receiver.host_limit(look, &self.caps)
            }
            _ => None,
        }
    }
}

fn decision(look: &TcpSample, action: BufferAction) -> BufferDecision {
    BufferDecision {
        stream: look.stream,
        at: look.at,
        setting: action.change,
        limiter: action.class.limiter(),
        reason: action.reason,
    }
}
