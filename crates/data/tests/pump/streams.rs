//! Streams, congestion control and pacing that follow the path: all bytes arrive under any
//! decision, and the decisions are reported.

use std::sync::Arc;

use data::job::TransferControl;
use data::options::CongestionChoice;
use data::rate::RateLimit;
use proto::checksum::ChecksumAlgorithm;
use proto::command::TransferMode;
use tune::Prior;
use tune::limiter::Limiter;

use crate::transfer_ends::{LoopbackTransfer, pair, pattern, sink};

fn adapting(
    bytes: &[u8],
    mode: TransferMode,
) -> (data::store::memory::MemorySink, LoopbackTransfer) {
    let (stored, target) = sink();
    let mut transfer = LoopbackTransfer::new(bytes, target, mode);
    transfer.sender.adapt = true;
    transfer.sender.max_streams = 8;
    transfer.sender.options.congestion = CongestionChoice::Auto;
    transfer.sender.checksum = Some(ChecksumAlgorithm::Md5);
    transfer.receiver.checksum = Some(ChecksumAlgorithm::Md5);
    (stored, transfer)
}

#[test]
fn an_adapting_transfer_is_complete_and_reported() {
    let bytes = pattern(1 << 20).repeat(40);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut sender, mut receiver) = pair();
        let (stored, transfer) = adapting(&bytes, mode);
        let controls = [(); 2].map(|()| Arc::new(TransferControl::new()));
        let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert!(stored.bytes() == bytes);
        assert!(sent.checksum.is_some() && sent.checksum == received.checksum);
        assert!(sent.evidence.verdict.is_some() && received.evidence.verdict.is_none());
        let streams = sent.evidence;
        assert_eq!(
            streams.congestion_control,
            streams
                .verdict
                .as_ref()
                .map(|v| v.congestion_control.clone())
        );
        assert!((1..=8).contains(&streams.peak_streams), "{streams:?}");
        assert!(streams.final_streams <= streams.peak_streams);
        assert!(streams.peak_streams <= streams.streams);
        assert_eq!(streams.streams, received.evidence.streams);
    }
}

/// The most simultaneous streams for a file of `bytes` with prior knowledge of `streams` streams.
fn begun_with(streams: u32, bytes: usize) -> u64 {
    let bytes = pattern(bytes);
    let (mut sender, mut receiver) = pair();
    let (stored, mut transfer) = adapting(&bytes, TransferMode::Extended);
    transfer.sender.prior = Prior::with_streams(streams);
    // Slow enough for all streams to start before the end.
    transfer.sender.options.rate = Some(RateLimit::new(4_000_000));
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    received.unwrap();
    assert!(stored.bytes() == bytes);
    sent.unwrap().evidence.peak_streams
}

#[test]
fn a_known_number_of_streams_is_used_from_the_start() {
    // At most the permitted number, and at most one per part of the file.
    assert!((5..=8).contains(&begun_with(5, 3 << 20)));
    assert_eq!(begun_with(100, 3 << 20), 8);
    assert_eq!(begun_with(5, 200_000), 1);
}

#[test]
fn the_report_says_with_which_knowledge_a_transfer_began() {
    let bytes = pattern(3 << 20);
    let (mut sender, mut receiver) = pair();
    let (_, mut transfer) = adapting(&bytes, TransferMode::Extended);
    transfer.sender.prior = Prior::with_streams(5);
    transfer.sender.options.rate = Some(RateLimit::new(4_000_000));
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    assert_eq!(received.unwrap().prior_use, None);
    let used = sent.unwrap().prior_use.unwrap();
    assert_eq!(
        used,
        "it began with 5 streams, by what was known of the path"
    );
}

#[test]
fn a_rate_limit_is_reported_as_the_limiter() {
    let bytes = pattern(8 << 20);
    let (mut sender, mut receiver) = pair();
    let (stored, mut transfer) = adapting(&bytes, TransferMode::Extended);
    // Two seconds, so that a busy machine takes a sample, too.
    transfer.sender.options.rate = Some(RateLimit::new(4_000_000));
    let controls = [(); 2].map(|()| Arc::new(TransferControl::new()));
    let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls);
    received.unwrap();
    assert!(stored.bytes() == bytes);
    let verdict = sent.unwrap().evidence.verdict.unwrap();
    assert_eq!(verdict.limiter, Limiter::RateLimit, "{verdict:?}");
    assert_eq!(controls[0].limiter(), Some(Limiter::RateLimit));
    assert!(!controls[0].take_stream_decisions().is_empty());
    assert_eq!(controls[1].limiter(), None);
}

#[test]
fn a_small_file_is_sent_without_samples() {
    let bytes = pattern(60_000);
    let (mut sender, mut receiver) = pair();
    let (stored, transfer) = adapting(&bytes, TransferMode::Extended);
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    received.unwrap();
    let sent = sent.unwrap();
    assert_eq!(stored.bytes(), bytes);
    assert_eq!((sent.evidence.streams, sent.evidence.verdict), (1, None));
}
