//! Streams and scenes to drive a policy with.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use proto::sizing::BufferSizing;
use tune::sample::TcpSample;

use super::policy::{SampledStream, SizingSample};
use crate::settings::TransferSettings;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// A stream under a policy, and its other end.
pub(super) fn connected(sizing: BufferSizing) -> (Arc<DataStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let mut settings = TransferSettings::default();
    settings.options.buffers.sizing = sizing;
    let peer = near.peer_addr().unwrap();
    let stream = DataStream::new(near.into(), peer, &settings).unwrap();
    (Arc::new(stream), far)
}

/// A moment at which a stream looks like this.
pub(super) fn scene<'t>(
    at: Duration,
    stream: &Arc<DataStream>,
    look: TcpSample,
    board: &'t TuningNotices,
) -> SizingSample<'t> {
    let look = TcpSample {
        stream: stream.id(),
        at,
        ..look
    };
    let stream = Arc::clone(stream);
    SizingSample {
        at,
        streams: vec![SampledStream {
            stream,
            sample: look,
        }],
        board,
    }
}
