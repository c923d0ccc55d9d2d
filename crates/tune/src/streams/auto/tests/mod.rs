//! Scripted paths for each rule, to act and not to act.

mod growing;
mod known;
mod properties;
mod queueing;

use std::time::Duration;

use super::{AutoLimits, AutoTuner, TransferDecision, TransferSample, TransferSetting};
use crate::limiter::Limiter;
use crate::sample::TcpSample;

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

/// Effect of a path on all streams together at one moment.
#[derive(Debug, Clone, Copy)]
struct ScriptedFlow {
    /// Payload, bytes per second.
    rate: u64,
    rtt: Duration,
    /// Of the segments, sent again.
    loss: f64,
    /// Of the time, held by the receiver's window.
    held: f64,
    /// The writers wait for room in their buffers.
    pressed: bool,
    /// The writers have nothing to write for most of the time.
    idle: bool,
    starting: bool,
}

impl Default for ScriptedFlow {
    /// 100 Mbit/s over 50 ms, limited by congestion windows.
    fn default() -> Self {
        Self {
            rate: 12_500_000,
            rtt: ms(50),
            loss: 0.0,
            held: 0.0,
            pressed: false,
            idle: false,
            starting: false,
        }
    }
}

/// Question to the path.
#[derive(Debug, Clone, Copy)]
struct PathQuery<'a> {
    at: Duration,
    streams: u32,
    control: &'a str,
    pace: Option<u64>,
}

/// A transfer over a scripted path.
struct ScriptedTransfer {
    auto: AutoTuner,
    at: Duration,
    streams: u32,
    control: String,
    pace: Option<u64>,
    moved: u64,
    /// Segments sent again by each stream.
    resent: Vec<f64>,
    held: Duration,
    busy: Duration,
    left: Option<u64>,
    rate_limit: Option<u64>,
    decisions: Vec<TransferDecision>,
}

impl ScriptedTransfer {
    fn new(limits: AutoLimits, streams: u32) -> Self {
        Self::with(AutoTuner::new(limits, streams), streams)
    }

    /// With `streams` streams there.
    fn with(auto: AutoTuner, streams: u32) -> Self {
        Self {
            auto,
            at: Duration::ZERO,
            streams,
            control: "cubic".to_owned(),
            pace: None,
            moved: 0,
            resent: Vec::new(),
            held: Duration::ZERO,
            busy: Duration::ZERO,
            left: None,
            rate_limit: None,
            decisions: Vec::new(),
        }
    }

    /// Lets time pass until `until`.
    fn run(&mut self, until: Duration, path: impl Fn(PathQuery<'_>) -> ScriptedFlow) {
        while self.at < until {
            let step = self.auto.next_sample_in();
            self.at += step;
            let flow = path(PathQuery {
                at: self.at,
                streams: self.streams,
                control: &self.control,
                pace: self.pace,
            });
            self.pass(step, &flow);
            self.look(&flow);
        }
    }

    fn pass(&mut self, step: Duration, flow: &ScriptedFlow) {
        let moved = units::bytes_in(flow.rate, step);
        self.moved += moved;
        self.left = self.left.map(|left| left.saturating_sub(moved));
        self.resent.resize(self.streams as usize, 0.0);
        let lost = moved as f64 / 1448.0 * flow.loss / f64::from(self.streams);
        for resent in &mut self.resent {
            *resent += lost;
        }
        self.held += step.mul_f64(flow.held);
        self.busy += step.mul_f64(if flow.idle { 0.2 } else { 1.0 });
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole segments"
    )]
    fn looks(&self, flow: &ScriptedFlow) -> Vec<TcpSample> {
        let streams = u64::from(self.streams);
        let in_flight = units::bytes_in(flow.rate, flow.rtt) / streams;
        let look = |(stream, resent): (u64, &f64)| TcpSample {
            stream,
            at: self.at,
            bytes: self.moved / streams,
            smoothed_rtt: flow.rtt,
            min_rtt: ms(50),
            send_buffer: 4 * MB,
            send_queue_memory: if flow.pressed { 4 * MB } else { MB },
            unsent: if flow.pressed || flow.idle { 0 } else { MB },
            in_flight: if flow.idle { in_flight / 2 } else { in_flight },
            cwnd: in_flight,
            in_slow_start: flow.starting,
            peer_window: 6 * MB,
            busy_time: self.busy,
            rwnd_limited: self.held,
            retransmits: *resent as u64,
            mss: 1448,
            ..TcpSample::default()
        };
        (0..).zip(&self.resent).map(look).collect()
    }

    fn look(&mut self, flow: &ScriptedFlow) {
        let looks = self.looks(flow);
        let control = self.control.clone();
        let decisions = self.auto.on_sample(&TransferSample {
            at: self.at,
            bytes_moved: self.moved,
            bytes_left: self.left,
            streams: &looks,
            streams_opening: 0,
            congestion_control: &control,
            rate_limit: self.rate_limit,
        });
        for decision in &decisions {
            match decision.setting.clone() {
                Some(TransferSetting::Streams(streams)) => self.streams = streams,
                Some(TransferSetting::CongestionControl(control)) => self.control = control,
                Some(TransferSetting::PacingRate(pace)) => self.pace = pace,
                None => {}
            }
        }
        self.decisions.extend(decisions);
    }

    fn steps(&self) -> Vec<TransferSetting> {
        let steps = self.decisions.iter().filter_map(|d| d.setting.clone());
        steps.collect()
    }

    fn limiter(&self) -> Limiter {
        self.auto.verdict().limiter
    }

    fn remedy(&self) -> String {
        self.auto.verdict().remedy.unwrap_or_default()
    }
}
