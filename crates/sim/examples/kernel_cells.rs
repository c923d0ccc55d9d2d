//! Sampled paths that the lab can emulate, with a number of streams and the time of a file in the fluid simulator: the cells of
//! `tests/fluid-against-kernel`. A line each: seed, round trip in ms, rate in Mbit/s, loss in per cent, queue in bytes, streams,
//! congestion control, bytes, seconds.

#![allow(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a list for a script; sizes of files are small and positive"
)]

use sim::fluid::{
    BottleneckPath, EndLimit, FluidControl, FluidTransfer, QueueDiscipline, SampledPath,
    StaticSetting,
};

const CELLS: usize = 30;
const STREAMS: [u32; 4] = [1, 4, 16, 64];
const CONTROLS: [FluidControl; 2] = [FluidControl::Cubic, FluidControl::Bbr];
/// A file takes about this time at the rate of the path, and at most the second one, seconds.
const TIMES: (f64, f64) = (4.0, 12.0);

fn main() {
    let paths = (3_000_000..).map(SampledPath::draw).filter(is_emulated);
    for (n, sampled) in paths.take(CELLS).enumerate() {
        // The kernel's buffers grow as far as these paths need.
        let path = BottleneckPath {
            receive_window: 1e10,
            send_buffer: 1e10,
            ..sampled.path
        };
        let setting = StaticSetting {
            streams: STREAMS[n % STREAMS.len()],
            control: CONTROLS[n / STREAMS.len() % CONTROLS.len()],
        };
        let mut bytes = path.rate / 8.0 * TIMES.0;
        let first = seconds(&path, bytes, setting);
        bytes *= (TIMES.1 / first).min(1.0);
        println!(
            "{} {:.1} {:.1} {:.4} {:.0} {} {} {bytes:.0} {:.2}",
            sampled.seed,
            path.rtt * 1e3,
            path.rate / 1e6,
            path.loss.ratio * 100.0,
            path.queue,
            setting.streams,
            setting.control.name(),
            seconds(&path, bytes, setting),
        );
    }
}

/// Whether only rate, round trip, queue and independent losses matter, as far as two processors can emulate them.
fn is_emulated(sampled: &SampledPath) -> bool {
    let path = &sampled.path;
    (10e6..=500e6).contains(&path.rate)
        && (0.004..=0.2).contains(&path.rtt)
        && path.queue >= 15_000.0
        && path.discipline == QueueDiscipline::DropTail
        && path.policer.is_none()
        && path.loss.burst <= 1.0
        && path.loss.ratio <= 0.03
        && path.end == EndLimit::Unlimited
        && path.changes.is_empty()
        && path.competitors.is_empty()
}

/// Median time of five runs with different losses.
fn seconds(path: &BottleneckPath, bytes: f64, setting: StaticSetting) -> f64 {
    let mut times: Vec<f64> = (1..=5)
        .map(|seed| {
            let transfer = FluidTransfer {
                path,
                bytes: bytes as u64,
                seed,
                give_up_after: 600.0,
            };
            transfer.run_static(setting).elapsed
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
