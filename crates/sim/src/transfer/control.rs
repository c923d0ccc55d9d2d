//! The control connection of a simulated transfer, which measures the RTT.

use std::time::Duration;

use crate::world::{FlowId, FlowSpec, FlowStats, PoolId, Simulation, TrafficSource};

/// Size of a command, bytes.
const COMMAND: u64 = 64;

/// A control connection that sends one command per tick, to measure the RTT.
#[derive(Debug)]
pub(crate) struct SimControlConnection {
    flow: FlowId,
    commands: PoolId,
    sampled: FlowStats,
}

impl SimControlConnection {
    /// Opens the connection with the properties of `stream`.
    pub(crate) fn open(simulation: &mut Simulation, stream: FlowSpec) -> Self {
        let commands = simulation.add_pool(COMMAND, COMMAND);
        let flow = simulation.add_flow(FlowSpec {
            source: TrafficSource::Pool(commands),
            stop: None,
            ..stream
        });
        Self {
            flow,
            commands,
            sampled: FlowStats::default(),
        }
    }

    /// Sends a command, unless the previous one is still unanswered.
    pub(crate) fn send_command(&self, simulation: &mut Simulation) {
        if simulation.pool_delivered_at(self.commands).is_some() {
            simulation.refill(self.commands, COMMAND);
        }
    }

    /// Mean RTT since the previous sample.
    pub(crate) fn sample(&mut self, simulation: &Simulation) -> Option<Duration> {
        let now = simulation.flow(self.flow);
        let since = now.since(&self.sampled);
        self.sampled = now;
        since.mean_rtt()
    }

    /// Number of commands that were answered without a retransmission.
    pub(crate) fn answered_commands(&self, simulation: &Simulation) -> u64 {
        simulation.flow(self.flow).sender.rtt_samples
    }
}
