//! `pchar`: the real program (pchar(8)) where it is installed: bandwidth and round trip of each hop. It takes minutes and many
//! packets.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::json;

use super::program_test::{MeasuringProgram, ProgramResult};
use super::{HeldBackBy, Target, TestProfile, Weight};
use crate::measurement::Quantity;
use crate::program::ProgramOutput;

/// Name of the test.
pub(super) const NAME: &str = "pchar";

/// Longest run: the service ends a test after five minutes.
const TIME_LIMIT: Duration = Duration::from_secs(290);
/// Longest output, bytes: some hundred per hop.
const MOST_OUTPUT: usize = 256 * 1024;
/// Repetitions for each size and hop; pchar's own default is 32.
const REPETITIONS: u64 = 8;
/// Distance of the sizes that pchar tries, up to 1500 bytes. Its own 32 takes three times as long.
const STEP: u64 = 96;
/// Time between an answer and the next packet, seconds. With pchar's own 0.25, a route of four hops takes longer than five
/// minutes.
const GAP: &str = "0.02";
/// Bytes of the packets to one hop, and of their answers.
const HOP_BYTES: u64 = REPETITIONS * (1500 / STEP) * (1500 / 2 + STEP + 92);
/// Hops that pchar tries.
const HOPS: u64 = 30;
/// Smallest bandwidth of a hop that is believed, bits per second.
const LEAST_BPS: f64 = 1000.0;

/// The program pchar.
#[derive(Debug, Clone, Copy)]
pub struct Pchar;

impl MeasuringProgram for Pchar {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: NAME,
            weight: Weight::Heavy,
            concurrency: 1,
            fills_path: true,
            interval: Duration::from_secs(24 * 3600),
            held_back_by: HeldBackBy::AnyTransfer,
            measures: &[Quantity::Bandwidth],
        }
    }

    fn most_bytes(&self, _target: &Target) -> u64 {
        HOPS * HOP_BYTES
    }

    fn program(&self) -> &str {
        NAME
    }

    fn missing(&self) -> String {
        "pchar is not installed (package pchar)".to_owned()
    }

    fn arguments(&self, target: &Target) -> Vec<OsString> {
        let (repetitions, step) = (REPETITIONS.to_string(), STEP.to_string());
        let address = target.client.to_string();
        // -n: no names of hosts.
        let words = ["-n", "-R", &repetitions, "-I", &step, "-g", GAP, &address];
        words.map(OsString::from).to_vec()
    }

    fn time_limit(&self) -> Duration {
        TIME_LIMIT
    }

    fn most_output(&self) -> usize {
        MOST_OUTPUT
    }

    fn read(&self, ran: &ProgramOutput) -> Result<ProgramResult, String> {
        let hops = parse_hops(&String::from_utf8_lossy(&ran.output));
        let (Some(last), Some(slowest)) = (hops.last(), slowest(&hops)) else {
            return Err(ran.complaint());
        };
        let mut values = vec![(Quantity::Bandwidth, slowest)];
        values.extend(last.rtt_seconds.map(|rtt| (Quantity::Rtt, rtt)));
        let list = hops.iter();
        let list =
            list.map(|hop| json!({"bandwidth_bps": hop.bps, "round_trip_s": hop.rtt_seconds}));
        Ok(ProgramResult {
            values,
            detail: Some(json!({ "hops": list.collect::<Vec<_>>() })),
            cost_bytes: hops.len() as u64 * HOP_BYTES,
        })
    }
}

/// The figures that pchar prints of a hop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct PcharHop {
    /// Round trip up to this hop.
    rtt_seconds: Option<f64>,
    /// Bandwidth of the link to this hop.
    bps: Option<f64>,
}

fn slowest(hops: &[PcharHop]) -> Option<f64> {
    hops.iter().filter_map(|hop| hop.bps).min_by(f64::total_cmp)
}

/// Reads the lines `Partial char: rtt = 0.65 ms, ...` and `Hop char: rtt = ..., bw = 22333.2 Kbps`. Each hop has one
/// of either. pchar prints bandwidths that are not positive where its fit fails; these are left out.
fn parse_hops(text: &str) -> Vec<PcharHop> {
    let mut hops: Vec<PcharHop> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(values) = line.strip_prefix("Partial char:") {
            let rtt = number_after(values, "rtt = ").map(|ms| ms / 1000.0);
            hops.push(PcharHop {
                rtt_seconds: rtt.filter(|rtt| Quantity::Rtt.allows(*rtt)),
                bps: None,
            });
        } else if let Some(values) = line.strip_prefix("Hop char:")
            && let Some(hop) = hops.last_mut()
        {
            let bps = number_after(values, "bw = ").map(|kbps| kbps * 1000.0);
            hop.bps = bps.filter(|bps| (LEAST_BPS..f64::MAX).contains(bps));
        }
    }
    hops
}

fn number_after(line: &str, key: &str) -> Option<f64> {
    let (_, rest) = line.split_once(key)?;
    rest.split([' ', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// In the format of pchar(8).
    const OUTPUT: &str = "pchar to far (192.0.2.9) using UDP/IPv4\n\
         0: 192.0.2.1\n    Partial loss:      0 / 1472 (0%)\n\
         \x20   Partial char:      rtt = 0.657235 ms, (b = 0.000358 ms/B), r2 = 0.989713\n\
         \x20                      stddev rtt = 0.004140, stddev b = 0.000006\n\
         \x20   Partial queueing:  avg = 0.000150 ms (418 bytes)\n\
         \x20   Hop char:          rtt = 0.657235 ms, bw = 22333.268771 Kbps\n\
         1: 192.0.2.2\n\
         \x20   Partial char:      rtt = 0.811278 ms, (b = 0.000454 ms/B), r2 = 0.995401\n\
         \x20   Hop char:          rtt = 0.154043 ms, bw = --.--- Kbps\n";

    #[test]
    fn the_hops_and_the_slowest_are_read() {
        let hops = parse_hops(OUTPUT);
        assert_eq!(hops.len(), 2);
        let slowest = slowest(&hops).unwrap();
        assert!((slowest - 22_333_268.771).abs() < 1.0, "{slowest}");
        let rtt = hops[1].rtt_seconds.unwrap();
        assert!((rtt - 0.000_811_278).abs() < 1e-9, "{rtt}");
        assert_eq!(hops[1].bps, None);
    }

    proptest! {
        #[test]
        fn any_output_is_survived(
            text in "((Partial char:|Hop char:) *(rtt = |bw = )?[-0-9.eEnaN]{0,9} ?[a-z,]*\n|\\PC*\n){0,9}"
        ) {
            for hop in parse_hops(&text) {
                prop_assert!(hop.bps.is_none_or(|bps| Quantity::Bandwidth.allows(bps)));
                prop_assert!(hop.rtt_seconds.is_none_or(|rtt| Quantity::Rtt.allows(rtt)));
            }
        }
    }
}
