//! A crew of lanes that move nothing, for what becomes of the pieces.

use std::sync::atomic::{AtomicU64, Ordering};

use data::job::TransferReport;
use tune::streams::chunked::probe_tuner_with_min;

use super::super::chunk_session::{BoxedFuture, OpeningFuture};
use super::*;
use crate::session::ClientSession;
use crate::session::control::unreachable_failure;
use crate::transfer::tests::spec;

const SIZE: u64 = 8 << 20;

/// How the other lane of a crew is.
#[derive(Clone, Copy)]
enum SecondSessionFault {
    NeverOpens,
    LosesConnection,
}

/// The first lane tells that more was moved and stored than it was asked for; the other is as it says.
struct FakeChunkSession(Option<SecondSessionFault>);

impl ChunkSession for FakeChunkSession {
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        _: &'s Arc<TransferControl>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, CopyFailure>> {
        let bytes = spec.size.unwrap();
        Box::pin(async move {
            if self.0.is_none() {
                progress(u64::MAX);
                return Err(unreachable_failure("lost".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            progress(u64::MAX);
            lock_ignoring_poison(&spec.stored_ranges).insert(0, 2 * bytes);
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

/// Bytes that were moved, those told of it at last, and the ranges marked as stored.
async fn moved(other: SecondSessionFault) -> (u64, u64, RangeSet) {
    let spec = spec();
    let (control, told) = (Arc::new(TransferControl::new()), AtomicU64::new(0));
    let progress = |bytes| told.store(bytes, Ordering::Relaxed);
    let missing = missing_at_first();
    let rtt = Duration::from_millis(1);
    let work = ChunkQueue::new(missing, probe_tuner_with_min(2, 2, 8, rtt), 2);
    let crew = ChunkSessions::new(&spec, &control, &progress, (work, RttSource::Known(rtt)));
    let first = Box::new(FakeChunkSession(Some(other)));
    let limit = Duration::from_secs(60);
    let ended = tokio::time::timeout(limit, crew.transfer(first, true)).await;
    let bytes = ended.unwrap().unwrap().report.evidence.bytes;
    let marked = lock_ignoring_poison(&spec.stored_ranges).clone();
    // Every chunk ended well.
    assert_eq!(spec.confirmation.confirmed(), missing_at_first());
    (bytes, told.load(Ordering::Relaxed), marked)
}

#[tokio::test]
async fn a_session_that_never_opens_is_not_waited_for() {
    let (bytes, told, _) = moved(SecondSessionFault::NeverOpens).await;
    assert_eq!((bytes, told), (SIZE, SIZE));
}

#[tokio::test]
async fn what_a_second_session_could_not_bring_is_counted_once() {
    let (bytes, told, _) = moved(SecondSessionFault::LosesConnection).await;
    assert_eq!((bytes, told), (SIZE, SIZE));
}

#[tokio::test]
async fn nothing_is_marked_beyond_what_was_asked_for() {
    let (_, _, marked) = moved(SecondSessionFault::NeverOpens).await;
    assert_eq!((marked.byte_count(), marked.end()), (SIZE, SIZE));
}
