//! The control connection of a simulated transfer: what it sees of the path.

use std::time::Duration;

use crate::world::{FlowId, FlowSpec, FlowStats, PoolId, Simulation, TrafficSource};

/// A command with its answer's acknowledgement, bytes.
const COMMAND: u64 = 64;

/// The control connection: one command a tick, to measure the round trip by.
#[derive(Debug)]
pub(crate) struct SimControlConnection {
    flow: FlowId,
    commands: PoolId,
    sampled: FlowStats,
}

impl SimControlConnection {
    /// Opens it, like `stream`.
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

    /// Asks something, unless the answer to the last is still out.
    pub(crate) fn send_command(&self, simulation: &mut Simulation) {
        if simulation.pool_delivered_at(self.commands).is_some() {
            simulation.refill(self.commands, COMMAND);
        }
    }

    /// Mean round trip since the sample before.
    pub(crate) fn sample(&mut self, simulation: &Simulation) -> Option<Duration> {
        let now = simulation.flow(self.flow);
        let since = now.since(&self.sampled);
        self.sampled = now;
        since.mean_rtt()
    }

    /// Commands that were answered and never sent again.
    pub(crate) fn answered_commands(&self, simulation: &Simulation) -> u64 {
        simulation.flow(self.flow).sender.rtt_samples
    }
}
