//! Streams and scenes to drive a policy with.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use proto::sizing::Sizing;
use tune::look::Look;

use super::policy::{Scene, Seen};
use crate::board::Board;
use crate::settings::Settings;
use crate::stream::Stream;

/// A stream under a policy, and its other end.
pub(super) fn connected(sizing: Sizing) -> (Arc<Stream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let mut settings = Settings::default();
    settings.options.buffers.sizing = sizing;
    let peer = near.peer_addr().unwrap();
    let stream = Stream::new(near.into(), peer, &settings).unwrap();
    (Arc::new(stream), far)
}

/// A moment at which a stream looks like this.
pub(super) fn scene<'t>(
    at: Duration,
    stream: &Arc<Stream>,
    look: Look,
    board: &'t Board,
) -> Scene<'t> {
    let look = Look {
        stream: stream.id(),
        at,
        ..look
    };
    let stream = Arc::clone(stream);
    Scene {
        at,
        seen: vec![Seen { stream, look }],
        board,
    }
}
