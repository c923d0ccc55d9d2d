//! The default: the kernel's autotuning, watched, and overruled only where that wins.
//!
//! Never worse than the kernel means: a buffer is taken over only where autotuning is at its end, the
//! buffer (and not the path, the peer or a program) is what limits, and more can be had; it is
//! never made smaller; a receive buffer that was raised without effect goes back to the kernel.
//! What is made smaller is the window, in two cases in which that cannot cost any speed.

mod host_limit;
mod imposed_window;
mod reader_backlog;
mod receiver;
mod sender;
mod slow_path_clamp;
#[cfg(test)]
mod tests;

use std::time::Duration;

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

/// Action that an end wants.
#[derive(Debug)]
struct BufferAction {
    change: Option<BufferSetting>,
    class: Bottleneck,
    reason: String,
}

impl BufferTuner {
    /// A stream that has just been opened.
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

    /// The stream's send buffer is known to be right at this size, bytes as reported: it is set at the
    /// first look if that is more than autotuning gives. A receiver's buffer is left to grow.
    pub fn with_known_buffer(mut self, buffer: Option<u64>) -> Self {
        if let BufferEnd::Sender(sender) = &mut self.end {
            sender.set_known_buffer(buffer);
        }
        self
    }

    /// Takes a look. A decision comes when something is to be done, and when the limiter changes.
    /// Looks that are older than the last are ignored.
    pub fn on_sample(&mut self, look: &TcpSample) -> Option<BufferDecision> {
        let stale = |last: &TcpSample| look.at <= last.at || look.bytes < last.bytes;
        if self.last.as_ref().is_some_and(stale) {
            return None;
        }
        self.last = Some(*look);
        let trip = Rtt::of_sample(look);
        self.meter.on_sample(look, trip);
        let verdict = self.tally.on_sample(self.role(), look);
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
            rate,
            ..
        } = verdict?;
        self.standing.is_change(look.at, class).then(|| {
            decision(
                look,
                BufferAction {
                    change: None,
                    class,
                    reason: class.describe(self.role(), look, rate),
                },
            )
        })
    }

    /// When the next look is due, after the last: four times a round trip, so that a buffer that
    /// fills is seen within one, and more seldom where nothing changes.
    pub fn next_sample_in(&self) -> Duration {
        const EAGER: Duration = Duration::from_millis(10);
        const CALM: Duration = Duration::from_millis(100);
        let Some(look) = &self.last else {
            return EAGER;
        };
        let trip = Rtt::of_sample(look);
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

    /// A limit of this host that holds the stream back now, and that more streams would get
    /// around.
    pub fn host_bound(&self) -> Option<HostBound> {
        self.account.bound
    }

    /// A limit of this host that held the stream back: which setting to raise, to what, for what gain,
    /// in plain words.
    pub fn remark(&self) -> Option<String> {
        self.account.remark(&self.caps)
    }

    /// Nobody will look at this stream again: what undoes a window that is kept small, and would
    /// stay so for a later transfer over the same connection.
    pub fn release(&mut self) -> Option<BufferSetting> {
        match (&mut self.end, &self.last) {
            (BufferEnd::Receiver(receiver), Some(look)) => receiver.release(look),
            _ => None,
        }
    }

    /// A window that this end itself keeps small is not what limits.
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
        if Rtt::of_sample(look).is_local() {
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
