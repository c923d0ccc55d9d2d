//! A batch that runs on nodes: what all of them share.

use std::sync::Arc;

use parking_lot::Mutex;

use super::left_files::LeftFiles;
use super::messages::NodeProgress;
use super::pieces::Pieces;
use crate::batch::BatchContext;
use crate::batch::totals::{BatchSample, BatchTotals};
use crate::work::mover::WorkMover;

/// A batch that runs on nodes.
pub(super) struct NodeBatch {
    pub(super) ctx: Arc<BatchContext>,
    pub(super) mover: Arc<WorkMover>,
    pub(super) totals: Arc<Mutex<BatchTotals>>,
    pub(super) pieces: Arc<Pieces>,
    /// Most pieces of a node at a time.
    pub(super) sessions: usize,
    /// Unfinished small files of nodes that were lost.
    pub(super) left: Mutex<Vec<LeftFiles>>,
    /// Of each node, as it told last.
    pub(super) progress: Mutex<Vec<NodeProgress>>,
}

impl NodeBatch {
    /// Notes the streams of all nodes together.
    pub(super) fn observe(&self, node: usize, progress: NodeProgress) {
        let mut nodes = self.progress.lock();
        if let Some(last) = nodes.get_mut(node) {
            *last = progress;
        }
        let mut sample = BatchSample::default();
        for progress in nodes.iter() {
            sample.streams += progress.streams;
            sample.buffer = sample.buffer.max(progress.buffer);
            sample.memory += progress.memory;
        }
        drop(nodes);
        self.totals.lock().observe(sample);
    }
}
