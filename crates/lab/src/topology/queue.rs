//! How long a queue is to be, before the bandwidth-delay product is known.

use sim::link::Queue;
use std::time::Duration;
use units::{Rate, UnitError};

use super::fault::Fault;

/// Least queue when none is asked for, bytes: what a host may hand over in one piece must fit.
const LEAST_DEFAULT: u64 = 64 << 10;

/// A queue as asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Length {
    /// A multiple of the bandwidth-delay product.
    Products(f64),
    /// As it is.
    Plain(Queue),
}

impl Length {
    /// `1bdp`, `2.5 bdp`, `100 packets`, `100`, `64KiB`, `unlimited`.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let lower = text.trim().to_ascii_lowercase();
        let refused = |error: UnitError| Fault::new(error.to_string());
        if lower == "unlimited" {
            return Ok(Self::Plain(Queue::Unlimited));
        }
        if let Some(number) = lower.strip_suffix("bdp") {
            let products = units::number(number).map_err(refused)?;
            return if products > 0.0 {
                Ok(Self::Products(products))
            } else {
                Err(nothing())
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
                .map_err(|_| Fault::new("that many packets cannot wait; the most is 4294967295"))?;
            return match packets {
                0 => Err(nothing()),
                packets => Ok(Self::Plain(Queue::Packets(packets))),
            };
        }
        match units::size(text) {
            Ok(0) => Err(nothing()),
            Ok(bytes) => Ok(Self::Plain(Queue::Bytes(bytes))),
            Err(_) => Err(Fault::new(format!(
                "'{}' is no queue; write it like 1bdp, 100 packets, 64KiB or unlimited",
                text.trim().escape_debug()
            ))),
        }
    }

    /// The queue of a bottleneck of this rate on a path of this round trip.
    pub(super) fn queue(self, rate: Option<Rate>, rtt: Duration, mtu: u16) -> Result<Queue, Fault> {
        match (self, rate) {
            (Self::Products(_), None) => Err(Fault::new(
                "a queue in bdp needs a rate; give one, or the queue as a size",
            )),
            (Self::Products(factor), Some(rate)) => {
                // With less than two packets the bottleneck would idle between them.
                let least = 2 * u64::from(mtu);
                Ok(Queue::Bytes(times(rate.bytes_in(rtt), factor).max(least)))
            }
            (Self::Plain(Queue::Bytes(bytes)), _) if bytes < u64::from(mtu) => {
                Err(Fault::new(format!(
                    "a queue of {bytes} bytes would let no packet of {mtu} bytes (the mtu) pass"
                )))
            }
            (Self::Plain(queue), _) => Ok(queue),
        }
    }
}

/// The queue when none is asked for: one bandwidth-delay product, and at least 64 KiB.
pub(super) fn default(rate: Option<Rate>, rtt: Duration) -> Queue {
    rate.map_or(Queue::Unlimited, |rate| {
        Queue::Bytes(rate.bytes_in(rtt).max(LEAST_DEFAULT))
    })
}

fn nothing() -> Fault {
    Fault::new("a queue of nothing drops everything; write it like 1bdp, 100 packets or 64KiB")
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a byte more or less does not matter, and the cast saturates"
)]
fn times(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor).round() as u64
}
