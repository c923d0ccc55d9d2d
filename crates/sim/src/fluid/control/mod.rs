//! Congestion controls of fluid flows, as Linux has them.
//!
//! A control sees each step of a flow ([`AckedStep`]) and each loss event. It owns the flow's congestion
//! window, in segments, and for BBR the pacing rate.

mod bbr;
mod cubic;
mod hystart;

use std::str::FromStr;

use bbr::Bbr;
use cubic::CubicGrowth;
use hystart::HyStart;

/// Initial window, segments (RFC 6928).
pub(super) const INITIAL_WINDOW: f64 = 10.0;

/// Name of a congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FluidControl {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438) with HyStart.
    Cubic,
    /// BBR version 1, as in Linux.
    Bbr,
}

impl FluidControl {
    /// Its name in Linux.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl FromStr for FluidControl {
    type Err = UnknownControl;

    fn from_str(name: &str) -> Result<Self, UnknownControl> {
        match name {
            "reno" => Ok(Self::Reno),
            "cubic" => Ok(Self::Cubic),
            "bbr" => Ok(Self::Bbr),
            _ => Err(UnknownControl),
        }
    }
}

/// The simulator has no congestion control of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this congestion control is not simulated")]
pub struct UnknownControl;

/// One step of a flow as its sender sees it. Amounts are segments, times seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckedStep {
    pub(super) now: f64,
    pub(super) step: f64,
    /// Delivered in this step.
    pub(super) acked: f64,
    /// Detected as lost in this step.
    pub(super) lost: f64,
    /// Delivered since the flow began.
    pub(super) delivered: f64,
    /// In flight after this step's acknowledgements.
    pub(super) in_flight: f64,
    pub(super) rtt: f64,
    /// Smallest round trip that the flow has seen.
    pub(super) min_rtt: f64,
    /// The flow used its congestion window in the last round trip.
    pub(super) cwnd_limited: bool,
    /// The flow had nothing to send.
    pub(super) app_limited: bool,
    /// Loss recovery is under way.
    pub(super) in_recovery: bool,
    /// This flow's part, among those in slow start, of the bottleneck's rate, segments per second.
    pub(super) slow_start_rate: f64,
}

/// Window of a flow and its control.
#[derive(Debug, Clone)]
pub(super) struct CongestionState {
    /// Congestion window, segments.
    pub(super) cwnd: f64,
    /// Slow start threshold, segments; infinite before the first loss.
    pub(super) ssthresh: f64,
    /// Pacing rate, segments per second; infinite without pacing.
    pub(super) pacing: f64,
    growth: ControlState,
}

#[derive(Debug, Clone)]
enum ControlState {
    Reno,
    Cubic(CubicGrowth, HyStart),
    Bbr(Box<Bbr>),
}

impl CongestionState {
    /// State of a new flow. `phase`, below 7, is where BBR's gain cycle begins.
    pub(super) fn new(control: FluidControl, rtt: f64, phase: u32) -> Self {
        let mut state = Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            pacing: f64::INFINITY,
            growth: ControlState::Reno,
        };
        state.change(control, rtt, phase);
        state
    }

    pub(super) fn control(&self) -> FluidControl {
        match self.growth {
            ControlState::Reno => FluidControl::Reno,
            ControlState::Cubic(..) => FluidControl::Cubic,
            ControlState::Bbr(_) => FluidControl::Bbr,
        }
    }

    /// Changes the control of a live flow: windows stay, as with TCP_CONGESTION.
    pub(super) fn change(&mut self, control: FluidControl, rtt: f64, phase: u32) {
        self.pacing = f64::INFINITY;
        self.growth = match control {
            FluidControl::Reno => ControlState::Reno,
            FluidControl::Cubic => ControlState::Cubic(CubicGrowth::default(), HyStart::default()),
            FluidControl::Bbr => {
                self.ssthresh = f64::INFINITY;
                let bbr = Bbr::new(self.cwnd, rtt, phase);
                self.pacing = bbr.pacing();
                ControlState::Bbr(Box::new(bbr))
            }
        };
    }

    /// Processes the acknowledgements and losses of a step.
    pub(super) fn on_step(&mut self, step: &AckedStep) {
        if let ControlState::Bbr(bbr) = &mut self.growth {
            bbr.on_step(step, &mut self.cwnd, &mut self.ssthresh);
            self.pacing = bbr.pacing();
            return;
        }
        if step.acked <= 0.0 || step.in_recovery {
            return;
        }
        if self.cwnd < self.ssthresh {
            if !step.cwnd_limited {
                return;
            }
            self.cwnd = (self.cwnd + step.acked).min(self.ssthresh.max(self.cwnd));
            if let ControlState::Cubic(_, hystart) = &mut self.growth
                && hystart.ends_slow_start(step, self.cwnd)
            {
                self.ssthresh = self.cwnd;
            }
            return;
        }
        match &mut self.growth {
            ControlState::Cubic(cubic, _) => cubic.grow(step, &mut self.cwnd),
            ControlState::Reno if step.cwnd_limited => self.cwnd += step.acked / self.cwnd,
            ControlState::Reno | ControlState::Bbr(_) => {}
        }
    }

    /// A loss event: once per round trip.
    pub(super) fn on_loss(&mut self, step: &AckedStep) {
        match &mut self.growth {
            ControlState::Reno => {
                self.ssthresh = (self.cwnd / 2.0).max(2.0);
                self.cwnd = self.ssthresh;
            }
            ControlState::Cubic(cubic, _) => {
                self.ssthresh = cubic.reduce(self.cwnd);
                self.cwnd = self.ssthresh;
            }
            ControlState::Bbr(bbr) => bbr.on_recovery(step, &mut self.cwnd),
        }
    }

    /// The retransmission timer expired.
    pub(super) fn on_timeout(&mut self) {
        match &mut self.growth {
            ControlState::Reno => self.ssthresh = (self.cwnd / 2.0).max(2.0),
            ControlState::Cubic(cubic, hystart) => {
                self.ssthresh = cubic.reduce(self.cwnd);
                *hystart = HyStart::default();
            }
            ControlState::Bbr(bbr) => bbr.on_timeout(self.cwnd),
        }
        self.cwnd = 1.0;
    }
}
