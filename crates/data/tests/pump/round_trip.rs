//! Round trips: everything that is sent arrives, for every mode, method, size and number of
//! streams.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use data::channel::SessionDataChannel;
use data::options::IoMethod;
use data::store::file::{FileSink, FileSource};
use data::store::memory::MemorySource;
use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;

use crate::transfer_ends::{
    ANY, LoopbackTransfer, listen, memory, pair, pattern, sink, whole_plan,
};
use data::channel::AllowedPeers;

const METHODS: [IoMethod; 5] = [
    IoMethod::Auto,
    IoMethod::Copy,
    IoMethod::Sendfile,
    IoMethod::Splice,
    IoMethod::Zerocopy,
];

fn file_source(bytes: &[u8]) -> Arc<FileSource> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(FileSource::new(file, "file").unwrap())
}

fn file_sink() -> Arc<FileSink> {
    Arc::new(FileSink::new(tempfile::tempfile().unwrap(), "file").unwrap())
}

fn contents(sink: &FileSink) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let len = sink.file().metadata().unwrap().len();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    sink.file().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Copies file to file with every method, size and number of streams.
fn check_files(mode: TransferMode, streams: &[usize]) {
    for len in [0, 1, 65_535, 65_536, 3_000_001] {
        let bytes = pattern(len);
        for io in METHODS {
            for streams in streams {
                let target = file_sink();
                let mut transfer = LoopbackTransfer::new(&bytes, target.clone(), mode);
                transfer.source = file_source(&bytes);
                for settings in [&mut transfer.sender, &mut transfer.receiver] {
                    settings.options.io = io;
                    settings.streams = *streams;
                }
                let (sent, received) = transfer.succeed();
                let case = format!("{mode:?} {io:?} {streams} streams {len} bytes");
                assert!(contents(&target) == bytes, "{case}");
                assert_eq!(sent.evidence.bytes, len as u64, "{case}");
                assert_eq!(received.evidence.bytes, len as u64, "{case}");
                assert_eq!(received.stored, whole_plan(len as u64).ranges, "{case}");
            }
        }
    }
}

#[test]
fn files_arrive_complete_in_mode_s() {
    check_files(TransferMode::Stream, &[1]);
}

#[test]
fn files_arrive_complete_in_mode_e() {
    check_files(TransferMode::Extended, &[1, 2, 8]);
}

#[test]
fn the_report_contains_kernel_statistics() {
    let (_, target) = sink();
    let mut transfer = LoopbackTransfer::new(&pattern(2_000_000), target, TransferMode::Extended);
    transfer.sender.streams = 3;
    let (sent, received) = transfer.succeed();
    assert_eq!((sent.evidence.streams, received.evidence.streams), (3, 3));
    for report in [sent, received] {
        assert!(
            report.evidence.buffer_bytes > 0 && report.evidence.min_rtt > std::time::Duration::ZERO
        );
        assert!(!report.evidence.elapsed.is_zero());
    }
}

#[test]
fn a_passive_sender_serves_an_active_receiver() {
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let bytes = pattern(200_000);
        let (stored, target) = sink();
        let (mut sender, address) = listen(AllowedPeers::Any);
        let mut receiver = SessionDataChannel::connect_to(vec![address], None);
        let transfer = LoopbackTransfer::new(&bytes, target, mode);
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        assert_eq!(stored.bytes(), bytes);
    }
}

#[test]
fn ranges_at_an_origin_keep_their_offsets() {
    // ERET P: the part 1000..301000 of the file, of which the receiver already has some (REST
    // ranges).
    let bytes = pattern(400_000);
    let mut ranges = RangeSet::new();
    for (start, end) in [(1000, 1001), (70_000, 150_000), (299_000, 301_000)] {
        ranges.insert(start, end);
    }
    for streams in [1, 4] {
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Extended);
        transfer.send.ranges = ranges.clone();
        transfer.send.origin = 1000;
        transfer.sender.streams = streams;
        transfer.receive.origin = 50;
        let (_, received) = transfer.succeed();
        let wire: Vec<_> = received.stored.iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(wire, [(0, 1), (69_000, 149_000), (298_000, 300_000)]);
        let stored = stored.bytes();
        for range in ranges.iter() {
            let [start, end] = [range.start, range.end].map(|n| usize::try_from(n).unwrap());
            assert_eq!(stored[start - 950..end - 950], bytes[start..end]);
        }
        assert!(stored[1000 - 950 + 1..70_000 - 950].iter().all(|b| *b == 0));
    }
}

#[test]
fn mode_s_sends_ranges_back_to_back_from_the_stream_start() {
    let bytes = pattern(100_000);
    let (stored, target) = sink();
    let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Stream);
    transfer.send.ranges = RangeSet::parse("40000-50000,60000-100000").unwrap();
    transfer.receive.stream_start = 40_000;
    let (_, received) = transfer.succeed();
    assert_eq!(received.stored, RangeSet::parse("40000-90000").unwrap());
    let expected = [&bytes[40_000..50_000], &bytes[60_000..]].concat();
    assert_eq!(stored.bytes()[40_000..], expected);
}

#[test]
fn a_range_before_the_origin_is_refused() {
    let (_, target) = sink();
    let mut transfer = LoopbackTransfer::new(b"abc", target, TransferMode::Stream);
    transfer.send.origin = 1;
    let (mut sender, _receiver) = pair();
    let control = Arc::default();
    let error = data::send::run(
        &mut sender,
        &transfer.source,
        &transfer.send,
        &transfer.sender,
        &control,
    );
    assert!(matches!(
        error,
        Err(data::error::DataError::OutOfRange { .. })
    ));
}

#[test]
fn a_pipe_is_sent_to_a_pipe() {
    let bytes = pattern(500_000);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (from, mut feed) = rustix::pipe::pipe()
            .map(|(r, w)| (r, File::from(w)))
            .unwrap();
        let (drain, to) = rustix::pipe::pipe()
            .map(|(r, w)| (File::from(r), w))
            .unwrap();
        let target = FileSink::new(File::from(to), "out").unwrap();
        let mut transfer = LoopbackTransfer::new(b"", Arc::new(target), mode);
        transfer.source = Arc::new(FileSource::new(File::from(from), "in").unwrap());
        let all = std::thread::scope(|scope| {
            let feed_bytes = &bytes;
            scope.spawn(move || feed.write_all(feed_bytes).unwrap());
            let mut drain = drain;
            let reading = scope.spawn(move || {
                let mut all = Vec::new();
                drain.read_to_end(&mut all).unwrap();
                all
            });
            let (sent, _) = transfer.succeed();
            assert_eq!(sent.evidence.bytes, 500_000);
            drop(transfer);
            reading.join().unwrap()
        });
        assert!(all == bytes, "{mode:?}");
    }
}

#[test]
fn a_pipe_is_sent_over_several_streams() {
    let bytes = pattern(700_000);
    let (from, mut feed) = rustix::pipe::pipe()
        .map(|(r, w)| (r, File::from(w)))
        .unwrap();
    let (stored, target) = sink();
    let mut transfer = LoopbackTransfer::new(b"", target, TransferMode::Extended);
    transfer.source = Arc::new(FileSource::new(File::from(from), "in").unwrap());
    transfer.sender.streams = 4;
    transfer.sender.checksum = Some(ChecksumAlgorithm::Sha1);
    let (sent, _) = std::thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || feed.write_all(bytes).unwrap());
        transfer.succeed()
    });
    assert!(stored.bytes() == bytes);
    assert_eq!(
        sent.checksum,
        Some(reference(ChecksumAlgorithm::Sha1, &bytes))
    );
}

#[test]
fn text_is_translated_in_both_directions() {
    let text = b"one\ntwo\n\nlast without end".repeat(20_000);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&text, target, mode);
        transfer.sender.type_ = DataType::Ascii;
        let (sent, _) = transfer.succeed();
        let wire = stored.bytes();
        assert_eq!(sent.evidence.bytes, wire.len() as u64);
        assert_eq!(wire.iter().filter(|b| **b == b'\r').count(), 60_000);

        let (stored, target) = sink();
        transfer.sink = target;
        transfer.receiver.type_ = DataType::Ascii;
        transfer.succeed();
        assert!(stored.bytes() == text, "{mode:?}");
    }
}

fn reference(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
    let source = MemorySource::new(bytes.to_vec(), "m");
    data::checksum::checksum_source(algorithm, &source, 0, None, &mut |_| true).unwrap()
}

#[test]
fn both_ends_compute_every_checksum() {
    // Large enough for a follower in one stream, too.
    let bytes = pattern(5_000_000);
    for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
        let expected = reference(algorithm, &bytes);
        for (mode, streams) in [
            (TransferMode::Stream, 1),
            (TransferMode::Extended, 1),
            (TransferMode::Extended, 4),
        ] {
            let target = file_sink();
            let mut transfer = LoopbackTransfer::new(&bytes, target.clone(), mode);
            transfer.source = file_source(&bytes);
            transfer.sender.streams = streams;
            transfer.sender.checksum = Some(algorithm);
            transfer.receiver.checksum = Some(algorithm);
            transfer.receiver.options.io = IoMethod::Splice;
            let (sent, received) = transfer.succeed();
            let case = format!("{algorithm:?} {mode:?} {streams}");
            assert_eq!(sent.checksum.as_ref(), Some(&expected), "sender, {case}");
            assert_eq!(
                received.checksum.as_ref(),
                Some(&expected),
                "receiver, {case}"
            );
        }
    }
}

#[test]
fn an_empty_transfer_has_the_checksum_of_nothing() {
    for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
        for mode in [TransferMode::Stream, TransferMode::Extended] {
            let (_, target) = sink();
            let mut transfer = LoopbackTransfer::new(b"", target, mode);
            transfer.sender.checksum = Some(algorithm);
            transfer.receiver.checksum = Some(algorithm);
            let (sent, received) = transfer.succeed();
            let expected = Some(reference(algorithm, b""));
            assert_eq!(
                (sent.checksum, received.checksum),
                (expected.clone(), expected)
            );
        }
    }
}

#[test]
fn a_resumed_transfer_has_no_ordered_checksum() {
    let bytes = pattern(100_000);
    let (_, target) = sink();
    let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Stream);
    transfer.send.ranges = RangeSet::parse("10-100000").unwrap();
    transfer.receive.stream_start = 10;
    transfer.sender.checksum = Some(ChecksumAlgorithm::Md5);
    transfer.receiver.checksum = Some(ChecksumAlgorithm::Md5);
    let (sent, received) = transfer.succeed();
    assert_eq!((sent.checksum, received.checksum), (None, None));
}

#[test]
fn ipv6_and_ipv4_mapped_peers_are_accepted() {
    use std::net::{IpAddr, Ipv6Addr};
    let bytes = pattern(10_000);
    let options = |ip, only: IpAddr| data::channel::ListenOptions {
        ip,
        ports: None,
        accept: AllowedPeers::Only(only),
        buffers: SocketBuffers::sized_by(proto::sizing::BufferSizing::Kernel),
    };
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let v4: IpAddr = [127, 0, 0, 1].into();
    for (bind, peer) in [(v6, v6), (any, v4)] {
        let Ok(mut receiver) = SessionDataChannel::listen(&options(bind, peer)) else {
            eprintln!("SKIPPED: no IPv6 here");
            return;
        };
        let to = (peer, receiver.local_addr().unwrap().port()).into();
        let mut sender = SessionDataChannel::connect_to(vec![to], Some(peer));
        let (stored, target) = sink();
        let transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Stream);
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        assert_eq!(stored.bytes(), bytes);
    }
}

#[test]
fn every_target_gets_its_own_end_marks() {
    let bytes = pattern(1_000_000);
    let (mut left, left_at) = listen(AllowedPeers::Any);
    let (mut right, right_at) = listen(AllowedPeers::Any);
    let mut sender = SessionDataChannel::connect_to(vec![left_at, right_at], None);
    let (stored, target) = sink();
    let transfer = LoopbackTransfer::new(&bytes, target.clone(), TransferMode::Extended);
    let mut settings = transfer.sender.clone();
    settings.streams = 2;
    std::thread::scope(|scope| {
        for channel in [&mut left, &mut right] {
            scope.spawn(|| {
                data::recv::run(channel, &target, &ANY, &transfer.receiver, &Arc::default())
                    .unwrap();
            });
        }
        let source = memory(&bytes);
        let report = data::send::run(
            &mut sender,
            &source,
            &transfer.send,
            &settings,
            &Arc::default(),
        );
        assert_eq!(report.unwrap().evidence.streams, 4);
    });
    assert_eq!(stored.bytes(), bytes);
}
