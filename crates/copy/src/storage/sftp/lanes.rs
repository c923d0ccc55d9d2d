//! The connections over which the bytes of one file move.
//!
//! One that is lost leaves its blocks to the others. What was stored over it and not forced to disk since is stored again: it may
//! have led to another machine than the others.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ftp::Failure;
use proto::ranges::RangeSet;
use proto::sftp::{OpenFlags, SftpReply, SftpRequest};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::changes::explained;
use super::connection::{LONG_WAIT, SftpConnection, wait_for};
use super::errors::{self, SftpFailed};
use super::flow::{FlowTuner, first_connections};
use super::opening::{OpenedFile, SftpOpener, open_again};

/// Longest wait without a look at whether the transfer was cancelled.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Longest wait for replies that are not needed.
pub(super) const LAST_REPLIES: Duration = Duration::from_secs(5);

/// Most logins that are begun at a time: sshd(8) refuses some of more than ten (MaxStartups).
const MAX_OPENING: u64 = 7;
/// Time and bytes after which what the server has taken is forced to disk, so that a later attempt can rely on it.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);
const SYNC_BYTES: u64 = 64 << 20;

/// A part of a file that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Of the first byte.
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl Block {
    /// Offset of the byte after it.
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }
}

/// A reply about a block.
#[derive(Debug)]
pub(super) struct BlockReply {
    pub(super) lane: usize,
    pub(super) block: Block,
    pub(super) reply: SftpReply,
}

/// A connection with the file open.
#[derive(Debug)]
struct Lane {
    connection: SftpConnection,
    handle: Vec<u8>,
    pending: HashMap<u32, Block>,
    in_flight: u64,
    /// The request to force the file to disk that is not answered.
    syncing: Option<u32>,
    /// Parts that the server has taken over it, and that are not known to be on disk.
    unsynced: RangeSet,
    is_lost: bool,
}

/// The file to open.
#[derive(Debug, Clone)]
pub(super) struct LanePlan {
    pub(super) path: Vec<u8>,
    pub(super) flags: OpenFlags,
    /// Most connections.
    pub(super) most: u64,
    /// All of them are wanted, whether they gain or not.
    pub(super) wants_all: bool,
    /// The file gets a mark, by which further connections know it.
    pub(super) is_marked: bool,
    /// Bytes that the server has taken do not count while a crash of it may lose them.
    pub(super) is_durable: bool,
    pub(super) rtt: Duration,
}

/// The connections with a file open.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Connections of earlier files.
    spares: Vec<SftpConnection>,
    opener: SftpOpener,
    runtime: Handle,
    /// Connections on their way. They are given up with this.
    opening: JoinSet<Result<OpenedFile, Failure>>,
    /// Connections with which the transfer begins. `None`: it has not begun.
    wanted_at_first: Option<u64>,
    plan: LanePlan,
    /// The time of access that marks the file.
    mark: Option<u32>,
    tuner: FlowTuner,
    begun: Instant,
    moved: u64,
    /// When something came last.
    heard: Instant,
    /// Parts that the server has taken since it was asked last to force them to disk.
    taken: RangeSet,
    /// Parts that are on disk when all connections have said so: each may lead to another machine.
    syncing: RangeSet,
    /// When the server was asked last.
    synced: Instant,
    /// Parts that are newly stored.
    stored: RangeSet,
    /// Parts to be stored again.
    returned: RangeSet,
}

/// Opens the file, where nothing else may have the name in the place of it.
fn open_first(connection: &mut SftpConnection, plan: &LanePlan) -> Result<Vec<u8>, SftpFailed> {
    let request = SftpRequest::Open(&plan.path, plan.flags);
    match connection.open(&request) {
        Err(refused) if plan.flags == OpenFlags::New && refused.is_plain_refusal() => {
            // The file of an earlier copy. One that still writes it, from elsewhere, must not write into the new file: no server of
            // this protocol keeps the two apart.
            match connection.done(&SftpRequest::Remove(&plan.path)) {
                Err(other) if other.code().is_some() => return Err(refused),
                done => done?,
            }
            connection.open(&request)
        }
        opened => opened,
    }
}

/// Gives a file that is open a time of access that no other one has: further connections open it by its name, which another copy
/// may have taken. Returns what the server tells of it then.
pub(super) fn mark(
    connection: &mut SftpConnection,
    handle: &[u8],
) -> Result<Option<u32>, SftpFailed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let modified = now.map_or(0, |now| u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
    let requests = [
        SftpRequest::HandleSetTimes {
            handle,
            // A time before 2038: servers may take it for a signed number.
            accessed: u32::try_from(RandomState::new().hash_one(modified) >> 33).unwrap_or(0),
            modified,
        },
        SftpRequest::HandleStat(handle),
    ];
    let timeout = connection.timeout();
    // A server that refuses is left without a mark.
    match connection.call_all(&requests, timeout)?.pop() {
        Some(SftpReply::Attributes(found)) => Ok(found.accessed),
        _ => Ok(None),
    }
}

impl Lanes {
    /// Opens the file over the first connection. Runs on a thread for blocking calls.
    ///
    /// # Errors
    /// The refusal, with the connections.
    pub(super) fn open(
        mut first: SftpConnection,
        spares: Vec<SftpConnection>,
        opener: &SftpOpener,
        runtime: &Handle,
        plan: LanePlan,
    ) -> Result<Self, (SftpFailed, Vec<SftpConnection>)> {
        let opened = open_first(&mut first, &plan).and_then(|handle| {
            let mark = match plan.is_marked {
                true => mark(&mut first, &handle)?,
                false => None,
            };
            Ok((handle, mark))
        });
        let (handle, mark) = match opened {
            Ok(opened) => opened,
            Err(failed) => {
                let failed = match plan.flags {
                    OpenFlags::Read => failed,
                    _ => explained(&mut first, failed, &plan.path),
                };
                return Err((failed, std::iter::once(first).chain(spares).collect()));
            }
        };
        Ok(Self {
            lanes: vec![Lane::new(first, handle)],
            spares,
            opener: opener.clone(),
            runtime: runtime.clone(),
            opening: JoinSet::new(),
            wanted_at_first: None,
            tuner: FlowTuner::new(plan.most, plan.rtt),
            plan,
            mark,
            begun: Instant::now(),
            moved: 0,
            heard: Instant::now(),
            taken: RangeSet::new(),
            syncing: RangeSet::new(),
            synced: Instant::now(),
            stored: RangeSet::new(),
            returned: RangeSet::new(),
        })
    }

    /// Number of connections.
    pub(super) fn count(&self) -> usize {
        self.live().count()
    }

    fn live(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|lane| !lane.is_lost)
    }

    /// Whether requests wait for replies.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_syncing() || self.live().any(|lane| !lane.pending.is_empty())
    }

    /// Whether a server forces bytes to disk, which may take long.
    pub(super) fn is_syncing(&self) -> bool {
        self.live().any(|lane| lane.syncing.is_some())
    }

    /// Whether bytes count only when the server says that they are on disk.
    fn proves_storage(&self) -> bool {
        let first = self.live().next();
        self.plan.is_durable && first.is_some_and(|lane| lane.connection.extensions.fsync)
    }

    /// Whether a lost connection may mean that bytes are lost that counted: the server may have crashed.
    pub(super) fn doubts_after_loss(&self) -> bool {
        self.plan.is_durable && !self.proves_storage()
    }

    /// Notes that the server has taken a block. Now and then it is asked to force them to disk; other requests go on.
    pub(super) fn note_taken(&mut self, lane: usize, block: Block) {
        let (start, end) = (block.offset, block.end());
        if !self.proves_storage() {
            self.stored.insert(start, end);
            return;
        }
        let lane = &mut self.lanes[lane];
        if lane.is_lost {
            self.returned.insert(start, end);
            return;
        }
        lane.unsynced.insert(start, end);
        if lane.connection.extensions.fsync {
            self.taken.insert(start, end);
        }
        let is_due =
            self.synced.elapsed() >= SYNC_INTERVAL || self.taken.byte_count() >= SYNC_BYTES;
        if is_due && !self.is_syncing() {
            let live = self.lanes.iter_mut().filter(|lane| !lane.is_lost);
            live.for_each(Lane::sync);
            self.syncing = std::mem::take(&mut self.taken);
            self.synced = Instant::now();
        }
    }

    /// The first part that must be stored again, and at most as many bytes.
    pub(super) fn take_returned(&mut self, most: u32) -> Option<Block> {
        let range = self.returned.iter().next()?;
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX).min(most);
        let block = Block {
            offset: range.start,
            length,
        };
        self.returned.remove(block.offset, block.end());
        Some(block)
    }

    /// Whether parts must be stored again.
    pub(super) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// The parts that are stored since the last call.
    pub(super) fn take_stored(&mut self) -> RangeSet {
        std::mem::take(&mut self.stored)
    }

    /// Bytes of a READ or WRITE.
    pub(super) fn block_length(&self, lane: usize) -> u32 {
        let limits = self.lanes[lane].connection.limits;
        match self.plan.flags {
            OpenFlags::Read => limits.read,
            OpenFlags::Write | OpenFlags::WriteExisting | OpenFlags::Replace | OpenFlags::New => {
                limits.write
            }
        }
    }

    /// Most bytes in flight.
    pub(super) fn window(&self) -> u64 {
        self.tuner.window().saturating_mul(self.count() as u64)
    }

    /// The connection that takes a further request: that with the least in flight.
    pub(super) fn free_lane(&self) -> Option<usize> {
        let lane = self.least_used()?;
        (self.lanes[lane].in_flight < self.tuner.window()).then_some(lane)
    }

    fn least_used(&self) -> Option<usize> {
        let lanes = self.lanes.iter().enumerate();
        let live = lanes.filter(|(_, lane)| !lane.is_lost);
        live.min_by_key(|(_, lane)| lane.in_flight)
            .map(|(lane, _)| lane)
    }

    /// Asks for a block, over this connection if it is not lost.
    pub(super) fn read(&mut self, lane: usize, block: Block) {
        let lane = match self.lanes[lane].is_lost {
            true => self.least_used().unwrap_or(lane),
            false => lane,
        };
        let lane = &mut self.lanes[lane];
        let request = SftpRequest::Read {
            handle: &lane.handle,
            offset: block.offset,
            length: block.length,
        };
        let id = lane.connection.send(&request);
        lane.note(id, block);
    }

    /// Sends what `fill` appends, which belongs at an offset. Returns its length.
    pub(super) fn write<E>(
        &mut self,
        lane: usize,
        offset: u64,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<u32, E> {
        let lane = &mut self.lanes[lane];
        let sent = lane.connection.send_write(&lane.handle, offset, fill)?;
        let Some((id, length)) = sent else {
            return Ok(0);
        };
        lane.note(id, Block { offset, length });
        Ok(length)
    }

    /// Sends and receives what can be. With `waits` it waits for something, for a moment. Returns the replies.
    ///
    /// # Errors
    /// The last connection is lost, or one whose bytes nobody can prove; the server breaks the protocol.
    pub(super) fn exchange(&mut self, waits: bool) -> Result<Vec<BlockReply>, SftpFailed> {
        let mut answers = self.answers()?;
        if answers.is_empty() && waits {
            let connections: Vec<&SftpConnection> =
                self.live().map(|lane| &lane.connection).collect();
            wait_for(&connections, Instant::now() + TICK)?;
            answers = self.answers()?;
        }
        Ok(answers)
    }

    fn answers(&mut self) -> Result<Vec<BlockReply>, SftpFailed> {
        let mut answers = Vec::new();
        for number in 0..self.lanes.len() {
            if self.lanes[number].is_lost {
                continue;
            }
            match self.lanes[number].connection.exchange() {
                Ok(()) => {}
                Err(failed) if self.can_spare(&failed) => {
                    self.lose(number, &failed);
                    continue;
                }
                Err(failed) => return Err(failed),
            }
            let lane = &mut self.lanes[number];
            while let Some((id, reply)) = lane.connection.take()? {
                if lane.syncing.take_if(|sync| *sync == id).is_some() {
                    errors::done(reply)?;
                    self.heard = Instant::now();
                    continue;
                }
                let Some(block) = lane.pending.remove(&id) else {
                    lane.connection.give_up();
                    return Err(SftpFailed::Unasked);
                };
                lane.in_flight = lane.in_flight.saturating_sub(block.length.into());
                self.heard = Instant::now();
                answers.push(BlockReply {
                    lane: number,
                    block,
                    reply,
                });
            }
        }
        if !self.is_syncing() && !self.syncing.is_empty() {
            let synced = std::mem::take(&mut self.syncing);
            for range in synced.iter() {
                let lanes = self.lanes.iter_mut();
                lanes.for_each(|lane| lane.unsynced.remove(range.start, range.end));
            }
            self.stored.extend(&synced);
        }
        Ok(answers)
    }

    /// Whether the transfer goes on without a connection. A server that cannot be asked to force bytes to disk may have crashed: then
    /// nothing that it has taken counts.
    fn can_spare(&self, failed: &SftpFailed) -> bool {
        let can_move_again = self.plan.flags == OpenFlags::Read || !self.doubts_after_loss();
        matches!(failed, SftpFailed::Lost(_)) && self.count() > 1 && can_move_again
    }

    /// Gives the blocks of a connection that is lost to the others. No other one takes its place.
    fn lose(&mut self, number: usize, failed: &SftpFailed) {
        tracing::debug!(?failed, "one connection fewer");
        let lane = &mut self.lanes[number];
        lane.is_lost = true;
        lane.in_flight = 0;
        lane.syncing = None;
        let pending: Vec<Block> = lane.pending.drain().map(|(_, block)| block).collect();
        let unsynced = std::mem::take(&mut lane.unsynced);
        for range in unsynced.iter() {
            self.taken.remove(range.start, range.end);
            self.syncing.remove(range.start, range.end);
        }
        self.plan.most = self.count() as u64;
        self.tuner.connection_lost();
        match self.plan.flags {
            OpenFlags::Read => pending.iter().for_each(|block| self.read(number, *block)),
            _ => {
                self.returned.extend(&unsynced);
                for block in pending {
                    self.returned.insert(block.offset, block.end());
                }
            }
        }
    }

    /// Why the server has refused to store something. Takes the replies that are still to come.
    pub(super) fn explained(&mut self, failed: SftpFailed) -> SftpFailed {
        while failed.is_plain_refusal() && self.is_waiting() && self.silence() < LAST_REPLIES {
            if self.exchange(true).is_err() {
                return failed;
            }
        }
        match self.lanes.iter_mut().find(|lane| !lane.is_lost) {
            Some(first) => explained(&mut first.connection, failed, &self.plan.path),
            None => failed,
        }
    }

    /// For how long nothing has come although something was asked for.
    pub(super) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Nothing was to come meanwhile.
    pub(super) fn end_silence(&mut self) {
        self.heard = Instant::now();
    }

    /// Notes that so many bytes have moved; `left` are to be asked for, if that is known. Opens further connections when it is time.
    pub(super) fn note_moved(&mut self, bytes: u64, left: Option<u64>) {
        self.moved += bytes;
        while let Some(opened) = self.opening.try_join_next() {
            match opened {
                Ok(Ok(opened)) => self.join(opened.connection, opened.handle),
                Ok(Err(failure)) => self.stay(&failure.to_string()),
                Err(error) => self.stay(&error.to_string()),
            }
        }
        let most = self.plan.most;
        let first = *self
            .wanted_at_first
            .get_or_insert_with(|| match self.plan.wants_all {
                true => most,
                false => first_connections(most, self.plan.rtt, left),
            });
        if !self.plan.wants_all {
            self.tuner.note(self.begun.elapsed(), self.moved, left);
        }
        let count = self.count() as u64;
        let wanted = match self.tuner.wants_connection() && !self.plan.wants_all {
            true => first.max(count + 1),
            false => first,
        };
        // The rest may be on its way before another login is through.
        let fits = left.is_some_and(|left| left <= self.window());
        while !fits && self.may_open(wanted) {
            self.open_further();
        }
    }

    /// Whether another connection makes them at most so many.
    fn may_open(&self, wanted: u64) -> bool {
        let (open, opening) = (self.count() as u64, self.opening.len() as u64);
        opening < MAX_OPENING && open + opening < wanted.min(self.plan.most)
    }

    fn join(&mut self, connection: SftpConnection, handle: Vec<u8>) {
        self.lanes.push(Lane::new(connection, handle));
        self.tuner.connection_opened();
        tracing::debug!(connections = self.count(), "one more connection");
    }

    /// Asks for no further ones. Those on their way may still come.
    fn stay(&mut self, reason: &str) {
        tracing::debug!(reason, "no further connection");
        self.plan.most = self.count() as u64;
        self.tuner.connection_refused();
    }

    fn open_further(&mut self) {
        // The file is there, and one that is renamed meanwhile is not made again.
        let flags = match self.plan.flags {
            OpenFlags::Read => OpenFlags::Read,
            OpenFlags::Write | OpenFlags::WriteExisting | OpenFlags::Replace | OpenFlags::New => {
                OpenFlags::WriteExisting
            }
        };
        if let Some(mut spare) = self.spares.pop() {
            match open_again(&mut spare, &self.plan.path, flags, self.mark) {
                Ok(handle) => self.join(spare, handle),
                Err(_) => self.stay("the file cannot be opened again"),
            }
            return;
        }
        let (opener, path, mark) = (self.opener.clone(), self.plan.path.clone(), self.mark);
        let opening = async move { opener.open_file(&path, flags, mark).await };
        self.opening.spawn_on(opening, &self.runtime);
    }

    /// Closes the file, after a failure without patience; `syncs`: forces it to disk before. Returns the connections that can be used further, the first one
    /// first.
    ///
    /// # Errors
    /// The file is not known to be stored.
    pub(super) fn close(
        mut self,
        has_failed: bool,
        syncs: bool,
    ) -> (Result<(), SftpFailed>, Vec<SftpConnection>) {
        let mut closed = Ok(());
        // Those that come too late serve the next file.
        while let Some(opened) = self.opening.try_join_next() {
            if let Ok(Ok(OpenedFile { connection, handle })) = opened {
                let mut late = Lane::new(connection, handle);
                let timeout = late.connection.timeout();
                let _ = late.close(false, timeout);
                self.spares.push(late.connection);
            }
        }
        self.lanes.retain(|lane| !lane.is_lost);
        // The first is the last: a file system of a network may write when others close.
        while let Some(mut lane) = self.lanes.pop() {
            if lane.connection.is_usable() {
                let is_first = self.lanes.is_empty();
                let patience = match has_failed {
                    true => lane.connection.timeout(),
                    false => LONG_WAIT,
                };
                // Each may lead to another machine.
                let is_due = is_first || !lane.unsynced.is_empty();
                let done = lane.close(is_due && syncs && !has_failed, patience);
                // Bytes that a server has taken may lack room when it is forced to disk.
                let done =
                    done.map_err(|failed| explained(&mut lane.connection, failed, &self.plan.path));
                closed = closed.and(done);
            }
            self.spares.insert(0, lane.connection);
        }
        self.spares.retain(SftpConnection::is_usable);
        (closed, self.spares)
    }
}

impl Lane {
    fn new(connection: SftpConnection, handle: Vec<u8>) -> Self {
        Self {
            connection,
            handle,
            pending: HashMap::new(),
            in_flight: 0,
            syncing: None,
            unsynced: RangeSet::new(),
            is_lost: false,
        }
    }

    fn sync(&mut self) {
        if self.connection.extensions.fsync {
            let request = SftpRequest::Fsync(&self.handle);
            self.syncing = Some(self.connection.send(&request));
        }
    }

    fn note(&mut self, id: u32, block: Block) {
        self.pending.insert(id, block);
        self.in_flight += u64::from(block.length);
    }

    fn close(&mut self, syncs: bool, patience: Duration) -> Result<(), SftpFailed> {
        let mut requests = Vec::new();
        if syncs && self.connection.extensions.fsync {
            requests.push(SftpRequest::Fsync(&self.handle));
        }
        requests.push(SftpRequest::Close(&self.handle));
        let replies = self.connection.call_all(&requests, patience)?;
        replies.into_iter().try_for_each(errors::done)
    }
}
