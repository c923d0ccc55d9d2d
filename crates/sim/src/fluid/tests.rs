//! The physics of the simulator: rates, queues and shares that theory and measurements give.

use super::flow::FluidFlow;
use super::network::FluidNetwork;
use super::*;

/// Payload rate of a full path, bytes per second.
fn full_rate(path: &BottleneckPath) -> f64 {
    path.rate / 8.0 * SEGMENT / PACKET
}

/// A network with flows that always have data.
struct Saturated {
    network: FluidNetwork,
    flows: Vec<usize>,
}

impl Saturated {
    fn new(path: &BottleneckPath, seed: u64, controls: &[FluidControl]) -> Self {
        let mut network = FluidNetwork::new(path, seed);
        let flows = controls.iter().map(|c| network.open(*c)).collect();
        Self { network, flows }
    }

    /// Runs for `seconds`; returns the mean rate of each flow, bytes per second.
    fn run(&mut self, seconds: f64) -> Vec<f64> {
        let delivered = |one: &Self| -> Vec<f64> {
            one.flows
                .iter()
                .map(|flow| one.network.flows[*flow].counters.delivered)
                .collect()
        };
        let before = delivered(self);
        let end = self.network.now() + seconds;
        while self.network.now() < end {
            for flow in &self.flows {
                self.network.flows[*flow].unsent = 1e6;
            }
            self.network.step();
        }
        let after = delivered(self);
        let rate = |(after, before): (&f64, &f64)| (after - before) * SEGMENT / seconds;
        after.iter().zip(&before).map(rate).collect()
    }

    fn flow(&self, index: usize) -> &FluidFlow {
        &self.network.flows[self.flows[index]]
    }
}

fn sum(rates: &[f64]) -> f64 {
    rates.iter().sum()
}

/// Mean window, segments, of one flow under random loss, over several seeds.
fn window_under_loss(control: FluidControl, loss: f64, rtt: f64) -> f64 {
    let mut path = BottleneckPath::new(10e9, rtt, 1.0);
    path.loss.ratio = loss;
    let seeds = 1..=8;
    let count = seeds.clone().count() as f64;
    let total: f64 = seeds
        .map(|seed| {
            let mut flows = Saturated::new(&path, seed, &[control]);
            flows.run(100.0 * rtt / 0.05);
            sum(&flows.run(4000.0 * rtt)) * rtt / SEGMENT
        })
        .sum();
    total / count
}

fn assert_near(measured: f64, expected: f64, tolerance: f64) {
    assert!(
        (measured / expected - 1.0).abs() < tolerance,
        "{measured:.2} instead of {expected:.2}"
    );
}

#[test]
fn one_cubic_flow_fills_a_path_with_a_queue_of_one_bdp() {
    for (rate, rtt) in [(1e8, 0.05), (1e9, 0.01), (1e10, 0.1)] {
        let path = BottleneckPath::new(rate, rtt, 1.0);
        let mut flow = Saturated::new(&path, 1, &[FluidControl::Cubic]);
        flow.run(60.0);
        let share = sum(&flow.run(60.0)) / full_rate(&path);
        assert!(share > 0.98, "{rate}: {share}");
        assert!(flow.flow(0).counters.retransmits > 0.0);
    }
}

#[test]
fn reno_under_loss_has_the_window_of_rfc_5681() {
    for loss in [1e-4_f64, 1e-3, 1e-2] {
        // Mathis and others, 1997: sqrt(3/2p) with an acknowledgement per segment.
        let expected = (1.5_f64 / loss).sqrt();
        let measured = window_under_loss(FluidControl::Reno, loss, 0.05);
        assert_near(measured, expected, 0.15);
    }
}

#[test]
fn cubic_under_loss_has_the_window_of_rfc_9438() {
    // RFC 9438 §5.1, equation 6, for C = 0.4 and the decrease factor 0.7.
    for (loss, rtt) in [(1e-5_f64, 0.1_f64), (1e-6, 0.1), (1e-4, 0.3)] {
        let expected = 1.054 * (rtt / loss).powf(0.75);
        let measured = window_under_loss(FluidControl::Cubic, loss, rtt);
        assert_near(measured, expected, 0.2);
    }
    // In the Reno-friendly region, Reno's window.
    let measured = window_under_loss(FluidControl::Cubic, 1e-3, 0.02);
    assert_near(measured, (1.5_f64 / 1e-3).sqrt(), 0.2);
}

#[test]
fn bbr_keeps_its_rate_at_one_per_cent_of_loss() {
    let mut path = BottleneckPath::new(2e8, 0.05, 1.0);
    path.loss.ratio = 0.01;
    let mut flow = Saturated::new(&path, 1, &[FluidControl::Bbr]);
    flow.run(5.0);
    let share = sum(&flow.run(30.0)) / full_rate(&path);
    assert!(share > 0.9, "{share}");
}

#[test]
fn bbr_keeps_a_deep_queue_short_and_finds_a_policer() {
    let path = BottleneckPath::new(1e8, 0.05, 8.0);
    let mut flow = Saturated::new(&path, 1, &[FluidControl::Bbr]);
    flow.run(5.0);
    let share = sum(&flow.run(30.0)) / full_rate(&path);
    assert!(share > 0.93, "{share}");
    assert!(flow.network.queueing_delay() < 0.05);

    let mut policed = BottleneckPath::new(1e9, 0.05, 1.0);
    policed.policer = Some(FluidPolicer {
        rate: 1e8,
        bucket: 2e6,
    });
    let mut flow = Saturated::new(&policed, 1, &[FluidControl::Bbr]);
    let rate = sum(&flow.run(60.0));
    let counters = flow.flow(0).counters;
    assert_near(rate, full_rate(&policed) / 10.0, 0.1);
    // Without the long-term rate, a quarter would be lost in every cycle.
    assert!(counters.retransmits < 0.2 * counters.sent, "{counters:?}");
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    for rtt in [0.01, 0.05, 0.2] {
        let path = BottleneckPath::new(1e9, rtt, 1.0);
        let mut flow = Saturated::new(&path, 1, &[FluidControl::Cubic]);
        while flow.flow(0).congestion.ssthresh.is_infinite() {
            flow.run(rtt);
        }
        assert!(flow.flow(0).counters.retransmits < 1.0, "{rtt}");
    }
    let path = BottleneckPath::new(1e9, 0.05, 1.0);
    let mut reno = Saturated::new(&path, 1, &[FluidControl::Reno]);
    reno.run(5.0);
    assert!(reno.flow(0).counters.retransmits > 100.0);
}

#[test]
fn slow_start_doubles_the_window_in_each_round_trip() {
    let path = BottleneckPath::new(1e10, 0.1, 1.0);
    let mut flow = Saturated::new(&path, 1, &[FluidControl::Reno]);
    // The handshake, and six round trips.
    flow.run(0.75);
    let cwnd = flow.flow(0).congestion.cwnd;
    assert_near(cwnd, 10.0 * 64.0, 0.05);
}

#[test]
fn flows_share_the_path_fairly() {
    for control in [FluidControl::Reno, FluidControl::Cubic] {
        let path = BottleneckPath::new(1e8, 0.02, 1.0);
        let mut flows = Saturated::new(&path, 1, &[control; 8]);
        flows.run(30.0);
        let rates = flows.run(120.0);
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let jain = sum(&rates).powi(2) / (8.0 * squares);
        assert!(jain > 0.9, "{control:?}: {jain}");
    }
}

#[test]
fn windows_and_buffers_limit_each_stream() {
    let mut path = BottleneckPath::new(1e9, 0.05, 1.0);
    path.receive_window = 1e6;
    let setting = |streams| StaticSetting {
        streams,
        control: FluidControl::Cubic,
    };
    let seconds = |path: &BottleneckPath, streams| {
        let bytes = 2_000_000_000;
        let transfer = FluidTransfer {
            path,
            bytes,
            seed: 1,
            give_up_after: f64::INFINITY,
        };
        transfer.run_static(setting(streams)).elapsed
    };
    for streams in [1, 2, 4] {
        let expected = 2e9 / (f64::from(streams) * 1e6 / 0.05);
        assert_near(seconds(&path, streams), expected, 0.05);
    }
    // Measured: 460 Mbit/s with the default tcp_wmem at 50 ms.
    path.receive_window = 22e6;
    path.send_buffer = 4_194_304.0;
    assert_near(seconds(&path, 1), 2e9 / (460e6 / 8.0), 0.05);
}

#[test]
fn every_byte_arrives_over_every_path() {
    for seed in 0..12 {
        let mut sampled = SampledPath::draw(seed);
        sampled.bytes = sampled.bytes.min(20_000_000);
        for control in sampled.permitted.clone() {
            let transfer = FluidTransfer {
                path: &sampled.path,
                bytes: sampled.bytes,
                seed,
                give_up_after: f64::INFINITY,
            };
            let outcome = transfer.run_static(StaticSetting {
                streams: 16,
                control,
            });
            let text = sampled.describe();
            assert!(outcome.elapsed.is_finite(), "{text}");
            let least = sampled.bytes as f64 / full_rate(&sampled.path) / 5.0;
            assert!(outcome.elapsed > least, "{text}: {outcome:?}");
        }
    }
}
