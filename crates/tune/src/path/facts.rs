//! Facts of a path and limits of its client.

use std::time::Duration;

use super::series::Series;

/// Spread of measured rates, bits per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spread {
    /// One in ten is slower.
    pub p10_bps: u64,
    /// One in two is slower.
    pub median_bps: u64,
    /// One in ten is faster.
    pub p90_bps: u64,
    /// Number of rates.
    pub count: u32,
}

impl Spread {
    /// The spread of a series of rates in bits per second; `None` if it is empty.
    pub fn of(series: &Series) -> Option<Self> {
        let rate = |q| series.quantile(q).map(whole);
        Some(Self {
            p10_bps: rate(0.1)?,
            median_bps: rate(0.5)?,
            p90_bps: rate(0.9)?,
            count: u32::try_from(series.len()).unwrap_or(u32::MAX),
        })
    }
}

/// Measurements of the path from a sender to one client. Everything may be unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathFacts {
    /// Round trip without queues: trimmed mean.
    pub rtt: Option<Duration>,
    /// Bandwidth of the bottleneck towards the client, bits per second: trimmed mean.
    pub bandwidth_bps: Option<u64>,
    /// Bandwidth of the bottleneck from the client, bits per second.
    pub reverse_bandwidth_bps: Option<u64>,
    /// Share of test packets that were lost, 0..=1.
    pub loss: Option<f64>,
    /// Tests that counted losses.
    pub loss_tests: u32,
    /// Goodput of real transfers to the client.
    pub goodput: Option<Spread>,
    /// Streams with which real transfers ended.
    pub streams: Option<u32>,
    /// Share of segments that real transfers retransmitted, 0..=1.
    pub retransmits: Option<f64>,
    /// Congestion controls that programs on the sender may choose, by their kernel names.
    pub congestion_controls: Vec<String>,
    /// Measurements of round trip and bandwidth that these facts rest on.
    pub measurements: u32,
    /// Age of the newest of them.
    pub age: Option<Duration>,
    /// The two directions differ in rate or route.
    pub asymmetric: bool,
}

/// Limits that a client tells of itself. Everything may be unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Largest receive buffer by autotuning (third value of `net.ipv4.tcp_rmem`), bytes.
    pub max_receive_buffer: Option<u64>,
    /// Largest value for SO_RCVBUF (`net.core.rmem_max`), bytes. The kernel grants twice as much.
    pub max_set_buffer: Option<u64>,
    /// Fastest rate at which its processor or disk takes data, bits per second.
    pub rate_bps: Option<u64>,
    /// It cannot leave the buffer to the kernel.
    pub must_set_buffer: bool,
    /// Most streams that it can open.
    pub max_streams: Option<u32>,
}

/// A number that is not negative as an integer; others and NaN become 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
pub(super) fn whole(number: f64) -> u64 {
    number as u64
}
