//! `longhaul lab league`: the policy `auto` against every fixed setting, over sampled paths in the fluid simulator.
//!
//! [`run`] draws paths ([`SampledPath`]), sends each one's file with `auto` and with every [`StaticSetting`] that its system
//! permits, and compares the completion times. A *ratio* is the time of the best fixed setting divided by that of
//! `auto`: above 1, `auto` is faster. [`trace`] shows one path in detail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use sim::fluid::{AutoFluidOutcome, FluidOutcome, FluidTransfer, SampledPath, StaticSetting};
use tune::path::prior_from_evidence;

mod promise;
mod report;
mod trace;

use self::promise::ToldEnds;

pub use report::LeagueReport;
pub use trace::trace;

/// Numbers of streams of the fixed settings, in the order of the runs: a good setting found early lets bad ones be given up early.
const RUN_ORDER: [u32; 8] = [16, 64, 32, 128, 8, 4, 2, 1];
/// A fixed setting within this factor of the best counts as equally good.
const AS_GOOD: f64 = 1.02;
/// Distance between the first path seeds of two seeds: more than there are paths.
const SEEDS_APART: u64 = 1_000_000;
/// Age of the first transfer's evidence when the second begins.
const EVIDENCE_AGE: Duration = Duration::from_secs(60);

/// A league to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeagueRequest {
    /// Number of paths.
    pub paths: usize,
    /// Seed of the paths, below 10^12.
    pub seed: u64,
    /// `auto` runs twice on each path; the second run begins with what the first one learned, and counts.
    pub history: bool,
}

/// One path of a league. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeagueEntry {
    /// Seed of the path.
    pub path_seed: u64,
    /// The path in one line.
    pub path: String,
    /// Time of the best fixed setting divided by that of `auto`.
    pub ratio: f64,
    /// Time of `auto`.
    pub auto_seconds: f64,
    /// Time of the best fixed setting.
    pub best_seconds: f64,
    /// Streams of the best fixed setting.
    pub best_streams: u32,
    /// Congestion control of the best fixed setting.
    pub best_control: &'static str,
    /// Fewest streams of a fixed setting within 2 % of the best.
    pub lean_streams: u32,
    /// Streams that `auto` began with.
    pub auto_first_streams: u32,
    /// Mean number of streams of `auto`.
    pub auto_mean_streams: f64,
    /// Largest number of streams of `auto`.
    pub auto_peak_streams: u32,
    /// Mean queueing delay with `auto`.
    pub auto_queue_seconds: f64,
    /// The same with the leanest fixed setting within 2 % of the best.
    pub lean_queue_seconds: f64,
    /// Round trip without queue.
    pub rtt_seconds: f64,
    /// Most payload in the windows and send buffers of `auto`, bytes.
    pub auto_memory_bytes: f64,
    /// The same of the leanest fixed setting.
    pub lean_memory_bytes: f64,
    /// Rate of the competitors beside `auto`, as a part of their rate beside the fair fixed setting: one stream of the system's
    /// control. `None` if none ran at the time.
    pub competitors_keep: Option<f64>,
    /// Ends that were told while `auto` ran.
    #[serde(skip)]
    told: ToldEnds,
    /// The rest of the file was extrapolated, with `auto` or with the best fixed setting.
    pub is_extrapolated: bool,
    /// The path loses segments without congestion.
    pub is_lossy: bool,
    /// Other flows share the bottleneck. The more streams, the larger is the share that they leave to a transfer.
    pub has_competitors: bool,
    /// The system permits BBR.
    pub permits_bbr: bool,
}

impl LeagueEntry {
    /// Whether `auto` used more than twice the streams of the leanest good setting.
    pub fn has_many_streams(&self) -> bool {
        self.auto_mean_streams > 2.0 * f64::from(self.lean_streams)
    }
}

/// Fixed settings and their outcomes on one path, in order of control and streams. Unless `completely`, a run ends when
/// it is too slow to be as good as the best.
fn run_static(sampled: &SampledPath, completely: bool) -> Vec<(StaticSetting, FluidOutcome)> {
    let mut runs: Vec<(StaticSetting, FluidOutcome)> = Vec::new();
    let mut best = f64::INFINITY;
    let is_shared = !sampled.path.competitors.is_empty();
    // Many flows with few segments each overrun the simulated policer: no setting is faster than it lets through.
    let least_time = sampled.path.policer.map_or(0.0, |policer| {
        (sampled.bytes as f64 - policer.bucket) * 8.0 / policer.rate
    });
    // The last control is the loss-tolerant one, if there are two.
    for control in sampled.permitted.iter().rev() {
        for streams in RUN_ORDER {
            let setting = StaticSetting {
                streams,
                control: *control,
            };
            // Beside others, the best fixed setting is the best fair one: a stream of the system's control.
            if is_shared && (streams > 1 || Some(control) != sampled.permitted.first()) {
                continue;
            }
            let mut transfer = transfer_over(sampled, 1);
            if !completely {
                transfer.give_up_after = best * AS_GOOD;
            }
            let outcome = transfer.run_static(setting);
            if outcome.elapsed < least_time {
                continue;
            }
            best = best.min(outcome.elapsed);
            runs.push((setting, outcome));
        }
    }
    runs.sort_by_key(|(setting, _)| (setting.control, setting.streams));
    runs
}

fn run_auto(sampled: &SampledPath, history: bool) -> AutoFluidOutcome {
    let prior = history.then(|| {
        let first = transfer_over(sampled, 2).run_auto(&sampled.permitted, None);
        prior_from_evidence(&first.evidence, EVIDENCE_AGE)
    });
    transfer_over(sampled, 1).run_auto(&sampled.permitted, prior)
}

/// The file over the path. Runs with different numbers have different losses.
fn transfer_over(sampled: &SampledPath, run: u64) -> FluidTransfer<'_> {
    FluidTransfer {
        path: &sampled.path,
        bytes: sampled.bytes,
        seed: sampled.seed.wrapping_mul(31).wrapping_add(run),
        give_up_after: f64::INFINITY,
    }
}

/// The best of the settings, and the leanest that is as good.
fn best_and_leanest(
    settings: &[(StaticSetting, FluidOutcome)],
) -> Option<[&(StaticSetting, FluidOutcome); 2]> {
    let best = settings
        .iter()
        .min_by(|(_, a), (_, b)| a.elapsed.total_cmp(&b.elapsed))?;
    let leanest = settings
        .iter()
        .filter(|(_, outcome)| outcome.elapsed <= best.1.elapsed * AS_GOOD)
        .min_by_key(|(setting, _)| setting.streams)?;
    Some([best, leanest])
}

/// Compares `auto` with the fixed settings on the path of this seed.
fn compare(path_seed: u64, history: bool) -> Option<LeagueEntry> {
    let sampled = SampledPath::draw(path_seed);
    let settings = run_static(&sampled, false);
    let [best, leanest] = best_and_leanest(&settings)?;
    let auto = run_auto(&sampled, history);
    let outcome = &auto.outcome;
    Some(LeagueEntry {
        path_seed,
        path: sampled.describe(),
        ratio: best.1.elapsed / outcome.elapsed,
        auto_seconds: outcome.elapsed,
        best_seconds: best.1.elapsed,
        best_streams: best.0.streams,
        best_control: best.0.control.name(),
        lean_streams: leanest.0.streams,
        auto_first_streams: auto.first_streams,
        auto_mean_streams: outcome.mean_streams,
        auto_peak_streams: outcome.peak_streams,
        auto_queue_seconds: outcome.queueing_delay,
        lean_queue_seconds: leanest.1.queueing_delay,
        rtt_seconds: sampled.path.rtt,
        auto_memory_bytes: outcome.peak_memory,
        lean_memory_bytes: leanest.1.peak_memory,
        competitors_keep: outcome
            .competitor_rate
            .zip(best.1.competitor_rate)
            .map(|(beside_auto, beside_one)| beside_auto / beside_one.max(1.0)),
        told: ToldEnds::of(&auto, sampled.bytes),
        is_extrapolated: outcome.is_extrapolated || best.1.is_extrapolated,
        is_lossy: sampled.path.loss.ratio > 0.0,
        has_competitors: !sampled.path.competitors.is_empty(),
        permits_bbr: sampled.permitted.len() > 1,
    })
}

/// Runs a league on all processors. The entries are in the order of their path seeds; the same request gives the
/// same entries.
pub fn run(request: &LeagueRequest) -> LeagueReport {
    let first = request.seed.wrapping_mul(SEEDS_APART);
    let seeds: Vec<u64> = (0..request.paths as u64).map(|n| first + n).collect();
    LeagueReport {
        request: request.clone(),
        entries: compare_all(&seeds, request.history),
    }
}

fn compare_all(seeds: &[u64], history: bool) -> Vec<LeagueEntry> {
    let next = AtomicUsize::new(0);
    let worker = || -> Vec<LeagueEntry> {
        let seeds = std::iter::from_fn(|| seeds.get(next.fetch_add(1, Ordering::Relaxed)));
        seeds.filter_map(|seed| compare(*seed, history)).collect()
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut entries = thread::scope(|scope| {
        let others: Vec<_> = (1..processors).map(|_| scope.spawn(worker)).collect();
        let mut entries = worker();
        for other in others {
            entries.extend(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        entries
    });
    entries.sort_unstable_by_key(|entry| entry.path_seed);
    entries
}

#[cfg(test)]
mod tests;
