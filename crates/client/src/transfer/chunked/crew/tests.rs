//! A crew of lanes that move nothing, for what becomes of the pieces.

use std::sync::atomic::{AtomicU64, Ordering};

use data::job::Report;
use tune::streams::chunked::probe_from;

use super::super::lane::{Opening, Pending};
use super::*;
use crate::session::Session;
use crate::session::control::unreachable;
use crate::transfer::tests::spec;

const SIZE: u64 = 8 << 20;

/// How the other lane of a crew is.
#[derive(Clone, Copy)]
enum Other {
    NeverComes,
    Fails,
}

/// The first lane tells that more was moved and stored than it was asked for; the other is as it says.
struct Fake(Option<Other>);

impl Lane for Fake {
    fn chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        _: &'s Arc<Control>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> Pending<'s, Result<Attempt, Failure>> {
        let bytes = spec.size.unwrap();
        Box::pin(async move {
            if self.0.is_none() {
                progress(u64::MAX);
                return Err(unreachable("lost".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            progress(u64::MAX);
            unpoisoned(&spec.marked).insert(0, 2 * bytes);
            Ok(Attempt {
                report: Report {
                    evidence: tune::Evidence {
                        bytes,
                        ..tune::Evidence::default()
                    },
                    ..Report::default()
                },
                extended: true,
                streams: 1,
                ..Attempt::default()
            })
        })
    }

    fn another(&self) -> Opening<Box<dyn Lane>> {
        match self.0 {
            Some(Other::Fails) => Box::pin(async { Ok(Box::new(Self(None)) as Box<dyn Lane>) }),
            _ => Box::pin(std::future::pending()),
        }
    }

    fn stores_at_server(&self) -> bool {
        false
    }

    fn session(&mut self) -> &mut Session {
        unreachable!("round trips are known");
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async {})
    }
}

fn missing_at_first() -> RangeSet {
    let mut missing = RangeSet::new();
    missing.insert(0, SIZE);
    missing
}

/// Bytes that were moved, those told of it at last, and the ranges marked as stored.
async fn moved(other: Other) -> (u64, u64, RangeSet) {
    let spec = spec();
    let (control, told) = (Arc::new(Control::new()), AtomicU64::new(0));
    let progress = |bytes| told.store(bytes, Ordering::Relaxed);
    let missing = missing_at_first();
    let rtt = Duration::from_millis(1);
    let work = Work::new(missing, probe_from(2, 2, 8, rtt), 2);
    let crew = Crew::new(&spec, &control, &progress, (work, Trips::Known(rtt)));
    let first = Box::new(Fake(Some(other)));
    let limit = Duration::from_secs(60);
    let ended = tokio::time::timeout(limit, crew.run(first, true)).await;
    let bytes = ended.unwrap().unwrap().report.evidence.bytes;
    let marked = unpoisoned(&spec.marked).clone();
    // Every chunk ended well.
    assert_eq!(spec.said.confirmed(), missing_at_first());
    (bytes, told.load(Ordering::Relaxed), marked)
}

#[tokio::test]
async fn a_session_that_never_opens_is_not_waited_for() {
    let (bytes, told, _) = moved(Other::NeverComes).await;
    assert_eq!((bytes, told), (SIZE, SIZE));
}

#[tokio::test]
async fn what_a_second_session_could_not_bring_is_counted_once() {
    let (bytes, told, _) = moved(Other::Fails).await;
    assert_eq!((bytes, told), (SIZE, SIZE));
}

#[tokio::test]
async fn nothing_is_marked_beyond_what_was_asked_for() {
    let (_, _, marked) = moved(Other::NeverComes).await;
    assert_eq!((marked.bytes(), marked.end()), (SIZE, SIZE));
}
