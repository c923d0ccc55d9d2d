//! The report of simulations as text for people, CSV, and JSON.

use std::time::Duration;

use link::{Loss, Queue};
use sim::tcp::{CongestionAlgorithm, LossRecovery, WindowGrowth};
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode, Optimum, RttCommands};
use units::Rate;

use super::outcome::{SimChunk, SimPoint};
use super::request::{SimRequest, StreamFinder};

/// The simulations of one request, one for each number of connections.
#[derive(Debug, Clone)]
pub struct SimReport {
    /// The request.
    pub request: SimRequest,
    /// The outcomes, in the order of the request's numbers of connections.
    pub points: Vec<SimPoint>,
}

/// A column of a table of `T`.
struct TableColumn<T> {
    /// Name in CSV and JSON.
    csv: &'static str,
    /// Name in the text.
    name: &'static str,
    /// Unit in the text; may be empty.
    unit: &'static str,
    /// Width in the text, characters; 0: the column is in CSV only.
    width: usize,
    /// Writes the value for CSV.
    exact: fn(&T) -> String,
    /// Writes the value for the text.
    shown: fn(&T) -> String,
}

const fn column<T>(
    (csv, name, unit): (&'static str, &'static str, &'static str),
    width: usize,
    exact: fn(&T) -> String,
    shown: fn(&T) -> String,
) -> TableColumn<T> {
    TableColumn {
        csv,
        name,
        unit,
        width,
        exact,
        shown,
    }
}

fn decimals(value: f64) -> String {
    format!("{value:.3}")
}

/// Columns of the table of points, except the seconds of a file and the limiter.
const POINTS: [TableColumn<SimPoint>; 8] = {
    let goodput: fn(&SimPoint) -> String = |p| decimals(p.goodput_mbps);
    let flows: fn(&SimPoint) -> String = |p| p.flows.to_string();
    let drops: fn(&SimPoint) -> String = |p| p.drops.to_string();
    let losses: fn(&SimPoint) -> String = |p| p.losses.to_string();
    let again: fn(&SimPoint) -> String = |p| p.retransmits.to_string();
    let timeouts: fn(&SimPoint) -> String = |p| p.timeouts.to_string();
    let fairness: fn(&SimPoint) -> String = |p| decimals(p.fairness);
    [
        column(("connections", "N", ""), 4, flows, flows),
        column(("goodput_mbps", "goodput", "Mbit/s"), 9, goodput, goodput),
        column(
            ("mean_rtt_ms", "mean RTT", "ms"),
            8,
            |p| p.mean_rtt_ms.map(decimals).unwrap_or_default(),
            |p| {
                p.mean_rtt_ms
                    .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"))
            },
        ),
        column(("drops", "drops", ""), 7, drops, drops),
        column(("losses", "lost", ""), 7, losses, losses),
        column(("retransmits", "sent again", ""), 10, again, again),
        column(("timeouts", "timeouts", ""), 8, timeouts, timeouts),
        column(("jain", "fairness", ""), 8, fairness, fairness),
    ]
};

/// Columns of the table of chunks.
const CHUNKS: [TableColumn<SimChunk>; 8] = {
    let streams: fn(&SimChunk) -> String = |c| c.streams.to_string();
    let goodput: fn(&SimChunk) -> String = |c| decimals(c.goodput_mbps);
    [
        column(
            ("time", "time", "s"),
            8,
            |c| decimals(c.time),
            |c| format!("{:.1}", c.time),
        ),
        column(
            ("seconds", "took", "s"),
            7,
            |c| decimals(c.seconds),
            |c| format!("{:.2}", c.seconds),
        ),
        column(("streams", "N", ""), 4, streams, streams),
        column(
            ("bytes", "", ""),
            0,
            |c| c.bytes.to_string(),
            |_| String::new(),
        ),
        column(("goodput_mbps", "goodput", "Mbit/s"), 9, goodput, goodput),
        column(
            ("rtt_ms", "R", "ms"),
            8,
            |c| decimals(c.rtt_ms),
            |c| format!("{:.1}", c.rtt_ms),
        ),
        column(
            ("queueing_ms", "queueing", "ms"),
            8,
            |c| decimals(c.queueing_ms),
            |c| format!("{:.1}", c.queueing_ms),
        ),
        column(
            ("settled", "", ""),
            0,
            |c| c.settled.to_string(),
            |_| String::new(),
        ),
    ]
};

/// One line of the text: `text` of every column that has a width, right-aligned.
fn line<T>(columns: &[TableColumn<T>], text: impl Fn(&TableColumn<T>) -> String) -> String {
    let shown = columns.iter().filter(|column| column.width > 0);
    let fields = shown.map(|column| format!("{:>1$}", text(column), column.width));
    fields.collect::<Vec<_>>().join("  ")
}

impl SimReport {
    /// Writes the request, a table of its points, and a table of chunks for a file in chunks.
    pub fn to_text(&self) -> String {
        let transfer = self.request.file().is_some();
        let seconds = if transfer { "   seconds" } else { "" };
        let mut text = describe(&self.request);
        text += &format!(
            "\n{}{seconds}  limited by\n",
            line(&POINTS, |c| c.name.to_owned())
        );
        text += &format!("{}\n", line(&POINTS[..3], |c| c.unit.to_owned()).trim_end());
        for point in &self.points {
            let done = point
                .seconds
                .map_or_else(|| "not done".to_owned(), decimals);
            let done = if transfer {
                format!("  {done:>8}")
            } else {
                String::new()
            };
            let numbers = line(&POINTS, |column| (column.shown)(point));
            text += &format!("{numbers}{done}  {}\n", point.limited_by);
        }
        for point in self.points.iter().filter(|point| !point.chunks.is_empty()) {
            text += &format!("\n{}\n", line(&CHUNKS, |c| c.name.to_owned()));
            text += &format!("{}\n", line(&CHUNKS, |c| c.unit.to_owned()));
            for chunk in &point.chunks {
                let numbers = line(&CHUNKS, |column| (column.shown)(chunk));
                text += &format!("{numbers}  {}\n", chunk.reason);
            }
        }
        text
    }

    /// Writes CSV: a line of names, then a line for each chunk of a file in chunks, otherwise for each point.
    /// No value needs quotes.
    pub fn to_csv(&self) -> String {
        let seed = self.request.seed;
        if let Some(point) = self.points.iter().find(|point| !point.chunks.is_empty()) {
            let names: Vec<_> = CHUNKS.iter().map(|column| column.csv).collect();
            let mut csv = format!("{},seed\n", names.join(","));
            for chunk in &point.chunks {
                let values: Vec<_> = CHUNKS.iter().map(|column| (column.exact)(chunk)).collect();
                csv += &format!("{},{seed}\n", values.join(","));
            }
            return csv;
        }
        let names: Vec<_> = POINTS.iter().map(|column| column.csv).collect();
        let mut csv = format!("{},seconds,limited_by,seed\n", names.join(","));
        for point in &self.points {
            let values: Vec<_> = POINTS.iter().map(|column| (column.exact)(point)).collect();
            let seconds = point.seconds.map(decimals).unwrap_or_default();
            csv += &format!(
                "{},{seconds},{},{seed}\n",
                values.join(","),
                point.limited_by
            );
        }
        csv
    }

    /// Writes one JSON object, `{"setting": {...}, "points": [...]}`, and a line feed.
    #[allow(
        clippy::expect_used,
        reason = "structs of numbers and strings can always be written as JSON"
    )]
    pub fn to_json(&self) -> String {
        let report = serde_json::json!({"setting": setting(&self.request), "points": self.points});
        let json = serde_json::to_string_pretty(&report).expect("a report can be written as JSON");
        json + "\n"
    }
}

/// The request as JSON, in the units of the keys' names.
fn setting(request: &SimRequest) -> serde_json::Value {
    let file = request.file();
    let mut setting = serde_json::json!({
        "rate_bps": request.rate.as_bits_per_second(),
        "delay_ms": milliseconds(request.delay),
        "access_delay_ms": milliseconds(request.access_delay),
        "access_rate_bps": request.access_rate.as_bits_per_second(),
        "shared_access": request.shared_access,
        "base_rtt_ms": milliseconds(request.base_rtt()),
        "queue": queue(request.queue),
        "loss": loss(request.loss),
        "window_bytes": request.window,
        "receiver": receiver(request.receiver),
        "congestion": congestion(request.congestion),
        "sender": sender(request.recovery),
        "initial_window": request.effective_initial_window(),
        "delayed_ack": request.delayed_ack,
        "packet_bytes": request.packet,
        "duration_s": request.duration.as_secs_f64(),
        "warm_up_s": file.is_none().then_some(request.warm_up.as_secs_f64()),
        "file_bytes": file,
        "sessions": request.sessions,
        "stagger_s": request.stagger.as_secs_f64(),
        "cross_traffic_bps": request.cross_traffic.map_or(0, Rate::as_bits_per_second),
        "jitter_us": request.jitter.as_secs_f64() * 1e6,
        "seed": request.seed,
    });
    if let Some(finder) = request.finder() {
        setting["tuned"] = describe_finder(finder, &request.autopar).into();
    }
    setting
}

/// Describes the request in two lines of text, and its finder in a third.
fn describe(request: &SimRequest) -> String {
    let megabits = |rate: Rate| rate.as_bits_per_second() as f64 / 1e6;
    let mut text = format!(
        "{} Mbit/s, {} ms round trip without queues, queue {}, loss {}",
        megabits(request.rate),
        milliseconds(request.base_rtt()),
        queue(request.queue),
        loss(request.loss),
    );
    if let Some(rate) = request.cross_traffic {
        text += &format!(", cross traffic {} Mbit/s", megabits(rate));
    }
    text += &format!(
        "\n{}{}, initial window {}, {} KiB buffers, {}-byte packets, {}",
        congestion(request.congestion),
        match request.recovery {
            LossRecovery::Sack => "",
            LossRecovery::SackAndTimer => ", repeats lost again wait for the timer",
            LossRecovery::Ns2Reno => " as ns-2's Reno, without SACK",
        },
        request.effective_initial_window(),
        request.window as f64 / 1024.0,
        request.packet,
        if request.delayed_ack {
            "delayed ACKs"
        } else {
            "an ACK per packet"
        },
    );
    match request.receiver {
        WindowGrowth::Fixed => {}
        WindowGrowth::RightSizing => text += ", windows by right-sizing",
        WindowGrowth::LinuxAutotuning => text += ", windows by Linux's autotuning",
    }
    if request.shared_access {
        text += ", shared access links";
    }
    if !request.jitter.is_zero() {
        let jitter = request.jitter.as_secs_f64() * 1e6;
        text += &format!(", up to {jitter} us in the sending host");
    }
    let (duration, warm_up) = (
        request.duration.as_secs_f64(),
        request.warm_up.as_secs_f64(),
    );
    text += &match request.file() {
        Some(bytes) => format!("; file of {bytes} bytes, at most {duration} s"),
        None => format!("; {duration} s measured after {warm_up} s"),
    };
    if let Some(sessions) = request.sessions {
        let stagger = request.stagger.as_secs_f64();
        text += &format!("; {sessions} sessions, {stagger} s apart");
    }
    text += &format!("; seed {}\n", request.seed);
    if let Some(finder) = request.finder() {
        text += &format!("{}\n", describe_finder(finder, &request.autopar));
    }
    text
}

/// Describes how the number of connections is found, with the parameters that `finder` uses.
fn describe_finder(finder: StreamFinder, p: &ChunkParameters) -> String {
    let text = format!(
        "{}: N0 {}, at most {}",
        finder.name(),
        p.initial_streams,
        p.max_streams
    );
    let StreamFinder::Mode(mode) = finder else {
        return text;
    };
    let steps = match mode {
        ChunkTuningMode::Aimd => format!("alpha {}, beta {}", p.alpha, p.beta),
        ChunkTuningMode::Mi | ChunkTuningMode::MiPlus => format!("gamma {}", p.gamma),
    };
    let round_trips = match p.rtt_commands {
        RttCommands::DuringChunks => "while data flows",
        RttCommands::BetweenChunks => "between chunks",
        RttCommands::OwnReplies => "of the session's own commands",
    };
    let optimum = match (mode, p.optimum) {
        (ChunkTuningMode::MiPlus, Optimum::BothTerms) => ", optimum of both terms",
        (ChunkTuningMode::MiPlus, Optimum::SecondTerm) => ", optimum of the second term",
        _ => "",
    };
    let (eta, delta, rho) = (p.eta, p.delta.as_secs_f64(), p.rho);
    format!(
        "{text}, eta {eta}, {steps}, delta {delta} s, rho {rho}, round trips {round_trips}{optimum}"
    )
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

const fn congestion(congestion: CongestionAlgorithm) -> &'static str {
    match congestion {
        CongestionAlgorithm::NewReno => "newreno",
        CongestionAlgorithm::Cubic => "cubic",
    }
}

const fn receiver(growth: WindowGrowth) -> &'static str {
    match growth {
        WindowGrowth::Fixed => "fixed",
        WindowGrowth::RightSizing => "drs",
        WindowGrowth::LinuxAutotuning => "linux",
    }
}

const fn sender(recovery: LossRecovery) -> &'static str {
    match recovery {
        LossRecovery::Sack => "sack",
        LossRecovery::SackAndTimer => "sack-timer",
        LossRecovery::Ns2Reno => "ns2-reno",
    }
}

fn queue(queue: Queue) -> String {
    match queue {
        Queue::Unlimited => "unlimited".to_owned(),
        Queue::Packets(n) => format!("{n} packets"),
        Queue::Bytes(n) => format!("{n} bytes"),
    }
}

fn loss(loss: Loss) -> String {
    match loss {
        Loss::Never => "none".to_owned(),
        Loss::Independent(p) => format!("{}%", p * 100.0),
        Loss::Bursty {
            to_bad,
            to_good,
            in_good,
            in_bad,
        } => format!(
            "bursty (to bad {to_bad}, to good {to_good}, in good {in_good}, in bad {in_bad})"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(flows: u32) -> SimPoint {
        SimPoint {
            flows,
            goodput_mbps: 85.125,
            mean_rtt_ms: Some(24.174),
            drops: 1,
            losses: 2,
            retransmits: 3,
            timeouts: 4,
            fairness: 0.5,
            session_mbps: Vec::new(),
            queueing_ms: None,
            seconds: None,
            window_bytes: 65_536,
            limited_by: "receive window".to_owned(),
            end: None,
            samples: Vec::new(),
            chunks: Vec::new(),
        }
    }

    fn report(request: SimRequest, points: Vec<SimPoint>) -> SimReport {
        SimReport { request, points }
    }

    #[test]
    fn a_point_has_a_line_in_every_format() {
        let no_samples = SimPoint {
            mean_rtt_ms: None,
            ..point(64)
        };
        let report = report(SimRequest::default(), vec![point(4), no_samples]);
        let expected = "100 Mbit/s, 24 ms round trip without queues, queue 1000 packets, loss none\n\
            newreno, initial window 2, 64 KiB buffers, 1500-byte packets, an ACK per packet; \
            60 s measured after 20 s; seed 1\n\n   \
            N    goodput  mean RTT    drops     lost  sent again  timeouts  fairness  limited by\n         \
                  Mbit/s        ms\n   \
            4     85.125     24.17        1        2           3         4     0.500  receive window\n  \
            64     85.125         -        1        2           3         4     0.500  receive window\n";
        assert_eq!(report.to_text(), expected);
        let csv = report.to_csv();
        let widths: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(widths, [11, 11, 11], "{csv}");
        assert!(
            csv.contains("\n4,85.125,24.174,1,2,3,4,0.500,,receive window,1\n"),
            "{csv}"
        );
        let json = report.to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["setting"]["rate_bps"], 100_000_000);
        assert_eq!(value["points"][0]["goodput_mbps"], 85.125);
        assert!(json.ends_with("}\n"));
    }

    #[test]
    fn a_file_has_its_seconds_and_settings_that_are_not_default_are_described() {
        let request = SimRequest {
            loss: Loss::Independent(0.005),
            queue: Queue::Bytes(12_500),
            cross_traffic: Some(Rate::bits_per_second(20_500_000)),
            delayed_ack: true,
            jitter: Duration::from_micros(120),
            bytes: Some(1_000_000),
            seed: 9,
            ..SimRequest::default()
        };
        let done = SimPoint {
            seconds: Some(1.25),
            ..point(1)
        };
        let text = report(request, vec![done, point(2)]).to_text();
        for part in [
            "queue 12500 bytes, loss 0.5%, cross traffic 20.5 Mbit/s",
            "delayed ACKs, up to 120 us in the sending host",
            "file of 1000000 bytes, at most 60 s; seed 9",
            "fairness   seconds  limited by",
            "0.500     1.250  receive window",
            "0.500  not done  receive window",
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
    }

    #[test]
    fn a_finder_is_described_with_the_parameters_that_it_uses() {
        let parameters = ChunkParameters::parse("rtt=between,optimum=second").unwrap();
        let words = |name: &str| describe_finder(StreamFinder::named(name).unwrap(), &parameters);
        assert_eq!(words("probe"), "probe: N0 1, at most 256");
        let aimd = "alpha 2, beta 0.5, delta 10 s, rho 0.1, round trips between";
        assert!(words("aimd").contains(aimd), "{}", words("aimd"));
        assert!(words("mi+").ends_with("optimum of the second term"));
    }
}
