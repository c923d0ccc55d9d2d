//! The interface of a buffer policy to the sizing thread, and the policy that leaves everything to
//! the kernel.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tune::sample::{StreamId, TcpSample};

use crate::control::TransferControl;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// Interval between samples of a policy that decides nothing by them; they measure memory.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// A transfer's live streams at one moment.
pub(super) struct SizingSample<'t> {
    /// Time since the transfer began.
    pub(super) at: Duration,
    pub(super) streams: Vec<SampledStream>,
    pub(super) notices: &'t TuningNotices,
}

/// One stream and its sample.
pub(super) struct SampledStream {
    pub(super) stream: Arc<DataStream>,
    pub(super) sample: TcpSample,
}

impl SizingSample<'_> {
    /// Whether a stream is still live.
    pub(super) fn has(&self, id: StreamId) -> bool {
        self.streams
            .iter()
            .any(|sampled| sampled.sample.stream == id)
    }

    pub(super) fn streams(&self) -> Vec<Arc<DataStream>> {
        self.streams
            .iter()
            .map(|sampled| Arc::clone(&sampled.stream))
            .collect()
    }
}

/// Input other than samples: control channel, peers, live streams.
pub(super) struct SizingInput<'t> {
    /// Time since the transfer began.
    pub(super) at: Duration,
    pub(super) control: &'t TransferControl,
}

impl SizingInput<'_> {
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

/// A buffer policy at one end of one transfer.
pub(super) trait BufferPolicy: Send {
    /// Processes a sample of all live streams, at least one.
    fn on_sample(&mut self, sample: &SizingSample<'_>);

    /// Time from the last sample to the next.
    fn next_due(&self) -> Duration;

    /// Further descriptors to wait for.
    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    /// Processes other input since the last call.
    fn on_input(&mut self, _input: &SizingInput<'_>) {}

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
    fn on_sample(&mut self, _sample: &SizingSample<'_>) {}

    fn next_due(&self) -> Duration {
        SAMPLE_INTERVAL
    }
}
