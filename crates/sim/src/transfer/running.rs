//! A running simulated transfer.

use std::time::Duration;

use tune::diagnosis::dominant_limiter;
use tune::streams;

use super::control::SimControlConnection;
use super::{
    InitialStreams, SimSettings, SimTransfer, SimTransferOutcome, SimTransferSample, evidence,
};
use crate::tcp::TcpConfig;
use crate::world::{FlowId, FlowSpec, FlowStats, PoolId, Scenario, Simulation, TrafficSource};

/// A data stream.
#[derive(Debug)]
struct SimStream {
    flow: FlowId,
    /// The stream takes no more blocks.
    closed: bool,
    /// Statistics at the latest sample.
    sampled: FlowStats,
}

/// A running simulated transfer.
#[derive(Debug)]
pub(super) struct RunningSimTransfer {
    transfer: SimTransfer,
    settings: SimSettings,
    simulation: Simulation,
    control: SimControlConnection,
    control_rtt: Option<Duration>,
    file: PoolId,
    streams: Vec<SimStream>,
    streams_max: u32,
    opened: Duration,
    sampled_at: Duration,
    sampled_bytes: u64,
}

impl RunningSimTransfer {
    /// Opens the control connection, measures the RTT with it, and opens the streams.
    pub(super) fn begin(transfer: &SimTransfer, scenario: &Scenario) -> Self {
        let mut simulation = Simulation::new(scenario);
        let mut control = SimControlConnection::open(&mut simulation, transfer.stream);
        simulation.run_until_done(transfer.deadline, |s| control.answered_commands(s) > 0);
        let control_rtt = control.sample(&simulation);
        let file = simulation.add_pool(transfer.bytes, transfer.block);
        // The clock of the transfer starts here, after the measurement of the RTT.
        let now = simulation.now();
        let tcp = &transfer.stream.tcp;
        let mut live = Self {
            transfer: *transfer,
            settings: SimSettings {
                streams: first_streams(transfer, control_rtt),
                send_buffer: tcp.send_buffer,
                receive_buffer: tcp.receive_buffer,
                pace: None,
            },
            simulation,
            control,
            control_rtt,
            file,
            streams: Vec::new(),
            streams_max: 0,
            opened: now,
            sampled_at: now,
            sampled_bytes: 0,
        };
        live.apply(live.settings);
        live
    }

    /// Runs until the next tick, the arrival of the file, or the deadline; returns whether the transfer
    /// goes on.
    pub(super) fn run_tick(&mut self) -> bool {
        // One command per tick samples the RTT that includes the queue of the data.
        self.control.send_command(&mut self.simulation);
        // A tick of zero would never let time pass.
        let tick = self.transfer.tick.max(Duration::from_nanos(1));
        let until = (self.simulation.now() + tick).min(self.transfer.deadline);
        let file = self.file;
        let arrived = self
            .simulation
            .run_until_done(until, |s| s.pool_delivered_at(file).is_some());
        !arrived && self.simulation.now() < self.transfer.deadline
    }

    /// Samples the time since the previous sample.
    pub(super) fn sample(&mut self) -> SimTransferSample {
        let at = self.simulation.now();
        let delivered_bytes = self.simulation.pool_delivered(self.file);
        let simulation = &self.simulation;
        let open = self.streams.iter_mut().filter(|stream| !stream.closed);
        let streams = open.map(|stream| stream.sample(simulation)).collect();
        let sample = SimTransferSample {
            at,
            interval: at.saturating_sub(self.sampled_at),
            delivered_bytes,
            interval_bytes: delivered_bytes - self.sampled_bytes,
            unassigned_bytes: simulation.pool_left(self.file),
            control_rtt: self.control.sample(simulation),
            settings: self.settings,
            streams,
        };
        self.sampled_at = at;
        self.sampled_bytes = delivered_bytes;
        sample
    }

    /// Applies `settings`: opens or closes streams, and sets buffers and pacing.
    pub(super) fn apply(&mut self, settings: SimSettings) {
        self.settings = SimSettings {
            streams: settings.streams.max(1),
            ..settings
        };
        let (send, receive) = (settings.send_buffer, settings.receive_buffer);
        for stream in self.streams.iter().filter(|stream| !stream.closed) {
            self.simulation.set_buffers(stream.flow, send, receive);
        }
        let wanted = self.settings.streams;
        let mut open = u32::try_from(self.open_streams()).unwrap_or(u32::MAX);
        while open < wanted {
            self.open_stream();
            open += 1;
        }
        // The newest streams close first: older ones have larger windows.
        let newest_first = self.streams.iter_mut().rev();
        let surplus = open.saturating_sub(wanted) as usize;
        for stream in newest_first.filter(|s| !s.closed).take(surplus) {
            stream.closed = true;
            self.simulation.stop_flow(stream.flow);
        }
        self.streams_max = self.streams_max.max(wanted);
        self.share_pace();
    }

    /// Divides the pacing rate among the streams that still send, including those being closed.
    fn share_pace(&mut self) {
        let busy = |stream: &&SimStream| {
            !stream.closed || self.simulation.flow(stream.flow).finished.is_none()
        };
        let flows: Vec<FlowId> = self.streams.iter().filter(busy).map(|s| s.flow).collect();
        let each = self
            .settings
            .pace
            .map(|pace| pace / flows.len().max(1) as u64);
        for flow in flows {
            self.simulation.set_pacing(flow, each);
        }
    }

    fn open_streams(&self) -> usize {
        self.streams.iter().filter(|stream| !stream.closed).count()
    }

    fn open_stream(&mut self) {
        let template = self.transfer.stream;
        let flow = self.simulation.add_flow(FlowSpec {
            tcp: TcpConfig {
                send_buffer: self.settings.send_buffer,
                receive_buffer: self.settings.receive_buffer,
                ..template.tcp
            },
            source: TrafficSource::Pool(self.file),
            stop: None,
            ..template
        });
        self.streams.push(SimStream {
            flow,
            closed: false,
            sampled: self.simulation.flow(flow),
        });
    }

    /// The result until now.
    pub(super) fn outcome(&self) -> SimTransferOutcome {
        let arrived = self.simulation.pool_delivered_at(self.file);
        let end = arrived.unwrap_or(self.simulation.now());
        let elapsed = end.saturating_sub(self.opened);
        let flow = |stream: &SimStream| self.simulation.flow(stream.flow);
        let flows: Vec<FlowStats> = self.streams.iter().map(flow).collect();
        // The same evidence as of real transfers, so that the same code derives the limiter.
        let measured = evidence(
            &flows,
            self.simulation.pool_delivered(self.file),
            elapsed,
            self.streams_max,
            self.settings.send_buffer.max(self.settings.receive_buffer),
        );
        let seconds = elapsed.as_secs_f64();
        SimTransferOutcome {
            complete: arrived.is_some(),
            bytes: measured.bytes,
            elapsed,
            goodput: if seconds > 0.0 {
                measured.bytes as f64 * 8.0 / seconds
            } else {
                0.0
            },
            control_rtt: self.control_rtt,
            streams_max: self.streams_max,
            retransmits: measured.retransmits,
            timeouts: flows.iter().map(|flow| flow.sender.timeouts).sum(),
            limited_by: dominant_limiter(&measured),
            flows,
        }
    }
}

impl SimStream {
    fn sample(&mut self, simulation: &Simulation) -> FlowStats {
        let now = simulation.flow(self.flow);
        let since = now.since(&self.sampled);
        self.sampled = now;
        since
    }
}

fn first_streams(transfer: &SimTransfer, control_rtt: Option<Duration>) -> u32 {
    match transfer.streams {
        InitialStreams::Fixed(streams) => streams,
        InitialStreams::Automatic => {
            let block = usize::try_from(transfer.block).unwrap_or(usize::MAX);
            let rtt = control_rtt.unwrap_or_default();
            let prior = streams::prior_from_rtt(rtt, Some(transfer.bytes), block, u32::MAX);
            prior.streams.unwrap_or(1)
        }
    }
}
