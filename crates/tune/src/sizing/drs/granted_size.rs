//! Size of a receive buffer, within its bounds and what the kernel grants.

use crate::sample::TcpSample;
use crate::sizing::BufferBounds;

/// Size of one stream's receive buffer, as setsockopt's argument.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantedSize {
    bounds: BufferBounds,
    size: u64,
    /// Largest size that the kernel grants, as far as known.
    ceiling: u64,
}

impl GrantedSize {
    /// Size of a new stream. A connection of an earlier transfer keeps its size.
    pub(super) fn new(bounds: BufferBounds, first: &TcpSample) -> Self {
        Self {
            bounds,
            size: granted(first).max(bounds.initial).min(bounds.largest),
            ceiling: bounds.largest,
        }
    }

    /// Size in force, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.size
    }

    /// Notes what the kernel has granted.
    pub(super) fn on_sample(&mut self, sample: &TcpSample) {
        let granted = granted(sample);
        // Less than requested is the kernel's limit: asking for more would only repeat the system call.
        if granted > 0 && granted < self.size {
            self.size = granted;
            self.ceiling = granted;
        }
    }

    /// The nearest possible size.
    pub(super) fn nearest(&self, size: u64) -> u64 {
        // The kernel's limit comes last, since it holds even below the initial size.
        size.max(self.bounds.initial)
            .min(self.bounds.largest)
            .min(self.ceiling)
    }

    /// Sets the nearest possible size; returns whether it is another one than before.
    pub(super) fn set(&mut self, size: u64) -> bool {
        let size = self.nearest(size);
        std::mem::replace(&mut self.size, size) != size
    }
}

/// The kernel reports twice the value given to SO_RCVBUF (socket(7)).
fn granted(sample: &TcpSample) -> u64 {
    sample.receive_buffer / 2
}
