//! The bytes of an attempt, by the way that the ends leave open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use data::job::{Control, Report};
use data::store::Sink;

use super::super::alongside;
use super::super::measured::{Measured, Seen};
use super::super::meter::Safe;
use super::super::pool::Pool;
use super::super::receiving::Receiving;
use super::super::relay;
use super::super::request::{extent, spec};
use super::super::silent::{Growth, Sign};
use super::super::watch::Watch;
use super::{Begun, FileCopy, Sessions};
use crate::Failure;
use crate::location::StorageId;
use crate::session::control::unreachable;
use crate::storage::contract::{Question, Storage};
use crate::storage::within;
use crate::transfer::{Attempt, TransferSpec};
use crate::verify::{CONCURRENT_FROM, CONCURRENT_FROM_AHEAD, Check};
use crate::why;

/// How the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From an open file to an open file.
    Within,
    /// From a storage into an open file.
    Fetch,
    /// From an open file to a storage.
    Store,
    /// From a storage to a storage, by their own doing.
    Pass,
    /// From a storage to a storage, by way of this machine.
    Relay,
}

/// Result of one transfer.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// This end's report; `None` when all was there already.
    pub(super) report: Option<Report>,
    pub(super) measured: Option<Measured>,
    /// The file's sum at its source, if it came in time.
    pub(super) source_sum: Option<String>,
}

impl<'a> FileCopy<'a> {
    fn way(&self, begun: &Begun<'_>, sessions: &Sessions) -> Way {
        match (begun.reads_here(), begun.stores_there()) {
            (true, false) => Way::Within,
            (false, false) => Way::Fetch,
            (true, true) => Way::Store,
            (false, true) if self.passes(sessions) => Way::Pass,
            (false, true) => Way::Relay,
        }
    }

    /// Moves what is missing.
    pub(super) async fn transfer(
        &mut self,
        begun: &mut Begun<'a>,
        sessions: &mut Sessions,
        check: Check,
    ) -> Result<Moved, Failure> {
        if begun.receiving.is_whole(begun.span) {
            return Ok(Moved::default());
        }
        let way = self.way(begun, sessions);
        let control = Arc::new(Control::new());
        let spec = self.spec_of(begun, sessions, (way, check));
        let early = check
            .algorithm()
            .filter(|_| way == Way::Fetch && self.sums_early(begun, sessions, &spec));
        self.ask_ahead(begun, sessions, &spec, (check, early.is_none()));
        let early = self.sum_early(begun, early);
        self.consumed |= begun.is_pipe();
        self.show(begun, (way, sessions.to.capabilities().markers), &control);
        if let Receiving::There(upload) = &mut begun.receiving {
            upload.begin(&control, way != Way::Pass);
        }
        let started = Instant::now();
        let moving = self.run(begun, sessions, (way, &spec, &control));
        let result = alongside(moving, early).await;
        if way == Way::Store && result.is_err() && !spec.begun.load(Ordering::Relaxed) {
            self.meter.discard();
        }
        let size = begun.span.size;
        let (mut attempt, source_sum) = match (result, &mut begun.receiving) {
            (Ok(moved), Receiving::Here(download)) => {
                download.confirmed(&control);
                moved
            }
            (Ok(moved), Receiving::There(upload)) => {
                upload.confirmed(size);
                moved
            }
            (Err(failure), Receiving::Here(download)) => {
                let judged = check.algorithm().is_some();
                download.settle(&control, &spec.said, size, judged);
                return Err(failure);
            }
            (Err(failure), Receiving::There(upload)) => {
                upload.settle(&failure, &spec.said, size);
                return Err(failure);
            }
        };
        if way == Way::Pass {
            self.meter.report(attempt.report.evidence.bytes);
        }
        if begun.stores_there() {
            self.meter.confirm();
        }
        self.ctx.warn_all(std::mem::take(&mut attempt.warnings));
        Ok(Moved {
            report: Some(attempt.report.clone()).filter(|_| way != Way::Pass),
            measured: measured(way, attempt, started),
            source_sum,
        })
    }

    /// Moves the bytes, and keeps the journal meanwhile. Dropping the future stops it all.
    async fn run(
        &self,
        begun: &mut Begun<'a>,
        sessions: &mut Sessions,
        (way, spec, control): (Way, &TransferSpec, &Arc<Control>),
    ) -> Result<Attempt, Failure> {
        let in_order = self.lanes.unwrap_or_default().in_order;
        let (mut store_path, mut sink) = (Vec::new(), None);
        match &mut begun.receiving {
            Receiving::Here(download) => sink = Some(download.own(self.ctx)? as Arc<dyn Sink>),
            Receiving::There(upload) => store_path = upload.store_path(),
        }
        let source = begun.source.as_ref();
        let source = source.map(|opened| Arc::clone(&opened.source));
        let keep_empty = begun.receiving.size_tells(in_order);
        let keeps_journal = !begun.is_pipe();
        let before = begun.receiving.have().prefix();
        let size = begun.span.size;
        let (journal, state) = begun.receiving.watched(control);
        let journal = journal.filter(|_| keeps_journal);
        let watch = Watch::new(Arc::clone(control), journal, keep_empty, state);
        let Sessions { from, to } = sessions;
        let path = self.item.source.path();
        let moving = async {
            match (way, source, sink) {
                (Way::Within, Some(source), Some(sink)) => {
                    within::copy(source, sink, spec, control).await
                }
                (Way::Fetch, _, Some(sink)) => from.fetch(path, sink, spec, control).await,
                (Way::Store, Some(source), _) => to.store(source, &store_path, spec, control).await,
                (Way::Pass, ..) => {
                    let meter = self.meter;
                    let progress = move |bytes| meter.report(bytes);
                    let passing = from.pass(path, &mut **to, &store_path, spec, &progress);
                    let silent = in_order.then_some((&store_path, before));
                    tokio::select! {
                        biased;
                        ended = passing => ended,
                        stalled = self.stall(silent, size) => Err(stalled),
                    }
                }
                _ => {
                    let from = relay::End::new(&mut **from, path);
                    let to = relay::End::new(&mut **to, &store_path);
                    relay::copy(from, to, spec, control).await
                }
            }
        };
        watch.run(moving).await
    }

    fn spec_of(
        &self,
        begun: &Begun<'_>,
        sessions: &Sessions,
        (way, check): (Way, Check),
    ) -> TransferSpec {
        let have = begun.receiving.have();
        let lanes = self.lanes.unwrap_or_default();
        let mut spec = spec(self.ctx, begun.span, have, lanes);
        let sum = check.algorithm().filter(|_| have.is_empty());
        spec.sum = sum.filter(|_| way != Way::Pass);
        if let Receiving::There(upload) = &begun.receiving {
            let sums = sessions.to.capabilities().sums_on_the_way;
            spec.remote_sum = sum.filter(|_| sums);
            spec.marked = Arc::clone(&upload.marked);
        }
        spec
    }

    /// Has both ends asked ahead what will be asked of them when the bytes are there.
    fn ask_ahead(
        &self,
        begun: &Begun<'_>,
        sessions: &mut Sessions,
        spec: &TransferSpec,
        (check, sums): (Check, bool),
    ) {
        let path = self.item.source.path();
        let sum = |path, part| {
            let (offset, length) = extent(part);
            let question = move |algorithm| Question::Sum {
                algorithm,
                offset,
                length,
                path,
            };
            check.algorithm().map(question)
        };
        if !begun.reads_here() {
            let facts = self
                .looks_again(begun, check)
                .then_some(Question::Facts(path));
            let asked = sums && !begun.sums_what_passes;
            let sum = sum(path, begun.span.part).filter(|_| asked);
            let questions: Vec<_> = sum.into_iter().chain(facts).collect();
            sessions.from.expect(spec, &questions);
        }
        if let Receiving::There(upload) = &begun.receiving {
            let path = upload.store_path();
            let told = begun.reads_here() || begun.span.size.is_some();
            let facts = told.then_some(Question::Facts(&path));
            let question = sum(&path, None).or(facts);
            sessions.to.expect(spec, question.as_slice());
        }
    }

    /// Whether the source is to sum while the bytes move.
    fn sums_early(&self, begun: &Begun<'_>, sessions: &Sessions, spec: &TransferSpec) -> bool {
        let worth = match sessions.from.answers_ahead(spec) {
            true => CONCURRENT_FROM_AHEAD,
            false => CONCURRENT_FROM,
        };
        begun.span.size.is_some_and(|size| size >= worth)
    }

    /// The source's sum, asked for over a second session while the bytes move. `None` when that
    /// was not wanted or does not work: then it is asked for afterwards.
    fn sum_early(
        &self,
        begun: &Begun<'_>,
        algorithm: Option<proto::checksum::Algorithm>,
    ) -> impl Future<Output = Option<String>> + Send + use<> {
        let pool = Arc::clone(&self.ctx.pool);
        let id = self.from.clone();
        let path = self.item.source.path().to_vec();
        let (offset, length) = extent(begun.span.part);
        async move {
            let algorithm = algorithm?;
            let mut session = pool.take(&id).await.ok()?;
            let sum = session.checksum(algorithm, offset, length, &path).await;
            let sum = sum.ok()?;
            pool.give(&id, session);
            Some(sum)
        }
    }

    /// Shows the attempt in the totals.
    fn show(&self, begun: &mut Begun<'_>, (way, markers): (Way, bool), control: &Arc<Control>) {
        let in_order = self.lanes.unwrap_or_default().in_order;
        let have = begun.receiving.have().bytes();
        let shown = match way {
            // A storage that tells nothing until the end.
            Way::Store if in_order || !markers => Safe::acknowledged(control, have),
            _ => {
                let (_, state) = begun.receiving.watched(control);
                Safe::told(move || state().safe.bytes())
            }
        };
        self.meter.attempt(Arc::clone(control), shown);
    }

    /// The failure of a silent transfer between two storages (`asked`: where the bytes are stored, so many
    /// of them having been there) that stands still; never anything else. Another session asks for the
    /// length.
    fn stall(
        &self,
        asked: Option<(&Vec<u8>, u64)>,
        size: Option<u64>,
    ) -> impl Future<Output = Failure> + Send + use<'a> {
        let (pool, id, meter) = (Arc::clone(&self.ctx.pool), self.to.clone(), self.meter);
        let asked = asked.map(|(path, before)| (path.clone(), before));
        let limit = self.ctx.options.transfer.stall;
        async move {
            let Some((path, before)) = asked else {
                return std::future::pending().await;
            };
            let mut growth = Growth::new(size, limit);
            let mut session = None;
            loop {
                tokio::time::sleep(growth.period()).await;
                let length = length(&pool, &id, &mut session, &path).await;
                let Some(length) = length else {
                    // A server that cannot be asked: the transfer's own end has to tell.
                    return std::future::pending().await;
                };
                match growth.look(length, Instant::now()) {
                    Sign::Moved(length) => meter.report(length.saturating_sub(before)),
                    Sign::Nothing => {}
                    Sign::Stalled(length) => {
                        return unreachable(format!(
                            "the copy to {id} stalled: its file stood at {length} bytes for \
                             {} s; try again, with --resume",
                            limit.as_secs()
                        ));
                    }
                }
            }
        }
    }
}

/// Length of a file, over a session that is opened for it.
async fn length(
    pool: &Pool,
    id: &StorageId,
    session: &mut Option<Box<dyn Storage>>,
    path: &[u8],
) -> Option<u64> {
    if session.is_none() {
        *session = pool.take(id).await.ok();
    }
    session.as_mut()?.stat(path).await.ok()?.size
}

/// Measurements that are told at the end; nothing of what stayed within this machine.
fn measured(way: Way, attempt: Attempt, started: Instant) -> Option<Measured> {
    match way {
        Way::Within => None,
        Way::Fetch => Some(Measured::received(attempt)),
        Way::Store | Way::Relay => Some(Measured::sent(attempt)),
        Way::Pass => Some(Measured {
            seen: Seen::Between(why::Between {
                bytes: attempt.report.evidence.bytes,
                elapsed: started.elapsed(),
                streams: attempt.streams,
                markers: attempt.extended,
            }),
            buffers: attempt.buffers.name(),
            remarks: attempt.remarks,
        }),
    }
}
