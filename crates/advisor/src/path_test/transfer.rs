//! `transfer`: what a real transfer showed of the path. It is no active test: the service is told.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tune::Evidence;
use tune::limiter::Role;

use crate::measurement::{Measurement, Quantity};

/// Name of the test.
pub const NAME: &str = "transfer";

/// Payload of a segment, bytes, for the share of retransmitted ones.
const SEGMENT: u64 = 1448;
/// A shorter transfer is mostly slow start, and its goodput says little of the path.
const SHORT: Duration = Duration::from_millis(200);
/// The same in round trips.
const SHORT_ROUND_TRIPS: u32 = 10;

/// The measurement in the evidence of one end of a transfer with `client`. `None`: it moved nothing, or its bytes did
/// not pass through the end that measured.
pub fn measurement_of_transfer(
    client: IpAddr,
    evidence: &Evidence,
    at: Timestamp,
) -> Option<Measurement> {
    let role = evidence.role?;
    if evidence.bytes == 0 || evidence.elapsed.is_zero() {
        return None;
    }
    let mut values = Vec::new();
    let goodput = evidence.bytes as f64 * 8.0 / evidence.elapsed.as_secs_f64();
    // Under a rate limit the goodput is the limit's and not the path's.
    let is_of_path = evidence.rate_limit.is_none()
        && evidence.elapsed >= SHORT.max(evidence.min_rtt.saturating_mul(SHORT_ROUND_TRIPS));
    if is_of_path {
        values.push(match role {
            Role::Sender => (Quantity::Goodput, goodput),
            Role::Receiver => (Quantity::ReverseGoodput, goodput),
        });
    }
    if evidence.final_streams > 0 {
        values.push((Quantity::Streams, evidence.final_streams as f64));
    }
    // Only a sender's kernel counts what it sent again.
    if role == Role::Sender {
        let again = evidence.retransmits as f64;
        let segments = evidence.bytes.div_ceil(SEGMENT) as f64;
        values.push((Quantity::Retransmits, again / (segments + again)));
    }
    if !evidence.min_rtt.is_zero() {
        values.push((Quantity::Rtt, evidence.min_rtt.as_secs_f64()));
    }
    let verdict = evidence.verdict.as_ref();
    Some(Measurement {
        client,
        test: NAME.to_owned(),
        at,
        values,
        detail: Some(json!({
            "bytes": evidence.bytes,
            "seconds": evidence.elapsed.as_secs_f64(),
            "goodput_bps": goodput,
            "rate_limit_bps": evidence.rate_limit.map(|bytes| bytes.saturating_mul(8)),
            "congestion_control": evidence.congestion_control,
            "buffer_bytes": evidence.buffer_bytes,
            "advised_streams": verdict.map(|verdict| verdict.streams),
        })),
        // Nothing was sent for the sake of the measurement.
        cost_bytes: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(role: Role) -> Evidence {
        Evidence {
            bytes: 100_000_000,
            elapsed: Duration::from_secs(8),
            final_streams: 4,
            retransmits: 70,
            min_rtt: Duration::from_millis(20),
            ..Evidence::for_role(role)
        }
    }

    fn value(evidence: &Evidence, quantity: Quantity) -> Option<f64> {
        let client = IpAddr::from([192, 0, 2, 1]);
        let found = measurement_of_transfer(client, evidence, Timestamp::UNIX_EPOCH)?;
        let mut values = found.values.iter();
        assert!(
            found
                .values
                .iter()
                .all(|(quantity, value)| quantity.allows(*value))
        );
        values
            .find(|value| value.0 == quantity)
            .map(|value| value.1)
    }

    #[test]
    fn the_direction_follows_from_the_role() {
        let sent = evidence(Role::Sender);
        assert_eq!(value(&sent, Quantity::Goodput), Some(1e8));
        assert_eq!(value(&sent, Quantity::ReverseGoodput), None);
        assert_eq!(value(&sent, Quantity::Streams), Some(4.0));
        assert_eq!(value(&sent, Quantity::Rtt), Some(0.02));
        let share = value(&sent, Quantity::Retransmits).unwrap();
        assert!((share - 0.001).abs() < 0.0001, "{share}");
        let received = evidence(Role::Receiver);
        assert_eq!(value(&received, Quantity::ReverseGoodput), Some(1e8));
        assert_eq!(value(&received, Quantity::Retransmits), None);
    }

    #[test]
    fn a_short_or_limited_transfer_says_nothing_of_the_paths_speed() {
        let short = Evidence {
            elapsed: Duration::from_millis(199),
            ..evidence(Role::Sender)
        };
        let limited = Evidence {
            rate_limit: Some(1),
            ..evidence(Role::Sender)
        };
        for evidence in [short, limited] {
            assert_eq!(value(&evidence, Quantity::Goodput), None);
            assert_eq!(value(&evidence, Quantity::Rtt), Some(0.02));
        }
    }

    #[test]
    fn a_transfer_of_nothing_is_no_measurement() {
        assert_eq!(
            value(&Evidence::for_role(Role::Sender), Quantity::Streams),
            None
        );
        assert_eq!(
            value(
                &Evidence {
                    role: None,
                    ..evidence(Role::Sender)
                },
                Quantity::Streams
            ),
            None
        );
    }
}
