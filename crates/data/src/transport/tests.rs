//! Connections with a layer that leaves the bytes unchanged, but has a handshake, and that the
//! kernel must not bypass.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::command::TransferMode;
use proto::eblock::BlockHeader;
use proto::ranges::RangeSet;

use super::HandshakeGate;
use crate::channel::SessionDataChannel;
use crate::job::{TransferControl, TransferSettings};
use crate::options::IoMethod;
use crate::recv::{self, ReceivePlan};
use crate::send::{self, SendPlan};
use crate::store::file::{FileSink, FileSource};
use crate::store::memory::MemorySink;
use crate::store::{Sink, Source};

const WHOLE: ReceivePlan = ReceivePlan {
    origin: 0,
    stream_start: 0,
    limit: None,
};

fn layered(mode: TransferMode, gate: &Arc<HandshakeGate>) -> TransferSettings {
    let mut settings = TransferSettings {
        mode,
        connect_timeout: Duration::from_secs(60),
        gate: Some(Arc::clone(gate)),
        ..TransferSettings::default()
    };
    settings.options.stall = Duration::from_secs(60);
    settings
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Connects and sends `text` as a block, and the end marks `last`.
fn sender(to: SocketAddr, offset: u64, text: &[u8], last: &[BlockHeader]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    let mut bytes = BlockHeader::data(offset, text.len() as u64)
        .encode()
        .to_vec();
    bytes.extend(text);
    bytes.extend(last.iter().flat_map(|header| header.encode()));
    stream.write_all(&bytes).unwrap();
    stream
}

#[test]
fn a_slow_handshake_does_not_delay_other_connections() {
    let (mut channel, at) = SessionDataChannel::listen_on_loopback();
    let gate = Arc::new(HandshakeGate::default());
    let settings = layered(TransferMode::Extended, &gate);
    let control = Arc::new(TransferControl::new());
    let sink = Arc::new(MemorySink::new(100, "a sink"));
    let as_sink: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
    std::thread::scope(|scope| {
        let receiver =
            scope.spawn(|| recv::run(&mut channel, &as_sink, &WHOLE, &settings, &control));
        let eod = BlockHeader::eod(true);
        let _slow = sender(at, 0, b"slow", &[eod]);
        wait_until(|| gate.started_count() == 1);
        let _other = sender(at, 4, b", quick", &[BlockHeader::eof(2, false), eod]);
        // All of its bytes are stored, and none of the first connection's.
        wait_until(|| control.bytes() == 7);
        assert_eq!(gate.started_count(), 2);
        gate.open();
        assert_eq!(receiver.join().unwrap().unwrap().evidence.bytes, 11);
    });
    assert_eq!(sink.bytes(), b"slow, quick");
}

#[test]
fn the_kernel_never_bypasses_a_layer() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let from = dir.path().join("from");
    std::fs::write(&from, &bytes).unwrap();
    let methods = [
        IoMethod::Auto,
        IoMethod::Sendfile,
        IoMethod::Splice,
        IoMethod::Zerocopy,
        IoMethod::Copy,
    ];
    for (mode, io) in [TransferMode::Stream, TransferMode::Extended]
        .into_iter()
        .flat_map(|mode| methods.map(|io| (mode, io)))
    {
        let (mut channel, at) = SessionDataChannel::listen_on_loopback();
        let gate = Arc::new(HandshakeGate::default());
        gate.open();
        let mut settings = layered(mode, &gate);
        settings.options.io = io;
        settings.streams = 2;
        let to = dir.path().join("to");
        let file = std::fs::File::create(&to).unwrap();
        let sink: Arc<dyn Sink> = Arc::new(FileSink::new(file, "to").unwrap());
        let source = std::fs::File::open(&from).unwrap();
        let source: Arc<dyn Source> = Arc::new(FileSource::new(source, "from").unwrap());
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                recv::run(
                    &mut channel,
                    &sink,
                    &WHOLE,
                    &settings,
                    &Arc::new(TransferControl::new()),
                )
            });
            let mut out = SessionDataChannel::connect_to(vec![at], None);
            let mut ranges = RangeSet::new();
            ranges.insert(0, bytes.len() as u64);
            let plan = SendPlan::new(ranges, 0);
            let sent = send::run(
                &mut out,
                &source,
                &plan,
                &settings,
                &Arc::new(TransferControl::new()),
            );
            assert_eq!(
                sent.unwrap().evidence.bytes,
                bytes.len() as u64,
                "{mode:?} {io:?}"
            );
            receiver.join().unwrap().unwrap();
        });
        assert!(std::fs::read(&to).unwrap() == bytes, "{mode:?} {io:?}");
        assert!(gate.started_count() >= 2, "{mode:?} {io:?}");
    }
}
