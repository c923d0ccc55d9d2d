//! `iperf3`: the real program where it is installed and the client runs a server (`iperf3 -s`): goodput of one TCP
//! connection to the client for some seconds, or for fewer bytes where the budget has no room for these. It fills the path.
//!
//! Each run is bounded by bytes (`-n`), and by the time after which the program is killed: a rate that is assumed wrongly
//! costs no more bytes. A path of which nothing is known gets a small run first, and larger ones by what that one found.

use std::ffi::OsString;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::program_test::{MeasuringProgram, ProgramResult};
use super::{HeldBackBy, Target, TestProfile, Weight};
use crate::measurement::Quantity;
use crate::program::ProgramOutput;

/// Name of the test.
pub(super) const NAME: &str = "iperf3";

/// Time of a run that the budget does not bound, seconds.
const SECONDS: u64 = 10;
/// Time after which a run is killed.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Payload of the first run on a path of which nothing is known, bytes.
const FIRST_BYTES: u64 = 1_000_000;
/// Round trips × bandwidth without which a run measures its start alone: slow start sends two until it fills the path.
const FEWEST_PRODUCTS: u64 = 4;
/// Payload that iperf3 sends beyond the bound at most: a block of its default length.
const BLOCK: u64 = 128 << 10;
/// A run that found less than this times the assumed rate is believed.
const MUCH_FASTER: f64 = 2.0;
/// Distance of the intervals in the output, seconds: the shortest that iperf3 takes.
const REPORT_EVERY: &str = "0.1";
/// Longest output, bytes: intervals of a minute are half of it.
const MOST_OUTPUT: usize = 1 << 20;

/// Payload of one run, bytes.
fn payload(target: &Target) -> u64 {
    let Some(bps) = target.bandwidth_bps else {
        return FIRST_BYTES;
    };
    let wanted = bps.saturating_mul(SECONDS) / 8;
    let product = target
        .rtt
        .map_or(0, |rtt| units::bytes_in(bps.div_ceil(8), rtt));
    let fewest = product.saturating_mul(FEWEST_PRODUCTS).max(FIRST_BYTES);
    wanted
        .min(payload_within(target.most_bytes))
        .max(fewest.min(wanted))
        .max(1)
}

/// Bytes on the network for a payload: a tenth more for headers and for segments that are sent again.
fn on_network(payload: u64) -> u64 {
    let payload = payload.saturating_add(BLOCK);
    payload.saturating_add(payload / 10)
}

/// Payload of so many bytes on the network.
fn payload_within(bytes: u64) -> u64 {
    (bytes - bytes / 11).saturating_sub(BLOCK)
}

/// The program iperf3.
#[derive(Debug, Clone, Copy)]
pub struct Iperf3;

impl MeasuringProgram for Iperf3 {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: NAME,
            weight: Weight::Heavy,
            concurrency: 1,
            fills_path: true,
            interval: Duration::from_secs(6 * 3600),
            held_back_by: HeldBackBy::AnyTransfer,
            measures: &[Quantity::Goodput],
        }
    }

    fn most_bytes(&self, target: &Target) -> u64 {
        let first = on_network(payload(target));
        match target.bandwidth_bps {
            Some(_) => first,
            // More runs may follow.
            None => first.max(target.most_bytes),
        }
    }

    fn program(&self) -> &str {
        NAME
    }

    fn missing(&self) -> String {
        "iperf3 is not installed (package iperf3)".to_owned()
    }

    fn arguments(&self, target: &Target) -> Vec<OsString> {
        let (bytes, address) = (payload(target).to_string(), target.client.to_string());
        let words = ["--json", "-c", &address, "-n", &bytes, "-i", REPORT_EVERY];
        words.map(OsString::from).to_vec()
    }

    fn again(&self, target: &Target, found: &ProgramResult, left: u64) -> Option<Target> {
        let values = found.values.iter();
        let goodput = values
            .filter(|(quantity, _)| *quantity == Quantity::Goodput)
            .map(|(_, value)| *value)
            .next()?;
        let sent = payload(target);
        let assumed = target.bandwidth_bps.unwrap_or(FIRST_BYTES * 8 / SECONDS);
        let next = Target {
            bandwidth_bps: Some(whole(goodput)),
            most_bytes: left,
            ..target.clone()
        };
        let is_larger = payload(&next) >= sent.saturating_mul(2);
        let fits = on_network(payload(&next)) <= left;
        (goodput >= assumed as f64 * MUCH_FASTER && is_larger && fits).then_some(next)
    }

    fn time_limit(&self) -> Duration {
        TIME_LIMIT
    }

    fn most_output(&self) -> usize {
        MOST_OUTPUT
    }

    fn sent_nothing(&self, ran: &ProgramOutput) -> bool {
        let report: Result<Report, _> = serde_json::from_slice(&ran.output);
        report.is_ok_and(|report| {
            let connected = report.start.connected;
            report.error.is_some() && connected.is_some_and(|all| all.is_empty())
        })
    }

    fn read(&self, ran: &ProgramOutput) -> Result<ProgramResult, String> {
        let result = Iperf3Result::parse(&ran.output)?;
        let retransmits = result.retransmits;
        let retransmits = retransmits.map(|share| (Quantity::Retransmits, share));
        Ok(ProgramResult {
            values: [(Quantity::Goodput, result.goodput_bps)]
                .into_iter()
                .chain(retransmits)
                .collect(),
            detail: Some(json!({
                // Loaded: with the queue that the connection filled.
                "loaded_round_trip_s": result.loaded_rtt_seconds,
                "largest_window_bytes": result.largest_window_bytes,
                "bytes": result.bytes,
                "seconds": result.seconds,
            })),
            cost_bytes: on_network(result.bytes).min(result.bytes.saturating_mul(2)),
        })
    }
}

/// The result of `iperf3 --json`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Iperf3Result {
    /// Payload of the later half of the bytes, bits per second, if that is more than of all: the first half has the start of the
    /// connection.
    pub goodput_bps: f64,
    /// Payload sent, bytes.
    pub bytes: u64,
    /// Time of the run, seconds.
    pub seconds: f64,
    /// Share of the segments that were sent again, 0 to 1; `None` if the sender does not say.
    pub retransmits: Option<f64>,
    /// Mean round trip during the test, seconds.
    pub loaded_rtt_seconds: Option<f64>,
    /// Largest congestion window, bytes.
    pub largest_window_bytes: Option<u64>,
}

/// Payload of a segment, where iperf3 does not say it, bytes.
const SEGMENT: f64 = 1448.0;

impl Iperf3Result {
    /// Reads the JSON of iperf3 3.1 or later.
    ///
    /// # Errors
    /// iperf3's own error, or what is missing or impossible.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let report: Report =
            serde_json::from_slice(json).map_err(|error| format!("its JSON is wrong: {error}"))?;
        if let Some(error) = report.error {
            let error: String = error.chars().take(200).collect();
            return Err(error.escape_debug().to_string());
        }
        let (sent, received) = (report.end.sum_sent, report.end.sum_received);
        let Some((sent, received)) = sent.zip(received) else {
            return Err("its JSON has no sums (UDP is not supported)".to_owned());
        };
        let later = later_half(&report.intervals, received.bytes);
        let goodput_bps = later.map_or(received.bits_per_second, |bps| {
            bps.max(received.bits_per_second)
        });
        if !Quantity::Goodput.allows(goodput_bps) || !Quantity::Goodput.allows(sent.bytes) {
            return Err(format!("{goodput_bps} bit/s is impossible"));
        }
        let segment = report.start.tcp_mss_default;
        let segment = segment.filter(|bytes| *bytes >= 1.0).unwrap_or(SEGMENT);
        let segments = (sent.bytes / segment).ceil().max(1.0);
        let share = |again: f64| again / (segments + again);
        let retransmits = sent.retransmits.map(share);
        let sender = report.end.streams.first().and_then(|stream| stream.sender);
        Ok(Self {
            goodput_bps,
            bytes: whole(sent.bytes),
            seconds: received.seconds.unwrap_or_default(),
            retransmits: retransmits.filter(|share| Quantity::Retransmits.allows(*share)),
            loaded_rtt_seconds: sender
                .and_then(|sender| sender.mean_rtt)
                .map(|micros| micros / 1e6)
                .filter(|rtt| Quantity::Rtt.allows(*rtt)),
            largest_window_bytes: sender.and_then(|sender| sender.max_snd_cwnd).map(whole),
        })
    }
}

/// Rate of the last intervals that sent half of the bytes, bits per second; `None` if that takes all of them. Of what was sent before
/// them, all counts as received before them, too: the last bytes that were sent are still in a buffer of the sender's kernel.
fn later_half(intervals: &[Interval], received: f64) -> Option<f64> {
    let total: f64 = intervals.iter().map(|one| one.sum.bytes).sum();
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for (place, one) in intervals.iter().enumerate().rev() {
        bytes += one.sum.bytes;
        seconds += one.sum.seconds;
        if bytes * 2.0 >= total {
            let before = total - bytes;
            let arrived = (received - before).max(0.0);
            return (place > 0 && seconds > 0.0).then(|| arrived * 8.0 / seconds);
        }
    }
    None
}

/// A number of bytes, 0 to 2^53.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped to the range of the type"
)]
fn whole(bytes: f64) -> u64 {
    bytes.clamp(0.0, 9e15) as u64
}

#[derive(Debug, Deserialize)]
struct Report {
    error: Option<String>,
    #[serde(default)]
    start: Start,
    #[serde(default)]
    intervals: Vec<Interval>,
    #[serde(default)]
    end: End,
}

#[derive(Debug, Default, Deserialize)]
struct Start {
    connected: Option<Vec<IgnoredAny>>,
    tcp_mss_default: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Interval {
    sum: IntervalSum,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct IntervalSum {
    bytes: f64,
    seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    #[serde(default)]
    streams: Vec<Iperf3Stream>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Sum {
    bytes: f64,
    bits_per_second: f64,
    seconds: Option<f64>,
    retransmits: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Iperf3Stream {
    sender: Option<SenderEnd>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct SenderEnd {
    mean_rtt: Option<f64>,
    max_snd_cwnd: Option<f64>,
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use proptest::prelude::*;

    use super::*;

    /// Shortened output of iperf3 3.12.
    const OUTPUT: &str = r#"{"start": {"version": "iperf 3.12", "tcp_mss_default": 1448}, "intervals": [],
        "end": {"streams": [{"sender": {"max_snd_cwnd": 3000000, "mean_rtt": 20500}}],
        "sum_sent": {"bytes": 14480000, "bits_per_second": 95.5e6, "retransmits": 10},
        "sum_received": {"bytes": 14400000, "bits_per_second": 94.1e6}}}"#;

    #[test]
    fn goodput_and_retransmits_are_read() {
        let found = Iperf3Result::parse(OUTPUT.as_bytes()).unwrap();
        assert_eq!((found.goodput_bps, found.bytes), (94.1e6, 14_480_000));
        assert_eq!(found.retransmits, Some(10.0 / 10_010.0));
        assert_eq!(found.loaded_rtt_seconds, Some(0.0205));
        assert_eq!(found.largest_window_bytes, Some(3_000_000));
    }

    #[test]
    fn the_programs_error_is_passed_on() {
        let output =
            br#"{"start": {}, "end": {}, "error": "unable to connect: Connection refused"}"#;
        let reason = Iperf3Result::parse(output).unwrap_err();
        assert_eq!(reason, "unable to connect: Connection refused");
    }

    #[test]
    fn a_run_without_a_connection_has_sent_nothing() {
        let sent_nothing = |start: &str, error: &str| {
            let output = format!(r#"{{"start": {start}, "end": {{}}{error}}}"#).into_bytes();
            let ran = ProgramOutput {
                status: ExitStatus::default(),
                output,
                errors: String::new(),
            };
            Iperf3.sent_nothing(&ran)
        };
        let error = r#", "error": "unable to connect: Connection refused""#;
        assert!(sent_nothing(r#"{"connected": []}"#, error));
        assert!(!sent_nothing(r#"{"connected": [{"socket": 5}]}"#, error));
        assert!(!sent_nothing(r#"{"connected": []}"#, ""));
        assert!(!sent_nothing("{}", error), "it does not say");
    }

    #[test]
    fn impossible_figures_are_refused() {
        for (from, to) in [
            ("94.1e6", "-1"),
            ("14480000", "-5"),
            ("sum_received", "sum"),
            ("94.1e6", "\"x\""),
        ] {
            assert!(
                Iperf3Result::parse(OUTPUT.replace(from, to).as_bytes()).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn the_start_of_the_connection_does_not_count() {
        let interval = |bytes: u64, seconds: f64| {
            format!(r#"{{"sum": {{"bytes": {bytes}, "seconds": {seconds}, "omitted": false}}}}"#)
        };
        let read = |intervals: &[String]| {
            let listed = format!("\"intervals\": [{}]", intervals.join(","));
            let output = OUTPUT.replace("\"intervals\": []", &listed);
            let output = output.replace("14400000", "3700000");
            Iperf3Result::parse(output.as_bytes()).unwrap().goodput_bps
        };
        let slow_start = [
            (100_000, 0.1),
            (900_000, 0.1),
            (2_000_000, 0.1),
            (1_000_000, 0.05),
        ];
        let slow_start = slow_start.map(|(bytes, seconds)| interval(bytes, seconds));
        // 300 kB are in the sender's buffer at the end.
        assert!((read(&slow_start) - 144e6).abs() < 1.0);
        // A run of one interval has nothing else.
        assert_eq!(read(&slow_start[..1]), 94.1e6);
    }

    const SHARE: u64 = 30_000_000;

    fn target(bandwidth_bps: Option<u64>, rtt_ms: u64) -> Target {
        Target {
            bandwidth_bps,
            rtt: Some(Duration::from_millis(rtt_ms)),
            most_bytes: SHARE,
            ..Target::new([192, 0, 2, 7].into())
        }
    }

    #[test]
    fn a_run_takes_ten_seconds_or_what_the_budget_grants() {
        let bytes = |bps: u64, rtt_ms: u64| payload(&target(Some(bps), rtt_ms));
        assert_eq!(bytes(10_000_000, 10), 12_500_000);
        assert!((26_000_000..SHARE).contains(&bytes(10_000_000_000, 1)));
        let most = Iperf3.most_bytes(&target(Some(10_000_000_000), 1));
        assert!((SHARE - 2..=SHARE).contains(&most), "{most}");
        // Fewer than four products would measure slow start alone: the test says how much it needs.
        assert_eq!(bytes(10_000_000_000, 100), 4 * 125_000_000);
        assert!(Iperf3.most_bytes(&target(Some(10_000_000_000), 100)) > 500_000_000);
        let words = Iperf3.arguments(&target(None, 1));
        let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
        assert_eq!(words[..5], ["--json", "-c", "192.0.2.7", "-n", "1000000"]);
    }

    /// The runs of one test on a path of `bps` whose start costs `ramp` seconds: bytes on the network, and the last rate.
    fn test_of_path(first: &Target, bps: f64, ramp: f64) -> (u64, f64) {
        let (most, mut spent) = (Iperf3.most_bytes(first), 0);
        let mut target = first.clone();
        loop {
            let sent = payload(&target);
            let goodput = sent as f64 * 8.0 / (sent as f64 * 8.0 / bps + ramp);
            spent += on_network(sent);
            let found = ProgramResult {
                values: vec![(Quantity::Retransmits, 0.1), (Quantity::Goodput, goodput)],
                detail: None,
                cost_bytes: spent,
            };
            match Iperf3.again(&target, &found, most.saturating_sub(spent)) {
                Some(next) => target = next,
                None => return (spent, goodput),
            }
        }
    }

    #[test]
    fn the_first_test_of_a_fast_path_finds_its_rate_within_the_budget() {
        let (spent, rate) = test_of_path(&target(None, 1), 1e10, 0.005);
        assert!(spent <= SHARE && rate > 5e9, "{spent} bytes, {rate} bit/s");
        let (spent, rate) = test_of_path(&target(None, 50), 1e9, 0.3);
        assert!(spent <= SHARE && rate > 3e8, "{spent} bytes, {rate} bit/s");
        // One small run is enough for a slow path.
        assert_eq!(
            test_of_path(&target(None, 50), 1e6, 0.3).0,
            on_network(FIRST_BYTES)
        );
    }

    proptest! {
        #[test]
        fn no_test_sends_more_than_it_announced(
            bandwidth in proptest::option::of(any::<u64>()),
            rtt_ms in 0_u64..2000,
            most_bytes in any::<u64>(),
            bps in 1.0..1e14,
            ramp in 0.0..10.0,
        ) {
            let first = Target { most_bytes, ..target(bandwidth, rtt_ms) };
            let (spent, _) = test_of_path(&first, bps, ramp);
            prop_assert!(spent <= Iperf3.most_bytes(&first));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), at in 0_usize..300) {
            let _ = Iperf3Result::parse(&bytes);
            let mut changed = OUTPUT.as_bytes().to_vec();
            let end = (at + bytes.len()).min(changed.len());
            changed.splice(at.min(end)..end, bytes);
            if let Ok(found) = Iperf3Result::parse(&changed) {
                prop_assert!(Quantity::Goodput.allows(found.goodput_bps));
            }
        }
    }
}
