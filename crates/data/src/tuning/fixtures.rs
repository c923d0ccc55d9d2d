//! Streams and samples for tests of buffer policies.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use proto::sizing::BufferSizing;
use tune::sample::TcpSample;

use crate::security::ConnectionOpener;
use crate::settings::TransferSettings;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;
use crate::tuning_sample::{SampledStream, TuningSample};

/// A stream under a policy, and its other end.
pub(super) fn connected(sizing: BufferSizing) -> (Arc<DataStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let mut settings = TransferSettings::default();
    settings.options.buffers.sizing = sizing;
    let peer = near.peer_addr().unwrap();
    let stream = DataStream::new(near.into(), peer, ConnectionOpener::ThisEnd, &settings).unwrap();
    (Arc::new(stream), far)
}

/// A sample of one stream with these values.
pub(super) fn tuning_sample<'t>(
    at: Duration,
    stream: &Arc<DataStream>,
    tcp_sample: TcpSample,
    notices: &'t TuningNotices,
) -> TuningSample<'t> {
    let tcp_sample = TcpSample {
        stream: stream.id(),
        at,
        ..tcp_sample
    };
    let stream = Arc::clone(stream);
    TuningSample {
        at,
        streams: vec![SampledStream {
            stream,
            sample: tcp_sample,
        }],
        notices,
    }
}
