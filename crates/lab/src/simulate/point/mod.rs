//! One simulation: a request becomes a scenario, and what its flows did a line of the table.

use std::time::Duration;

use sim::link::Conditions;
use sim::tcp::{HEADERS, TcpConfig};
use sim::transfer::{InitialStreams, SimTransfer, evidence};
use sim::world::{AccessLink, CrossTraffic, FlowSpec, FlowStats, Scenario, Simulation};
use tune::diagnosis::dominant_limiter;
use tune::limiter::Limiter;
use units::Rate;

use super::outcome::SimPoint;
use super::request::{BLOCK, SimRequest};

/// Endless connections begin within this time, not in step.
const STARTS_WITHIN: Duration = Duration::from_secs(1);
/// Longest wait for a second segment to acknowledge (Linux: 40 ms while data flows).
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// How often the control connection of a transfer asks something.
const TICK: Duration = Duration::from_millis(100);
/// Steps from one start to the next, as a share of [`STARTS_WITHIN`]: the golden ratio's fraction
/// spreads any number of them evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Simulates so many connections.
pub(super) fn simulate(request: &SimRequest, streams: InitialStreams) -> SimPoint {
    match (request.bytes, streams) {
        (Some(bytes), _) => transfer(request, streams, bytes),
        (None, InitialStreams::Fixed(flows)) => endless(request, flows),
        (None, InitialStreams::Automatic) => endless(request, request.automatic_flows()),
    }
}

fn endless(request: &SimRequest, flows: u32) -> SimPoint {
    let mut scenario = scenario(request);
    for number in 0..flows {
        scenario.flows.push(FlowSpec {
            start: STARTS_WITHIN.mul_f64(phase(request.seed, number)),
            ..flow(request)
        });
    }
    let mut simulation = Simulation::new(&scenario);
    simulation.run_until(request.warm_up);
    let before = all(&simulation);
    simulation.run_until(request.warm_up + request.duration);
    let measured: Vec<FlowStats> = all(&simulation)
        .iter()
        .zip(&before)
        .map(|(now, then)| now.since(then))
        .collect();
    let limiter = limiter(request, &measured);
    point(&measured, request.duration, limiter)
}

/// A file that the streams share block by block, steered as a real transfer is.
fn transfer(request: &SimRequest, streams: InitialStreams, bytes: u64) -> SimPoint {
    let mut stream = flow(request);
    stream.tcp.handshake = true;
    let transfer = SimTransfer {
        bytes,
        block: BLOCK as u64,
        streams,
        stream,
        tick: TICK,
        deadline: request.duration,
    };
    let outcome = transfer.run(&scenario(request), |_| None);
    SimPoint {
        seconds: outcome.complete.then_some(outcome.elapsed.as_secs_f64()),
        ..point(&outcome.flows, outcome.elapsed, outcome.limited_by.limiter)
    }
}

/// Where in the interval of starts a connection begins, 0..1.
fn phase(seed: u64, number: u32) -> f64 {
    // Fractions of an irrational number's multiples: each seed moves the starts differently.
    let seed = (seed as f64 * std::f64::consts::SQRT_2).fract();
    (seed + f64::from(number) * GOLDEN).fract()
}

fn all(simulation: &Simulation) -> Vec<FlowStats> {
    (0..simulation.flow_count())
        .map(|flow| simulation.flow(flow))
        .collect()
}

/// The network, without connections.
pub(super) fn scenario(request: &SimRequest) -> Scenario {
    let back = Conditions {
        rate: Some(request.rate),
        delay: request.delay,
        ..Conditions::default()
    };
    Scenario {
        forward: Conditions {
            queue: request.queue,
            loss: request.loss,
            ..back.clone()
        },
        reverse: back,
        flows: Vec::new(),
        cross_traffic: request
            .cross_traffic
            .map(|rate| cross(request, rate))
            .into_iter()
            .collect(),
        seed: request.seed,
    }
}

fn cross(request: &SimRequest, rate: Rate) -> CrossTraffic {
    CrossTraffic {
        rate,
        packet_bytes: request.packet,
        start: Duration::ZERO,
        stop: None,
        bursts: None,
    }
}

/// A connection.
pub(super) fn flow(request: &SimRequest) -> FlowSpec {
    let access = AccessLink {
        rate: Some(request.access_rate),
        delay: request.access_delay,
    };
    FlowSpec {
        tcp: TcpConfig {
            mss: request.packet - HEADERS,
            congestion: request.congestion,
            initial_window: request.effective_initial_window(),
            receive_buffer: request.window,
            delayed_ack: request.delayed_ack.then_some(DELAYED_ACK),
            ..TcpConfig::default()
        },
        sender_access: access,
        receiver_access: access,
        jitter: request.jitter,
        ..FlowSpec::default()
    }
}

/// Point of `flows` over `elapsed`.
pub(super) fn point(flows: &[FlowStats], elapsed: Duration, limiter: Limiter) -> SimPoint {
    let sum = |field: fn(&FlowStats) -> u64| flows.iter().map(field).sum::<u64>();
    let bytes = sum(|f| f.delivered_bytes);
    let samples = sum(|f| f.sender.rtt_samples);
    let rtt_total: Duration = flows.iter().map(|f| f.sender.rtt_total).sum();
    SimPoint {
        flows: u32::try_from(flows.len()).unwrap_or(u32::MAX),
        goodput_mbps: if elapsed.is_zero() {
            0.0
        } else {
            bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e6
        },
        mean_rtt_ms: (samples > 0).then(|| rtt_total.as_secs_f64() * 1e3 / samples as f64),
        drops: sum(|f| f.drops),
        losses: sum(|f| f.losses),
        retransmits: sum(|f| f.sender.retransmits),
        timeouts: sum(|f| f.sender.timeouts),
        fairness: fairness(flows),
        seconds: None,
        limited_by: limiter.name().to_owned(),
        end: None,
        chunks: Vec::new(),
    }
}

/// Jain's index of the flows' bytes: 1 if all have the same, 1/N if one has all; 1 of nothing.
fn fairness(flows: &[FlowStats]) -> f64 {
    let bytes = flows.iter().map(|f| f.delivered_bytes as f64);
    let squares: f64 = bytes.clone().map(|b| b * b).sum();
    let sum: f64 = bytes.sum();
    if squares > 0.0 {
        sum * sum / (flows.len() as f64 * squares)
    } else {
        1.0
    }
}

/// Judgement of the production rule on the senders' accounts.
fn limiter(request: &SimRequest, flows: &[FlowStats]) -> Limiter {
    let bytes = flows.iter().map(|f| f.delivered_bytes).sum();
    let streams = u32::try_from(flows.len()).unwrap_or(u32::MAX);
    dominant_limiter(&evidence(
        flows,
        bytes,
        request.duration,
        streams,
        request.window,
    ))
    .limiter
}

#[cfg(test)]
mod tests;
