//! A transfer whose buffers a right-sizing loop sets while it runs. It does with simulated flows what
//! the crate `data` does with sockets.

use std::collections::VecDeque;
use std::time::Duration;

use sim::tcp::TcpConfig;
use sim::world::{FlowId, FlowSpec, FlowStats, PoolId, Scenario, Simulation, TrafficSource};
use tune::sample::{StreamId, TcpSample};
use tune::sizing::BufferBounds;
use tune::sizing::drs::{DrsInterval, DrsReceiverLoop, DrsReceiverTuner, PublishedDrsTuner};
use tune::sizing::drs1::{Drs1Reads, Drs1ReceiverTuner};

/// Block of the file that a stream takes at a time, bytes.
const BLOCK: u64 = 256 << 10;
/// Size of a message on the DRS channel, bytes.
const MESSAGE: u64 = 40;
/// Time between looks for an echo with a loop that answers each at once.
const ECHO_CHECK: Duration = Duration::from_millis(5);
/// Longest time of a transfer.
const MAX_TIME: Duration = Duration::from_secs(600);

/// The policy that sizes the buffers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DrsPolicy {
    /// Fixed buffers of so many bytes.
    Static(u64),
    /// The loop of the 2003 paper.
    Drs1,
    /// longhaul's loop after the 2004 paper.
    Drs(DrsInterval),
    /// The loop as the 2004 paper published it.
    Published2004,
}

/// The file and the settings of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DrsSetup {
    pub(crate) bytes: u64,
    pub(crate) streams: u64,
    pub(crate) policy: DrsPolicy,
    /// The window that a kernel provides for a requested size, as a fraction: Linux between 1/1 and 4/3.
    pub(crate) window: (u64, u64),
    /// Largest random delay of segments in the sending host.
    pub(crate) jitter: Duration,
}

/// The result of a transfer.
#[derive(Debug, Clone)]
pub(crate) struct DrsRun {
    pub(crate) elapsed: Duration,
    pub(crate) bytes: u64,
    /// Receive buffers of all streams together: mean over time, bytes.
    pub(crate) mean_buffer: f64,
    pub(crate) largest_buffer: u64,
    /// Time and bytes received, at every sample.
    pub(crate) samples: Vec<(Duration, u64)>,
}

impl DrsRun {
    /// Goodput, Mbit/s.
    pub(crate) fn goodput(&self) -> f64 {
        megabits(self.bytes, self.elapsed)
    }

    /// Goodput between two times, Mbit/s, at the resolution of the samples.
    pub(crate) fn goodput_between(&self, from: Duration, to: Duration) -> f64 {
        let sample = |time| {
            let past = self.samples.iter().take_while(|(at, _)| *at <= time);
            past.last().copied().unwrap_or_default()
        };
        let ((from, before), (to, after)) = (sample(from), sample(to));
        megabits(after - before, to - from)
    }

    /// Goodput per buffer, Mbit/s per MB (figure 9 of the 2004 paper).
    pub(crate) fn efficiency(&self) -> f64 {
        self.goodput() / (self.mean_buffer / 1e6)
    }
}

fn megabits(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64()
}

/// Runs a transfer from the start of a scenario.
pub(crate) fn run(scenario: &Scenario, setup: DrsSetup) -> DrsRun {
    let mut simulation = Simulation::new(scenario);
    let mut transfer = DrsTransfer::begin(&mut simulation, setup);
    transfer.run_until(&mut simulation, MAX_TIME);
    transfer.report(&simulation)
}

/// A running transfer in a simulation.
pub(crate) struct DrsTransfer {
    window: (u64, u64),
    /// Longest time between looks for an echo.
    echo_check: Duration,
    started_at: Duration,
    next_sample: Duration,
    file: PoolId,
    streams: Vec<SizedStream>,
    sizing: SizingLoop,
    channel: SimDrsChannel,
    /// Sizes on their way to the sender: arrival time, stream (`None`: all), size.
    sizes_in_flight: VecDeque<(Duration, Option<StreamId>, u64)>,
    buffer_seconds: f64,
    largest_buffer: u64,
    samples: Vec<(Duration, u64)>,
}

/// A stream and its buffer sizes, as setsockopt arguments.
struct SizedStream {
    flow: FlowId,
    receive: u64,
    send: u64,
}

enum SizingLoop {
    Static,
    Drs1(Vec<Drs1ReceiverTuner>),
    Drs(Box<dyn DrsReceiverLoop>),
}

/// The DRS channel: a connection on the same path as the data streams.
struct SimDrsChannel {
    flow: FlowId,
    messages: PoolId,
    sampled: FlowStats,
}

impl DrsTransfer {
    /// Opens the streams of a transfer.
    pub(crate) fn begin(simulation: &mut Simulation, setup: DrsSetup) -> Self {
        let bounds = BufferBounds::default();
        let size = match setup.policy {
            DrsPolicy::Static(size) => size,
            _ => bounds.initial,
        };
        let file = simulation.add_pool(setup.bytes, BLOCK);
        let channel = SimDrsChannel::open(simulation);
        let granted = window(setup.window, size);
        let stream = |_| SizedStream {
            flow: open(simulation, file, granted, setup.jitter),
            receive: size,
            send: size,
        };
        let streams: Vec<SizedStream> = (0..setup.streams).map(stream).collect();
        Self {
            window: setup.window,
            echo_check: match setup.policy {
                DrsPolicy::Published2004 => ECHO_CHECK,
                _ => Duration::MAX,
            },
            started_at: simulation.now(),
            next_sample: simulation.now(),
            file,
            sizing: match setup.policy {
                DrsPolicy::Static(_) => SizingLoop::Static,
                DrsPolicy::Drs1 => {
                    let tuner = Drs1ReceiverTuner::new(bounds, Drs1Reads::default());
                    SizingLoop::Drs1(vec![tuner; streams.len()])
                }
                DrsPolicy::Drs(interval) => {
                    SizingLoop::Drs(Box::new(DrsReceiverTuner::new(bounds, interval)))
                }
                DrsPolicy::Published2004 => {
                    SizingLoop::Drs(Box::new(PublishedDrsTuner::new(bounds)))
                }
            },
            streams,
            channel,
            sizes_in_flight: VecDeque::new(),
            buffer_seconds: 0.0,
            largest_buffer: 0,
            samples: Vec::new(),
        }
    }

    /// The flows of its streams.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> {
        self.streams.iter().map(|stream| stream.flow)
    }

    /// Runs until the file has arrived, at most until `end`.
    pub(crate) fn run_until(&mut self, simulation: &mut Simulation, end: Duration) {
        while self.run_until_next_action(simulation, end) {
            self.apply_received_sizes(simulation);
            if simulation.now() >= self.next_sample {
                self.sample(simulation);
                self.next_sample = simulation.now() + self.due();
            }
        }
    }

    /// Runs the simulation until the next action is due; returns whether there is one.
    fn run_until_next_action(&mut self, simulation: &mut Simulation, end: Duration) -> bool {
        let next_size = self.sizes_in_flight.front().map_or(end, |(at, _, _)| *at);
        let until = next_size.min(self.next_sample).min(end);
        let (from, file) = (simulation.now(), self.file);
        let arrived = simulation.run_until_done(until, |s| s.pool_delivered_at(file).is_some());
        let buffers: u64 = self.streams.iter().map(|stream| stream.receive).sum();
        self.largest_buffer = self.largest_buffer.max(buffers);
        self.buffer_seconds += buffers as f64 * (simulation.now() - from).as_secs_f64();
        !arrived && simulation.now() < end
    }

    /// The result until now.
    pub(crate) fn report(&self, simulation: &Simulation) -> DrsRun {
        let end = simulation.pool_delivered_at(self.file);
        let elapsed = end.unwrap_or(simulation.now()) - self.started_at;
        DrsRun {
            elapsed,
            bytes: simulation.pool_delivered(self.file),
            mean_buffer: self.buffer_seconds / elapsed.as_secs_f64(),
            largest_buffer: self.largest_buffer,
            samples: self.samples.clone(),
        }
    }

    fn due(&self) -> Duration {
        match &self.sizing {
            SizingLoop::Static => Duration::from_millis(100),
            SizingLoop::Drs1(streams) => streams
                .iter()
                .map(Drs1ReceiverTuner::next_sample_in)
                .min()
                .unwrap(),
            SizingLoop::Drs(drs) => drs.next_sample_in().min(self.echo_check),
        }
    }

    /// Samples all streams and applies the decisions of the loop.
    fn sample(&mut self, simulation: &mut Simulation) {
        let samples = self.samples(simulation);
        let at = simulation.now() - self.started_at;
        let arrived = samples.iter().map(|sample| sample.bytes_received).sum();
        self.samples.push((at, arrived));
        let (resize, announced) = match &mut self.sizing {
            SizingLoop::Static => return,
            SizingLoop::Drs1(streams) => {
                let streams = streams.iter_mut().zip(&samples);
                let sizes =
                    streams.filter_map(|(s, sample)| Some((sample.stream, s.on_sample(sample)?)));
                let sizes: Vec<_> = sizes.collect();
                let announced = sizes.iter().map(|(id, size)| (Some(*id), *size)).collect();
                (sizes, announced)
            }
            SizingLoop::Drs(drs) => {
                if let Some(rtt) = self.channel.echo(simulation) {
                    drs.on_echo(rtt);
                }
                let step = drs.on_samples(at, &samples);
                if step.announce.is_some() {
                    self.channel.send(simulation);
                }
                let announced: Vec<_> =
                    step.announce.map(|size| (None, size)).into_iter().collect();
                (step.resize, announced)
            }
        };
        for (id, size) in resize {
            self.streams[id as usize].receive = size;
            self.set(simulation, id);
        }
        let one_way_delay = samples
            .first()
            .map_or(Duration::ZERO, |sample| sample.min_rtt)
            / 2;
        let arrival = simulation.now() + one_way_delay;
        let messages = announced.into_iter().map(|(id, size)| (arrival, id, size));
        self.sizes_in_flight.extend(messages);
    }

    fn samples(&self, simulation: &Simulation) -> Vec<TcpSample> {
        let sample = |(id, stream): (StreamId, &SizedStream)| {
            let flow = simulation.flow(stream.flow);
            TcpSample {
                stream: id,
                at: simulation.now() - self.started_at,
                bytes_received: flow.delivered_bytes,
                min_rtt: flow.min_rtt().unwrap_or_default(),
                receive_buffer: 2 * stream.receive,
                receive_window: window(self.window, stream.receive),
                ..TcpSample::default()
            }
        };
        (0..).zip(&self.streams).map(sample).collect()
    }

    /// Applies the sizes that have arrived at the sender.
    fn apply_received_sizes(&mut self, simulation: &mut Simulation) {
        let now = simulation.now();
        while let Some(&(at, target, size)) = self.sizes_in_flight.front()
            && at <= now
        {
            self.sizes_in_flight.pop_front();
            let all = 0..self.streams.len() as StreamId;
            for id in all.filter(|id| target.is_none_or(|target| target == *id)) {
                self.streams[id as usize].send = size;
                self.set(simulation, id);
            }
        }
    }

    fn set(&self, simulation: &mut Simulation, id: StreamId) {
        let stream = &self.streams[id as usize];
        let (send, receive) = (stream.send, stream.receive);
        let (send, receive) = (window(self.window, send), window(self.window, receive));
        simulation.set_buffers(stream.flow, send, receive);
    }
}

impl SimDrsChannel {
    fn open(simulation: &mut Simulation) -> Self {
        let messages = simulation.add_pool(MESSAGE, MESSAGE);
        Self {
            flow: open(simulation, messages, BLOCK, Duration::ZERO),
            messages,
            sampled: FlowStats::default(),
        }
    }

    /// Sends a message, unless the previous one is still unanswered.
    fn send(&self, simulation: &mut Simulation) {
        if simulation.pool_delivered_at(self.messages).is_some() {
            simulation.refill(self.messages, MESSAGE);
        }
    }

    /// RTT of a message that was answered since the last call.
    fn echo(&mut self, simulation: &Simulation) -> Option<Duration> {
        let now = simulation.flow(self.flow);
        let since = now.since(&self.sampled);
        self.sampled = now;
        since.mean_rtt()
    }
}

fn window((part, whole): (u64, u64), size: u64) -> u64 {
    size * part / whole
}

/// Opens a connection that takes its data from `source`.
fn open(simulation: &mut Simulation, source: PoolId, buffer: u64, jitter: Duration) -> FlowId {
    simulation.add_flow(FlowSpec {
        tcp: TcpConfig {
            handshake: true,
            send_buffer: buffer,
            receive_buffer: buffer,
            ..TcpConfig::default()
        },
        source: TrafficSource::Pool(source),
        start: simulation.now(),
        jitter,
        ..FlowSpec::default()
    })
}
