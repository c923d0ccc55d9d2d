//! `iperf3`: the real program where it is installed and the client runs a server (`iperf3 -s`): goodput of one TCP
//! connection to the client for some seconds. It fills the path.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::program_test::{MeasuringProgram, ProgramResult};
use super::{HeldBackBy, Target, TestProfile, Weight};
use crate::measurement::Quantity;
use crate::program::ProgramOutput;

/// Name of the test.
pub(super) const NAME: &str = "iperf3";

/// Time of the measurement, and time before it that does not count, seconds.
const SECONDS: (u64, u64) = (8, 2);
/// Longest output, bytes: two seconds' worth of intervals are some kilobytes.
const MOST_OUTPUT: usize = 1 << 20;
/// Bandwidth of a path that has not been measured, bits per second.
const UNKNOWN_BPS: u64 = 1_000_000_000;

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
        let bps = target.bandwidth_bps.unwrap_or(UNKNOWN_BPS);
        // A tenth more, because the bandwidth is an estimate.
        bps.saturating_mul(SECONDS.0 + SECONDS.1) / 8 * 11 / 10
    }

    fn program(&self) -> &str {
        NAME
    }

    fn missing(&self) -> String {
        "iperf3 is not installed (package iperf3)".to_owned()
    }

    fn arguments(&self, client: IpAddr) -> Vec<OsString> {
        let (time, omitted) = (SECONDS.0.to_string(), SECONDS.1.to_string());
        let address = client.to_string();
        let words = ["--json", "-c", &address, "-t", &time, "-O", &omitted];
        words.map(OsString::from).to_vec()
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn most_output(&self) -> usize {
        MOST_OUTPUT
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
            })),
            cost_bytes: result.bytes + result.bytes * SECONDS.1 / SECONDS.0,
        })
    }
}

/// The result of `iperf3 --json`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Iperf3Result {
    /// Received payload, bits per second.
    pub goodput_bps: f64,
    /// Payload sent, bytes.
    pub bytes: u64,
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
        let goodput_bps = received.bits_per_second;
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
            retransmits: retransmits.filter(|share| Quantity::Retransmits.allows(*share)),
            loaded_rtt_seconds: sender
                .and_then(|sender| sender.mean_rtt)
                .map(|micros| micros / 1e6)
                .filter(|rtt| Quantity::Rtt.allows(*rtt)),
            largest_window_bytes: sender.and_then(|sender| sender.max_snd_cwnd).map(whole),
        })
    }
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
    end: End,
}

#[derive(Debug, Default, Deserialize)]
struct Start {
    tcp_mss_default: Option<f64>,
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

    proptest! {
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
