//! The session: which command is valid when, and what each one answers.

use std::net::IpAddr;

use super::{Action, Outcome};
use crate::line::LineEvent;
use crate::reply::Reply;

/// What a session needs to know of its server.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Text after 220 (one line).
    pub banner: String,
    /// `longhaul 0.1.0`, for SITE VERSION and FEAT.
    pub version: String,
    /// The control connection's peer.
    pub peer: IpAddr,
    /// Seconds between 112 markers during MODE E stores.
    pub perf_marker_seconds: u32,
    /// Seconds between 111 markers during MODE E stores.
    pub range_marker_seconds: u32,
    /// Most data connections a client may ask for with Parallelism.
    pub max_streams: u32,
    /// Failed logins after which the session ends with 421.
    pub max_login_failures: u32,
    /// Consecutive unrecognizable lines after which the session ends with 421; 0: never.
    pub max_bad_lines: u32,
}

/// What the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaiting {
    /// The next line.
    Line,
    /// An outcome; lines wait.
    Outcome,
    /// The end of a transfer; urgent lines are taken.
    Transfer,
}

/// One control connection's state.
#[derive(Debug)]
pub struct Session {
    // private
    config: SessionConfig,
}

impl Session {
    /// A session before its greeting.
    pub fn new(config: SessionConfig) -> Self {
        Self { config }
    }

    /// The 220 reply.
    pub fn greeting(&self) -> Reply {
        let _ = &self.config;
        todo!()
    }

    /// Takes the next line.
    pub fn on_line(&mut self, line: &LineEvent) -> Vec<Action> {
        let _ = line;
        todo!()
    }

    /// Takes what the driver reports.
    pub fn on_outcome(&mut self, outcome: Outcome) -> Vec<Action> {
        let _ = outcome;
        todo!()
    }

    /// What is pending.
    pub fn awaiting(&self) -> Awaiting {
        todo!()
    }

    /// Whether a line that arrives during a transfer is to be fed at once (ABOR, STAT, QUIT).
    pub fn is_urgent(line: &LineEvent) -> bool {
        let _ = line;
        todo!()
    }
}
