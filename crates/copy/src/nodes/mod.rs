//! A batch whose files are moved by other machines: this process has the plan and the journal, makes the directories and links, and
//! hands the work to nodes. Each takes a piece as soon as it has ended one, so that a slow one gets less. What a node has not reported
//! when it is lost goes to the others.

mod divided;
mod left_files;
mod link;
mod messages;
mod node;
mod node_batch;
mod parts;
mod pieces;
mod serving;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

pub use link::NodeLines;
pub use messages::NodeBeginning;
pub use serving::{decline_as_node, serve_node};

use crate::batch::BatchContext;
use crate::batch::retry::RetryBudget;
use crate::batch::totals::BatchTotals;
use crate::options::CopyNode;
use crate::work::mover::WorkMover;
use crate::work::queue::WorkQueue;
use ftp::{Failure, FailureKind};
use messages::NodeProgress;
use node::WorkingNode;
use node_batch::NodeBatch;
use parts::FileParts;
use pieces::Pieces;

/// Runs the work of `queue` on the nodes of the options, with so many pieces at a time on each. Returns the messages of tasks that
/// ended unexpectedly.
pub(crate) async fn run(
    ctx: &Arc<BatchContext>,
    queue: &Arc<WorkQueue>,
    sessions: usize,
    mover: &Arc<WorkMover>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Vec<String> {
    let nodes = &ctx.options.nodes.nodes;
    let pieces = Arc::new(Pieces::default());
    ctx.parts
        .set(Arc::new(FileParts::new(&pieces, nodes.len())));
    let batch = Arc::new(NodeBatch {
        ctx: Arc::clone(ctx),
        mover: Arc::clone(mover),
        totals: Arc::clone(totals),
        pieces: Arc::clone(&pieces),
        sessions,
        left: Mutex::default(),
        progress: Mutex::new(vec![NodeProgress::default(); nodes.len()]),
    });
    let (feeding, fed, feeder) = (Arc::clone(queue), Arc::clone(ctx), Arc::clone(mover));
    let supply = Arc::clone(&pieces);
    let mut feeding_task = JoinSet::new();
    feeding_task.spawn(async move { supply.feed(&fed, &feeding, &feeder).await });
    let mut running = JoinSet::new();
    for (position, node) in nodes.clone().into_iter().enumerate() {
        let batch = Arc::clone(&batch);
        running.spawn(async move { keep(&batch, position, &node).await });
    }
    let unexpected = |error: String| format!("a copy ended unexpectedly: {error}");
    let mut problems = Vec::new();
    let mut lost = None;
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(kept) => lost = kept.err().or(lost),
            Err(error) => problems.push(unexpected(error.to_string())),
        }
    }
    let failure = lost.unwrap_or_else(|| Failure::local("the nodes have ended"));
    fail_rest(&batch, &failure).await;
    // A hard link that cannot be made is copied afterwards, by nobody else.
    ctx.parts.end();
    let left = std::mem::take(&mut *batch.left.lock());
    left_files::remove(left).await;
    while let Some(ended) = feeding_task.join_next().await {
        match ended {
            Ok(more) => problems.extend(more.into_iter().map(unexpected)),
            Err(error) => problems.push(unexpected(error.to_string())),
        }
    }
    problems
}

/// Has a node work until nothing is left. It is started again when it is lost, as often as a lost server is tried again.
///
/// # Errors
/// The node is lost for good.
async fn keep(batch: &NodeBatch, position: usize, node: &CopyNode) -> Result<(), Failure> {
    let ctx = &batch.ctx;
    let mut retries = RetryBudget::new(ctx.options.retry, ctx.seed);
    let meter = ctx.meter.begin_file(node.name.clone(), None);
    let mut session = WorkingNode::new(batch, (position, node), &meter);
    loop {
        let before = (session.moved(), session.pieces_ended());
        let Err(failure) = session.run().await else {
            return Ok(());
        };
        if batch.pieces.are_done() {
            return Ok(());
        }
        // A node that has ended something begins anew, however few its bytes were.
        let moved = match session.pieces_ended() > before.1 {
            true => u64::MAX,
            false => session.moved().saturating_sub(before.0),
        };
        let Some((_, wait)) = retries.next_attempt(&failure, moved, None) else {
            ctx.warn(format!("{failure}; its work goes to the other nodes"));
            return Err(failure);
        };
        ctx.warn(format!("{failure}; starting it again"));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = batch.pieces.done() => return Ok(()),
        }
    }
}

/// Where no node is left, what is left fails for the reason of the last one.
async fn fail_rest(batch: &NodeBatch, failure: &Failure) {
    let failure = failure.clone().retried(false).within("no node is left");
    let failure = match failure.kind() {
        FailureKind::Local => failure,
        _ => failure.of_kind(FailureKind::Unreachable),
    };
    while let Some(piece) = batch.pieces.next(|_| true).await {
        batch.fail(piece, &failure).await;
    }
}
