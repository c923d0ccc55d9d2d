//! A sample of all streams of a transfer, as the tuning thread hands it to the tuners.

use std::sync::Arc;
use std::time::Duration;

use tune::sample::{StreamId, TcpSample};

use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// A transfer's live streams at one moment.
pub(crate) struct TuningSample<'t> {
    /// Time since the transfer began.
    pub(crate) at: Duration,
    pub(crate) streams: Vec<SampledStream>,
    pub(crate) notices: &'t TuningNotices,
}

/// One stream and its sample.
pub(crate) struct SampledStream {
    pub(crate) stream: Arc<DataStream>,
    pub(crate) sample: TcpSample,
}

impl TuningSample<'_> {
    /// Whether a stream is still live.
    pub(crate) fn has(&self, id: StreamId) -> bool {
        self.streams
            .iter()
            .any(|sampled| sampled.sample.stream == id)
    }

    pub(crate) fn streams(&self) -> Vec<Arc<DataStream>> {
        self.streams
            .iter()
            .map(|sampled| Arc::clone(&sampled.stream))
            .collect()
    }
}
