//! All files of a batch share this: its options, the sessions with its storages and their retries, its knowledge of paths
//! and of renames, its measurements.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use crate::events::{CopyEvent, CopyObserver};
use crate::local::local_trees::LocalTrees;
use crate::options::CopyOptions;
use crate::storage_access::StorageAccess;
use ftp::Failure;
use ftp::netrc_warning;
use ftp::session::ListingUse;

mod failure_cause;
pub(crate) mod measurement;
pub(crate) mod meter;
mod named_places;
mod outages;
pub(crate) mod parts_elsewhere;
pub(crate) mod path_advice;
pub(crate) mod path_knowledge;
mod path_memory;
mod place_keys;
pub(crate) mod pool;
mod renames;
pub(crate) mod retry;
mod retrying;
mod servers_apart;
pub(crate) mod totals;
pub(crate) mod trace;
pub(crate) mod why;

use meter::BatchMeter;
use parts_elsewhere::PartMovers;
use path_advice::AdviceQuestions;
use place_keys::BucketServers;
use pool::StorageSessionPool;
use renames::KnownRenames;
use servers_apart::ServersApart;
use trace::TraceFile;

/// First and longest interval between two checks whether another copy has released a destination.
const FIRST_BUSY_POLL: Duration = Duration::from_millis(100);
const MAX_BUSY_POLL: Duration = Duration::from_secs(5);

/// State shared by all files of a batch.
pub(crate) struct BatchContext {
    pub(crate) options: CopyOptions,
    pub(crate) observer: Arc<dyn CopyObserver>,
    pub(crate) pool: Arc<StorageSessionPool>,
    /// The local directories that the command names.
    pub(crate) trees: Arc<LocalTrees>,
    pub(crate) meter: Arc<BatchMeter>,
    pub(crate) renames: KnownRenames,
    pub(crate) apart: ServersApart,
    pub(crate) trace: Option<TraceFile>,
    /// Seed for the jitter of retry delays.
    pub(crate) seed: u64,
    pub(crate) started: Instant,
    pub(crate) given_warnings: Mutex<HashSet<String>>,
    pub(crate) advice: AdviceQuestions,
    /// Processes that move parts of large files.
    pub(crate) parts: PartMovers,
    bucket_servers: BucketServers,
}

impl BatchContext {
    pub(crate) fn new(
        options: CopyOptions,
        observer: Arc<dyn CopyObserver>,
    ) -> Result<Self, Failure> {
        Self::for_use(ListingUse::Reading, options, observer)
    }

    /// A batch that uses listings so.
    pub(crate) fn for_use(
        listing_use: ListingUse,
        options: CopyOptions,
        observer: Arc<dyn CopyObserver>,
    ) -> Result<Self, Failure> {
        let trace = options
            .trace
            .as_deref()
            .map(TraceFile::create)
            .transpose()?;
        let trees = Arc::new(LocalTrees::default());
        Ok(Self {
            pool: Arc::new(StorageSessionPool::new(StorageAccess {
                timeout: options.streams.transfer.stall,
                foreign_data: options.streams.allow_foreign_data,
                listing_use,
                sync_policy: options.file.sync_policy,
                trees: Arc::clone(&trees),
            })),
            trees,
            meter: Arc::default(),
            renames: KnownRenames::default(),
            apart: ServersApart::default(),
            trace,
            // Jitter differs between processes, so that copies that lost the same server do not
            // reconnect in step.
            seed: RandomState::new().hash_one(std::process::id()),
            started: Instant::now(),
            given_warnings: Mutex::default(),
            advice: AdviceQuestions::new(options.advice.clone(), Arc::clone(&observer)),
            parts: PartMovers::default(),
            bucket_servers: BucketServers::default(),
            options,
            observer,
        })
    }

    /// Warns of a ~/.netrc that cannot be used.
    pub(crate) fn warn_of_netrc(&self) {
        if let Some(problem) = netrc_warning() {
            self.warn(problem.to_owned());
        }
    }

    /// Waits before the next check whether another copy has released the file, longer each time.
    pub(crate) async fn wait_for_other_copy(&self, failure: &Failure, waited: u32) {
        // The advice is to use --wait, which the user already follows.
        self.warn(format!("{}; waiting", failure.reason()));
        let pause = FIRST_BUSY_POLL * 2_u32.saturating_pow(waited);
        tokio::time::sleep(pause.min(MAX_BUSY_POLL)).await;
    }

    /// Warns the user. Equal texts are reported once.
    pub(crate) fn warn(&self, text: String) {
        if self.given_warnings.lock().insert(text.clone()) {
            self.observer.on_event(CopyEvent::Warning(text));
        }
    }

    pub(crate) fn warn_all(&self, texts: Vec<String>) {
        for text in texts {
            self.warn(text);
        }
    }
}

/// A timer that does not catch up on missed ticks.
pub(crate) fn periodic_timer(period: Duration) -> tokio::time::Interval {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.reset();
    timer
}
