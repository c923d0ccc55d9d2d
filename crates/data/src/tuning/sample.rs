//! A sample of all streams of a transfer, as the tuning thread hands it to the tuners.

use std::sync::Arc;
use std::time::Duration;

use tune::sample::{StreamId, TcpSample};

use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// A transfer's live streams at one moment.
pub(super) struct TuningSample<'t> {
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

impl TuningSample<'_> {
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
