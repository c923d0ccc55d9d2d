//! Dry runs: what would be copied, file by file, or all of it at once with the time that it would take.

use std::time::Duration;

use parking_lot::Mutex;
use tune::Prior;
use tune::forecast::Forecast;
use tune::limiter::Role;

use super::hard_links;
use crate::batch::BatchContext;
use crate::batch::path_knowledge::{PathKnowledge, RemotePath};
use crate::batch::totals::{BatchTotals, report_failure};
use crate::events::{CopyEvent, CopyForecast, ForecastSource, PathForecast};
use crate::file::stream_plan::StreamPlan;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile};
use crate::work::file::part_size;
use ftp::Failure;
use ftp::location::StorageId;

/// How often a dry run looks for more entries.
const DRY_RUN_POLL: Duration = Duration::from_millis(50);
/// Round trips of a login, the opening of streams and the last checksum.
const SETUP_ROUND_TRIPS: u32 = 8;
/// Smaller files, on average, may take longer than their bytes: up to [`ROUND_TRIPS_PER_FILE`] each.
const SMALL_FILE: u64 = 4 << 20;
const ROUND_TRIPS_PER_FILE: u32 = 2;

/// Reports what would be copied.
pub(super) async fn show(ctx: &BatchContext, plan: &CopyPlan, totals: &Mutex<BatchTotals>) {
    if ctx.options.forecast {
        return tell_forecast(ctx, plan, totals).await;
    }
    let report = |item: &PlannedFile, bytes| {
        ctx.observer.on_event(CopyEvent::WouldCopy {
            source: item.source.display(),
            destination: item.destination.display(),
            bytes,
        });
    };
    for_each_file(ctx, plan, totals, report).await;
}

/// Reports what the whole copy would take.
async fn tell_forecast(ctx: &BatchContext, plan: &CopyPlan, totals: &Mutex<BatchTotals>) {
    let mut works: Vec<PathWork> = Vec::new();
    for_each_file(ctx, plan, totals, |item, bytes| {
        let ends = (item.source.storage_id(), item.destination.storage_id());
        let known = works.iter().rposition(|work| work.ends == ends);
        let index = known.unwrap_or_else(|| {
            works.push(PathWork::between(ends));
            works.len() - 1
        });
        works[index].add(part_size(&ctx.options.file, bytes));
    })
    .await;
    let mut paths = Vec::new();
    for work in works {
        match work.forecast(ctx).await {
            Ok(path) => paths.push(path),
            Err(failure) => {
                return report_failure(&ctx.observer, totals, work.ends.0.to_string(), failure);
            }
        }
    }
    let sum = |time: Forecast, path: &PathForecast| path.time.map(|next| time.then(next));
    ctx.observer.on_event(CopyEvent::Forecast(CopyForecast {
        files: paths.iter().map(|path| path.files).sum(),
        bytes: paths.iter().map(|path| path.bytes).sum(),
        time: paths.iter().try_fold(Forecast::NOW, sum),
        paths,
    }));
}

/// The files between two storages.
struct PathWork {
    ends: (StorageId, StorageId),
    files: u64,
    bytes: u64,
    unsized_files: u64,
    largest: u64,
}

impl PathWork {
    fn between(ends: (StorageId, StorageId)) -> Self {
        Self {
            ends,
            files: 0,
            bytes: 0,
            unsized_files: 0,
            largest: 0,
        }
    }

    fn add(&mut self, bytes: Option<u64>) {
        self.files += 1;
        self.unsized_files += u64::from(bytes.is_none());
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        self.largest = self.largest.max(bytes.unwrap_or(0));
    }

    /// Looks up what is known of the path. Only the sessions are used that the listing has opened, or one of the same kind.
    async fn forecast(&self, ctx: &BatchContext) -> Result<PathForecast, Failure> {
        let (from, to) = &self.ends;
        let unknown = PathForecast {
            source: from.to_string(),
            destination: to.to_string(),
            files: self.files,
            bytes: self.bytes,
            unsized_files: self.unsized_files,
            settings: None,
            rate: None,
            known_by: ForecastSource::ThisMachine,
            time: None,
        };
        let role = match (from.is_server(), to.is_server()) {
            (true, false) => Role::Receiver,
            (false, true) => Role::Sender,
            (false, false) => return Ok(unknown),
            (true, true) => {
                return Ok(PathForecast {
                    known_by: ForecastSource::BetweenServers,
                    ..unknown
                });
            }
        };
        let [source, destination] = ctx.pool.acquire_both(from, to).await?;
        let remote = match role {
            Role::Receiver => &*source,
            Role::Sender => &*destination,
        };
        let rtt = remote.capabilities().rtt;
        let path = RemotePath::of(ctx, remote, role);
        let mut knowledge = PathKnowledge::default();
        knowledge.recall(ctx, path, Some(self.bytes)).await;
        let known = knowledge.known();
        let size = (self.unsized_files == 0).then_some(self.largest);
        let streams = StreamPlan::for_transfer(ctx, size, false, known, &*source, &*destination);
        let rate = knowledge.goodput(ctx);
        ctx.pool.release(from, source);
        ctx.pool.release(to, destination);
        let time = rate.and_then(|rate| {
            Forecast::before_start(self.bytes, rate, rtt.saturating_mul(SETUP_ROUND_TRIPS))
        });
        Ok(PathForecast {
            settings: Some(settings_in_words(streams, known)),
            rate,
            known_by: match (rate, knowledge.advice()) {
                (None, _) => ForecastSource::Nothing,
                (Some(_), Some(advice)) => ForecastSource::Advice(advice),
                (Some(_), None) => ForecastSource::History,
            },
            time: time
                .filter(|_| self.unsized_files == 0)
                .map(|time| self.with_small_files(time, rtt)),
            ..unknown
        })
    }

    /// Small files may come one by one.
    fn with_small_files(&self, time: Forecast, rtt: Duration) -> Forecast {
        if self.files < 2 || self.bytes / self.files >= SMALL_FILE {
            return time;
        }
        let files = u32::try_from(self.files).unwrap_or(u32::MAX);
        let each = rtt.saturating_mul(ROUND_TRIPS_PER_FILE);
        Forecast {
            latest: time.latest.saturating_add(each.saturating_mul(files)),
            ..time
        }
    }
}

/// Streams, and what is known to help beside them.
fn settings_in_words(streams: StreamPlan, known: &Prior) -> String {
    let others = Prior {
        streams: None,
        ..known.clone()
    };
    let others = others.describe_settings();
    let parts = [Some(streams.in_words()), others];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Reads the plan to its end, without changing anything: each file to copy and its bytes, 0 for a further name.
async fn for_each_file(
    ctx: &BatchContext,
    plan: &CopyPlan,
    totals: &Mutex<BatchTotals>,
    mut each: impl FnMut(&PlannedFile, Option<u64>),
) {
    let mut reader = PlanReader::of(plan);
    loop {
        match reader.next(plan) {
            Ok(NextEntry::Entry(PlannedEntry::File(item))) => each(&item, item.facts.size),
            Ok(NextEntry::Entry(PlannedEntry::HardLink(link)))
                if !hard_links::is_in_place(ctx, &link) =>
            {
                each(&link.file, Some(0));
            }
            Ok(NextEntry::Entry(_)) => {}
            Ok(NextEntry::Pending) => {
                let _ = tokio::time::timeout(DRY_RUN_POLL, plan.grown()).await;
            }
            Ok(NextEntry::End) => return,
            Err(error) => {
                let message = format!("the plan of the copy cannot be read: {error}");
                let failure = Failure::local(message);
                return report_failure(&ctx.observer, totals, String::new(), failure);
            }
        }
    }
}
