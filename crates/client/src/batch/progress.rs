//! Progress events and trace samples, a few times a second while files move.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use data::rate::RateLimit;
use tune::limiter::Limiter;

use super::meter::TuningDecision;
use super::totals::{BatchSample, BatchTotals};
use super::{BatchContext, every, lock};
use crate::trace::{TraceFile, TraceSample};
use crate::{CopyEvent, socket_stats};

/// Between two progress events.
const PERIOD: Duration = Duration::from_millis(200);
/// Samples of a trace between two progress events: buffers that follow a path change every round
/// trip.
const TRACED: u32 = 4;
/// From this share of an allowed rate on, it is what limits.
const AT_THE_LIMIT: f64 = 0.85;

/// Reports until `work` ends.
pub(super) async fn while_running(
    ctx: &BatchContext,
    work: impl Future<Output = ()>,
    tally: &Mutex<BatchTotals>,
) {
    let finer = if ctx.trace.is_some() { TRACED } else { 1 };
    let mut timer = every(PERIOD / finer);
    let mut ticks = 0;
    let mut samples = ProgressSampler::default();
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            () = &mut work => break,
            _ = timer.tick() => {
                let seen = samples.take(ctx, tally);
                ticks += 1;
                if ticks % finer == 0 {
                    progress(ctx, seen);
                }
            }
        }
    }
    let seen = samples.take(ctx, tally);
    progress(ctx, seen);
}

fn progress(ctx: &BatchContext, seen: BatchSample) {
    let totals = ctx.meter.totals();
    ctx.observer.on_event(CopyEvent::Progress {
        bytes: totals.moved,
        safe: totals.safe,
        streams: totals.streams,
        buffer_bytes: seen.buffer,
        limiter: seen.limiter.map(Limiter::name),
    });
}

/// What the previous tick saw of each file.
#[derive(Default)]
struct ProgressSampler {
    before: HashMap<String, u64>,
    last: Option<Instant>,
    /// When bytes were first seen to move, and how many had.
    moving: Option<(Instant, u64)>,
}

impl ProgressSampler {
    fn take(&mut self, ctx: &BatchContext, tally: &Mutex<BatchTotals>) -> BatchSample {
        let now = Instant::now();
        let since = now - self.last.replace(now).unwrap_or(ctx.started);
        let mut seen = BatchSample::default();
        let mut before = HashMap::new();
        let mut most = 0;
        for file in ctx.meter.active() {
            let streams = file.sample();
            if streams.len() > most {
                most = streams.len();
                seen.limiter = known(file.limiter(&streams));
            }
            seen.streams += streams.len() as u64;
            for stream in &streams {
                seen.buffer = seen.buffer.max(socket_stats::buffer(stream));
                seen.memory += stream.memory.held();
            }
            let Some(trace) = &ctx.trace else {
                continue;
            };
            let bytes = file.moved();
            let earlier = self.before.get(&file.name).copied().unwrap_or(0);
            trace.write(&TraceSample {
                time: now - ctx.started,
                since,
                file: &file.name,
                bytes,
                fresh: bytes.saturating_sub(earlier),
                buffer_set: ctx.options.transfer.buffers.pinned_bytes(),
                streams: &streams,
            });
            before.insert(file.name.clone(), bytes);
        }
        self.before = before;
        let limit = ctx.options.transfer.rate.as_ref().map(RateLimit::rate);
        if self.at_the_limit(now, ctx.meter.totals().moved, limit) {
            // Whatever the sockets look like, they wait for this.
            seen.limiter = (seen.streams > 0).then_some(Limiter::RateLimit);
        }
        write_decisions(ctx, ctx.trace.as_ref());
        lock(tally).see(seen);
        seen
    }
}

impl ProgressSampler {
    /// Whether `limit`, bytes per second, explains the rate since bytes began to move.
    fn at_the_limit(&mut self, now: Instant, moved: u64, limit: Option<u64>) -> bool {
        let Some(limit) = limit.filter(|_| moved > 0) else {
            return false;
        };
        let (since, before) = *self.moving.get_or_insert((now, moved));
        let allowed = limit as f64 * (now - since).as_secs_f64();
        allowed > 0.0 && (moved - before) as f64 >= AT_THE_LIMIT * allowed
    }
}

fn known(limiter: Limiter) -> Option<Limiter> {
    (limiter != Limiter::Unknown).then_some(limiter)
}

/// They are taken also when nobody wants them: those of files that ended are kept until then.
fn write_decisions(ctx: &BatchContext, trace: Option<&TraceFile>) {
    for decided in ctx.meter.decisions() {
        if let Some(trace) = trace {
            let time = decided.at.saturating_duration_since(ctx.started);
            match &decided.decision {
                TuningDecision::Buffers(decision) => trace.decided(time, &decided.file, decision),
                TuningDecision::Streams(decision) => {
                    trace.streams_decided(time, &decided.file, decision);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_near_the_one_that_is_allowed_is_limited_by_it() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut samples = ProgressSampler::default();
        // What came at once, before the limit took hold, says nothing.
        assert!(!samples.at_the_limit(begun, 0, Some(1000)));
        assert!(!samples.at_the_limit(begun, 900, Some(1000)));
        assert!(samples.at_the_limit(after(1000), 1850, Some(1000)));
        assert!(!samples.at_the_limit(after(2000), 2000, Some(1000)));
        assert!(!samples.at_the_limit(after(2000), 9000, None));
    }
}
