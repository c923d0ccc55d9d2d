//! Facts of a path and limits of its client.

use std::time::Duration;

use super::series::Series;
use crate::sizing::host_limits::HostBufferLimits;

/// Transfers that count more than an estimate of the bandwidth.
pub(super) const ENOUGH_TRANSFERS: u32 = 3;

/// Ratio of the rates of the two directions from which on they differ. Two estimates within 20 % of the truth are up to
/// 1.5 apart on a path whose directions are alike. From 2 on, the buffer of one direction is wrong for the other also
/// where a kernel doubles what is set.
const DIFFERENT_RATES: f64 = 2.0;

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

/// Measurements of the path from a sender to one client, or with [`PathFacts::reversed`] of the path back. Everything may
/// be unknown.
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
    /// Goodput of real transfers from the client.
    pub reverse_goodput: Option<Spread>,
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
    /// The two directions take different routes.
    pub routes_differ: bool,
    /// The bandwidth is that of the other direction, because that of this one was never measured.
    pub is_of_other_direction: bool,
}

impl PathFacts {
    /// Measured rate of this direction, bits per second: the bandwidth, or the median of three or more transfers that were
    /// faster and so prove the estimate too low. `None` if it was never measured.
    pub fn rate_bps(&self) -> Option<u64> {
        let bandwidth = self.bandwidth_bps.filter(|_| !self.is_of_other_direction);
        proved_rate(bandwidth, self.goodput)
    }

    /// Measured rate of the other direction, bits per second.
    pub fn reverse_rate_bps(&self) -> Option<u64> {
        proved_rate(self.reverse_bandwidth_bps, self.reverse_goodput)
    }

    /// The measured rates of the two directions, if one is at least twice the other.
    pub fn different_rates(&self) -> Option<(u64, u64)> {
        let (one, other) = self.rate_bps().zip(self.reverse_rate_bps())?;
        let differ = one.max(other) as f64 >= one.min(other) as f64 * DIFFERENT_RATES;
        differ.then_some((one, other))
    }

    /// The two directions differ in rate or route.
    pub fn is_asymmetric(&self) -> bool {
        self.routes_differ || self.different_rates().is_some()
    }

    /// The facts for transfers from the client. Round trip and losses are those of both directions together, as tests see
    /// them; segments that the sender of this direction sent again say nothing of the other one. A bandwidth that was
    /// never measured is taken to be that of this direction, unless the routes differ.
    #[must_use]
    pub fn reversed(self) -> Self {
        let stands_in = self.reverse_rate_bps().is_none() && !self.routes_differ;
        let is_of_other_direction = stands_in && self.bandwidth_bps.is_some();
        Self {
            bandwidth_bps: match is_of_other_direction {
                true => self.bandwidth_bps,
                false => self.reverse_bandwidth_bps,
            },
            reverse_bandwidth_bps: self.bandwidth_bps,
            goodput: self.reverse_goodput,
            reverse_goodput: self.goodput,
            retransmits: None,
            is_of_other_direction,
            ..self
        }
    }
}

/// The larger one of a bandwidth and of the median of transfers that prove it too low.
fn proved_rate(bandwidth: Option<u64>, goodput: Option<Spread>) -> Option<u64> {
    let enough = goodput.filter(|goodput| goodput.count >= ENOUGH_TRANSFERS);
    let proved = enough.map(|goodput| goodput.median_bps);
    bandwidth.max(proved).filter(|bps| *bps > 0)
}

/// The rate that the processors of a host can move through TCP, by its own estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorCapacity {
    /// Rate of all cores together, bits per second.
    pub bps: u64,
    /// Cores. The packets of one stream keep one core busy at a time.
    pub cores: u32,
}

impl ProcessorCapacity {
    /// Cores that a path of so many bits per second keeps busy, at least one.
    pub fn busy_cores(self, bps: u64) -> u32 {
        let cores = self.cores.max(1);
        let of_core = (self.bps / u64::from(cores)).max(1);
        u32::try_from(bps.div_ceil(of_core)).map_or(cores, |busy| busy.clamp(1, cores))
    }

    /// Whether a path of so many bits per second is faster than all cores.
    pub fn is_exceeded_by(self, bps: u64) -> bool {
        self.bps < bps
    }
}

/// The end that sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendingEnd {
    /// Limits of its buffers.
    pub buffers: HostBufferLimits,
    /// Capacity of its processors.
    pub processor: Option<ProcessorCapacity>,
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
    /// Capacity of its processors. An estimate: it decides the streams, and no rate is advised by it.
    pub processor: Option<ProcessorCapacity>,
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
