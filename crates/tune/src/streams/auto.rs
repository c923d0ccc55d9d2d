//! `auto`: streams, congestion control and pace of one transfer, decided from evidence.
//!
//! Whoever sends looks at its streams several times a second and hands all looks over as a
//! [`Scene`]; what comes back is to be carried out ([`Step`]), each with its reason.

use std::time::Duration;

use crate::limiter::Limiter;
use crate::sizing::Look;

/// What `auto` may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Fewest streams, at least 1.
    pub least: u32,
    /// Most streams at a time; equal to `least`: the number is not `auto`'s to change.
    pub most: u32,
    /// Congestion controls that may be set on a live stream, as the kernel names them; empty: the one
    /// in force stays.
    pub congestion: Vec<String>,
    /// The streams may be paced (SO_MAX_PACING_RATE).
    pub pace: bool,
}

/// A sending transfer at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Since the transfer began.
    pub at: Duration,
    /// Payload acknowledged or handed out so far over all streams, ended ones too, bytes.
    pub moved: u64,
    /// What no stream has taken yet, bytes; `None`: not known (a pipe).
    pub left: Option<u64>,
    /// Streams at work.
    pub looks: &'a [Look],
    /// Streams that are being opened.
    pub opening: u32,
    /// The congestion control in force.
    pub congestion: &'a str,
    /// A limit on the rate that the user set, bytes per second.
    pub rate_limit: Option<u64>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Have so many streams: open more, or let the surplus end with the block that it has begun.
    Streams(u32),
    /// Run this congestion control on all streams, also those opened later.
    Congestion(String),
    /// Send no faster than this over all streams together, bytes per second; `None`: as fast as TCP
    /// lets.
    Pace(Option<u64>),
}

/// What was decided, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Since the transfer began.
    pub at: Duration,
    /// What is to be done; `None`: nothing, on purpose.
    pub step: Option<Step>,
    /// What limits the transfer.
    pub limiter: Limiter,
    /// In plain words.
    pub reason: String,
}

/// What limited the transfer over its time, and what would change that.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What, for most of the time.
    pub limiter: Limiter,
    /// Streams at the end.
    pub streams: u32,
    /// Congestion control at the end.
    pub congestion: String,
    /// What would make it faster, in plain words; `None`: nothing that is known of.
    pub remedy: Option<String>,
}

/// The policy of one sending transfer.
#[derive(Debug)]
pub struct Auto {
    limits: Limits,
}

impl Auto {
    /// Begins with `streams` streams.
    pub fn new(_limits: Limits, _streams: u32) -> Self {
        todo!()
    }

    /// What follows from a look at the transfer; mostly nothing.
    pub fn on_scene(&mut self, _scene: &Scene<'_>) -> Vec<Decision> {
        let _ = &self.limits;
        todo!()
    }

    /// A stream that was asked for could not be opened: the policy goes on without asking for it again.
    pub fn on_refused(&mut self, _open: u32) {
        todo!()
    }

    /// A congestion control that was asked for was refused.
    pub fn on_congestion_refused(&mut self, _name: &str) {
        todo!()
    }

    /// When the next look is due, after the last.
    pub fn due(&self) -> Duration {
        todo!()
    }

    /// What limits the transfer now, for a progress display.
    pub fn limiter(&self) -> Limiter {
        todo!()
    }

    /// What limited it over all.
    pub fn verdict(&self) -> Verdict {
        todo!()
    }
}
