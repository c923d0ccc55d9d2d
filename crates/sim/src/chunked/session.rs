//! A transfer in chunks that runs in a simulation, alone or beside others.

use std::fmt;
use std::time::Duration;

use tune::diagnosis::dominant_limiter;
use tune::streams::chunked::{Chunk, ChunkResult, ChunkTuner, RttAverage, RttCommands};

use super::{ChunkReport, ChunkedOutcome, ChunkedSpec, InitialPath, per_second};
use crate::sessions::SimSession;
use crate::transfer::{SimControlConnection, evidence};
use crate::world::{FlowId, FlowSpec, FlowStats, PoolId, QueueingDelay, Simulation, TrafficSource};

/// Makes the tuner when the round trip of the path is known.
pub type MakeTuner<'a> = Box<dyn FnOnce(InitialPath) -> Box<dyn ChunkTuner> + 'a>;

/// A transfer in chunks in a simulation.
pub struct ChunkedSession<'a> {
    transfer: ChunkedSpec,
    control: SimControlConnection,
    rtt: RttAverage,
    /// One-way delay of a command to the server.
    command_delay: Duration,
    step: ChunkStep<'a>,
    /// Time of the next step, if nothing happens before.
    wake_at: Duration,
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

/// The event that a transfer in chunks waits for.
enum ChunkStep<'a> {
    /// The answer to the first command.
    Opening(MakeTuner<'a>),
    /// The answer to a command before a chunk, when so many were answered before.
    Asking(RequestedChunk, u64),
    /// The command that requests a chunk is on its way until this time.
    Requesting(RequestedChunk, Duration),
    /// The chunk's last byte.
    Flowing(RequestedChunk),
    /// Nothing: the file has arrived, or the deadline has passed.
    Over,
}

/// A chunk that is being transferred.
struct RequestedChunk {
    tuner: Box<dyn ChunkTuner>,
    chunk: Chunk,
    /// Time of its command; zero before.
    at: Duration,
    reason: String,
    settled: bool,
}

impl fmt::Debug for ChunkedSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkedSession")
            .field("transfer", &self.transfer)
            .field("left", &self.left)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl<'a> ChunkedSession<'a> {
    /// Opens the control connection now. `reverse_delay` is the one-way delay of the bottleneck towards the server.
    pub fn begin(
        transfer: &ChunkedSpec,
        reverse_delay: Duration,
        simulation: &mut Simulation,
        make: MakeTuner<'a>,
    ) -> Self {
        let control = SimControlConnection::open(simulation, transfer.stream);
        // A command passes both access links once and the reverse direction of the bottleneck.
        let access = transfer.stream.sender_access.delay + transfer.stream.receiver_access.delay;
        Self {
            transfer: *transfer,
            control,
            rtt: RttAverage::new(transfer.rho),
            command_delay: reverse_delay + access,
            step: ChunkStep::Opening(make),
            wake_at: transfer.deadline,
            pool: simulation.add_pool(0, transfer.block),
            open: Vec::new(),
            flows: Vec::new(),
            streams_max: 0,
            left: transfer.bytes,
            began: simulation.now(),
            queued: simulation.queueing_delay(),
            parts: Vec::new(),
        }
    }

    /// Whether the file has arrived or the deadline has passed.
    pub fn is_over(&self) -> bool {
        matches!(self.step, ChunkStep::Over)
    }

    fn initial_path(&self) -> InitialPath {
        InitialPath {
            window: self.window(),
            rtt: self.rtt.average().unwrap_or_default(),
        }
    }

    /// Requests the next chunk, or ends.
    fn next_chunk(
        &mut self,
        simulation: &mut Simulation,
        mut tuner: Box<dyn ChunkTuner>,
        last: Option<&ChunkResult>,
    ) -> ChunkStep<'a> {
        if self.left == 0 || simulation.now() >= self.transfer.deadline {
            return ChunkStep::Over;
        }
        let chunk = tuner.next(last);
        let requested = RequestedChunk {
            chunk,
            at: Duration::ZERO,
            reason: tuner.reason(),
            settled: tuner.is_settled(),
            tuner,
        };
        let asks = match self.transfer.round_trips {
            RttCommands::DuringChunks => false,
            RttCommands::BetweenChunks => true,
            // A command tells the server another number of streams.
            RttCommands::OwnReplies => chunk.streams as usize != self.open.len(),
        };
        if !asks {
            return self.request(simulation, requested);
        }
        let before = self.control.answered_commands(simulation);
        self.control.send_command(simulation);
        self.wake_at = self.transfer.deadline;
        ChunkStep::Asking(requested, before)
    }

    fn request(&mut self, simulation: &mut Simulation, requested: RequestedChunk) -> ChunkStep<'a> {
        let at = simulation.now();
        // The chunk begins when the command has reached the server.
        let arrives = at + self.command_delay;
        self.measure_until(simulation, arrives);
        ChunkStep::Requesting(RequestedChunk { at, ..requested }, arrives)
    }

    fn serve(&mut self, simulation: &mut Simulation, requested: RequestedChunk) -> ChunkStep<'a> {
        // The last chunk is the rest of the file, and a tuner's chunk of 0 bytes would never end.
        let bytes = requested.chunk.bytes.clamp(1, self.left);
        let streams = requested.chunk.streams.max(1);
        self.set_streams(simulation, streams);
        simulation.refill(self.pool, bytes);
        self.left -= bytes;
        self.measure_until(simulation, self.transfer.deadline);
        let chunk = Chunk { streams, bytes };
        ChunkStep::Flowing(RequestedChunk { chunk, ..requested })
    }

    fn finish(
        &mut self,
        simulation: &mut Simulation,
        requested: RequestedChunk,
        arrived: Duration,
    ) -> ChunkStep<'a> {
        let done = ChunkResult {
            streams: requested.chunk.streams,
            bytes: requested.chunk.bytes,
            time: arrived.saturating_sub(requested.at),
            window: self.window(),
            rtt: self.rtt.average().unwrap_or_default(),
        };
        let queued = simulation.queueing_delay();
        self.parts.push(ChunkReport {
            at: simulation.now().saturating_sub(self.began),
            streams: done.streams,
            bytes: done.bytes,
            time: done.time,
            rtt: done.rtt,
            wait: queued.since(&self.queued).mean(),
            reason: requested.reason,
            settled: requested.settled,
        });
        self.queued = queued;
        self.next_chunk(simulation, requested.tuner, Some(&done))
    }

    /// Waits until `end` at most, or less if a command is to be sent before.
    fn measure_until(&mut self, simulation: &mut Simulation, end: Duration) {
        let tick = self.transfer.tick.max(Duration::from_nanos(1));
        if self.measures_while_flowing() {
            self.control.send_command(simulation);
        }
        self.wake_at = end.min(simulation.now() + tick);
    }

    fn measures_while_flowing(&self) -> bool {
        self.transfer.round_trips == RttCommands::DuringChunks
    }

    fn sample(&mut self, simulation: &Simulation) {
        if let Some(sample) = self.control.sample(simulation) {
            self.rtt.on_sample(sample);
        }
    }

    /// Opens or closes connections until there are `streams`.
    fn set_streams(&mut self, simulation: &mut Simulation, streams: u32) {
        let wanted = streams as usize;
        // The newest connections close first; they still send what they have taken.
        for surplus in self.open.drain(wanted.min(self.open.len())..) {
            simulation.stop_flow(surplus);
        }
        while self.open.len() < wanted {
            let flow = simulation.add_flow(FlowSpec {
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
    pub fn outcome(self, simulation: &Simulation) -> ChunkedOutcome {
        let elapsed = simulation.now().saturating_sub(self.began);
        let flows: Vec<FlowStats> = self.flows.iter().map(|f| simulation.flow(*f)).collect();
        let bytes = simulation.pool_delivered(self.pool);
        let accounts = evidence(&flows, bytes, elapsed, self.streams_max, self.window());
        ChunkedOutcome {
            complete: self.left == 0 && simulation.pool_delivered_at(self.pool).is_some(),
            bytes,
            elapsed,
            goodput: per_second(bytes, elapsed),
            chunks: self.parts,
            limited_by: dominant_limiter(&accounts),
            flows,
        }
    }
}

impl SimSession for ChunkedSession<'_> {
    fn wake_at(&self) -> Duration {
        self.wake_at
    }

    fn is_ready(&self, simulation: &Simulation) -> bool {
        match &self.step {
            ChunkStep::Opening(_) => self.control.answered_commands(simulation) > 0,
            ChunkStep::Asking(_, before) => self.control.answered_commands(simulation) > *before,
            ChunkStep::Flowing(_) => simulation.pool_delivered_at(self.pool).is_some(),
            ChunkStep::Requesting(..) | ChunkStep::Over => false,
        }
    }

    fn advance(&mut self, simulation: &mut Simulation) {
        let now = simulation.now();
        self.step = match std::mem::replace(&mut self.step, ChunkStep::Over) {
            ChunkStep::Opening(make) => {
                self.sample(simulation);
                self.began = now;
                self.queued = simulation.queueing_delay();
                let tuner = make(self.initial_path());
                self.next_chunk(simulation, tuner, None)
            }
            ChunkStep::Asking(requested, _) => {
                self.sample(simulation);
                self.request(simulation, requested)
            }
            ChunkStep::Requesting(requested, arrives) => {
                if self.measures_while_flowing() {
                    self.sample(simulation);
                }
                if now < arrives {
                    self.measure_until(simulation, arrives);
                    ChunkStep::Requesting(requested, arrives)
                } else {
                    self.serve(simulation, requested)
                }
            }
            ChunkStep::Flowing(requested) => {
                if self.measures_while_flowing() {
                    self.sample(simulation);
                }
                match simulation.pool_delivered_at(self.pool) {
                    Some(arrived) => self.finish(simulation, requested, arrived),
                    None if now >= self.transfer.deadline => ChunkStep::Over,
                    None => {
                        self.measure_until(simulation, self.transfer.deadline);
                        ChunkStep::Flowing(requested)
                    }
                }
            }
            ChunkStep::Over => ChunkStep::Over,
        };
        if self.is_over() {
            self.wake_at = Duration::MAX;
        }
    }

    fn delivered(&self, simulation: &Simulation) -> u64 {
        simulation.pool_delivered(self.pool)
    }

    fn streams(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }
}
