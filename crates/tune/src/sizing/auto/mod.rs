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
    limits: HostBufferLimits,
    end: BufferEnd,
    meter: RateMeter,
    classifier: BottleneckClassifier,
    hysteresis: Hysteresis,
    host_limit_times: HostLimitTimes,
    last: Option<TcpSample>,
}

#[derive(Debug, Clone)]
enum BufferEnd {
    Sender(Box<SendBufferTuner>),
    Receiver(Box<ReceiveBufferTuner>),
}

impl BufferTuner {
    /// Tuner of a stream that has just been opened.
    pub fn new(role: Role, limits: HostBufferLimits) -> Self {
        Self {
            limits,
            end: match role {
                Role::Sender => BufferEnd::Sender(Box::default()),
                Role::Receiver => BufferEnd::Receiver(Box::default()),
            },
            meter: RateMeter::default(),
            classifier: BottleneckClassifier::default(),
            hysteresis: Hysteresis::default(),
            host_limit_times: HostLimitTimes::default(),
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
    pub fn on_sample(&mut self, sample: &TcpSample) -> Option<BufferDecision> {
        let role = self.role();
        let is_stale =
            |last: &TcpSample| sample.at <= last.at || sample.bytes(role) < last.bytes(role);
        if self.last.as_ref().is_some_and(is_stale) {
            return None;
        }
        self.last = Some(*sample);
        let rtt = Rtt::of_sample(sample, role);
        self.meter.on_sample(role, sample, rtt);
        let classified = self.classifier.on_sample(role, sample);
        let classified = classified.map(|classified| self.without_imposed(classified));
        if let Some(classified) = classified {
            let setting = self.host_limit(sample, classified.bottleneck);
            self.host_limit_times
                .add_interval(sample, classified, setting);
        }
        if let Some(action) = self.adjust_buffer(sample, rtt) {
            self.hysteresis.set_reported(sample.at, action.bottleneck);
            return Some(decision(sample, action));
        }
        let ClassifiedInterval { bottleneck, stats } = classified?;
        self.hysteresis
            .confirm_change(sample.at, bottleneck)
            .then(|| {
                decision(
                    sample,
                    BufferAction {
                        setting: None,
                        bottleneck,
                        reason: bottleneck.describe(role, sample, stats.rate()),
                    },
                )
            })
    }

    /// Time from the last sample to the next: a quarter of a round trip, so that a full buffer is noticed
    /// within one; half a round trip where nothing changes.
    pub fn next_sample_in(&self) -> Duration {
        const EAGER: Duration = Duration::from_millis(10);
        const CALM: Duration = Duration::from_millis(100);
        let Some(sample) = &self.last else {
            return EAGER;
        };
        let rtt = Rtt::of_sample(sample, self.role());
        // Without a round trip the first measurements should come soon.
        if rtt.min.is_zero() {
            return EAGER;
        }
        // Buffers do not limit on a local path: rare samples are enough.
        if rtt.is_local() {
            return CALM;
        }
        let quarter = (rtt.min / 4).clamp(EAGER, CALM);
        if self.hysteresis.is_stable(sample.at) {
            (quarter * 2).max(CALM / 2)
        } else {
            quarter
        }
    }

    /// A limit of this host that holds the stream back now. More streams would avoid it.
    pub fn host_bound(&self) -> Option<HostBound> {
        self.host_limit_times.bound
    }

    /// Remark for people on a limit of this host that held the stream back: the setting to raise, its new
    /// value and the gain.
    pub fn remark(&self) -> Option<String> {
        self.host_limit_times.remark(&self.limits)
    }

    /// Ends the tuning of this stream. It returns the setting that lifts a window clamp, which would otherwise
    /// stay for a later transfer over the same connection.
    pub fn release(&mut self) -> Option<BufferSetting> {
        match (&mut self.end, &self.last) {
            (BufferEnd::Receiver(receiver), Some(sample)) => receiver.release(sample),
            _ => None,
        }
    }

    /// Replaces the bottleneck if the window is small because this end has clamped it.
    fn without_imposed(&self, classified: ClassifiedInterval) -> ClassifiedInterval {
        match &self.end {
            BufferEnd::Receiver(receiver) if classified.bottleneck == Bottleneck::ReceiveWindow => {
                ClassifiedInterval {
                    bottleneck: receiver.imposed().unwrap_or(Bottleneck::ReceiveWindow),
                    ..classified
                }
            }
            _ => classified,
        }
    }

    fn role(&self) -> Role {
        match self.end {
            BufferEnd::Sender(_) => Role::Sender,
            BufferEnd::Receiver(_) => Role::Receiver,
        }
    }

    fn adjust_buffer(&mut self, sample: &TcpSample, rtt: Rtt) -> Option<BufferAction> {
        match &mut self.end {
            BufferEnd::Sender(sender) => {
                sender.on_sample(sample, self.meter.best_recent(), &self.limits)
            }
            BufferEnd::Receiver(receiver) => {
                receiver.on_sample(sample, rtt, &self.meter, &self.limits)
            }
        }
    }

    fn host_limit(&self, sample: &TcpSample, bottleneck: Bottleneck) -> Option<HostLimit> {
        if Rtt::of_sample(sample, self.role()).is_local() {
            return None;
        }
        match (&self.end, bottleneck) {
            (BufferEnd::Sender(sender), Bottleneck::SendBuffer) => {
                sender.host_limit(sample, &self.limits)
            }
            (BufferEnd::Receiver(receiver), Bottleneck::ReceiveWindow) => {
                receiver.host_limit(sample, &self.limits)
            }
            _ => None,
        }
    }
}

fn decision(sample: &TcpSample, action: BufferAction) -> BufferDecision {
    BufferDecision {
        stream: sample.stream,
        at: sample.at,
        setting: action.setting,
        limiter: action.bottleneck.limiter(),
        reason: action.reason,
        measured: None,
    }
}
