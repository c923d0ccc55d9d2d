//! Socket buffers: [`policy`] is the buffer policy of one end of a transfer. Each policy has its own file.

mod auto;
mod drs;
mod drs1;
mod followed_size;
mod socket_options;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::sizing::BufferSizing;
use rustix::event::PollFlags;
use tune::limiter::Role;

use super::sample::TuningSample;
use crate::control::TransferControl;
use crate::settings::TransferSettings;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// Interval between samples of a policy that decides nothing by them; they measure memory.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The policy for this end's buffers.
pub(super) fn policy(settings: &TransferSettings, role: Role) -> Box<dyn BufferPolicy> {
    let pinned = match role {
        Role::Sender => settings.options.buffers.send.is_some(),
        Role::Receiver => settings.options.buffers.receive.is_some(),
    };
    let endpoint = settings.drs.as_ref();
    let security = settings.security.as_ref();
    // A pinned end still serves the other one: it announces sizes, and echoes.
    match (settings.options.buffers.sizing, role) {
        (BufferSizing::Kernel, _) => Box::new(KernelBufferPolicy),
        (BufferSizing::Auto, _) if pinned => Box::new(KernelBufferPolicy),
        (BufferSizing::Auto, role) => Box::new(
            auto::AutoBufferPolicy::new(role).with_known_buffer(settings.prior.send_buffer),
        ),
        (BufferSizing::Drs1, Role::Receiver) => Box::new(drs1::Drs1Receiver::new(pinned)),
        (BufferSizing::Drs1, Role::Sender) => Box::new(drs1::Drs1Sender::new(pinned)),
        (BufferSizing::Drs, Role::Receiver) => {
            let interval = settings.options.drs_interval;
            Box::new(drs::DrsReceiver::new(endpoint, pinned, interval, security))
        }
        (BufferSizing::Drs, Role::Sender) => {
            Box::new(drs::DrsSender::new(endpoint, pinned, security))
        }
    }
}

/// A buffer policy at one end of one transfer.
pub(super) trait BufferPolicy: Send {
    /// Processes a sample of all live streams, at least one.
    fn on_sample(&mut self, sample: &TuningSample<'_>);

    /// Time from the last sample to the next.
    fn next_due(&self) -> Duration;

    /// Further descriptors to wait for.
    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    /// Processes other input since the last call.
    fn on_input(&mut self, _input: &BufferInput<'_>) {}

    /// Ends the policy: reverts settings that must not outlive the transfer, and returns a remark
    /// for the user.
    fn finish(&mut self) -> Option<String> {
        None
    }
}

/// The policy for the kernel's autotuning and for pinned buffers: it decides nothing. Streams are
/// sampled to measure their memory, as under every other policy, so that the figures are
/// comparable.
pub(super) struct KernelBufferPolicy;

impl BufferPolicy for KernelBufferPolicy {
    fn on_sample(&mut self, _sample: &TuningSample<'_>) {}

    fn next_due(&self) -> Duration {
        SAMPLE_INTERVAL
    }
}

/// Input other than samples: control channel, peers, live streams.
pub(super) struct BufferInput<'t> {
    /// Time since the transfer began.
    pub(super) at: Duration,
    pub(super) control: &'t TransferControl,
}

impl BufferInput<'_> {
    pub(super) fn notices(&self) -> &TuningNotices {
        self.control.notices()
    }

    pub(super) fn streams(&self) -> Vec<Arc<DataStream>> {
        self.control.live_streams()
    }

    pub(super) fn peers(&self) -> Vec<IpAddr> {
        self.control.peers()
    }
}
