//! The work of one node, over one link after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::divided::DividedFile;
use super::left_files::LeftFiles;
use super::link::OpenNodeLink;
use super::messages::{
    MoveKind, MoveOrder, NodeBeginning, NodeCommand, NodeProgress, NodeReply, OrderedFile, line_of,
};
use super::node_batch::NodeBatch;
use super::pieces::Piece;
use super::serving::MAX_SILENCE;
use crate::batch::meter::FileMeter;
use crate::batch::periodic_timer;
use crate::events::CopyEvent;
use crate::local::replacement::random_token;
use crate::options::CopyNode;
use crate::plan::PlannedFile;
use ftp::{Failure, FailureKind};

/// How often a node is told that this process is there.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for a node to be ready: a login may be slow, and a task of a step begin late.
const MAX_START: Duration = Duration::from_secs(120);

/// Parts of divided files that a node moves at a time: while one begins or ends, the other fills the path.
const PARTS_AT_A_TIME: usize = 2;
/// The same of bundles. How far a node is from the server is unknown here, and on a long path the streams of one fill it.
const BUNDLES_AT_A_TIME: usize = 1;
/// A piece is given to a further node so many times.
const MAX_LOSSES: u32 = 20;

/// A piece on a node.
struct OpenPiece {
    kind: MoveKind,
    /// Those that have not ended; the position is that of the order.
    files: Vec<Option<PlannedFile>>,
    part_of: Option<Arc<DividedFile>>,
    losses: u32,
}

/// A node at work.
pub(super) struct WorkingNode<'a> {
    batch: &'a NodeBatch,
    position: usize,
    node: &'a CopyNode,
    meter: &'a FileMeter,
    open: HashMap<u64, OpenPiece>,
    next_number: u64,
    /// Pieces that have ended.
    ended: u64,
    /// Number of the link.
    session: u32,
    /// Bytes that earlier links have moved.
    earlier: u64,
    /// Bytes of parts, which their files count.
    in_parts: u64,
    progress: NodeProgress,
}

impl<'a> WorkingNode<'a> {
    pub(super) fn new(
        batch: &'a NodeBatch,
        (position, node): (usize, &'a CopyNode),
        meter: &'a FileMeter,
    ) -> Self {
        Self {
            batch,
            position,
            node,
            meter,
            open: HashMap::new(),
            next_number: 0,
            ended: 0,
            session: 0,
            earlier: 0,
            in_parts: 0,
            progress: NodeProgress::default(),
        }
    }

    /// Pieces that the node has ended.
    pub(super) fn pieces_ended(&self) -> u64 {
        self.ended
    }

    /// Bytes that the node has moved.
    pub(super) fn moved(&self) -> u64 {
        self.earlier.saturating_add(self.progress.bytes)
    }

    /// Works over one link until nothing is left for anybody.
    ///
    /// # Errors
    /// Transient: the node is lost. Its open pieces are given back.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        self.session = new_session();
        let mut connection = OpenNodeLink::open(&self.node.link)?;
        let worked = self.work(&mut connection).await;
        self.earlier = self.moved();
        self.progress = NodeProgress::default();
        for (_, piece) in self.open.drain() {
            let mut files: Vec<PlannedFile> = piece.files.into_iter().flatten().collect();
            files.iter_mut().for_each(|file| file.takes_over = true);
            if piece.kind != MoveKind::Single {
                let left = LeftFiles::new(self.session, &files);
                self.batch.left.lock().push(left);
            }
            self.batch.pieces.put_back(Piece {
                kind: piece.kind,
                files,
                part_of: piece.part_of,
                losses: piece.losses + 1,
            });
        }
        match worked {
            Ok(()) => Ok(()),
            Err(NodeEnd::Failed(failure)) => Err(failure),
            Err(NodeEnd::Lost) => {
                let reason = connection.reason().await;
                let name = &self.node.name;
                Err(Failure::unreachable(format!("{name} is lost: {reason}")))
            }
        }
    }

    async fn work(&mut self, connection: &mut OpenNodeLink) -> Result<(), NodeEnd> {
        let beginning = NodeBeginning {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session: self.session,
            directory: working_directory(),
            words: self.batch.ctx.options.nodes.words.clone(),
            nodes: self.batch.ctx.options.nodes.nodes.len(),
        };
        let lines = &mut connection.lines;
        let to = lines.to.clone();
        let tell = |line: Vec<u8>| {
            let to = to.clone();
            async move { to.send(line).await.map_err(|_| NodeEnd::Lost) }
        };
        tell(line_of(&beginning)).await?;
        let mut timer = periodic_timer(TELL_EVERY);
        let (started, mut heard) = (Instant::now(), None);
        let mut is_ending = false;
        loop {
            let open = |kind: fn(&OpenPiece) -> bool| {
                self.open.values().filter(|piece| kind(piece)).count()
            };
            let parts = open(|piece| piece.part_of.is_some());
            let bundles = open(|piece| piece.kind == MoveKind::Bundle);
            let wanted = move |piece: &Piece| match (&piece.part_of, piece.kind) {
                (Some(_), _) => parts < PARTS_AT_A_TIME,
                (None, MoveKind::Bundle) => bundles < BUNDLES_AT_A_TIME,
                (None, _) => true,
            };
            let takes_more = heard.is_some() && !is_ending && self.open.len() < self.batch.sessions;
            tokio::select! {
                line = lines.next() => {
                    heard = Some(Instant::now());
                    let line = line.ok_or(NodeEnd::Lost)?;
                    match serde_json::from_slice(&line) {
                        Ok(NodeReply::Closed { why }) => {
                            why.into_iter().for_each(|why| self.tell_why(&why));
                            return Ok(());
                        }
                        Ok(NodeReply::Declined) => return Ok(()),
                        Ok(reply) => self.take(reply).await?,
                        Err(error) => return Err(self.broken(&error)),
                    }
                }
                piece = self.batch.pieces.next(wanted), if takes_more => match piece {
                    Some(piece) if piece.losses >= MAX_LOSSES => self.give_up(piece).await,
                    Some(piece) => tell(self.order(piece)).await?,
                    None => {
                        is_ending = true;
                        tell(line_of(&NodeCommand::End)).await?;
                    }
                },
                // The others have done all before it was ready.
                () = self.batch.pieces.done(), if heard.is_none() => return Ok(()),
                _ = timer.tick() => {
                    let is_silent = match heard {
                        Some(heard) => heard.elapsed() > MAX_SILENCE,
                        None => started.elapsed() > MAX_START,
                    };
                    if is_silent {
                        return Err(NodeEnd::Lost);
                    }
                    if heard.is_some() && !is_ending {
                        tell(line_of(&NodeCommand::Alive)).await?;
                    }
                }
            }
        }
    }

    /// Fails a piece with which several nodes were lost: it may be the reason.
    async fn give_up(&self, piece: Piece) {
        let failure = Failure::unreachable(format!(
            "{} nodes were lost while they moved it",
            piece.losses
        ))
        .retried(false);
        self.batch.fail(piece, &failure).await;
    }

    /// The order for a piece, which is open from now on.
    fn order(&mut self, piece: Piece) -> Vec<u8> {
        let number = self.next_number;
        self.next_number += 1;
        let order = MoveOrder {
            number,
            kind: piece.kind,
            files: piece.files.iter().map(OrderedFile::new).collect(),
            has_old_facts: self.batch.mover.has_old_facts,
            continues: self.batch.mover.continues,
        };
        let open = OpenPiece {
            kind: piece.kind,
            files: piece.files.into_iter().map(Some).collect(),
            part_of: piece.part_of,
            losses: piece.losses,
        };
        self.open.insert(number, open);
        line_of(&NodeCommand::Move(order))
    }

    async fn take(&mut self, reply: NodeReply) -> Result<(), NodeEnd> {
        let account = &self.batch.mover.account;
        match reply {
            NodeReply::Ready | NodeReply::Declined | NodeReply::Closed { .. } => {}
            NodeReply::Moving(progress) => {
                self.progress = progress;
                self.meter
                    .report_bytes(self.moved().saturating_sub(self.in_parts));
                self.batch.observe(self.position, progress);
            }
            NodeReply::Warning { text } => {
                self.batch.ctx.warn(format!("{}: {text}", self.node.name));
            }
            NodeReply::Done {
                number,
                files,
                verified,
            } => {
                let piece = self
                    .open
                    .get_mut(&number)
                    .ok_or_else(|| unasked(self.node))?;
                let mut done = Vec::with_capacity(files.len());
                for (position, bytes) in files {
                    let file = piece.files.get_mut(position).and_then(Option::take);
                    done.push((file.ok_or_else(|| unasked(self.node))?, bytes));
                }
                match &piece.part_of {
                    Some(divided) => {
                        for part in done.iter().filter_map(|(file, _)| file.part) {
                            self.in_parts = self.in_parts.saturating_add(part.length);
                            divided.part_done(part);
                        }
                    }
                    None => account.done(done, &verified, None).await,
                }
            }
            NodeReply::Kept { number, file } => {
                let (file, _) = self.ended_file(number, file)?;
                account.kept(file).await;
            }
            NodeReply::Failed {
                number,
                file,
                bytes,
                failure,
            } => {
                let (file, part_of) = self.ended_file(number, file)?;
                let (failure, cause) = failure.into_failure();
                match part_of {
                    Some(divided) => divided.part_failed(failure),
                    None => account.failed(file, bytes, failure, cause).await,
                }
            }
            NodeReply::Ended { number, in_vain } => {
                let piece = self
                    .open
                    .remove(&number)
                    .ok_or_else(|| unasked(self.node))?;
                account.moved_in_vain(in_vain);
                let left: Vec<_> = piece.files.into_iter().flatten().collect();
                if left.is_empty() {
                    self.ended += 1;
                    self.batch.pieces.ended();
                } else {
                    // Not told of: not done.
                    self.batch.pieces.put_back(Piece {
                        kind: piece.kind,
                        files: left,
                        part_of: piece.part_of,
                        losses: piece.losses + 1,
                    });
                    return Err(unasked(self.node));
                }
            }
        }
        Ok(())
    }

    /// A file of an open piece that has ended.
    fn ended_file(
        &mut self,
        number: u64,
        position: usize,
    ) -> Result<(PlannedFile, Option<Arc<DividedFile>>), NodeEnd> {
        let piece = self.open.get_mut(&number);
        let found = piece.and_then(|piece| {
            let file = piece.files.get_mut(position)?.take()?;
            Some((file, piece.part_of.clone()))
        });
        found.ok_or_else(|| unasked(self.node))
    }

    fn tell_why(&self, why: &str) {
        let why = format!("{}: {why}", self.node.name);
        self.batch.totals.lock().add_node_why(why.clone());
        self.batch.ctx.observer.on_event(CopyEvent::Decision {
            source: None,
            text: why,
        });
    }

    /// A reply that is none. It is not quoted: whatever a shell's profile writes may come here.
    fn broken(&self, error: &serde_json::Error) -> NodeEnd {
        let name = &self.node.name;
        NodeEnd::Failed(Failure::protocol(format!(
            "{name}: its program answers otherwise than longhaul does ({error}): look whether a login there writes something \
             by itself, and whether its longhaul has this version"
        )))
    }
}

fn working_directory() -> String {
    let directory = std::env::current_dir().ok();
    let text = directory.and_then(|directory| directory.to_str().map(str::to_owned));
    text.unwrap_or_default()
}

/// A number that no other link of the batch has, and hardly any of another one.
fn new_session() -> u32 {
    u32::try_from(random_token() & u64::from(u32::MAX)).unwrap_or_default()
}

/// Why the work over a link has ended early.
enum NodeEnd {
    Lost,
    Failed(Failure),
}

fn unasked(node: &CopyNode) -> NodeEnd {
    NodeEnd::Failed(Failure::new(
        FailureKind::Protocol,
        format!("{} tells of files that it was not asked for", node.name),
    ))
}
