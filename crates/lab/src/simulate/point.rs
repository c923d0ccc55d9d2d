//! One simulation: builds the scenario of a request, runs it, and summarizes its flows as a point.

use std::time::Duration;

use link::Conditions;
use sim::chunked::{ChunkedSpec, MakeTuner};
use sim::tcp::{HEADERS, TcpConfig};
use sim::transfer::{InitialStreams, SimTransfer, evidence};
use sim::world::{AccessLink, CrossTraffic, FlowSpec, FlowStats, Scenario, Simulation};
use tune::diagnosis::dominant_limiter;
use tune::limiter::Limiter;
use tune::streams::chunked::{self as tuners, ChunkParameters};

use super::outcome::{SimChunk, SimPoint, SimSample};
use super::request::{BLOCK, DEFAULT_FILE, SimRequest, StreamFinder};
use crate::LabError;

/// Interval over which the starts of endless connections are spread, so that they are not synchronized.
const START_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a delayed ACK (Linux: 40 ms while data flows).
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Interval at which a transfer is sampled, and at which commands measure the round trip while data flows.
const TICK: Duration = Duration::from_millis(100);
/// Block size within a chunk, bytes. Small blocks let all connections finish a chunk at nearly the same time.
const CHUNK_BLOCK: u64 = 16 << 10;
/// Step from one start to the next, as a share of [`START_INTERVAL`]: the fraction of the golden ratio,
/// whose multiples modulo 1 are evenly spread for any number of connections.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Simulates connections that send without end, or a file that is not sent in chunks.
pub(super) fn simulate(request: &SimRequest, streams: InitialStreams) -> SimPoint {
    match (request.bytes, streams) {
        (Some(bytes), _) => simulate_file(request, streams, bytes),
        (None, InitialStreams::Fixed(flows)) => simulate_endless(request, flows),
        (None, InitialStreams::Automatic) => simulate_endless(request, request.automatic_flows()),
    }
}

/// Simulates `flows` connections that send without end, and measures them after the warm-up.
fn simulate_endless(request: &SimRequest, flows: u32) -> SimPoint {
    let mut scenario = scenario(request);
    for number in 0..flows {
        scenario.flows.push(FlowSpec {
            start: START_INTERVAL.mul_f64(start_phase(request.seed, number)),
            ..flow_spec(request)
        });
    }
    let mut simulation = Simulation::new(&scenario);
    let all = |simulation: &Simulation| -> Vec<FlowStats> {
        (0..simulation.flow_count())
            .map(|flow| simulation.flow(flow))
            .collect()
    };
    simulation.run_until(request.warm_up);
    let before = all(&simulation);
    simulation.run_until(request.warm_up + request.duration);
    let after = all(&simulation);
    let measured = after.iter().zip(&before).map(|(now, then)| now.since(then));
    let measured: Vec<FlowStats> = measured.collect();
    // The limiter is inferred as in real transfers, from the senders' accounts.
    let bytes = measured.iter().map(|f| f.delivered_bytes).sum();
    let evidence = evidence(&measured, bytes, request.duration, flows, request.window);
    point(
        request,
        &measured,
        request.duration,
        dominant_limiter(&evidence).limiter,
    )
}

/// Simulates the transfer of a file whose blocks go to the streams as they become free.
fn simulate_file(request: &SimRequest, streams: InitialStreams, bytes: u64) -> SimPoint {
    let mut stream = flow_spec(request);
    stream.tcp.handshake = true;
    let transfer = SimTransfer {
        bytes,
        block: BLOCK as u64,
        streams,
        stream,
        tick: TICK,
        deadline: request.duration,
    };
    let mut samples: Vec<SimSample> = Vec::new();
    let mss = f64::from(stream.tcp.mss);
    let outcome = transfer.run(&scenario(request), |sample| {
        let flow = sample.streams.first()?;
        let before = samples.last();
        samples.push(SimSample {
            time: before.map_or(0.0, |before| before.time) + sample.interval.as_secs_f64(),
            peer_window: flow.receive_window,
            window: flow.cwnd * mss,
            in_flight: flow.in_flight,
            retransmits: before.map_or(0, |before| before.retransmits) + flow.sender.retransmits,
        });
        None
    });
    SimPoint {
        samples,
        seconds: outcome.complete.then_some(outcome.elapsed.as_secs_f64()),
        ..point(
            request,
            &outcome.flows,
            outcome.elapsed,
            outcome.limited_by.limiter,
        )
    }
}

/// Simulates the transfer of a file in chunks. `finder` sets the number of connections of each chunk by the
/// measurements of the chunks before it.
///
/// # Errors
/// [`LabError::Usage`]: not even one chunk arrives before the deadline.
pub(super) fn simulate_chunks(
    request: &SimRequest,
    finder: StreamFinder,
) -> Result<SimPoint, LabError> {
    let bytes = request.file().unwrap_or(DEFAULT_FILE);
    let transfer = chunked_spec(request, bytes, request.duration);
    let outcome = transfer.run(&scenario(request), make_tuner(finder, request.autopar));
    if outcome.chunks.is_empty() {
        return Err(LabError::Usage(format!(
            "--time: not even one chunk of the file arrives in {} s, so no number of connections can be \
             found; give more time",
            request.duration.as_secs_f64()
        )));
    }
    let chunks = outcome.chunks.iter().map(|part| SimChunk {
        time: part.at.as_secs_f64(),
        seconds: part.time.as_secs_f64(),
        streams: part.streams,
        bytes: part.bytes,
        goodput_mbps: part.goodput() / 1e6,
        rtt_ms: part.rtt.as_secs_f64() * 1e3,
        queueing_ms: part.wait.as_secs_f64() * 1e3,
        settled: part.settled,
        reason: part.reason.clone(),
    });
    let chunks: Vec<SimChunk> = chunks.collect();
    let whole = outcome.full_chunks().len();
    let end = whole
        .checked_sub(1)
        .and_then(|last| chunks.get(last))
        .cloned();
    Ok(SimPoint {
        flows: end.as_ref().map_or(0, |end| end.streams),
        seconds: outcome.complete.then_some(outcome.elapsed.as_secs_f64()),
        end,
        chunks,
        ..point(
            request,
            &outcome.flows,
            outcome.elapsed,
            outcome.limited_by.limiter,
        )
    })
}

/// The transfer in chunks of a file of `bytes`.
pub(super) fn chunked_spec(request: &SimRequest, bytes: u64, deadline: Duration) -> ChunkedSpec {
    let mut stream = flow_spec(request);
    // With at most one unsent segment queued, a connection takes its next block only when it can send it.
    stream.tcp.not_sent_lowat = stream.tcp.mss.into();
    ChunkedSpec {
        bytes,
        block: CHUNK_BLOCK,
        stream,
        round_trips: request.autopar.rtt_commands,
        tick: TICK,
        rho: request.autopar.rho,
        deadline,
    }
}

/// The values that make the tuner of a transfer in chunks.
pub(super) fn make_tuner(finder: StreamFinder, parameters: ChunkParameters) -> MakeTuner<'static> {
    Box::new(move |start| match finder {
        StreamFinder::Mode(mode) => tuners::mode_tuner(mode, parameters, start.window, start.rtt),
        StreamFinder::Probe => tuners::probe_tuner(
            parameters.initial_streams,
            parameters.max_streams,
            start.rtt,
        ),
    })
}

/// Start time of connection `number` as a share of [`START_INTERVAL`], 0..1.
fn start_phase(seed: u64, number: u32) -> f64 {
    // The multiples of an irrational number have different fractions, so each seed gives different starts.
    let seed = (seed as f64 * std::f64::consts::SQRT_2).fract();
    (seed + f64::from(number) * GOLDEN).fract()
}

/// The network of a request, without connections.
pub(super) fn scenario(request: &SimRequest) -> Scenario {
    let back = Conditions {
        rate: Some(request.rate),
        delay: request.delay,
        ..Conditions::default()
    };
    let cross = request.cross_traffic.map(|rate| CrossTraffic {
        rate,
        packet_bytes: request.packet,
        start: Duration::ZERO,
        stop: None,
        bursts: None,
    });
    Scenario {
        forward: Conditions {
            queue: request.queue,
            loss: request.loss,
            ..back.clone()
        },
        reverse: back,
        flows: Vec::new(),
        cross_traffic: cross.into_iter().collect(),
        seed: request.seed,
    }
}

/// One of the request's connections.
pub(super) fn flow_spec(request: &SimRequest) -> FlowSpec {
    let access = AccessLink {
        rate: Some(request.access_rate),
        delay: request.access_delay,
        shared: request.shared_access,
    };
    FlowSpec {
        tcp: TcpConfig {
            mss: request.packet - HEADERS,
            congestion: request.congestion,
            recovery: request.recovery,
            initial_window: request.effective_initial_window(),
            receive_buffer: request.window,
            window_growth: request.receiver,
            delayed_ack: request.delayed_ack.then_some(DELAYED_ACK),
            ..TcpConfig::default()
        },
        sender_access: access,
        receiver_access: access,
        jitter: request.jitter,
        ..FlowSpec::default()
    }
}

/// Summarizes `flows` over the time `elapsed`. A point of no time has a goodput of 0.
pub(super) fn point(
    request: &SimRequest,
    flows: &[FlowStats],
    elapsed: Duration,
    limiter: Limiter,
) -> SimPoint {
    let sum = |field: fn(&FlowStats) -> u64| flows.iter().map(field).sum::<u64>();
    let bits = sum(|f| f.delivered_bytes) as f64 * 8.0;
    let samples = sum(|f| f.sender.rtt_samples);
    let rtt_total: Duration = flows.iter().map(|f| f.sender.rtt_total).sum();

    SimPoint {
        flows: u32::try_from(flows.len()).unwrap_or(u32::MAX),
        goodput_mbps: if elapsed.is_zero() {
            0.0
        } else {
            bits / elapsed.as_secs_f64() / 1e6
        },
        mean_rtt_ms: (samples > 0).then(|| rtt_total.as_secs_f64() * 1e3 / samples as f64),
        drops: sum(|f| f.drops),
        losses: sum(|f| f.losses),
        retransmits: sum(|f| f.sender.retransmits),
        timeouts: sum(|f| f.sender.timeouts),
        fairness: fairness(flows),
        session_mbps: Vec::new(),
        queueing_ms: None,
        seconds: None,
        window_bytes: request.window,
        limited_by: limiter.name().to_owned(),
        end: None,
        samples: Vec::new(),
        chunks: Vec::new(),
    }
}

/// Jain's fairness index of the flows' bytes: 1 if all are equal, 1/N if one flow has all bytes; 1 if
/// nothing was delivered.
fn fairness(flows: &[FlowStats]) -> f64 {
    let bytes = flows.iter().map(|f| f.delivered_bytes as f64);
    jain(&bytes.collect::<Vec<f64>>())
}

/// Jain's fairness index of some amounts: 1 if all are equal, or all are 0.
pub(super) fn jain(amounts: &[f64]) -> f64 {
    let squares: f64 = amounts.iter().map(|amount| amount * amount).sum();
    let sum: f64 = amounts.iter().sum();
    match squares > 0.0 {
        true => sum * sum / (amounts.len() as f64 * squares),
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{self, SimMeasure, SimReport};

    /// Simulates `flows` for a few seconds, with the options `more`.
    fn simulated(flows: &str, more: &[(&str, &str)]) -> SimReport {
        let defaults = [("flows", flows), ("warm-up", "2s"), ("time", "3s")];
        let mut options: Vec<(String, String)> = Vec::new();
        // The last value of an option counts, so that `more` can override the defaults.
        for (name, value) in defaults.iter().chain(more) {
            options.retain(|(known, _)| known != name);
            options.push(((*name).to_owned(), (*value).to_owned()));
        }
        simulate::run(&SimRequest::from_options(&options).unwrap()).unwrap()
    }

    fn first_point(flows: &str, more: &[(&str, &str)]) -> SimPoint {
        simulated(flows, more).points.remove(0)
    }

    #[track_caller]
    fn assert_near(value: f64, expected: f64, tolerance: f64) {
        let off = (value / expected - 1.0).abs();
        assert!(off <= tolerance, "{value} is not near {expected}");
    }

    #[test]
    fn the_window_limits_a_single_connection_and_a_full_bottleneck_is_shared() {
        let p = first_point("1", &[]);
        // 44 segments of 1460 bytes per round trip of 24 ms and the transmission times.
        assert_near(p.goodput_mbps, 44.0 * 1460.0 * 8.0 / 0.024_148 / 1e6, 0.002);
        assert_near(p.mean_rtt_ms.unwrap(), 24.148, 0.002);
        assert_eq!(
            (p.drops, p.retransmits, p.timeouts, p.seconds),
            (0, 0, 0, None)
        );
        assert_eq!(p.limited_by, "receive window");
        let p = first_point("8", &[]);
        assert_near(p.goodput_mbps, 100.0 * 1460.0 / 1500.0, 0.001);
        // All windows are in flight: 8 * 44 packets of 0.12 ms.
        assert_near(p.mean_rtt_ms.unwrap(), 8.0 * 44.0 * 0.12, 0.005);
        assert_near(p.fairness, 1.0, 0.001);
        let p = first_point("8", &[("cross-traffic", "40mbit")]);
        assert_near(p.goodput_mbps, 60.0 * 1460.0 / 1500.0, 0.02);
    }

    #[test]
    fn a_small_queue_drops_and_a_lossy_path_loses() {
        let p = first_point("2", &[("queue", "20 packets"), ("window", "1MiB")]);
        assert!(p.drops > 0 && p.losses == 0 && p.retransmits > 0, "{p:?}");
        assert_eq!(p.limited_by, "congestion window (loss)");
        let p = first_point("2", &[("loss", "1%")]);
        assert!(p.losses > 0 && p.drops == 0, "{p:?}");
        assert!(p.goodput_mbps < first_point("2", &[]).goodput_mbps, "{p:?}");
        let p = first_point("2", &[("loss", "100%"), ("bytes", "1MB")]);
        assert_eq!(
            (p.goodput_mbps, p.mean_rtt_ms, p.seconds),
            (0.0, None, None)
        );
        assert_eq!(p.limited_by, "unknown");
        let p = first_point("2", &[("loss", "100%")]);
        assert_eq!((p.goodput_mbps, p.fairness), (0.0, 1.0));
    }

    #[test]
    fn a_file_has_its_time_and_none_if_the_deadline_passes() {
        let file = [("bytes", "12MB"), ("time", "60s"), ("cc", "cubic")];
        let p = first_point("4", &file);
        let seconds = p.seconds.unwrap();
        assert_near(p.goodput_mbps, 96.0 / seconds, 0.001);
        // The windows allow 85 Mbit/s; slow start takes some round trips more.
        assert_eq!((p.flows, &*p.limited_by), (4, "receive window"));
        assert!((1.13..1.6).contains(&seconds), "{seconds}");
        let p = first_point("4", &[("bytes", "12MB"), ("time", "1s")]);
        assert_eq!(p.seconds, None);
        assert!(p.goodput_mbps > 50.0, "{p:?}");
    }

    #[test]
    fn auto_simulates_the_number_that_longhaul_begins_with() {
        assert_eq!(first_point("auto", &[]).flows, 16);
        assert_eq!(first_point("auto", &[("delay", "1ms")]).flows, 8);
        let two_blocks = (2 * BLOCK).to_string();
        assert_eq!(first_point("auto", &[("bytes", &two_blocks)]).flows, 2);
    }

    #[test]
    fn delayed_acks_and_jitter_change_little_below_the_rate() {
        let plain = first_point("2", &[]).goodput_mbps;
        assert_near(
            first_point("2", &[("delayed-ack", "")]).goodput_mbps,
            plain,
            0.02,
        );
        let jittered = first_point("2", &[("jitter", "120us")]).goodput_mbps;
        assert!(jittered < plain, "{jittered}");
        assert_near(jittered, plain, 0.01);
    }

    #[test]
    fn a_seed_repeats_its_events_and_starts_are_spread() {
        let lossy = |seed| first_point("3", &[("loss", "1%"), ("seed", seed)]);
        assert_eq!(lossy("1"), lossy("1"));
        assert_ne!(lossy("1"), lossy("2"));
        let mut starts: Vec<f64> = (0..64).map(|n| start_phase(1, n)).collect();
        starts.sort_by(f64::total_cmp);
        assert!(starts[0] >= 0.0 && starts[63] < 1.0);
        let gaps = starts.windows(2).map(|w| w[1] - w[0]);
        let (least, most) = gaps.fold((1.0, 0.0), |(l, m), g| (g.min(l), g.max(m)));
        assert!(least > 0.005 && most < 0.03, "{least} {most}");
    }

    #[test]
    fn a_file_in_chunks_has_a_line_for_each_and_measures_of_the_last_full_one() {
        let file = [("bytes", "120MB"), ("jitter", "120us"), ("time", "1h")];
        let more = [&file[..], &[("autopar", "delta=1s")]].concat();
        let report = simulated("mi", &more);
        let point = &report.points[0];
        let numbers: Vec<u32> = point.chunks.iter().map(|c| c.streams).collect();
        assert_eq!(numbers[..5], [1, 2, 4, 8, 16]);
        assert!(point.seconds.is_some());
        let text = report.to_text();
        assert!(
            text.contains("\nmi: N0 1, at most 256, eta 0.8, gamma 2, delta 1 s"),
            "{text}"
        );
        assert!(text.contains("1 stream to begin with"), "{text}");
        let csv = report.to_csv();
        assert_eq!(csv.lines().count(), point.chunks.len() + 1);
        assert!(
            csv.lines().all(|line| line.split(',').count() == 9),
            "{csv}"
        );
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["points"][0]["chunks"][1]["streams"], 2);

        let point = first_point("mi+", &more);
        let own = &point.chunks[point.chunks.len() - 2];
        let of = |name: &str| SimMeasure::named(name).unwrap().of(&point);
        assert_eq!(of("streams"), Some(own.streams.into()));
        assert_eq!(of("end_goodput"), Some(own.goodput_mbps));
        assert_eq!(of("end_queueing"), Some(own.queueing_ms));
        let first = point.chunks.iter().find(|chunk| chunk.settled).unwrap();
        assert!((of("settled").unwrap() - (first.time - first.seconds)).abs() < 0.01);
        assert!(of("goodput").unwrap() < own.goodput_mbps);

        let point = first_point("4", &file);
        let of = |name: &str| SimMeasure::named(name).unwrap().of(&point);
        assert_eq!(
            (of("settled"), of("end_goodput"), of("streams")),
            (None, None, Some(4.0))
        );
    }
}
