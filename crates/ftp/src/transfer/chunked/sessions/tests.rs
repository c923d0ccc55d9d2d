//! Chunk sessions that move no bytes, to test how ranges are assigned.

use std::sync::atomic::{AtomicU64, Ordering};

use data::job::TransferReport;
use tune::streams::chunked::{Chunk, ChunkResult, ChunkTuner, RelativeRate, probe_tuner_with_min};

use super::super::chunk_session::{BoxedFuture, OpeningFuture};
use super::*;
use crate::session::ClientSession;
use crate::transfer::tests::spec;

const SIZE: u64 = 8 << 20;

/// Behaviour of the second session.
#[derive(Clone, Copy)]
enum SecondSessionFault {
    NeverOpens,
    LosesConnection,
}

/// A chunk session. The first one reports more bytes than it was asked to move; one with `None`
/// loses its connection.
struct FakeChunkSession(Option<SecondSessionFault>);

impl ChunkSession for FakeChunkSession {
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        _: &'s Arc<TransferControl>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, Failure>> {
        let bytes = spec.size.unwrap();
        Box::pin(async move {
            if self.0.is_none() {
                progress(u64::MAX);
                return Err(Failure::unreachable("lost".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            progress(u64::MAX);
            spec.stored_ranges.lock().insert(0, 2 * bytes);
            Ok(TransferAttempt {
                report: TransferReport {
                    evidence: tune::Evidence {
                        bytes,
                        ..tune::Evidence::default()
                    },
                    ..TransferReport::default()
                },
                extended_mode: true,
                streams: 1,
                ..TransferAttempt::default()
            })
        })
    }

    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>> {
        match self.0 {
            Some(SecondSessionFault::LosesConnection) => {
                Box::pin(async { Ok(Box::new(Self(None)) as Box<dyn ChunkSession>) })
            }
            _ => Box::pin(std::future::pending()),
        }
    }

    fn stores_at_server(&self) -> bool {
        false
    }

    fn session(&mut self) -> &mut ClientSession {
        unreachable!("round trips are known");
    }

    fn close(self: Box<Self>) -> BoxedFuture<'static, ()> {
        Box::pin(async {})
    }
}

fn missing_at_first() -> RangeSet {
    let mut missing = RangeSet::new();
    missing.insert(0, SIZE);
    missing
}

/// Bytes moved, the last progress, and the ranges marked as stored.
async fn moved(other: SecondSessionFault) -> (u64, u64, RangeSet) {
    let spec = spec();
    let (control, reported) = (Arc::new(TransferControl::new()), AtomicU64::new(0));
    let progress = |bytes| reported.store(bytes, Ordering::Relaxed);
    let missing = missing_at_first();
    let rtt = Duration::from_millis(1);
    let queue = ChunkQueue::new(missing, probe_tuner_with_min(2, 2, 8, rtt), 2);
    let sessions = ChunkSessions::new(&spec, &control, &progress, queue, RttSource::Known(rtt));
    let first = Box::new(FakeChunkSession(Some(other)));
    let limit = Duration::from_secs(60);
    let ended = tokio::time::timeout(limit, sessions.transfer(first, true)).await;
    let bytes = ended.unwrap().unwrap().report.evidence.bytes;
    let marked = spec.stored_ranges.lock().clone();
    // Every chunk was confirmed.
    assert_eq!(spec.confirmation.confirmed(), missing_at_first());
    (bytes, reported.load(Ordering::Relaxed), marked)
}

#[tokio::test]
async fn a_second_session_that_never_opens_is_not_waited_for() {
    let (bytes, reported, _) = moved(SecondSessionFault::NeverOpens).await;
    assert_eq!((bytes, reported), (SIZE, SIZE));
}

#[tokio::test]
async fn ranges_returned_by_the_second_session_are_counted_once() {
    let (bytes, reported, _) = moved(SecondSessionFault::LosesConnection).await;
    assert_eq!((bytes, reported), (SIZE, SIZE));
}

#[tokio::test]
async fn markers_beyond_the_chunk_are_ignored() {
    let (_, _, marked) = moved(SecondSessionFault::NeverOpens).await;
    assert_eq!((marked.byte_count(), marked.end()), (SIZE, SIZE));
}

#[test]
fn markers_within_a_chunk_show_that_the_rate_has_changed() {
    let spec = spec();
    let control = Arc::new(TransferControl::new());
    let mut missing = RangeSet::new();
    missing.insert(0, 1 << 40);
    let rtt = Duration::from_millis(20);
    let tuner = ChangeTuner {
        streams: 4,
        ..ChangeTuner::default()
    };
    let queue = ChunkQueue::new(missing, Box::new(tuner), 2);
    let sessions = ChunkSessions::new(&spec, &control, &|_| {}, queue, RttSource::Known(rtt));
    let streams = |session| sessions.next_range(session).unwrap().streams;
    assert_eq!([streams(0), streams(1)], [2, 2]);
    let second = |n: u64, bytes: u64| {
        for session in 0..2 {
            // The ranges began after the start of the transfer.
            sessions.note_third_party_bytes(session, bytes, Duration::from_secs(n + 1));
        }
    };
    (0..5).for_each(|n| second(n, n * 1_000));
    assert_eq!(sessions.next_range(0).unwrap().streams, 2);
    // One session has a new range, whose markers begin anew.
    (5..9).for_each(|n| second(n, n * 1_000));
    (9..12).for_each(|n| second(n, 9_000 + (n - 9) * 400));
    assert_eq!([streams(1), streams(0)], [4, 4]);
    let decisions = control.take_stream_decisions();
    let settings: Vec<_> = decisions.into_iter().map(|d| d.setting).collect();
    let expected = [4, 8].map(|streams| Some(TransferSetting::Streams(streams)));
    assert_eq!(settings, expected);
}

#[tokio::test]
async fn the_finding_of_the_search_is_a_remark_of_this_machine() {
    let (spec, control) = (spec(), Arc::new(TransferControl::new()));
    let tuner = Box::new(ChangeTuner {
        streams: 2,
        ..ChangeTuner::default()
    });
    let queue = ChunkQueue::new(missing_at_first(), tuner, 1);
    let rtt = RttSource::Known(Duration::from_millis(1));
    let sessions = ChunkSessions::new(&spec, &control, &|_| {}, queue, rtt);
    let first = Box::new(FakeChunkSession(Some(SecondSessionFault::NeverOpens)));
    let remarks = sessions.transfer(first, false).await.unwrap().remarks;
    assert_eq!(remarks.len(), 1);
    assert_eq!(remarks[0].host, None);
    assert_eq!(remarks[0].text.as_deref(), Some("more do not help"));
}

/// Doubles the streams when the rate has fallen.
#[derive(Default)]
struct ChangeTuner {
    streams: u32,
    has_fallen: bool,
}

impl ChunkTuner for ChangeTuner {
    fn next(&mut self, _: Option<&ChunkResult>) -> Chunk {
        self.streams *= 1 + u32::from(std::mem::take(&mut self.has_fallen));
        Chunk {
            streams: self.streams,
            bytes: 1 << 30,
        }
    }

    fn on_rate(&mut self, rate: RelativeRate) {
        self.has_fallen = rate.at_most < 0.75;
    }

    fn ends_chunk(&self) -> bool {
        self.has_fallen
    }

    fn reason(&self) -> String {
        String::new()
    }

    fn finding(&self) -> Option<String> {
        Some("more do not help".to_owned())
    }

    fn is_settled(&self) -> bool {
        true
    }
}
