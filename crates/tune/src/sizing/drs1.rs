//! The first drsFTP's receiver (2003 paper, §4.1).

use std::time::Duration;

use super::{Bounds, Look};

/// One stream's receive buffer.
#[derive(Debug, Clone)]
pub struct Drs1 {
    bounds: Bounds,
    size: u64,
}

impl Drs1 {
    /// A stream that begins with the initial size.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            size: bounds.initial,
        }
    }

    /// Size in force, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes a look; the new size if the buffer is to grow.
    pub fn on_look(&mut self, look: &Look) -> Option<u64> {
        let _ = (look, self.bounds);
        todo!("drs1")
    }

    /// When the next look is due, after the last.
    pub fn due(&self) -> Duration {
        todo!("drs1")
    }
}
