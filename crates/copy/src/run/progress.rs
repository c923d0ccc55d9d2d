//! Progress events and trace samples, a few times a second while files move.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use data::rate::RateLimit;
use parking_lot::Mutex;
use tune::limiter::Limiter;

use crate::batch::totals::{BatchSample, BatchTotals};
use crate::batch::trace::TraceSample;
use crate::batch::{BatchContext, periodic_timer};
use crate::events::CopyProgress;
use crate::events::{CopyEvent, SafeBytes};
use crate::file::decisions;
use crate::plan::CopyPlan;
use crate::work::file::part_size;
use ftp::socket_stats;

/// Interval of progress events.
const PERIOD: Duration = Duration::from_millis(200);
/// Trace samples for each progress event. Buffers that follow a path change every round trip, so a
/// trace needs finer samples.
const TRACE_SAMPLES_PER_EVENT: u32 = 4;
/// Share of the rate limit from which the limit counts as the limiter.
const RATE_LIMIT_SHARE: f64 = 0.85;

/// Reports progress of `plan` until `work` ends.
pub(crate) async fn report_while(
    ctx: &BatchContext,
    plan: &CopyPlan,
    work: impl Future<Output = ()>,
    totals: &Mutex<BatchTotals>,
) {
    let samples_per_event = if ctx.trace.is_some() {
        TRACE_SAMPLES_PER_EVENT
    } else {
        1
    };
    let mut timer = periodic_timer(PERIOD / samples_per_event);
    let mut ticks = 0;
    let mut samples = ProgressSampler::default();
    let _note_moved = NoteMovedOnDrop { ctx, plan, totals };
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            // The end of the work comes first: a tick that is due at the same time would only delay
            // it.
            () = &mut work => break,
            _ = timer.tick() => {
                let sample = samples.sample(ctx, totals);
                ticks += 1;
                if ticks % samples_per_event == 0 {
                    samples.send_progress(ctx, plan, sample, totals);
                }
            }
        }
    }
    // Short batches end before the first tick; the summary needs at least one sample.
    let sample = samples.sample(ctx, totals);
    samples.send_progress(ctx, plan, sample, totals);
}

/// Notes the bytes that have moved when a batch ends, by itself or early.
struct NoteMovedOnDrop<'a> {
    ctx: &'a BatchContext,
    plan: &'a CopyPlan,
    totals: &'a Mutex<BatchTotals>,
}

impl Drop for NoteMovedOnDrop<'_> {
    fn drop(&mut self) {
        let metered = self.ctx.meter.totals();
        let planned = Some(self.plan.size().1).filter(|bytes| *bytes > 0 && self.plan.is_final());
        let safe = SafeBytes {
            bytes: metered.safe,
            of: part_size(&self.ctx.options.file, planned),
        };
        self.totals.lock().note_moved(metered.moved, safe);
    }
}

/// State kept between two samples.
#[derive(Default)]
struct ProgressSampler {
    previous_bytes: HashMap<String, u64>,
    last_sample: Option<Instant>,
    /// Time and byte count when bytes were first seen to move.
    first_movement: Option<(Instant, u64)>,
    /// Files of the last progress event.
    files: u64,
}

impl ProgressSampler {
    fn send_progress(
        &mut self,
        ctx: &BatchContext,
        plan: &CopyPlan,
        sample: BatchSample,
        totals: &Mutex<BatchTotals>,
    ) {
        let metered = ctx.meter.totals();
        let active = ctx.meter.active();
        let (total_files, planned) = plan.size();
        // A part is copied of one file alone, whose whole size is planned.
        let planned = part_size(&ctx.options.file, Some(planned)).unwrap_or(0);
        // Files of a bundle whose bytes have arrived are as good as complete. A bundle that fails takes nothing back: each of
        // its files ends by itself.
        let arrived: u64 = active.iter().map(|file| file.arrived_files()).sum();
        let ended = totals.lock().ended_files().saturating_add(arrived);
        self.files = self.files.max(ended).min(total_files);
        ctx.observer.on_event(CopyEvent::Progress(CopyProgress {
            elapsed: ctx.started.elapsed(),
            bytes: metered.moved,
            safe: metered.safe,
            done: metered.done,
            total_bytes: planned.saturating_sub(metered.left_out),
            is_listed: plan.is_final(),
            // A directory of the plan may have failed, too.
            files: self.files,
            total_files,
            current: active.first().map(|file| file.shown()),
            moving: active.len() as u64,
            streams: metered.streams,
            buffer_bytes: sample.buffer,
            limiter: sample.limiter.map(Limiter::name),
            expected: ctx.meter.expected(),
            away: ctx.pool.outages.longest(),
        }));
    }

    fn sample(&mut self, ctx: &BatchContext, totals: &Mutex<BatchTotals>) -> BatchSample {
        let now = Instant::now();
        let since = now - self.last_sample.replace(now).unwrap_or(ctx.started);
        let mut sample = BatchSample::default();
        let mut previous_bytes = HashMap::new();
        let mut most = 0;
        for file in ctx.meter.active() {
            let streams = file.sample();
            // The file with the most streams carries most of the traffic.
            if streams.len() > most {
                most = streams.len();
                sample.limiter = known_limiter(file.limiter(&streams));
            }
            sample.streams += streams.len() as u64;
            for stream in &streams {
                sample.buffer = sample.buffer.max(socket_stats::buffer(stream));
                sample.memory += stream.socket_memory();
            }
            let Some(trace) = &ctx.trace else {
                continue;
            };
            let bytes = file.moved();
            let earlier = self.previous_bytes.get(&file.name).copied().unwrap_or(0);
            trace.write_sample(&TraceSample {
                time: now - ctx.started,
                since_previous: since,
                file: &file.name,
                bytes,
                new_bytes: bytes.saturating_sub(earlier),
                buffer_set: ctx.options.streams.transfer.buffers.pinned_bytes(),
                streams: &streams,
            });
            previous_bytes.insert(file.name.clone(), bytes);
        }
        self.previous_bytes = previous_bytes;
        let limit = ctx
            .options
            .streams
            .transfer
            .rate
            .as_ref()
            .map(RateLimit::rate);
        if self.check_rate_limit(now, ctx.meter.totals().moved, limit) {
            // Whatever the sockets show, the streams wait for the rate limiter.
            sample.limiter = (sample.streams > 0).then_some(Limiter::RateLimit);
        }
        decisions::report(ctx);
        totals.lock().observe(sample);
        sample
    }
}

impl ProgressSampler {
    /// Notes the first byte; returns whether `limit`, in bytes per second, explains the rate since then.
    fn check_rate_limit(&mut self, now: Instant, moved: u64, limit: Option<u64>) -> bool {
        let Some(limit) = limit.filter(|_| moved > 0) else {
            return false;
        };
        let (since, previous_bytes) = *self.first_movement.get_or_insert((now, moved));
        let allowed = limit as f64 * (now - since).as_secs_f64();
        allowed > 0.0 && (moved - previous_bytes) as f64 >= RATE_LIMIT_SHARE * allowed
    }
}

fn known_limiter(limiter: Limiter) -> Option<Limiter> {
    (limiter != Limiter::Unknown).then_some(limiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_near_the_limit_is_attributed_to_the_limit() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut samples = ProgressSampler::default();
        // Bytes that were sent before the limit took effect do not count.
        assert!(!samples.check_rate_limit(start, 0, Some(1000)));
        assert!(!samples.check_rate_limit(start, 900, Some(1000)));
        assert!(samples.check_rate_limit(after(1000), 1850, Some(1000)));
        assert!(!samples.check_rate_limit(after(2000), 2000, Some(1000)));
        assert!(!samples.check_rate_limit(after(2000), 9000, None));
    }
}
