//! Progress events and trace samples, a few times a second while files move.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use data::os::TcpInfo;

use super::tally::Tally;
use super::{Context, every, lock};
use crate::Event;
use crate::trace::Snapshot;

/// Between two progress events, and between two samples of a trace.
const PERIOD: Duration = Duration::from_millis(200);

/// Reports until `work` ends.
pub(super) async fn while_running(
    ctx: &Context,
    work: impl Future<Output = ()>,
    tally: &Mutex<Tally>,
) {
    let mut timer = every(PERIOD);
    let mut samples = Samples::default();
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            () = &mut work => break,
            _ = timer.tick() => samples.take(ctx, tally),
        }
    }
    samples.take(ctx, tally);
}

/// What the previous tick saw of each file.
#[derive(Default)]
struct Samples {
    before: HashMap<String, u64>,
    last: Option<Instant>,
}

impl Samples {
    fn take(&mut self, ctx: &Context, tally: &Mutex<Tally>) {
        let now = Instant::now();
        let since = now - self.last.replace(now).unwrap_or(ctx.started);
        let mut buffer = 0;
        let mut before = HashMap::new();
        for file in ctx.meter.active() {
            let streams = file.sample();
            buffer = streams
                .iter()
                .map(|s| in_use(&s.info))
                .fold(buffer, u64::max);
            let Some(trace) = &ctx.trace else {
                continue;
            };
            let bytes = file.moved();
            let earlier = self.before.get(&file.name).copied().unwrap_or(0);
            trace.write(&Snapshot {
                time: now - ctx.started,
                since,
                file: &file.name,
                bytes,
                fresh: bytes.saturating_sub(earlier),
                buffer_set: ctx.options.buffer.pinned(),
                streams: &streams,
            });
            before.insert(file.name.clone(), bytes);
        }
        self.before = before;
        let totals = ctx.meter.totals();
        lock(tally).see(totals.streams, buffer);
        ctx.observer.event(Event::Progress {
            bytes: totals.moved,
            safe: totals.safe,
            streams: totals.streams,
            buffer_bytes: buffer,
        });
    }
}

/// Bytes of buffer that a stream uses: what the receiver's autotuning has reached, or what the
/// sender holds for its window.
fn in_use(info: &TcpInfo) -> u64 {
    let window = u64::from(info.snd_cwnd) * u64::from(info.snd_mss);
    match info.bytes_acked > info.bytes_received {
        true => window + u64::from(info.notsent_bytes),
        false => u64::from(info.rcv_space),
    }
}
