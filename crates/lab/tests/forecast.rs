//! The promise of the forecast on the paths of the lab: simulated transfers that begin with one stream and add
//! more, as `auto` does.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; the measured coverage"
)]

use std::time::Duration;

use link::{Conditions, Loss, Queue};
use sim::tcp::{CongestionAlgorithm, TcpConfig};
use sim::transfer::{InitialStreams, SimSettings, SimTransfer};
use sim::world::{CrossTraffic, FlowSpec, Scenario};
use tune::forecast::{Forecast, Forecaster, ProgressSample};
use units::Rate;

/// Time between two samples.
const TICK: Duration = Duration::from_millis(200);
/// In the last seconds streams end one by one.
const LAST: Duration = Duration::from_secs(3);
/// Rate of the bottleneck, bit/s.
const RATE: u64 = 10_000_000;

#[derive(Debug, Clone, Copy)]
struct ForecastPath {
    rtt_ms: u64,
    loss: f64,
    /// Queue, per cent of the BDP.
    queue: u64,
    cross_flows: usize,
    /// Rate of bursts, per cent of the link's.
    bursts: u64,
}

fn flow() -> FlowSpec {
    FlowSpec {
        tcp: TcpConfig {
            congestion: CongestionAlgorithm::Cubic,
            ..TcpConfig::default()
        },
        ..FlowSpec::default()
    }
}

/// Time and amount of each sample.
fn transfer(path: ForecastPath, bytes: u64, seed: u64) -> Vec<(Duration, u64)> {
    let delay = Duration::from_micros(path.rtt_ms * 500);
    let bdp = RATE / 8 / 1500 * path.rtt_ms / 1000;
    let queue = u32::try_from(bdp * path.queue / 100).unwrap();
    let bursts = CrossTraffic {
        rate: Rate::bits_per_second(path.bursts * RATE / 100),
        packet_bytes: 1500,
        start: Duration::ZERO,
        stop: None,
        bursts: Some((Duration::from_secs(3), Duration::from_secs(3))),
    };
    let scenario = Scenario {
        forward: Conditions {
            rate: Some(Rate::bits_per_second(RATE)),
            delay,
            queue: Queue::Packets(queue.max(20)),
            loss: Loss::Independent(path.loss),
            ..Conditions::default()
        },
        reverse: Conditions {
            delay,
            ..Conditions::default()
        },
        flows: vec![flow(); path.cross_flows],
        cross_traffic: if path.bursts > 0 {
            vec![bursts]
        } else {
            Vec::new()
        },
        seed,
    };
    let transfer = SimTransfer {
        bytes,
        block: 64 << 10,
        streams: InitialStreams::Fixed(1),
        stream: flow(),
        tick: TICK,
        deadline: Duration::from_secs(900),
    };
    let mut samples = Vec::new();
    let outcome = transfer.run(&scenario, |sample| {
        samples.push((sample.at, sample.delivered_bytes));
        // Twice as many every two seconds.
        let doublings = (sample.at.as_secs() / 2).min(3);
        let streams = 1 << doublings;
        (sample.settings.streams != streams).then_some(SimSettings {
            streams,
            ..sample.settings
        })
    });
    assert!(outcome.complete);
    samples
}

/// Forecasts that held, and all; half-widths relative to the remaining time.
#[derive(Debug, Default)]
struct PathScore {
    held: u32,
    of: u32,
    widths: Vec<f64>,
}

impl PathScore {
    fn add(&mut self, forecast: Forecast, left: Duration) {
        let Forecast {
            earliest,
            expected,
            latest,
        } = forecast;
        self.held += u32::from(earliest <= left && left <= latest);
        self.of += 1;
        // The last seconds are told to the second.
        if expected.as_secs() >= 10 {
            let width = (latest - earliest).as_secs_f64() / 2.0;
            self.widths.push(width / expected.as_secs_f64());
        }
    }

    fn coverage(&self) -> f64 {
        f64::from(self.held) / f64::from(self.of)
    }

    fn median_width(&self) -> f64 {
        let mut widths = self.widths.clone();
        widths.sort_by(f64::total_cmp);
        widths[widths.len() / 2]
    }
}

/// The scores of forecasts before 30 s and after.
fn forecasts(path: ForecastPath, scores: &mut [PathScore; 2]) {
    for (seed, bytes) in [(1, 50_000_000), (2, 100_000_000)] {
        let samples = transfer(path, bytes, seed);
        let end = samples.last().unwrap().0;
        let mut forecaster = Forecaster::default();
        for (index, (at, moved)) in samples.iter().enumerate() {
            forecaster.add(ProgressSample {
                at: *at,
                bytes_moved: *moved,
                bytes_left: bytes - moved,
                ..ProgressSample::default()
            });
            let left = end - *at;
            let counts = left >= LAST && index % 10 == 0;
            if let Some(forecast) = forecaster.forecast().filter(|_| counts) {
                scores[usize::from(at.as_secs() >= 30)].add(forecast, left);
            }
        }
    }
}

#[test]
fn the_interval_holds_80_percent_of_the_time_on_the_paths_of_the_lab_and_is_narrow_after_30_seconds()
 {
    let path = |rtt_ms, loss, queue| ForecastPath {
        rtt_ms,
        loss,
        queue,
        cross_flows: 0,
        bursts: 0,
    };
    let with_others = |rtt_ms, cross_flows, bursts| ForecastPath {
        cross_flows,
        bursts,
        ..path(rtt_ms, 0.0, 100)
    };
    let quiet = [
        path(20, 0.0, 100),
        path(100, 0.0, 100),
        path(100, 0.0, 20),
        path(200, 0.0, 100),
        path(100, 1e-4, 100),
        path(100, 1e-3, 100),
        path(200, 1e-3, 50),
    ];
    let shared = [
        with_others(50, 1, 0),
        with_others(100, 3, 0),
        with_others(100, 0, 40),
        with_others(50, 1, 30),
    ];
    let all = [(quiet.as_slice(), 0.15), (shared.as_slice(), 0.4)].map(|(paths, width)| {
        let mut scores = [PathScore::default(), PathScore::default()];
        paths.iter().for_each(|path| forecasts(*path, &mut scores));
        (scores, width)
    });
    for (scores, width) in &all {
        for score in scores {
            println!(
                "held {:.2} of {}, half-width {:.3}",
                score.coverage(),
                score.of,
                score.median_width()
            );
        }
        assert!(
            scores[1].median_width() <= *width,
            "{}",
            scores[1].median_width()
        );
    }
    for whens in [&[1][..], &[0, 1]] {
        let scores = all
            .iter()
            .flat_map(|(scores, _)| whens.iter().map(|when| &scores[*when]));
        let (held, of) = scores.fold((0, 0), |(held, of), s| (held + s.held, of + s.of));
        println!("held {held} of {of}");
        assert!(held * 10 >= of * 8, "{held} of {of}");
    }
}
