//! The pieces of work that wait for a node, and the count of those that are on one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::divided::DividedFile;
use super::messages::MoveKind;
use crate::batch::BatchContext;
use crate::file::shared_upload::takes_parts;
use crate::plan::PlannedFile;
use crate::small_files::BatchWork;
use crate::work::mover::WorkMover;
use crate::work::queue::WorkQueue;

/// Files that are divided at a time: one may wait for its last part, or be verified, while the next one moves.
const DIVIDED_AT_A_TIME: usize = 2;

/// A piece of work for one node.
pub(super) struct Piece {
    pub(super) kind: MoveKind,
    pub(super) files: Vec<PlannedFile>,
    /// It is a part of this file.
    pub(super) part_of: Option<Arc<DividedFile>>,
    /// Nodes that were lost with it.
    pub(super) losses: u32,
}

/// The pieces of a batch.
#[derive(Default)]
pub(super) struct Pieces {
    state: Mutex<PiecesState>,
    changed: Notify,
}

#[derive(Default)]
struct PiecesState {
    ready: VecDeque<Piece>,
    /// Pieces on nodes, and files that are divided.
    open: usize,
    /// Nothing comes from the plan any more.
    is_fed: bool,
}

impl PiecesState {
    fn are_done(&self) -> bool {
        self.is_fed && self.open == 0 && self.ready.is_empty()
    }
}

/// A file that is divided. Its end counts also after a panic: the nodes would wait for it without end.
struct OpenFile(Arc<Pieces>);

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// The plan may still bring pieces. Its end counts also after a panic.
struct FeedingPieces(Arc<Pieces>);

impl Drop for FeedingPieces {
    fn drop(&mut self) {
        self.0.state.lock().is_fed = true;
        self.0.changed.notify_waiters();
    }
}

impl Pieces {
    /// Takes the work of a plan as nodes ask for it. Files that are divided begin here.
    pub(super) async fn feed(
        self: &Arc<Self>,
        ctx: &Arc<BatchContext>,
        queue: &WorkQueue,
        mover: &Arc<WorkMover>,
    ) -> Vec<String> {
        let feeding = FeedingPieces(Arc::clone(self));
        let mut divided = JoinSet::new();
        let room = Arc::new(Semaphore::new(DIVIDED_AT_A_TIME));
        loop {
            self.until(|state| state.ready.iter().all(|piece| piece.part_of.is_some()))
                .await;
            let Some(work) = queue.next().await else {
                break;
            };
            let is_divided = match &work {
                BatchWork::File(file) => {
                    let (from, to) = (&file.source, &file.destination);
                    let mover = ctx.parts.dividing(from, to, file.facts.size);
                    mover.is_some() && takes_parts(ctx, file).await
                }
                _ => false,
            };
            match work {
                BatchWork::File(file) if is_divided => {
                    let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                        break;
                    };
                    self.state.lock().open += 1;
                    let (mover, open) = (Arc::clone(mover), OpenFile(Arc::clone(self)));
                    divided.spawn(async move {
                        let _open = open;
                        mover.copy_one(*file).await;
                        drop(permit);
                    });
                }
                work => {
                    let (kind, files) = MoveKind::of(work);
                    self.add(Piece {
                        kind,
                        files,
                        part_of: None,
                        losses: 0,
                    });
                }
            }
        }
        drop(feeding);
        let mut problems = Vec::new();
        while let Some(ended) = divided.join_next().await {
            problems.extend(ended.err().map(|error| error.to_string()));
        }
        problems
    }

    /// Adds a piece that comes after those that wait.
    pub(super) fn add(&self, piece: Piece) {
        self.state.lock().ready.push_back(piece);
        self.changed.notify_waiters();
    }

    /// The next piece that is `wanted`, as soon as there is one. It is open until it has [ended](Self::ended) or is put back.
    /// `None`: nothing is left, and nothing is put back any more. Cancel safe.
    pub(super) async fn next(&self, wanted: impl Fn(&Piece) -> bool) -> Option<Piece> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                let mut ready = state.ready.iter();
                let first = ready.position(&wanted);
                if let Some(piece) = first.and_then(|first| state.ready.remove(first)) {
                    state.open += 1;
                    drop(state);
                    self.changed.notify_waiters();
                    return Some(piece);
                }
                if state.are_done() {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// An open piece has ended.
    pub(super) fn ended(&self) {
        self.state.lock().open -= 1;
        self.changed.notify_waiters();
    }

    /// Gives an open piece to another node.
    pub(super) fn put_back(&self, piece: Piece) {
        let mut state = self.state.lock();
        state.open -= 1;
        state.ready.push_front(piece);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Takes out the waiting parts of a file.
    pub(super) fn take_parts(&self, file: &Arc<DividedFile>) -> usize {
        let mut state = self.state.lock();
        let before = state.ready.len();
        state.ready.retain(|piece| {
            !piece
                .part_of
                .as_ref()
                .is_some_and(|of| Arc::ptr_eq(of, file))
        });
        before - state.ready.len()
    }

    /// Whether nothing is left.
    pub(super) fn are_done(&self) -> bool {
        self.state.lock().are_done()
    }

    /// Returns when nothing is left.
    pub(super) async fn done(&self) {
        self.until(PiecesState::are_done).await;
    }

    async fn until(&self, holds: impl Fn(&PiecesState) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(kind: MoveKind) -> Piece {
        Piece {
            kind,
            files: Vec::new(),
            part_of: None,
            losses: 0,
        }
    }

    #[tokio::test]
    async fn nothing_is_done_while_a_piece_may_be_put_back() {
        let pieces = Pieces::default();
        pieces.add(piece(MoveKind::Bundle));
        let first = pieces.next(|_| true).await.unwrap();
        pieces.state.lock().is_fed = true;
        assert!(!pieces.are_done());
        let next = pieces.next(|_| true);
        tokio::pin!(next);
        assert!(output_soon(&mut next).await.is_none());
        pieces.put_back(first);
        let again = next.await.unwrap();
        assert_eq!(again.kind, MoveKind::Bundle);
        pieces.ended();
        assert!(pieces.next(|_| true).await.is_none());
        pieces.done().await;
    }

    /// The output of a future, if it comes soon.
    async fn output_soon<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::time::timeout(std::time::Duration::from_millis(20), future)
            .await
            .ok()
    }
}
