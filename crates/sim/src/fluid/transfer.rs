//! A transfer of one file over a fluid path, with fixed settings or tuned by `tune::streams::auto`.

use std::time::Duration;

use tune::limiter::Role;
use tune::sample::TcpSample;
use tune::streams::auto::{
    AutoLimits, AutoTuner, TransferDecision, TransferSample, TransferSetting,
};
use tune::streams::initial::{ADAPT_FROM, adapting_from_rtt};
use tune::{Evidence, Prior};

use super::SEGMENT;
use super::control::FluidControl;
use super::network::FluidNetwork;
use super::path::{BottleneckPath, EndLimit};

/// Largest block that a stream takes from the file at a time, bytes.
const BLOCK: u64 = 1 << 20;
/// Smallest part of the file that a stream takes near the end, bytes.
const LEAST_PART: u64 = 64 << 10;
/// Largest number of streams, as of `longhaul cp`.
const MAX_STREAMS: u32 = 128;
/// Simulated time after the last event of the path, in round trips, and its bounds in seconds. The mean rate of its
/// second half then counts for the rest of the file.
const STEADY_ROUNDS: f64 = 4000.0;
const STEADY_TIME: (f64, f64) = (60.0, 180.0);
/// Round trips of the commands before the first data connection is opened.
const DIALOGUE_ROUND_TRIPS: f64 = 3.0;
/// Smallest time between two points of a timeline, seconds.
const TIMELINE_STEP: f64 = 0.1;

/// A file to send over a path.
#[derive(Debug, Clone, Copy)]
pub struct FluidTransfer<'p> {
    /// The path.
    pub path: &'p BottleneckPath,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Seed of losses and phases.
    pub seed: u64,
    /// Simulated time after which an unfinished run is given up, seconds.
    pub give_up_after: f64,
}

/// Settings that stay for the whole transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticSetting {
    /// Streams, opened together.
    pub streams: u32,
    /// Congestion control of all streams.
    pub control: FluidControl,
}

/// Result of a transfer. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct FluidOutcome {
    /// Time until the last byte has arrived, commands and handshakes included; infinite if the run was given up or nothing moves any more.
    pub elapsed: f64,
    /// The rest of the file was extrapolated.
    pub is_extrapolated: bool,
    /// Largest number of streams at a time.
    pub peak_streams: u32,
    /// Mean number of streams over the simulated time.
    pub mean_streams: f64,
    /// Mean queueing delay.
    pub queueing_delay: f64,
    /// Most payload in flight and written but unsent, over all streams, bytes.
    pub peak_memory: f64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Mean payload rate of each competitor beside the transfer, bytes per second; `None` if there was none.
    pub competitor_rate: Option<f64>,
}

/// Result of a tuned transfer.
#[derive(Debug, Clone)]
pub struct AutoFluidOutcome {
    /// The figures that every transfer has.
    pub outcome: FluidOutcome,
    /// Streams at the start.
    pub first_streams: u32,
    /// All decisions, in order.
    pub decisions: Vec<TransferDecision>,
    /// Course of the transfer.
    pub timeline: Vec<TimelinePoint>,
    /// Measurements that the next transfer may begin with.
    pub evidence: Evidence,
}

/// A transfer at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimelinePoint {
    /// Time since the start, seconds.
    pub at: f64,
    /// Goodput since the previous point, bytes per second.
    pub rate: f64,
    /// Streams that take blocks.
    pub streams: u32,
    /// Queueing delay now, seconds.
    pub queueing_delay: f64,
    /// Segments retransmitted since the start.
    pub retransmits: u64,
}

impl FluidTransfer<'_> {
    /// Sends the file with fixed settings.
    pub fn run_static(&self, setting: StaticSetting) -> FluidOutcome {
        let mut run = RunningFluidTransfer::begin(self, setting.streams, setting.control);
        while run.runs() {
            run.advance();
        }
        run.outcome()
    }

    /// Sends the file with `auto`, which may set the congestion controls `permitted`; the first of them is the
    /// system's. Without a prior, or with one without streams, the number of streams is that of
    /// [`adapting_from_rtt`].
    pub fn run_auto(&self, permitted: &[FluidControl], prior: Option<Prior>) -> AutoFluidOutcome {
        let rtt = Duration::from_secs_f64(self.path.rtt);
        let by_rtt = adapting_from_rtt(rtt, Some(self.bytes), 0, MAX_STREAMS);
        let known = Prior {
            is_alone: true,
            ..prior.unwrap_or_default()
        };
        let streams = known.first_streams(Some(self.bytes), by_rtt.streams.unwrap_or(1));
        let prior = Prior {
            streams: Some(streams),
            ..known
        };
        let system = permitted.first().copied().unwrap_or(FluidControl::Cubic);
        let limits = AutoLimits {
            min_streams: 1,
            // As `longhaul cp`: a small file keeps a single stream.
            max_streams: if streams == 1 && self.bytes < ADAPT_FROM {
                1
            } else {
                MAX_STREAMS.max(streams)
            },
            congestion_controls: permitted.iter().map(|c| c.name().to_owned()).collect(),
            may_pace: true,
        };
        let mut run = RunningFluidTransfer::begin(self, streams, system);
        let mut tuned = TunedFluidTransfer {
            auto: AutoTuner::from_prior(limits, prior),
            due: run.network.now() + run.network.base_rtt() + 2.0 * run.network.step_length(),
            decisions: Vec::new(),
            timeline: Vec::new(),
            last_point: (0.0, 0.0),
        };
        while run.runs() {
            run.advance();
            if run.network.now() >= tuned.due {
                tuned.sample(&mut run);
            }
        }
        let outcome = run.outcome();
        AutoFluidOutcome {
            evidence: run.evidence(&tuned.auto, &outcome),
            outcome,
            first_streams: streams,
            decisions: tuned.decisions,
            timeline: tuned.timeline,
        }
    }
}

/// The tuner of a transfer, and what it did.
struct TunedFluidTransfer {
    auto: AutoTuner,
    /// Time of the next sample, seconds.
    due: f64,
    decisions: Vec<TransferDecision>,
    timeline: Vec<TimelinePoint>,
    /// Time and delivered segments at the last point.
    last_point: (f64, f64),
}

impl TunedFluidTransfer {
    /// Passes a sample to the tuner and applies its decisions.
    fn sample(&mut self, run: &mut RunningFluidTransfer<'_>) {
        let now = run.network.now();
        let samples = run.samples();
        if !samples.is_empty() {
            let decisions = self.auto.on_sample(&TransferSample {
                at: Duration::from_secs_f64(now),
                bytes_moved: run.bytes_acked(),
                bytes_left: Some(run.bytes_left()),
                streams: &samples,
                streams_opening: run.opening(),
                congestion_control: run.control.name(),
                rate_limit: None,
            });
            for decision in decisions {
                if let Some(setting) = &decision.setting
                    && let Err(name) = run.apply(setting)
                {
                    self.auto.on_congestion_control_refused(&name);
                }
                self.decisions.push(decision);
            }
        }
        run.share_pace();
        self.due = now + self.auto.next_sample_in().as_secs_f64();
        let (at, delivered) = self.last_point;
        if now - at >= TIMELINE_STEP {
            let total = run.delivered();
            self.timeline.push(TimelinePoint {
                at: now,
                rate: (total - delivered) * SEGMENT / (now - at),
                streams: run.open_streams(),
                queueing_delay: run.network.queueing_delay(),
                retransmits: run.retransmits(),
            });
            self.last_point = (now, total);
        }
    }
}

/// A stream of the transfer.
#[derive(Debug)]
struct PooledStream {
    flow: usize,
    /// Rest of the block that it has taken, segments.
    block: f64,
    /// Segments that it has taken so far, and that all had taken when it joined.
    taken: f64,
    taken_before: f64,
    /// It takes no more blocks.
    leaving: bool,
    opened_at: f64,
}

/// A transfer under way. Amounts are segments, times seconds.
struct RunningFluidTransfer<'p> {
    network: FluidNetwork,
    path: &'p BottleneckPath,
    control: FluidControl,
    streams: Vec<PooledStream>,
    all: f64,
    /// Not taken by any stream.
    left: f64,
    block: f64,
    /// Read and not yet handed to a stream, with a limited source.
    readable: f64,
    pace: Option<u64>,
    next_step: u64,
    give_up_after: f64,
    /// Times at which the second half of the steady state begins, and at which the simulation ends.
    steady: (f64, f64),
    delivered_at_half: Option<f64>,
    /// Sums over closed streams.
    closed_delivered: f64,
    closed_retransmits: f64,
    closed_stream_time: f64,
    opened_total: u64,
    peak_streams: u32,
    stream_seconds: f64,
    queue_seconds: f64,
    peak_memory: f64,
    is_complete: bool,
}

impl<'p> RunningFluidTransfer<'p> {
    fn begin(transfer: &FluidTransfer<'p>, streams: u32, control: FluidControl) -> Self {
        let path = transfer.path;
        let all = transfer.bytes as f64 / SEGMENT;
        let (least, most) = STEADY_TIME;
        let steady = (STEADY_ROUNDS * path.rtt).clamp(least, most);
        let last_event = path.last_event();
        let mut run = Self {
            network: FluidNetwork::new(path, transfer.seed),
            path,
            control,
            streams: Vec::new(),
            all,
            left: all,
            block: BLOCK as f64 / SEGMENT,
            readable: 0.0,
            pace: None,
            next_step: 1,
            give_up_after: transfer.give_up_after,
            steady: (last_event + steady / 2.0, last_event + steady),
            delivered_at_half: None,
            closed_delivered: 0.0,
            closed_retransmits: 0.0,
            closed_stream_time: 0.0,
            opened_total: 0,
            peak_streams: 0,
            stream_seconds: 0.0,
            queue_seconds: 0.0,
            peak_memory: 0.0,
            is_complete: false,
        };
        run.set_streams(streams);
        run
    }

    fn runs(&self) -> bool {
        let now = self.network.now();
        !self.is_complete && now < self.steady.1.min(self.give_up_after)
    }

    /// Runs one step.
    fn advance(&mut self) {
        self.fill_buffers();
        self.network.step();
        self.next_step += 1;
        self.drain_receiver();
        self.close_finished();
        let (now, step) = (self.network.now(), self.network.step_length());
        if self.delivered_at_half.is_none() && now >= self.steady.0 {
            self.delivered_at_half = Some(self.delivered());
        }
        let open = self.streams.len() as u32;
        self.stream_seconds += f64::from(open) * step;
        self.queue_seconds += self.network.queueing_delay() * step;
        let memory = self
            .network
            .window_bytes(self.streams.iter().map(|stream| stream.flow));
        self.peak_memory = self.peak_memory.max(memory);
    }

    /// The streams' threads take blocks and write them.
    fn fill_buffers(&mut self) {
        let (now, step) = (self.network.now(), self.network.step_length());
        let count = self.streams.len() as f64;
        let mut share = f64::INFINITY;
        match self.path.end {
            EndLimit::Source(rate) => {
                let most = (self.block + rate / SEGMENT * step).max(1.0);
                self.readable = (self.readable + rate / SEGMENT * step).min(most);
                share = self.readable / self.streams.len().max(1) as f64;
            }
            EndLimit::PerStream(rate) => share = rate / SEGMENT * step,
            EndLimit::Unlimited | EndLimit::Sink(_) => {}
        }
        for stream in &mut self.streams {
            let flow = &mut self.network.flows[stream.flow];
            if now < flow.silent_until && flow.counters.sent <= 0.0 {
                continue;
            }
            let mut wanted = flow.writable(self.next_step, step).min(share);
            while wanted > 0.0 {
                if stream.block <= 0.0 {
                    if stream.leaving || self.left <= 0.0 {
                        break;
                    }
                    // As crate `data`: a quarter of each stream's share of what is left, and of what it will send by what it has.
                    let least = LEAST_PART as f64 / SEGMENT;
                    let (mut part, mut own) = (self.block, self.block);
                    if count > 1.0 {
                        part = part.min((self.left / (4.0 * count)).max(least));
                        let all = (self.all - self.left - stream.taken_before).max(1.0);
                        let by_rate = self.left / 4.0 * stream.taken / all;
                        own = by_rate.min(stream.taken).max(least);
                    }
                    flow.is_near_end = part < self.block;
                    stream.block = part.min(own).min(self.left);
                    stream.taken += stream.block;
                    self.left -= stream.block;
                }
                let written = wanted.min(stream.block);
                stream.block -= written;
                flow.unsent += written;
                wanted -= written;
                if share.is_finite() {
                    self.readable -= written;
                }
            }
        }
    }

    /// The receiver writes its store.
    fn drain_receiver(&mut self) {
        let EndLimit::Sink(rate) = self.path.end else {
            return;
        };
        let backlog: f64 = self
            .streams
            .iter()
            .map(|s| self.network.flows[s.flow].backlog)
            .sum();
        if backlog <= 0.0 {
            return;
        }
        let rest = 1.0 - (rate / SEGMENT * self.network.step_length() / backlog).min(1.0);
        for stream in &self.streams {
            self.network.flows[stream.flow].backlog *= rest;
        }
    }

    fn close_finished(&mut self) {
        let no_more = self.left <= 0.0;
        if !no_more && !self.streams.iter().any(|stream| stream.leaving) {
            return;
        }
        let is_done = |stream: &PooledStream, network: &FluidNetwork| {
            stream.block <= 0.0 && network.flows[stream.flow].is_drained()
        };
        if no_more && self.streams.iter().all(|s| is_done(s, &self.network)) {
            self.is_complete = true;
            return;
        }
        for index in (0..self.streams.len()).rev() {
            let stream = &self.streams[index];
            if stream.leaving && is_done(stream, &self.network) {
                let counters = self.network.flows[stream.flow].counters;
                self.closed_delivered += counters.delivered;
                self.closed_retransmits += counters.retransmits;
                self.closed_stream_time += self.network.now() - stream.opened_at;
                self.network.close(stream.flow);
                self.streams.remove(index);
            }
        }
    }

    /// Applies a setting of the tuner; returns the name of a congestion control that does not exist.
    fn apply(&mut self, setting: &TransferSetting) -> Result<(), String> {
        match setting {
            TransferSetting::Streams(streams) => self.set_streams(*streams),
            TransferSetting::CongestionControl(name) => {
                self.control = self.change_control(name, |_| true)?;
            }
            TransferSetting::StreamCongestionControl { streams, name } => {
                self.change_control(name, |id| streams.contains(&id))?;
            }
            TransferSetting::PacingRate(pace) => self.pace = *pace,
        }
        self.share_pace();
        Ok(())
    }

    /// Sets a congestion control on the streams whose number is `chosen`.
    fn change_control(
        &mut self,
        name: &str,
        chosen: impl Fn(u64) -> bool,
    ) -> Result<FluidControl, String> {
        let control: FluidControl = name.parse().map_err(|_| name.to_owned())?;
        for stream in &self.streams {
            if chosen(self.network.flows[stream.flow].id) {
                self.network.set_control(stream.flow, control);
            }
        }
        Ok(control)
    }

    fn open_streams(&self) -> u32 {
        self.streams.iter().filter(|s| !s.leaving).count() as u32
    }

    fn set_streams(&mut self, wanted: u32) {
        let wanted = wanted.max(1);
        let mut open = self.open_streams();
        while open < wanted {
            let flow = self.network.open(self.control);
            self.network.flows[flow].has_slow_reader = matches!(self.path.end, EndLimit::Sink(_));
            self.streams.push(PooledStream {
                flow,
                block: 0.0,
                taken: 0.0,
                taken_before: self.all - self.left,
                leaving: false,
                opened_at: self.network.now(),
            });
            self.opened_total += 1;
            open += 1;
        }
        let surplus = (open - wanted) as usize;
        let newest = self.streams.iter_mut().rev().filter(|s| !s.leaving);
        for stream in newest.take(surplus) {
            stream.leaving = true;
        }
        self.peak_streams = self.peak_streams.max(wanted);
    }

    /// Divides the pacing rate among all streams, including those that leave.
    fn share_pace(&mut self) {
        let share = self.pace.map_or(f64::INFINITY, |pace| {
            pace as f64 / SEGMENT / self.streams.len().max(1) as f64
        });
        for stream in &self.streams {
            self.network.flows[stream.flow].pacing_limit = share;
        }
    }

    fn samples(&self) -> Vec<TcpSample> {
        let now = self.network.now();
        self.streams
            .iter()
            .filter(|stream| !stream.leaving && !self.is_opening(stream))
            .map(|stream| self.network.flows[stream.flow].sample(now, now))
            .collect()
    }

    fn is_opening(&self, stream: &PooledStream) -> bool {
        let flow = &self.network.flows[stream.flow];
        self.network.now() < flow.silent_until && flow.counters.sent <= 0.0
    }

    fn opening(&self) -> u32 {
        self.streams.iter().filter(|s| self.is_opening(s)).count() as u32
    }

    fn sum(&self, of: impl Fn(&PooledStream) -> f64) -> f64 {
        self.streams.iter().map(of).sum()
    }

    fn delivered(&self) -> f64 {
        self.closed_delivered + self.sum(|s| self.network.flows[s.flow].counters.delivered)
    }

    fn bytes_acked(&self) -> u64 {
        let acked = self.sum(|s| self.network.flows[s.flow].acked_in_order());
        ((self.closed_delivered + acked) * SEGMENT) as u64
    }

    fn bytes_left(&self) -> u64 {
        ((self.left + self.sum(|s| s.block)) * SEGMENT) as u64
    }

    fn retransmits(&self) -> u64 {
        let open = self.sum(|s| self.network.flows[s.flow].counters.retransmits);
        (self.closed_retransmits + open) as u64
    }

    fn outcome(&self) -> FluidOutcome {
        let now = self.network.now();
        let delivered = self.delivered();
        let mut elapsed = now;
        let mut is_extrapolated = false;
        if !self.is_complete {
            let half = self.delivered_at_half.unwrap_or(delivered);
            let rate = (delivered - half) / (now - self.steady.0);
            elapsed = f64::INFINITY;
            if now >= self.steady.1 && rate > 0.0 {
                is_extrapolated = true;
                elapsed = now + (self.all - delivered).max(0.0) / rate;
            }
        }
        // The streams of the end are those of the rest.
        let rest = if elapsed.is_finite() {
            elapsed - now
        } else {
            0.0
        };
        let stream_seconds = self.stream_seconds + rest * f64::from(self.open_streams());
        FluidOutcome {
            elapsed: elapsed + DIALOGUE_ROUND_TRIPS * self.path.rtt,
            is_extrapolated,
            peak_streams: self.peak_streams,
            mean_streams: stream_seconds / (now + rest).max(1e-9),
            queueing_delay: self.queue_seconds / now.max(1e-9),
            peak_memory: self.peak_memory,
            retransmits: self.retransmits(),
            competitor_rate: self.network.competitor_rate(),
        }
    }

    /// Measurements of the transfer, as crate `data` makes them.
    fn evidence(&self, auto: &AutoTuner, outcome: &FluidOutcome) -> Evidence {
        let now = self.network.now();
        let samples: Vec<TcpSample> = self
            .streams
            .iter()
            .map(|stream| self.network.flows[stream.flow].sample(now, now))
            .collect();
        let longest = |of: fn(&TcpSample) -> Duration| samples.iter().map(of).max();
        let bytes = (self.delivered() * SEGMENT) as u64;
        let stream_time = self.closed_stream_time + self.sum(|s| now - s.opened_at);
        Evidence {
            bytes,
            elapsed: Duration::from_secs_f64(now),
            streams: self.opened_total,
            peak_streams: self.peak_streams.into(),
            final_streams: self.open_streams().into(),
            stream_time: Duration::from_secs_f64(stream_time),
            retransmits: outcome.retransmits,
            min_rtt: samples
                .iter()
                .map(|tcp| tcp.min_rtt)
                .min()
                .unwrap_or_default(),
            smoothed_rtt: longest(|tcp| tcp.smoothed_rtt).unwrap_or_default(),
            buffer_bytes: samples.iter().map(|tcp| tcp.send_buffer).max().unwrap_or(0),
            busy_time: longest(|tcp| tcp.busy_time).unwrap_or_default(),
            rwnd_limited: longest(|tcp| tcp.rwnd_limited).unwrap_or_default(),
            sndbuf_limited: longest(|tcp| tcp.sndbuf_limited).unwrap_or_default(),
            wire_time: Duration::from_secs_f64(stream_time),
            congestion_control: Some(self.control.name().to_owned()),
            verdict: Some(auto.verdict()),
            pacing_rate: auto.pacing_rate(),
            path_rate: auto.path_rate(),
            ..Evidence::for_role(Role::Sender)
        }
    }
}
