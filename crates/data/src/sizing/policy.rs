//! A sizing policy as the thread that drives it sees it, and the one that leaves all to the kernel.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tune::sample::{StreamId, TcpSample};

use crate::control::TransferControl;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// Between the looks of a policy that decides nothing by them; they are for what the memory costs.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// A transfer's live streams at one moment.
pub(super) struct SizingSample<'t> {
    /// Since the transfer began.
    pub(super) at: Duration,
    pub(super) streams: Vec<SampledStream>,
    pub(super) board: &'t TuningNotices,
}

/// One of them.
pub(super) struct SampledStream {
    pub(super) stream: Arc<DataStream>,
    pub(super) sample: TcpSample,
}

impl SizingSample<'_> {
    /// Whether a stream is still there.
    pub(super) fn has(&self, id: StreamId) -> bool {
        self.streams.iter().any(|seen| seen.sample.stream == id)
    }

    pub(super) fn streams(&self) -> Vec<Arc<DataStream>> {
        self.streams
            .iter()
            .map(|seen| Arc::clone(&seen.stream))
            .collect()
    }
}

/// News from elsewhere than the streams.
pub(super) struct SizingInput<'t> {
    /// Since the transfer began.
    pub(super) at: Duration,
    pub(super) control: &'t TransferControl,
}

impl SizingInput<'_> {
    pub(super) fn board(&self) -> &TuningNotices {
        self.control.notices()
    }

    pub(super) fn streams(&self) -> Vec<Arc<DataStream>> {
        self.control.live_streams()
    }

    pub(super) fn peers(&self) -> Vec<IpAddr> {
        self.control.peers()
    }
}

/// One end of one transfer under a sizing policy.
pub(super) trait BufferPolicy: Send {
    /// Looks at all live streams, at least one, and does what is to be done.
    fn on_sample(&mut self, scene: &SizingSample<'_>);

    /// When the next look is due, after the last.
    fn next_due(&self) -> Duration;

    /// Further descriptors to wait for.
    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    /// Hears what came since the last call, if anything.
    fn on_input(&mut self, _news: &SizingInput<'_>) {}

    /// The transfer is over: takes back what should not outlive it, and returns what the user should
    /// know.
    fn finish(&mut self) -> Option<String> {
        None
    }
}

/// Policy of the kernel's autotuning, and of buffers that were pinned: it decides nothing. Streams are looked
/// at for what their memory costs, as under every other policy, so that the figures compare.
pub(super) struct KernelBufferPolicy;

impl BufferPolicy for KernelBufferPolicy {
    fn on_sample(&mut self, _scene: &SizingSample<'_>) {}

    fn next_due(&self) -> Duration {
        SAMPLE_INTERVAL
    }
}
