//! Advice for transfers over a path: the paper's rule, buffer = round trip × bottleneck bandwidth (section 5),
//! and the settings beside it.

mod confidence;
mod loss;
mod processor;
mod reason;

use std::time::Duration;

use units::bytes_in;

use self::confidence::confidence;
use self::loss::PathLoss;
use self::processor::BusyProcessors;
use super::facts::{ClientLimits, ENOUGH_TRANSFERS, PathFacts, SendingEnd, whole};
use crate::limiter::Limiter;
use crate::prior::Prior;
use crate::sample::{max_in_flight, window_of_buffer};
use crate::sizing::host_limits::HostBufferLimits;
use crate::streams::initial::advised_from_rtt;
use crate::streams::model::ModelPath;

/// Advice for transfers from a sender to one client. A value that is unknown, or that is best left to the
/// kernel, is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathAdvice {
    /// Value for SO_SNDBUF and SO_RCVBUF of each stream, bytes. `None`: leave autotuning alone, because a
    /// buffer that is set ends it for the life of the connection.
    pub set_buffer_bytes: Option<u64>,
    /// Round trip × bottleneck bandwidth, bytes: what all streams together need in flight.
    pub bdp_bytes: Option<u64>,
    /// Streams to open.
    pub streams: Option<u32>,
    /// Congestion control of the sender, by its kernel name.
    pub congestion_control: Option<String>,
    /// Pacing rate of all streams together, bits per second on the wire.
    pub pace_bps: Option<u64>,
    /// Expected goodput of a long transfer, bits per second: the median.
    pub expected_bps: Option<u64>,
    /// One transfer in ten is slower, bits per second.
    pub p10_bps: Option<u64>,
    /// One transfer in ten is faster, bits per second.
    pub p90_bps: Option<u64>,
    /// Expected limiter of a transfer; `None` if too little is known.
    pub limited_by: Option<Limiter>,
    /// How far to trust the advice, 0 (a guess) to 1.
    pub confidence: f64,
    /// One sentence: the reason.
    pub why: String,
}

/// Most streams that are advised.
const MAX_STREAMS: u32 = 64;
/// Streams with which a loss-tolerant congestion control fills any path.
const LOSS_TOLERANT_STREAMS: u32 = 4;
/// Payload and size of a full packet on Ethernet, bytes.
const PAYLOAD: f64 = 1448.0;
const PACKET: f64 = 1500.0;
/// Smallest congestion window in recovery, packets (RFC 5681, section 3.1).
const LEAST_WINDOW: f64 = 2.0;
/// Share of the path that a stream must have so that it is worth opening, bytes: four times the initial
/// window of RFC 6928.
const MIN_SHARE: u64 = 4 * 10 * 1448;
/// Gain in flight from which on a set buffer is worth the end of autotuning.
const PINNED_GAIN: f64 = 1.1;
/// Smallest buffer that is ever advised, bytes: smaller ones serve no path and cost system calls.
const MIN_BUFFER: u64 = 64 << 10;
/// Bounds of what is believed: a nanosecond to ten minutes, and 100 Tbit/s.
const ROUND_TRIPS: (Duration, Duration) = (Duration::from_nanos(1), Duration::from_secs(600));
const LARGEST_BPS: u64 = 100_000_000_000_000;
/// Goodput close enough to the bandwidth to show that transfers fill the path.
const FILLED_SHARE: f64 = 0.85;

/// A path whose round trip and bandwidth are known.
#[derive(Debug, Clone, Copy)]
struct KnownPath {
    rtt: Duration,
    /// Bandwidth of the bottleneck, bits per second.
    bandwidth_bps: u64,
    /// The same, or what the client takes if that is less.
    usable_bps: u64,
    bdp_bytes: u64,
}

/// Buffers of one stream.
#[derive(Debug, Clone, Copy)]
struct BufferAdvice {
    set_bytes: Option<u64>,
    /// Bytes that one stream keeps in flight with them.
    in_flight: u64,
    /// Bytes that the kernels' autotuning reaches.
    autotuned: u64,
    /// Limiter that bounds `in_flight`.
    limiter: Limiter,
}

/// Settings for transfers over the path of `facts`, from `sender` to a client with `client`'s limits. `bytes`: size of the
/// transfer, if known.
pub fn advise(
    facts: &PathFacts,
    client: &ClientLimits,
    sender: &SendingEnd,
    bytes: Option<u64>,
) -> PathAdvice {
    let confidence = confidence(facts);
    let Some(path) = KnownPath::of(facts, client) else {
        return advise_unmeasured(facts, client, bytes, confidence);
    };
    let most = most_streams(client);
    let processors = BusyProcessors::of(&path, client, sender);
    let initial = processors.streams(initial_streams(&path, bytes)).min(most);
    let loss = PathLoss::of(facts, &path, initial);
    let wanted = loss.streams(facts, &path, initial).min(most);
    let share = path.bdp_bytes.div_ceil(u64::from(wanted));
    let buffers = advise_buffers(share, client, &sender.buffers);
    // A cap below the share: more streams until their sum covers the path.
    let covering = path.bdp_bytes.div_ceil(buffers.in_flight.max(1));
    let covering = u32::try_from(covering).unwrap_or(u32::MAX);
    let streams = wanted.max(covering).clamp(1, most);
    let streams = Prior::with_streams(streams).first_streams(bytes, streams);
    let predicted = processors.bound(predict(&path, &loss, streams, buffers.in_flight));
    let observed = facts
        .goodput
        .filter(|goodput| goodput.count >= ENOUGH_TRANSFERS);
    let capped = |bps: u64| bps.min(path.usable_bps);
    let expected = observed.map_or(predicted, |goodput| goodput.median_bps);
    let mut advice = PathAdvice {
        set_buffer_bytes: buffers.set_bytes,
        bdp_bytes: Some(path.bdp_bytes),
        streams: Some(streams),
        congestion_control: loss.congestion_control.clone(),
        pace_bps: pace(&path, &loss, facts),
        expected_bps: Some(capped(expected)),
        p10_bps: observed.map(|goodput| capped(goodput.p10_bps)),
        p90_bps: observed.map(|goodput| capped(goodput.p90_bps)),
        limited_by: Some(limiter(
            &path,
            &loss,
            streams,
            &buffers,
            &processors,
            predicted,
        )),
        confidence,
        why: String::new(),
    };
    advice.why = reason::describe(&advice, &path, &loss, &buffers, observed, facts);
    if let Some(reason) = processors.reason() {
        advice.why = format!("{} {reason}", advice.why);
    }
    advice
}

impl KnownPath {
    fn of(facts: &PathFacts, client: &ClientLimits) -> Option<Self> {
        let rtt = facts.rtt.filter(|rtt| !rtt.is_zero())?;
        let rtt = rtt.clamp(ROUND_TRIPS.0, ROUND_TRIPS.1);
        let other = facts.bandwidth_bps.filter(|_| facts.is_of_other_direction);
        let rate_bps = facts.rate_bps().or(other).filter(|bps| *bps > 0)?;
        let bandwidth_bps = rate_bps.min(LARGEST_BPS);
        let client_bps = client.rate_bps.filter(|bps| *bps > 0);
        let usable_bps = client_bps.map_or(bandwidth_bps, |bps| bps.min(bandwidth_bps));
        Some(Self {
            rtt,
            bandwidth_bps,
            usable_bps,
            // A rate below 8 bit/s still has a product.
            bdp_bytes: bytes_in(usable_bps.div_ceil(8), rtt).max(1),
        })
    }
}

/// Advice without a bandwidth or a round trip.
fn advise_unmeasured(
    facts: &PathFacts,
    client: &ClientLimits,
    bytes: Option<u64>,
    confidence: f64,
) -> PathAdvice {
    let rtt = facts.rtt.filter(|rtt| !rtt.is_zero());
    let most = most_streams(client);
    PathAdvice {
        streams: rtt.and_then(|rtt| advised_from_rtt(rtt, bytes, 0, most).streams),
        expected_bps: facts.goodput.map(|goodput| goodput.median_bps),
        p10_bps: facts.goodput.map(|goodput| goodput.p10_bps),
        p90_bps: facts.goodput.map(|goodput| goodput.p90_bps),
        confidence,
        why: reason::describe_unmeasured(rtt, facts.bandwidth_bps),
        ..PathAdvice::default()
    }
}

/// Most streams to advise.
fn most_streams(client: &ClientLimits) -> u32 {
    let own = client.max_streams.unwrap_or(MAX_STREAMS);
    own.clamp(1, MAX_STREAMS)
}

/// Streams that fill the path soon, each with a share that is worth a stream.
fn initial_streams(path: &KnownPath, bytes: Option<u64>) -> u32 {
    let by_rtt = advised_from_rtt(path.rtt, bytes, 0, MAX_STREAMS);
    let shares = u32::try_from(path.bdp_bytes / MIN_SHARE).unwrap_or(u32::MAX);
    by_rtt.streams.unwrap_or(1).min(shares).max(1)
}

/// Buffers of a stream that needs `share` bytes in flight.
fn advise_buffers(share: u64, client: &ClientLimits, sender: &HostBufferLimits) -> BufferAdvice {
    let sending = max_in_flight(sender.max_autotuned_send);
    let receiving = client.max_receive_buffer.map(window_of_buffer);
    let autotuned = receiving.map_or(sending, |window| window.min(sending));
    let limiter = if receiving.is_some_and(|window| window < sending) {
        Limiter::ReceiveWindow
    } else {
        Limiter::SendBuffer
    };
    // The kernel grants twice the value, of which two thirds are in flight: the paper's rule leaves a third
    // of the product for a queue.
    let settable_send = sender.max_settable_send / 2;
    let settable = client
        .max_set_buffer
        .map_or(settable_send, |most| most.min(settable_send));
    let value = share.max(MIN_BUFFER).min(settable).max(1);
    let granted = value.saturating_mul(2);
    let pinned = max_in_flight(granted).min(window_of_buffer(granted));
    let wins = autotuned < share && pinned as f64 > autotuned as f64 * PINNED_GAIN;
    if wins || client.must_set_buffer {
        let is_clients = client
            .max_set_buffer
            .is_some_and(|most| most < settable_send);
        BufferAdvice {
            set_bytes: Some(value),
            in_flight: pinned,
            autotuned,
            limiter: if is_clients {
                Limiter::ReceiveWindow
            } else {
                Limiter::SendBuffer
            },
        }
    } else {
        BufferAdvice {
            set_bytes: None,
            in_flight: autotuned,
            autotuned,
            limiter,
        }
    }
}

/// Goodput of a long transfer by the model of parallel TCP, bits per second.
fn predict(path: &KnownPath, loss: &PathLoss, streams: u32, in_flight: u64) -> u64 {
    let rtt = path.rtt.as_secs_f64();
    let model = ModelPath {
        bandwidth: path.usable_bps as f64 / 8.0 / PACKET,
        rtt,
        window: in_flight as f64 / PAYLOAD,
    };
    // The model has no solution below some packets in flight. Linux keeps two packets in flight whatever is
    // lost, which fills a path that holds no more.
    let least = f64::from(streams) * LEAST_WINDOW / rtt;
    let sent = model.loss_bound(streams).max(least).min(model.bandwidth);
    let windows = model.window_bound(streams).min(sent);
    let bps = windows.min(loss.packets_per_second(path, streams)) * PAYLOAD * 8.0;
    whole(bps).min(path.usable_bps)
}

/// Pacing rate, where it is known well enough to do no harm.
fn pace(path: &KnownPath, loss: &PathLoss, facts: &PathFacts) -> Option<u64> {
    if path.usable_bps < path.bandwidth_bps {
        // Faster sending would only fill the client's buffers.
        return Some(path.usable_bps);
    }
    let goodput = facts
        .goodput
        .filter(|goodput| goodput.count >= ENOUGH_TRANSFERS && !loss.is_limiting)?;
    let filled = goodput.median_bps as f64 >= path.bandwidth_bps as f64 * FILLED_SHARE;
    // The best transfers show the rate at which the path is just full; headers come on top.
    filled.then(|| whole(goodput.p90_bps as f64 * PACKET / PAYLOAD))
}

fn limiter(
    path: &KnownPath,
    loss: &PathLoss,
    streams: u32,
    buffers: &BufferAdvice,
    processors: &BusyProcessors,
    predicted: u64,
) -> Limiter {
    let in_flight = buffers.in_flight.saturating_mul(u64::from(streams));
    if in_flight < path.bdp_bytes / 20 * 19 {
        buffers.limiter
    } else if loss.is_limiting && (predicted as f64) < path.usable_bps as f64 * FILLED_SHARE {
        Limiter::Loss
    } else if path.usable_bps < path.bandwidth_bps {
        Limiter::ReceiverCpu
    } else {
        processors.limiter().unwrap_or(Limiter::CongestionWindow)
    }
}

#[cfg(test)]
mod tests;
