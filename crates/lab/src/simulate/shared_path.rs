//! Several transfers over one bottleneck, each led by its own policy: how they share it.

use std::time::Duration;

use sim::auto::{AutoTransfer, stream_limits};
use sim::chunked::ChunkedSession;
use sim::sessions::{SimSession, run_sessions};
use sim::tcp::TcpConfig;
use sim::transfer::evidence;
use sim::world::{FlowSpec, FlowStats, Simulation};
use tune::diagnosis::dominant_limiter;
use tune::streams::prior_from_rtt;

use super::outcome::SimPoint;
use super::point::{chunked_spec, flow_spec, jain, make_tuner, point, scenario};
use super::request::{BLOCK, SimRequest};

/// Size of each session's file, bytes: no session comes to its end.
const ENDLESS: u64 = 1 << 50;
/// Initial window of a session of `auto`, segments (RFC 6928), if the request has none.
const INITIAL_WINDOW: u32 = 10;

/// Simulates `count` sessions that begin [`SimRequest::stagger`] apart, and measures them together after the warm-up.
pub(super) fn simulate(request: &SimRequest, count: u32) -> SimPoint {
    let mut simulation = Simulation::new(&scenario(request));
    let mut sessions: Vec<Box<dyn SimSession>> = Vec::new();
    for number in 0..count {
        let start = request.stagger * number;
        run_sessions(&mut simulation, &mut sessions, start);
        sessions.push(begin(request, &mut simulation));
    }
    run_sessions(&mut simulation, &mut sessions, request.warm_up);
    let (before, flows_before) = (arrived(&simulation, &sessions), all_flows(&simulation));
    let queued = simulation.queueing_delay();
    let end = request.warm_up + request.duration;
    run_sessions(&mut simulation, &mut sessions, end);

    let after = arrived(&simulation, &sessions);
    let bytes: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    let flows = all_flows(&simulation);
    // A flow that was opened meanwhile has no earlier statistics.
    let earlier = flows_before
        .into_iter()
        .chain(std::iter::repeat(FlowStats::default()));
    let flows: Vec<FlowStats> = flows
        .iter()
        .zip(earlier)
        .map(|(a, b)| a.since(&b))
        .collect();
    let streams = sessions.iter().map(SimSession::streams).sum();
    let total = bytes.iter().sum();
    let accounts = evidence(&flows, total, request.duration, streams, request.window);
    let limiter = dominant_limiter(&accounts).limiter;
    let rates = bytes.iter().map(|bytes| megabits(*bytes, request.duration));
    let rates: Vec<f64> = rates.collect();
    let waits = simulation.queueing_delay().since(&queued).mean();
    SimPoint {
        flows: streams,
        goodput_mbps: rates.iter().sum(),
        fairness: jain(&rates),
        session_mbps: rates,
        queueing_ms: Some(waits.as_secs_f64() * 1e3),
        ..point(request, &flows, request.duration, limiter)
    }
}

/// Begins a session now.
fn begin(request: &SimRequest, simulation: &mut Simulation) -> Box<dyn SimSession> {
    let Some(finder) = request.finder() else {
        let spec = flow_spec(request);
        let tcp = TcpConfig {
            initial_window: request.initial_window.unwrap_or(INITIAL_WINDOW),
            ..spec.tcp
        };
        let prior = prior_from_rtt(request.base_rtt(), None, BLOCK, u32::MAX);
        let limits = stream_limits(request.autopar.max_streams);
        let spec = FlowSpec { tcp, ..spec };
        return Box::new(AutoTransfer::begin(
            simulation, limits, prior, ENDLESS, spec,
        ));
    };
    let end = request.warm_up + request.duration;
    let spec = chunked_spec(request, ENDLESS, end + Duration::from_secs(1));
    let delay = request.delay;
    let make = make_tuner(finder, request.autopar);
    Box::new(ChunkedSession::begin(&spec, delay, simulation, make))
}

fn arrived(simulation: &Simulation, sessions: &[Box<dyn SimSession>]) -> Vec<u64> {
    let sessions = sessions.iter();
    sessions
        .map(|session| session.delivered(simulation))
        .collect()
}

fn all_flows(simulation: &Simulation) -> Vec<FlowStats> {
    (0..simulation.flow_count())
        .map(|flow| simulation.flow(flow))
        .collect()
}

fn megabits(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use crate::simulate::{self, SimPoint, SimRequest};

    fn simulated(flows: &str, sessions: &str) -> SimPoint {
        let times = [("stagger", "1s"), ("warm-up", "20s"), ("time", "10s")];
        simulated_with(flows, sessions, &times)
    }

    fn simulated_with(flows: &str, sessions: &str, further: &[(&str, &str)]) -> SimPoint {
        let options = [
            ("flows", flows),
            ("sessions", sessions),
            ("jitter", "120us"),
        ];
        let options = options.iter().chain(further);
        let options: Vec<(String, String)> = options
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut report = simulate::run(&SimRequest::from_options(&options).unwrap()).unwrap();
        report.points.remove(0)
    }

    #[test]
    fn sessions_share_the_path_and_are_counted_apart() {
        for flows in ["aimd", "auto"] {
            let point = simulated(flows, "2");
            let rates = &point.session_mbps;
            assert_eq!(rates.len(), 2);
            assert!((rates.iter().sum::<f64>() - point.goodput_mbps).abs() < 1e-6);
            assert!(rates.iter().all(|rate| *rate > 5.0), "{flows}: {rates:?}");
            assert!((0.5..=1.0).contains(&point.fairness), "{point:?}");
            assert!(point.queueing_ms.is_some() && point.flows >= 2, "{point:?}");
        }
    }

    #[test]
    fn two_sessions_that_drain_the_queue_at_the_same_time_do_not_keep_unequal_paces() {
        // With this seed both do so 6.4 s after the start, when the first one has a seventh of the path.
        let further = [
            ("stagger", "5s"),
            ("warm-up", "30s"),
            ("time", "20s"),
            ("window", "4MiB"),
            ("seed", "6995212400523464"),
        ];
        let point = simulated_with("auto", "2", &further);
        assert!(point.fairness > 0.9, "{:?}", point.session_mbps);
    }

    #[test]
    fn one_session_is_fair_to_itself() {
        let point = simulated("mi", "1");
        assert_eq!(point.fairness, 1.0);
        assert!(point.goodput_mbps > 20.0, "{point:?}");
    }
}
