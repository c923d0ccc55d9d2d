//! One file in chunks, each a transfer of its own with its own number of streams.

use tune::streams::chunked::{Mode, Parameters};

/// How a transfer is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chunks {
    /// One after the other over one session, by a mode of 2008.
    Mode(Mode, Parameters),
    /// Two at a time, where the sender is somebody else's and cannot be looked at.
    Probe,
}
