//! A node: moves what another process orders, whose plan has the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::link::NodeLines;
use super::messages::{
    MoveOrder, NodeBeginning, NodeCommand, NodeProgress, NodeReply, SentFailure, line_of,
};
use crate::batch::measurement::TransferMeasurement;
use crate::batch::totals::{BatchSample, BatchTotals};
use crate::batch::{BatchContext, periodic_timer};
use crate::events::{CopyEvent, CopyObserver};
use crate::local::replacement::set_token_prefix;
use crate::options::CopyOptions;
use crate::plan::PlannedFile;
use crate::work::mover::{WorkAccount, WorkMover};
use crate::work::refusing::RefusingDestinations;
use ftp::failure::Operation;
use ftp::{Failure, FailureKind, socket_stats};

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Without a word for so long, the process that has the plan counts as gone, and another node may get the work of this one.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(30);

impl NodeBeginning {
    /// The first line of a link.
    ///
    /// # Errors
    /// `Protocol`: it is none, or of another version.
    pub fn parse(line: &[u8]) -> Result<Self, Failure> {
        let begun: Self = parse(line)?;
        if begun.version != env!("CARGO_PKG_VERSION") {
            return Err(Failure::protocol(format!(
                "this is longhaul {}, and the copy was begun by {}; all nodes need the same version",
                env!("CARGO_PKG_VERSION"),
                begun.version
            )));
        }
        set_token_prefix(begun.session);
        Ok(begun)
    }
}

/// Tells another process that this one does not move files for it.
pub async fn decline_as_node(lines: NodeLines) {
    // Whoever is not there needs no word.
    let _ = lines.to.send(line_of(&NodeReply::Declined)).await;
    // The thread that writes ends with its last line.
    lines.ended().await;
}

/// Moves files for another process until that says that nothing is left.
///
/// # Errors
/// `Interrupted`: the other process is gone, or does not answer. `Protocol`: it orders what is no order. Everything stops then.
pub async fn serve_node(mut lines: NodeLines, options: CopyOptions) -> Result<(), Failure> {
    let interrupt = options.interrupt.clone();
    let replies = lines.to.clone();
    let observer = Arc::new(NodeObserver(replies.clone()));
    let ctx = Arc::new(BatchContext::new(options, observer)?);
    let served = interrupt.or_end(serve(&ctx, &mut lines, replies)).await;
    ctx.pool.close().await;
    if matches!(served, Some(Ok(()))) {
        // The observer may still hold a sender: nothing is sent by it any more.
        drop(ctx);
        lines.ended().await;
    }
    served.unwrap_or_else(|| Err(Failure::new(FailureKind::Interrupted, "interrupted")))
}

async fn serve(
    ctx: &Arc<BatchContext>,
    lines: &mut NodeLines,
    replies: mpsc::Sender<Vec<u8>>,
) -> Result<(), Failure> {
    let full = Arc::new(RefusingDestinations::default());
    let totals = Arc::new(Mutex::new(BatchTotals::new(
        ctx.options.streams.transfer.buffers,
    )));
    ctx.warn_of_netrc();
    let mut running = JoinSet::new();
    let mut timer = periodic_timer(TELL_EVERY);
    let mut heard = Instant::now();
    let tell = |reply: NodeReply| {
        let replies = replies.clone();
        async move { replies.send(line_of(&reply)).await.map_err(|_| gone()) }
    };
    tell(NodeReply::Ready).await?;
    loop {
        tokio::select! {
            line = lines.next() => {
                heard = Instant::now();
                match parse::<NodeCommand>(&line.ok_or_else(gone)?)? {
                    NodeCommand::Alive => {}
                    NodeCommand::End => break,
                    NodeCommand::Move(order) => {
                        let (ctx, full, totals) = (Arc::clone(ctx), Arc::clone(&full), Arc::clone(&totals));
                        let replies = replies.clone();
                        running.spawn(async move { carry_out(ctx, full, totals, replies, order).await });
                    }
                }
            }
            _ = timer.tick() => {
                if heard.elapsed() > MAX_SILENCE {
                    return Err(gone());
                }
                tell(NodeReply::Moving(progress(ctx, &totals))).await?;
            }
            Some(ended) = running.join_next() => ended
                .map_err(|error| Failure::local(format!("a copy ended unexpectedly: {error}")))??,
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| Failure::local(format!("a copy ended unexpectedly: {error}")))??;
    }
    let summary = totals.lock().summary(ctx.started.elapsed());
    let why = Some(summary.why).filter(|_| summary.bytes > 0);
    tell(NodeReply::Closed { why }).await
}

fn gone() -> Failure {
    Failure::new(
        FailureKind::Interrupted,
        "the process that has the plan of the copy is gone",
    )
}

fn parse<'l, T: serde::Deserialize<'l>>(line: &'l [u8]) -> Result<T, Failure> {
    // The line is not quoted: it may hold passwords.
    serde_json::from_slice(line).map_err(|error| {
        Operation::from("understand an order of the process that has the plan of the copy").failed(
            FailureKind::Protocol,
            format_args!("{:?} at column {}", error.classify(), error.column()),
        )
    })
}

fn progress(ctx: &BatchContext, totals: &Mutex<BatchTotals>) -> NodeProgress {
    let mut sample = BatchSample::default();
    for file in ctx.meter.active() {
        let streams = file.sample();
        sample.streams += streams.len() as u64;
        for stream in &streams {
            sample.buffer = sample.buffer.max(socket_stats::buffer(stream));
            sample.memory += stream.socket_memory();
        }
    }
    totals.lock().observe(sample);
    NodeProgress {
        bytes: ctx.meter.totals().moved,
        streams: sample.streams,
        buffer: sample.buffer,
        memory: sample.memory,
    }
}

async fn carry_out(
    ctx: Arc<BatchContext>,
    full: Arc<RefusingDestinations>,
    totals: Arc<Mutex<BatchTotals>>,
    replies: mpsc::Sender<Vec<u8>>,
    order: MoveOrder,
) -> Result<(), Failure> {
    let files = order.files.iter().enumerate();
    let files: Result<Vec<PlannedFile>, Failure> = files
        .map(|(position, file)| file.planned(&ctx, u32::try_from(position).unwrap_or(u32::MAX)))
        .collect();
    let account = Arc::new(OrderAccount {
        number: order.number,
        totals,
        replies: replies.clone(),
        in_vain: AtomicU64::new(0),
    });
    let mover = WorkMover {
        ctx,
        account: Arc::clone(&account) as Arc<dyn WorkAccount>,
        full,
        has_old_facts: order.has_old_facts,
        continues: order.continues,
    };
    for work in order.kind.work(files?) {
        mover.carry_out(work).await;
    }
    let ended = NodeReply::Ended {
        number: order.number,
        in_vain: account.in_vain.load(Ordering::Relaxed),
    };
    replies.send(line_of(&ended)).await.map_err(|_| gone())
}

/// Tells what becomes of the files of an order.
struct OrderAccount {
    number: u64,
    totals: Arc<Mutex<BatchTotals>>,
    replies: mpsc::Sender<Vec<u8>>,
    in_vain: AtomicU64,
}

impl OrderAccount {
    async fn tell(&self, reply: NodeReply) {
        // If nobody listens any more, the whole node ends soon.
        let _ = self.replies.send(line_of(&reply)).await;
    }
}

fn position(file: &PlannedFile) -> usize {
    usize::try_from(file.entry).unwrap_or(usize::MAX)
}

#[async_trait]
impl WorkAccount for OrderAccount {
    async fn done(
        &self,
        files: Vec<(PlannedFile, u64)>,
        verified: &str,
        mut measured: Option<TransferMeasurement>,
    ) {
        for (_, bytes) in &files {
            self.totals
                .lock()
                .file_done(*bytes, verified, measured.take());
        }
        let files = files.iter().map(|(file, bytes)| (position(file), *bytes));
        self.tell(NodeReply::Done {
            number: self.number,
            files: files.collect(),
            verified: verified.to_owned(),
        })
        .await;
    }

    async fn kept(&self, file: PlannedFile) {
        let (number, file) = (self.number, position(&file));
        self.tell(NodeReply::Kept { number, file }).await;
    }

    async fn failed(&self, file: PlannedFile, bytes: u64, failure: Failure, cause: String) {
        self.tell(NodeReply::Failed {
            number: self.number,
            file: position(&file),
            bytes,
            failure: SentFailure::new(&failure, cause),
        })
        .await;
    }

    fn moved_in_vain(&self, bytes: u64) {
        self.in_vain.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Passes warnings on. Everything else is told by the account.
struct NodeObserver(mpsc::Sender<Vec<u8>>);

impl CopyObserver for NodeObserver {
    fn on_event(&self, event: CopyEvent) {
        let text = match event {
            CopyEvent::Warning(text) => text,
            CopyEvent::Retrying { source, reason, .. } => {
                format!("{source}: {reason}; trying again")
            }
            _ => return,
        };
        // An observer must not wait: what finds no room is left out.
        let _ = self.0.try_send(line_of(&NodeReply::Warning { text }));
    }
}
