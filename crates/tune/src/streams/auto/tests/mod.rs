//! Scripted paths for each rule: where it applies and where it does not.

mod growing;
mod prior;
mod properties;
mod queueing;

use std::time::Duration;

use super::{AutoLimits, AutoTuner, TransferDecision, TransferSample, TransferSetting};
use crate::limiter::Limiter;
use crate::sample::{StreamId, TcpSample};

const MB: u64 = 1 << 20;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn limits(most: u32) -> AutoLimits {
    AutoLimits {
        min_streams: 1,
        max_streams: most,
        congestion_controls: ["reno", "cubic", "bbr"].map(str::to_owned).into(),
        may_pace: true,
    }
}

/// Effect of a scripted path on all streams together at one moment.
#[derive(Debug, Clone, Copy)]
struct ScriptedFlow {
    /// Goodput, bytes per second.
    rate: u64,
    rtt: Duration,
    /// Part of the segments that is retransmitted.
    loss: f64,
    /// Part of the time in which the receiver's window is full.
    window_full: f64,
    /// That window, bytes.
    peer_window: u64,
    /// The writers wait for space in their send buffers.
    buffers_full: bool,
    /// The writers have nothing to write for most of the time.
    writers_idle: bool,
    in_slow_start: bool,
}

impl Default for ScriptedFlow {
    /// 100 Mbit/s over 50 ms, limited by congestion windows.
    fn default() -> Self {
        Self {
            rate: 12_500_000,
            rtt: ms(50),
            loss: 0.0,
            window_full: 0.0,
            peer_window: 6 * MB,
            buffers_full: false,
            writers_idle: false,
            in_slow_start: false,
        }
    }
}

/// State of the transfer that a scripted path depends on.
#[derive(Debug, Clone, Copy)]
struct PathQuery<'a> {
    at: Duration,
    streams: u32,
    congestion_control: &'a str,
    pacing_rate: Option<u64>,
}

/// A transfer over a scripted path.
struct ScriptedTransfer {
    tuner: AutoTuner,
    at: Duration,
    streams: u32,
    congestion_control: String,
    /// Streams with another congestion control than the others, and which.
    candidates: Option<(Vec<StreamId>, String)>,
    pacing_rate: Option<u64>,
    /// Bytes that all streams have moved.
    bytes_moved: u64,
    /// Bytes that each stream has moved.
    moved: Vec<u64>,
    /// Segments retransmitted by each stream.
    retransmitted: Vec<f64>,
    window_full: Duration,
    busy: Duration,
    bytes_left: Option<u64>,
    rate_limit: Option<u64>,
    decisions: Vec<TransferDecision>,
}

impl ScriptedTransfer {
    fn new(limits: AutoLimits, streams: u32) -> Self {
        Self::with(AutoTuner::new(limits, streams), streams)
    }

    /// A transfer with `streams` open streams.
    fn with(tuner: AutoTuner, streams: u32) -> Self {
        Self {
            tuner,
            at: Duration::ZERO,
            streams,
            congestion_control: "cubic".to_owned(),
            candidates: None,
            pacing_rate: None,
            bytes_moved: 0,
            moved: Vec::new(),
            retransmitted: Vec::new(),
            window_full: Duration::ZERO,
            busy: Duration::ZERO,
            bytes_left: None,
            rate_limit: None,
            decisions: Vec::new(),
        }
    }

    /// Advances time to `until`.
    fn run(&mut self, until: Duration, path: impl Fn(PathQuery<'_>) -> ScriptedFlow) {
        while self.at < until {
            let step = self.tuner.next_sample_in();
            self.at += step;
            let flow_with = |congestion_control: &str| {
                path(PathQuery {
                    at: self.at,
                    streams: self.streams,
                    congestion_control,
                    pacing_rate: self.pacing_rate,
                })
            };
            let flow = flow_with(&self.congestion_control);
            let beside = self
                .candidates
                .as_ref()
                .map(|(streams, name)| (streams.clone(), flow_with(name)));
            self.advance(step, &flow, beside.as_ref());
            self.take_sample(&flow);
        }
    }

    fn advance(
        &mut self,
        step: Duration,
        flow: &ScriptedFlow,
        beside: Option<&(Vec<StreamId>, ScriptedFlow)>,
    ) {
        self.retransmitted.resize(self.streams as usize, 0.0);
        self.moved.resize(self.streams as usize, 0);
        let mut bytes_moved = 0;
        for ((stream, retransmitted), moved) in
            (0..).zip(&mut self.retransmitted).zip(&mut self.moved)
        {
            let of = beside.filter(|(streams, _)| streams.contains(&stream));
            let flow = of.map_or(flow, |(_, flow)| flow);
            let own = units::bytes_in(flow.rate, step) / u64::from(self.streams);
            *moved += own;
            bytes_moved += own;
            *retransmitted += own as f64 / 1448.0 * flow.loss;
        }
        self.bytes_moved += bytes_moved;
        self.bytes_left = self
            .bytes_left
            .map(|bytes_left| bytes_left.saturating_sub(bytes_moved));
        self.window_full += step.mul_f64(flow.window_full);
        self.busy += step.mul_f64(if flow.writers_idle { 0.2 } else { 1.0 });
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole segments"
    )]
    fn samples(&self, flow: &ScriptedFlow) -> Vec<TcpSample> {
        let streams = u64::from(self.streams);
        let in_flight = units::bytes_in(flow.rate, flow.rtt) / streams;
        let stream_sample = |((stream, retransmitted), moved): ((u64, &f64), &u64)| TcpSample {
            stream,
            at: self.at,
            bytes_acked: *moved,
            smoothed_rtt: flow.rtt,
            min_rtt: ms(50),
            send_buffer: 4 * MB,
            send_queue_memory: if flow.buffers_full { 4 * MB } else { MB },
            unsent: if flow.buffers_full || flow.writers_idle {
                0
            } else {
                MB
            },
            in_flight: if flow.writers_idle {
                in_flight / 2
            } else {
                in_flight
            },
            // Pacing keeps the windows from being used.
            cwnd: if self.pacing_rate.is_some() {
                in_flight * 2
            } else {
                in_flight
            },
            in_slow_start: flow.in_slow_start,
            peer_window: flow.peer_window,
            busy_time: self.busy,
            rwnd_limited: self.window_full,
            retransmits: *retransmitted as u64,
            mss: 1448,
            ..TcpSample::default()
        };
        (0..)
            .zip(&self.retransmitted)
            .zip(&self.moved)
            .map(stream_sample)
            .collect()
    }

    fn take_sample(&mut self, flow: &ScriptedFlow) {
        let samples = self.samples(flow);
        let congestion_control = self.congestion_control.clone();
        let decisions = self.tuner.on_sample(&TransferSample {
            at: self.at,
            bytes_moved: self.bytes_moved,
            bytes_left: self.bytes_left,
            streams: &samples,
            streams_opening: 0,
            congestion_control: &congestion_control,
            rate_limit: self.rate_limit,
        });
        for decision in &decisions {
            match decision.setting.clone() {
                Some(TransferSetting::Streams(streams)) => self.streams = streams,
                Some(TransferSetting::CongestionControl(congestion_control)) => {
                    self.congestion_control = congestion_control;
                    self.candidates = None;
                }
                Some(TransferSetting::StreamCongestionControl { streams, name }) => {
                    let candidates = self.candidates.get_or_insert((Vec::new(), name));
                    candidates.0.extend(streams);
                }
                Some(TransferSetting::PacingRate(pacing_rate)) => self.pacing_rate = pacing_rate,
                None => {}
            }
        }
        self.decisions.extend(decisions);
    }

    fn settings(&self) -> Vec<TransferSetting> {
        let settings = self.decisions.iter().filter_map(|d| d.setting.clone());
        settings.collect()
    }

    fn limiter(&self) -> Limiter {
        self.tuner.verdict().limiter
    }

    fn remedy(&self) -> String {
        self.tuner.verdict().remedy.unwrap_or_default()
    }
}
