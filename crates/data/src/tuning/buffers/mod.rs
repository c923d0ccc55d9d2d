//! Socket buffers: a [`BufferPolicy`] sizes those of one end of a transfer. Each policy has its own file.

pub(super) mod auto;
pub(super) mod drs;
pub(super) mod drs1;
mod followed_size;
mod socket_options;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::control::TransferControl;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;
use crate::tuning_sample::TuningSample;

/// Interval between samples of a policy that decides nothing by them; they measure memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// A buffer policy at one end of one transfer.
pub(super) trait BufferPolicy: Send {
    /// Processes a sample of all live streams, at least one.
    fn on_sample(&mut self, sample: &TuningSample<'_>);

    /// Time from the last sample to the next.
    fn next_due(&self) -> Duration;

    /// Whether input has arrived that a sample should follow at once.
    fn needs_sample(&self) -> bool {
        false
    }

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
