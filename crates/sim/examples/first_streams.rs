//! Bound of what any first number of streams reaches for short files: for the league's paths without competitors whose
//! best fixed setting takes less than 2 s, the paths are sorted into classes by round trip (factors of 4) and size (factors of 3.2),
//! and each class gets the number that suits it best *afterwards*. Prints median, 10th percentile and worst of the ratio of times, best setting ÷
//! that number.
//!
//!     cargo run --release -p sim --example first_streams

#![allow(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a calculation for people; classes are small numbers"
)]

use std::collections::BTreeMap;

use sim::fluid::{FluidTransfer, SampledPath, StaticSetting};

const STREAMS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const SHORT: f64 = 2.0;

fn main() {
    let mut classes: BTreeMap<(i32, i32), Vec<Vec<f64>>> = BTreeMap::new();
    for sampled in (1_000_000..1_000_500).map(SampledPath::draw) {
        if let Some(ratios) = ratios(&sampled) {
            let rtt = (sampled.path.rtt.max(1e-4) * 1e4).log2() / 2.0;
            let size = (sampled.bytes as f64).log10() * 2.0;
            classes
                .entry((rtt as i32, size as i32))
                .or_default()
                .push(ratios);
        }
    }
    let mut best: Vec<f64> = classes.values().flat_map(|paths| best_of(paths)).collect();
    best.sort_unstable_by(f64::total_cmp);
    println!(
        "{} paths in {} classes: median {:.3}, 10th percentile {:.3}, worst {:.3}",
        best.len(),
        classes.len(),
        best[best.len() / 2],
        best[best.len() / 10],
        best[0],
    );
}

/// For each number of streams with the system's control, the time of the best setting divided by its own; `None`: the path is not
/// of those that count.
fn ratios(sampled: &SampledPath) -> Option<Vec<f64>> {
    let is_long = sampled.bytes as f64 * 8.0 / sampled.path.rate > SHORT;
    if is_long || !sampled.path.competitors.is_empty() {
        return None;
    }
    let times = sampled.permitted.iter().map(|control| {
        let time = |streams| {
            let transfer = FluidTransfer {
                path: &sampled.path,
                bytes: sampled.bytes,
                seed: sampled.seed.wrapping_mul(31).wrapping_add(1),
                give_up_after: 10.0 * SHORT,
            };
            let control = *control;
            transfer
                .run_static(StaticSetting { streams, control })
                .elapsed
        };
        STREAMS.map(time)
    });
    let times: Vec<_> = times.collect();
    let best = times
        .iter()
        .flatten()
        .copied()
        .fold(f64::INFINITY, f64::min);
    (best < SHORT).then(|| times[0].map(|time| best / time).to_vec())
}

/// The ratios with the number that has the largest geometric mean over these paths.
fn best_of(paths: &[Vec<f64>]) -> Vec<f64> {
    let of = |n: usize| paths.iter().map(move |ratios| ratios[n]);
    let score = |n: usize| of(n).map(|ratio| ratio.max(1e-4).ln()).sum::<f64>();
    let best = (0..STREAMS.len()).max_by(|a, b| score(*a).total_cmp(&score(*b)));
    best.map_or_else(Vec::new, |n| of(n).collect())
}
