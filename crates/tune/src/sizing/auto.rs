//! The default: the kernel's autotuning, watched, and overruled only where that wins.

use std::time::Duration;

use super::caps::Caps;
use super::{Decision, Look};
use crate::limiter::Role;

/// One end of one stream.
#[derive(Debug, Clone)]
pub struct Auto {
    role: Role,
    caps: Caps,
}

impl Auto {
    /// A stream that has just been opened.
    pub fn new(role: Role, caps: Caps) -> Self {
        Self { role, caps }
    }

    /// Takes a look. A decision comes when something is to be done, and when the limiter changes.
    pub fn on_look(&mut self, look: &Look) -> Option<Decision> {
        let _ = (look, self.role, &self.caps);
        todo!("auto")
    }

    /// When the next look is due, after the last.
    pub fn due(&self) -> Duration {
        todo!("auto")
    }

    /// A limit of this host that held the stream back: which setting to raise, to what, for what gain,
    /// in plain words.
    pub fn remark(&self) -> Option<String> {
        todo!("auto")
    }
}
