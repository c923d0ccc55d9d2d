//! A batch that runs on nodes: what all of them share.

use std::sync::Arc;

use parking_lot::Mutex;

use super::left_files::LeftFiles;
use super::messages::NodeProgress;
use super::pieces::{Piece, Pieces};
use crate::batch::BatchContext;
use crate::batch::totals::{BatchSample, BatchTotals};
use crate::work::mover::WorkMover;
use ftp::Failure;

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
    /// Fails the files of an open piece.
    pub(super) async fn fail(&self, piece: Piece, failure: &Failure) {
        match &piece.part_of {
            Some(divided) => divided.part_failed(failure.clone()),
            None => {
                for file in piece.files {
                    let (failure, cause) = (failure.clone(), failure.cause());
                    self.mover.account.failed(file, 0, failure, cause).await;
                }
            }
        }
        self.pieces.ended();
    }

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
