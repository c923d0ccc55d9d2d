//! Paths drawn from a seed: the world in which policies are compared.
//!
//! Every quantity is log-uniform within its bounds unless stated otherwise.
//!
//! | property | distribution |
//! | --- | --- |
//! | rate | 10 Mbit/s to 10 Gbit/s |
//! | round trip | 0.25 to 300 ms |
//! | file | 1 MB to 100 GB |
//! | loss | none on half of the paths, else 1e-5 to 5 %; a third of these in bursts of 2 to 10 segments |
//! | queue | 0.05 to 10 BDP; 75 % drop-tail, 10 % FQ-CoDel, 7 % RED, 8 % a policer with 5 to 200 ms of bucket before twice to ten times its rate |
//! | receive window | 35 %: a cap of 64 KB to 16 MB; else 4 MB (a `tcp_rmem` of 6 MB) or 21 MB (32 MB), even odds |
//! | send buffer | 25 %: a cap of 128 KB to 16 MB as reported; else 4 MB (`tcp_wmem`) or 64 MB, even odds |
//! | change | 20 %: the rate by a factor of 0.2 to 5, the round trip by 0.5 to 2, or the loss to none or 1e-5 to 5 %, after 1 to 30 s |
//! | competitors | 30 %: 1 to 4 CUBIC flows; each begins at 0 (half of them) or after 1 to 20 s, and stays or ends after 2 to 20 s, even odds |
//! | ends | 15 %: a slow store of the source or of the sink, or a limit per stream, of 0.05 to 0.9 of the path's rate |
//! | system | half permit `cubic` alone, half `cubic` and `bbr`; `cubic` is the default |

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::control::FluidControl;
use super::path::{
    BottleneckPath, Competitor, EndLimit, FluidChange, FluidLoss, FluidPolicer, QueueDiscipline,
};

/// A path with a file to send over it.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledPath {
    /// Seed from which it was drawn.
    pub seed: u64,
    /// The path.
    pub path: BottleneckPath,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Congestion controls that the sender's system permits; the first is its default.
    pub permitted: Vec<FluidControl>,
}

struct PathDraws(Pcg64Mcg);

impl PathDraws {
    /// A log-uniform number.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.0.random::<f64>())
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.0.random::<f64>() < probability
    }

    fn one_of(&mut self, from: [f64; 2]) -> f64 {
        from[usize::from(self.happens(0.5))]
    }
}

impl SampledPath {
    /// The path of this seed.
    pub fn draw(seed: u64) -> Self {
        let mut draws = PathDraws(Pcg64Mcg::seed_from_u64(seed ^ 0x6c65_6167_7565));
        let rate = draws.between(1e7, 1e10);
        let rtt = draws.between(0.000_25, 0.3);
        let bytes = draws.between(1e6, 1e11) as u64;
        let queue = draws.between(0.05, 10.0);
        let mut path = BottleneckPath::new(rate, rtt, queue);
        if draws.happens(0.5) {
            path.loss.ratio = draws.between(1e-5, 0.05);
            if draws.happens(1.0 / 3.0) {
                path.loss.burst = draws.between(2.0, 10.0);
            }
        }
        draw_queue(&mut draws, &mut path);
        path.receive_window = if draws.happens(0.35) {
            draws.between(65_536.0, 16e6)
        } else {
            draws.one_of([4e6, 21e6])
        };
        path.send_buffer = if draws.happens(0.25) {
            draws.between(131_072.0, 16e6)
        } else {
            draws.one_of([4_194_304.0, 67_108_864.0])
        };
        if draws.happens(0.2) {
            path.changes.push(draw_change(&mut draws, &path));
        }
        if draws.happens(0.3) {
            for _ in 0..draws.0.random_range(1..=4) {
                path.competitors.push(draw_competitor(&mut draws));
            }
        }
        if draws.happens(0.15) {
            let limit = path.rate / 8.0 * draws.between(0.05, 0.9);
            path.end = match draws.0.random_range(0..3) {
                0 => EndLimit::Source(limit),
                1 => EndLimit::Sink(limit),
                _ => EndLimit::PerStream(limit),
            };
        }
        let permitted = if draws.happens(0.5) {
            vec![FluidControl::Cubic, FluidControl::Bbr]
        } else {
            vec![FluidControl::Cubic]
        };
        Self {
            seed,
            path,
            bytes,
            permitted,
        }
    }

    /// The path in one line.
    pub fn describe(&self) -> String {
        let path = &self.path;
        let mut parts = vec![
            units::show::rate(path.rate),
            show_ms(path.rtt),
            format!("{:.2} BDP queue", path.queue / path.bdp()),
        ];
        match path.discipline {
            QueueDiscipline::DropTail => {}
            QueueDiscipline::Red => parts.push("RED".to_owned()),
            QueueDiscipline::FqCodel => parts.push("FQ-CoDel".to_owned()),
        }
        if let Some(policer) = path.policer {
            let ms = policer.bucket * 8.0 / policer.rate;
            parts.push(format!(
                "policed to {} with {}",
                units::show::rate(policer.rate),
                show_ms(ms)
            ));
        }
        let FluidLoss { ratio, burst } = path.loss;
        if ratio > 0.0 {
            let bursts = if burst > 1.0 {
                format!(" in bursts of {burst:.0}")
            } else {
                String::new()
            };
            parts.push(format!("loss {:.4} %{bursts}", ratio * 100.0));
        }
        parts.push(format!("window {}", show_size(path.receive_window)));
        parts.push(format!("send buffer {}", show_size(path.send_buffer)));
        for change in &path.changes {
            parts.push(describe_change(change));
        }
        for other in &path.competitors {
            let until = if other.until.is_finite() {
                format!("{:.1} s", other.until)
            } else {
                "the end".to_owned()
            };
            parts.push(format!("a CUBIC flow from {:.1} s to {until}", other.from));
        }
        let bits = |bytes: f64| units::show::rate(bytes * 8.0);
        match path.end {
            EndLimit::Unlimited => {}
            EndLimit::Source(limit) => parts.push(format!("source {}", bits(limit))),
            EndLimit::Sink(limit) => parts.push(format!("sink {}", bits(limit))),
            EndLimit::PerStream(limit) => parts.push(format!("{} per stream", bits(limit))),
        }
        let names: Vec<&str> = self.permitted.iter().map(|c| c.name()).collect();
        parts.push(names.join("+"));
        parts.push(format!("file {}", show_size(self.bytes as f64)));
        parts.join(", ")
    }
}

fn draw_queue(draws: &mut PathDraws, path: &mut BottleneckPath) {
    match draws.0.random::<f64>() {
        p if p < 0.10 => path.discipline = QueueDiscipline::FqCodel,
        p if p < 0.17 => path.discipline = QueueDiscipline::Red,
        p if p < 0.25 => {
            let rate = path.rate;
            path.policer = Some(FluidPolicer {
                rate,
                bucket: rate / 8.0 * draws.between(0.005, 0.2),
            });
            path.rate = rate * draws.between(2.0, 10.0);
        }
        _ => {}
    }
}

fn draw_change(draws: &mut PathDraws, path: &BottleneckPath) -> FluidChange {
    let mut change = FluidChange {
        at: draws.between(1.0, 30.0),
        rate: None,
        rtt: None,
        loss: None,
    };
    match draws.0.random_range(0..3) {
        0 => change.rate = Some(path.rate * draws.between(0.2, 5.0)),
        1 => change.rtt = Some(path.rtt * draws.between(0.5, 2.0)),
        _ if draws.happens(0.5) => change.loss = Some(0.0),
        _ => change.loss = Some(draws.between(1e-5, 0.05)),
    }
    change
}

fn draw_competitor(draws: &mut PathDraws) -> Competitor {
    let from = if draws.happens(0.5) {
        0.0
    } else {
        draws.between(1.0, 20.0)
    };
    let until = if draws.happens(0.5) {
        f64::INFINITY
    } else {
        from + draws.between(2.0, 20.0)
    };
    Competitor { from, until }
}

fn describe_change(change: &FluidChange) -> String {
    let mut text = format!("at {:.1} s", change.at);
    if let Some(rate) = change.rate {
        text += &format!(" {}", units::show::rate(rate));
    }
    if let Some(rtt) = change.rtt {
        text += &format!(" {}", show_ms(rtt));
    }
    if let Some(loss) = change.loss {
        text += &format!(" loss {:.4} %", loss * 100.0);
    }
    text
}

fn show_ms(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}

fn show_size(bytes: f64) -> String {
    units::show::bytes(bytes as u64)
}
