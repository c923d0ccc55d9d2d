//! A running transfer in chunks.

use std::time::Duration;

use tune::diagnosis::dominant_limiter;
use tune::streams::chunked::{Chunk, ChunkResult, RttAverage, RttCommands};

use super::{ChunkReport, ChunkedOutcome, ChunkedSpec, InitialPath, per_second};
use crate::transfer::{SimControlConnection, evidence};
use crate::world::{
    FlowId, FlowSpec, FlowStats, PoolId, QueueingDelay, Scenario, Simulation, TrafficSource,
};

/// A running transfer in chunks.
#[derive(Debug)]
pub(super) struct RunningChunked {
    transfer: ChunkedSpec,
    simulation: Simulation,
    control: SimControlConnection,
    rtt: RttAverage,
    /// One-way delay of a command to the server.
    command_delay: Duration,
    /// The rest of the current chunk.
    pool: PoolId,
    /// Connections in use, in order of opening.
    open: Vec<FlowId>,
    /// All connections, including closed ones.
    flows: Vec<FlowId>,
    streams_max: u32,
    /// Bytes of the file that were not requested yet.
    left: u64,
    began: Duration,
    queued: QueueingDelay,
    parts: Vec<ChunkReport>,
}

impl RunningChunked {
    /// Opens the control connection and measures the RTT with it.
    pub(super) fn begin(transfer: &ChunkedSpec, scenario: &Scenario) -> Self {
        let mut simulation = Simulation::new(scenario);
        let mut control = SimControlConnection::open(&mut simulation, transfer.stream);
        simulation.run_until_done(transfer.deadline, |s| control.answered_commands(s) > 0);
        let mut rtt = RttAverage::new(transfer.rho);
        if let Some(sample) = control.sample(&simulation) {
            rtt.on_sample(sample);
        }
        // A command passes both access links once and the reverse direction of the bottleneck.
        let access = transfer.stream.sender_access.delay + transfer.stream.receiver_access.delay;
        Self {
            transfer: *transfer,
            command_delay: scenario.reverse.delay + access,
            pool: simulation.add_pool(0, transfer.block),
            open: Vec::new(),
            flows: Vec::new(),
            streams_max: 0,
            left: transfer.bytes,
            began: simulation.now(),
            queued: simulation.queueing_delay(),
            parts: Vec::new(),
            simulation,
            control,
            rtt,
        }
    }

    pub(super) fn start(&self) -> InitialPath {
        InitialPath {
            window: self.window(),
            rtt: self.rtt.average().unwrap_or_default(),
        }
    }

    /// Whether data is left and the deadline has not passed.
    pub(super) fn has_work(&self) -> bool {
        self.left > 0 && self.simulation.now() < self.transfer.deadline
    }

    /// Transfers a chunk, or the rest of the file; `None`: the deadline passed.
    pub(super) fn transfer(&mut self, chunk: Chunk) -> Option<ChunkResult> {
        if self.transfer.round_trips == RttCommands::BetweenChunks {
            self.send_command_and_wait();
        }
        let requested_at = self.simulation.now();
        // The chunk begins when the command has reached the server.
        self.run_until(requested_at + self.command_delay, |_| false);
        // The last chunk is the rest of the file, and a tuner's chunk of 0 bytes would never end.
        let bytes = chunk.bytes.clamp(1, self.left);
        let streams = chunk.streams.max(1);
        self.set_streams(streams);
        self.simulation.refill(self.pool, bytes);
        self.left -= bytes;
        let pool = self.pool;
        self.run_until(self.transfer.deadline, |simulation| {
            simulation.pool_delivered_at(pool).is_some()
        });
        let time = self.arrived_at()?.saturating_sub(requested_at);
        Some(ChunkResult {
            streams,
            bytes,
            time,
            window: self.window(),
            rtt: self.rtt.average().unwrap_or_default(),
        })
    }

    /// Adds a chunk to the report.
    pub(super) fn record_chunk(&mut self, done: &ChunkResult, reason: String, settled: bool) {
        let queued = self.simulation.queueing_delay();
        self.parts.push(ChunkReport {
            at: self.simulation.now().saturating_sub(self.began),
            streams: done.streams,
            bytes: done.bytes,
            time: done.time,
            rtt: done.rtt,
            wait: queued.since(&self.queued).mean(),
            reason,
            settled,
        });
        self.queued = queued;
    }

    /// Runs until `end`, or until `done` returns true, which is called after every event. Commands are
    /// sent meanwhile if R is measured while data flows.
    fn run_until(&mut self, end: Duration, done: impl Fn(&Simulation) -> bool) {
        let measures_while_flowing = self.transfer.round_trips == RttCommands::DuringChunks;
        let tick = self.transfer.tick.max(Duration::from_nanos(1));
        let mut ended = false;
        while !ended && self.simulation.now() < end {
            if measures_while_flowing {
                self.control.send_command(&mut self.simulation);
            }
            let until = end.min(self.simulation.now() + tick);
            ended = self.simulation.run_until_done(until, &done);
            if measures_while_flowing {
                self.sample();
            }
        }
    }

    /// Sends a command and waits for its answer.
    fn send_command_and_wait(&mut self) {
        let before = self.control.answered_commands(&self.simulation);
        self.control.send_command(&mut self.simulation);
        let (deadline, control) = (self.transfer.deadline, &self.control);
        self.simulation
            .run_until_done(deadline, |s| control.answered_commands(s) > before);
        self.sample();
    }

    fn sample(&mut self) {
        if let Some(sample) = self.control.sample(&self.simulation) {
            self.rtt.on_sample(sample);
        }
    }

    fn arrived_at(&self) -> Option<Duration> {
        self.simulation.pool_delivered_at(self.pool)
    }

    /// Opens or closes connections until there are `streams`.
    fn set_streams(&mut self, streams: u32) {
        let wanted = streams as usize;
        // The newest connections close first; they still send what they have taken.
        for surplus in self.open.drain(wanted.min(self.open.len())..) {
            self.simulation.stop_flow(surplus);
        }
        while self.open.len() < wanted {
            let flow = self.simulation.add_flow(FlowSpec {
                source: TrafficSource::Pool(self.pool),
                start: Duration::ZERO,
                stop: None,
                ..self.transfer.stream
            });
            self.open.push(flow);
            self.flows.push(flow);
        }
        self.streams_max = self.streams_max.max(streams);
    }

    fn window(&self) -> u64 {
        let tcp = &self.transfer.stream.tcp;
        tcp.send_buffer.min(tcp.receive_buffer)
    }

    /// The result until now.
    pub(super) fn outcome(self) -> ChunkedOutcome {
        let simulation = &self.simulation;
        let elapsed = simulation.now().saturating_sub(self.began);
        let flows: Vec<FlowStats> = self.flows.iter().map(|f| simulation.flow(*f)).collect();
        let bytes = simulation.pool_delivered(self.pool);
        let accounts = evidence(&flows, bytes, elapsed, self.streams_max, self.window());
        ChunkedOutcome {
            complete: self.left == 0 && self.arrived_at().is_some(),
            bytes,
            elapsed,
            goodput: per_second(bytes, elapsed),
            chunks: self.parts,
            limited_by: dominant_limiter(&accounts),
            flows,
        }
    }
}
