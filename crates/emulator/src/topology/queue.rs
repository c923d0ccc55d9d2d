//! Queue lengths, which may be multiples of the bandwidth-delay product (BDP).

use link::Queue;
use std::time::Duration;
use units::{Rate, UnitError};

use super::error::TopologyError;

/// Minimum default queue, bytes: one super-packet of a host must fit.
const LEAST_DEFAULT: u64 = 64 << 10;

/// A queue length as the user gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QueueLength {
    /// A multiple of the bandwidth-delay product.
    BdpMultiple(f64),
    /// A fixed length.
    Plain(Queue),
}

impl QueueLength {
    /// `1bdp`, `2.5 bdp`, `100 packets`, `100`, `64KiB`, `unlimited`.
    pub(super) fn parse(text: &str) -> Result<Self, TopologyError> {
        let lower = text.trim().to_ascii_lowercase();
        let refused = |error: UnitError| TopologyError::new(error.to_string());
        if lower == "unlimited" {
            return Ok(Self::Plain(Queue::Unlimited));
        }
        if let Some(number) = lower.strip_suffix("bdp") {
            let products = units::number(number).map_err(refused)?;
            return if products > 0.0 {
                Ok(Self::BdpMultiple(products))
            } else {
                Err(empty_queue_error())
            };
        }
        let packets = ["packets", "packet"]
            .iter()
            .find_map(|unit| lower.strip_suffix(unit))
            .unwrap_or(&lower)
            .trim();
        if !packets.is_empty() && packets.bytes().all(|b| b.is_ascii_digit()) {
            let packets = packets
                .parse()
                .map_err(|_| TopologyError::new("too many packets; the maximum is 4294967295"))?;
            return match packets {
                0 => Err(empty_queue_error()),
                packets => Ok(Self::Plain(Queue::Packets(packets))),
            };
        }
        // A plain number is packets, so a size needs a unit to get here.
        match units::size(text) {
            Ok(0) => Err(empty_queue_error()),
            Ok(bytes) => Ok(Self::Plain(Queue::Bytes(bytes))),
            Err(_) => Err(TopologyError::new(format!(
                "'{}' is not a queue; write it like 1bdp, 100 packets, 64KiB or unlimited",
                text.trim().escape_debug()
            ))),
        }
    }

    /// The queue of a bottleneck with this rate, on a path with this round-trip time.
    pub(super) fn resolve(
        self,
        rate: Option<Rate>,
        rtt: Duration,
        mtu: u16,
    ) -> Result<Queue, TopologyError> {
        match (self, rate) {
            (Self::BdpMultiple(_), None) => Err(TopologyError::new(
                "a queue in bdp needs a rate; give one, or the queue as a size",
            )),
            (Self::BdpMultiple(factor), Some(rate)) => {
                // With fewer than two packets the bottleneck would be idle between packets.
                let least = 2 * u64::from(mtu);
                Ok(Queue::Bytes(
                    multiply(rate.bytes_in(rtt), factor).max(least),
                ))
            }
            (Self::Plain(Queue::Bytes(bytes)), _) if bytes < u64::from(mtu) => {
                Err(TopologyError::new(format!(
                    "a queue of {bytes} bytes would pass no packet of {mtu} bytes (the mtu)"
                )))
            }
            (Self::Plain(queue), _) => Ok(queue),
        }
    }
}

/// The default queue: one BDP, but at least 64 KiB.
pub(super) fn default_queue(rate: Option<Rate>, rtt: Duration) -> Queue {
    rate.map_or(Queue::Unlimited, |rate| {
        Queue::Bytes(rate.bytes_in(rtt).max(LEAST_DEFAULT))
    })
}

fn empty_queue_error() -> TopologyError {
    TopologyError::new(
        "a queue of 0 would drop every packet; write it like 1bdp, 100 packets or 64KiB",
    )
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a byte more or less does not matter, and the cast saturates"
)]
fn multiply(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor).round() as u64
}
