//! A pool of bytes that several flows share. Each flow takes the next block when it is free, so a slow
//! flow never delays the others. The pool models a file and the shared cursor in it.

use std::time::Duration;

/// Number of a pool in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolId(pub(super) usize);

/// The bytes of one pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct BytePool {
    left: u64,
    block: u64,
    expected: u64,
    delivered: u64,
    delivered_at: Option<Duration>,
}

impl BytePool {
    pub(super) fn new(now: Duration, bytes: u64, block: u64) -> Self {
        Self {
            left: bytes,
            block: block.max(1),
            expected: bytes,
            delivered: 0,
            delivered_at: (bytes == 0).then_some(now),
        }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.left += bytes;
        self.expected += bytes;
        if bytes > 0 {
            self.delivered_at = None;
        }
    }

    /// Takes the next block and returns its size; 0: the pool is empty.
    pub(super) fn take(&mut self) -> u64 {
        let block = self.left.min(self.block);
        self.left -= block;
        block
    }

    pub(super) fn deliver(&mut self, now: Duration, bytes: u64) {
        self.delivered += bytes;
        if self.delivered >= self.expected && self.delivered_at.is_none() {
            self.delivered_at = Some(now);
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn delivered_at(&self) -> Option<Duration> {
        self.delivered_at
    }
}
