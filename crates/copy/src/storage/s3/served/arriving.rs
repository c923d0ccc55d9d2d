//! The parts of an object whose bytes arrive in any order, until they are sent.
//!
//! Blocks are gathered into parts. A part is sent when it is complete, and its memory is free then. The memory with which a
//! transfer has begun is for the part at the front: that of the first byte that is missing. Further parts need more of the budget of
//! all transfers; whoever brings a block of one that gets none waits. That ends, because each stream of a sender goes forward in
//! the file: no block of the front is behind one that waits, so the front is completed and sent, and the next part is at the front.
//! The bytes are not kept on a disk of the server: what arrives faster than the bucket takes it has to wait anyway.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use proto::ranges::RangeSet;

use super::memory::TransferMemoryShare;
use super::shared_parts::PartsError;

/// Most parts that a transfer holds besides that at the front.
const MAX_MORE: usize = 7;
/// How often a waiting thread looks whether its transfer was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The parts of one object.
#[derive(Debug)]
pub(super) struct ArrivingParts {
    /// Bytes of a part.
    part: u64,
    /// Longest wait for room while nothing of the object moves.
    patience: Duration,
    /// All bytes of the object arrive here; else other servers get some.
    is_whole: bool,
    memory: TransferMemoryShare,
    state: Mutex<ArrivalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ArrivalState {
    /// Parts that are being filled, by number.
    open: BTreeMap<u32, HeldPart>,
    /// Parts that wait for a thread that sends them.
    complete: VecDeque<CompletePart>,
    /// Parts that are being sent.
    sending: usize,
    /// The part that has the memory with which the transfer has begun, until it is sent.
    own_part: Option<u32>,
    /// Bytes of that memory.
    own_bytes: u64,
    /// Counts blocks that have arrived and parts that were sent.
    moves: u64,
    arrived: RangeSet,
    has_ended: bool,
    failure: Option<(io::ErrorKind, String)>,
}

#[derive(Debug)]
struct HeldPart {
    bytes: Vec<u8>,
    arrived: RangeSet,
    is_shared: bool,
}

/// A part that can be sent.
#[derive(Debug)]
pub(super) struct CompletePart {
    /// From 1.
    pub(super) number: u32,
    pub(super) bytes: Vec<u8>,
    is_shared: bool,
}

/// How the last bytes of an object are sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LastBytes {
    /// They are all of its bytes.
    Whole(Vec<u8>),
    /// They are a part like the others, of an object with this length.
    Part(u64),
}

impl ArrivingParts {
    /// With parts of `part` bytes. A block that waits for room ends the upload when nothing has moved for `patience`. `memory`: for
    /// one part, or for all bytes if they were announced to be fewer. `is_whole`: no other server gets bytes of the object.
    pub(super) fn new(
        part: u64,
        patience: Duration,
        memory: TransferMemoryShare,
        is_whole: bool,
    ) -> Self {
        Self {
            part,
            patience,
            state: Mutex::new(ArrivalState {
                own_bytes: memory.own(),
                ..ArrivalState::default()
            }),
            memory,
            is_whole,
            changed: Condvar::new(),
        }
    }

    /// Takes bytes at `offset`. Returns whether a part is complete with them.
    ///
    /// # Errors
    /// The upload has failed; no room was found; the bytes had arrived before, and were sent; `ConnectionAborted` if
    /// `is_cancelled`.
    pub(super) fn write(
        &self,
        offset: u64,
        buf: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let mut has_completed = false;
        let (mut at, mut left) = (offset, buf);
        while !left.is_empty() {
            let index = at / self.part;
            let room = (index + 1) * self.part - at;
            let n = usize::try_from(room).unwrap_or(usize::MAX).min(left.len());
            let number = u32::try_from(index + 1).map_err(|_| too_long())?;
            has_completed |= self.write_part(number, at, &left[..n], is_cancelled)?;
            at += n as u64;
            left = &left[n..];
        }
        Ok(has_completed)
    }

    fn write_part(
        &self,
        number: u32,
        at: u64,
        bytes: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let start = u64::from(number - 1) * self.part;
        let from = usize::try_from(at - start).map_err(|_| too_long())?;
        let end = from + bytes.len();
        let mut state = self.state.lock();
        self.open(&mut state, number, (at, end as u64), is_cancelled)?;
        let Some(held) = state.open.get_mut(&number) else {
            return Err(io::Error::other("the part is not open"));
        };
        if held.bytes.len() < end {
            held.bytes.resize(end, 0);
        }
        held.bytes[from..end].copy_from_slice(bytes);
        held.arrived.insert(from as u64, end as u64);
        let is_complete = held.arrived.contains(0, self.part);
        state.arrived.insert(at, at + bytes.len() as u64);
        state.moves += 1;
        if is_complete {
            complete(&mut state, number);
        }
        drop(state);
        if is_complete {
            self.changed.notify_all();
        }
        Ok(is_complete)
    }

    /// Opens a part for bytes at `at`, which end at `end` in the part, as soon as there is room for them.
    fn open(
        &self,
        state: &mut MutexGuard<'_, ArrivalState>,
        number: u32,
        (at, end): (u64, u64),
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let (mut began, mut moves) = (Instant::now(), state.moves);
        loop {
            state.check()?;
            let has_room = match state.open.get(&number) {
                Some(open) => open.is_shared || self.own_reaches(state, end),
                None if state.arrived.contains(at, at + 1) => {
                    return Err(io::Error::other(format!(
                        "byte {at} had arrived before, and is in the bucket"
                    )));
                }
                None => self.begin_part(state, number, end)?,
            };
            if has_room {
                return Ok(());
            }
            if is_cancelled() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if state.moves != moves {
                (began, moves) = (Instant::now(), state.moves);
            }
            if began.elapsed() >= self.patience && !self.is_whole {
                return Err(self.scattered(u64::from(number - 1) * self.part));
            }
            if began.elapsed() >= self.patience {
                return Err(io::Error::other(format!(
                    "a block at {at} waited for {} s in which nothing moved: the blocks of this transfer come too far out of \
                     order, or the bucket takes none; use fewer streams",
                    self.patience.as_secs()
                )));
            }
            self.changed.wait_for(state, CHECK_INTERVAL);
        }
    }

    /// Other servers have the rest of the part at `start`, as far as can be told.
    fn scattered(&self, start: u64) -> io::Error {
        let (end, part) = (start.saturating_add(self.part), self.part);
        PartsError::Scattered { start, end, part }.into()
    }

    /// Begins a part, if there is memory for it; `false`: there is none.
    fn begin_part(&self, state: &mut ArrivalState, number: u32, end: u64) -> io::Result<bool> {
        // Of an object that others write, too, no part is known to be the front: the one that comes first has that memory.
        let is_front =
            !self.is_whole || u64::from(number - 1) == state.arrived.prefix_len() / self.part;
        let held = state.open.len() + state.complete.len() + state.sending;
        let more = held - usize::from(state.own_part.is_some());
        let is_own = is_front && state.own_part.is_none() && self.own_reaches(state, end);
        // Blocks of a part that has memory may be behind one of a part before it, on the same streams: that one gets what it needs, or
        // nothing would move.
        let is_needed = !self.is_whole
            && state.complete.is_empty()
            && state.sending == 0
            && state
                .open
                .keys()
                .next()
                .is_some_and(|first| number < *first);
        if !is_own && !is_needed && (more >= MAX_MORE || !self.memory.try_take(self.part)) {
            return Ok(false);
        }
        let room = match is_own {
            true => state.own_bytes,
            false => self.part,
        };
        let mut bytes = Vec::new();
        // The system gives the memory when bytes are written there.
        bytes.reserve_exact(usize::try_from(room).map_err(|_| too_long())?);
        let part = HeldPart {
            bytes,
            arrived: RangeSet::new(),
            is_shared: !is_own && !is_needed,
        };
        state.open.insert(number, part);
        if is_own {
            state.own_part = Some(number);
        }
        Ok(true)
    }

    /// Whether the memory with which the transfer has begun is enough for the first `end` bytes of a part. It may have been for
    /// the announced bytes only.
    fn own_reaches(&self, state: &mut ArrivalState, end: u64) -> bool {
        if end > state.own_bytes && self.memory.try_take(self.part - state.own_bytes) {
            state.own_bytes = self.part;
        }
        end <= state.own_bytes
    }

    /// The next part to send, as soon as one is complete; `None`: all of them are sent, or nothing is sent any more.
    pub(super) fn next(&self) -> Option<CompletePart> {
        let mut state = self.state.lock();
        loop {
            if state.failure.is_some() {
                return None;
            }
            if let Some(part) = state.complete.pop_front() {
                state.sending += 1;
                return Some(part);
            }
            if state.has_ended {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// A part was sent: its memory is free.
    pub(super) fn note_sent(&self, part: CompletePart) {
        let (is_shared, number) = (part.is_shared, part.number);
        drop(part);
        let mut state = self.state.lock();
        match is_shared {
            true => self.memory.give_back(self.part),
            false if state.own_part == Some(number) => state.own_part = None,
            false => {}
        }
        state.sending -= 1;
        state.moves += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// All bytes have arrived: `length`, if that is known. `is_in_parts`: others are on their way already.
    ///
    /// # Errors
    /// Bytes are missing; the upload has failed.
    pub(super) fn finish(&self, length: Option<u64>, is_in_parts: bool) -> io::Result<LastBytes> {
        let mut state = self.state.lock();
        state.check()?;
        let end = state.arrived.end();
        let length = length.unwrap_or(end);
        if let Some(gap) = state.arrived.gaps(0, length.max(end)).iter().next() {
            return Err(io::Error::other(format!(
                "bytes {} to {} have not arrived",
                gap.start, gap.end
            )));
        }
        let last = state.open.keys().next().copied();
        if !is_in_parts {
            let bytes = last.and_then(|number| state.open.remove(&number));
            state.has_ended = true;
            return Ok(LastBytes::Whole(
                bytes.map(|held| held.bytes).unwrap_or_default(),
            ));
        }
        if let Some(number) = last {
            complete(&mut state, number);
        }
        state.has_ended = true;
        drop(state);
        self.changed.notify_all();
        Ok(LastBytes::Part(length))
    }

    /// All bytes have arrived that come here, of an object that others write, too. What is there of each part is sent.
    ///
    /// # Errors
    /// A part has a hole; the upload has failed.
    pub(super) fn finish_joined(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        let open: Vec<u32> = state.open.keys().copied().collect();
        for number in open {
            let Some(held) = state.open.get(&number) else {
                continue;
            };
            let start = u64::from(number - 1) * self.part;
            let gaps = held.arrived.gaps(0, held.bytes.len() as u64);
            if !gaps.is_empty() {
                return Err(self.scattered(start));
            }
            complete(&mut state, number);
        }
        state.has_ended = true;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Fails if the upload has failed.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.state.lock().failure {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }

    /// Ends all waits with an error.
    pub(super) fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock();
        state
            .failure
            .get_or_insert_with(|| (error.kind(), error.to_string()));
        drop(state);
        self.changed.notify_all();
    }
}

impl ArrivalState {
    fn check(&self) -> io::Result<()> {
        match &self.failure {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None if self.has_ended => Err(io::Error::other("the store has ended")),
            None => Ok(()),
        }
    }
}

fn complete(state: &mut ArrivalState, number: u32) {
    if let Some(HeldPart {
        bytes, is_shared, ..
    }) = state.open.remove(&number)
    {
        state.complete.push_back(CompletePart {
            number,
            bytes,
            is_shared,
        });
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "no object is so long")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use data::served::ServedClient;

    use super::super::memory::TransferMemoryBudget;
    use super::*;

    const PART: u64 = 8;
    const PART_LENGTH: usize = 8;
    const NEVER: &dyn Fn() -> bool = &|| false;

    /// With memory for so many parts, of which the transfer begins with one.
    fn parts(memory: u64, patience: Duration) -> ArrivingParts {
        of(&budget(memory * PART), PART, patience)
    }

    fn budget(memory: u64) -> Arc<TransferMemoryBudget> {
        Arc::new(TransferMemoryBudget::of(memory, Duration::ZERO))
    }

    fn of(budget: &Arc<TransferMemoryBudget>, own: u64, patience: Duration) -> ArrivingParts {
        let memory = budget.begin(own, &ServedClient::default()).unwrap();
        ArrivingParts::new(PART, patience, memory, true)
    }

    fn many() -> ArrivingParts {
        parts(1 << 10, Duration::from_secs(60))
    }

    #[test]
    fn blocks_in_any_order_make_parts() {
        let parts = many();
        assert!(!parts.write(10, b"cdefgh", NEVER).unwrap());
        assert!(parts.write(0, b"01234567ab", NEVER).unwrap());
        let second = parts.next().unwrap();
        assert_eq!((second.number, &*second.bytes), (1, &b"01234567"[..]));
        let first = parts.next().unwrap();
        assert_eq!((first.number, &*first.bytes), (2, &b"abcdefgh"[..]));
        parts.write(16, b"end", NEVER).unwrap();
        assert_eq!(parts.finish(Some(19), true).unwrap(), LastBytes::Part(19));
        let last = parts.next().unwrap();
        assert_eq!((last.number, &*last.bytes), (3, &b"end"[..]));
        assert!(parts.next().is_none());
    }

    #[test]
    fn a_short_object_is_sent_whole() {
        let parts = many();
        parts.write(0, b"all", NEVER).unwrap();
        let whole = LastBytes::Whole(b"all".to_vec());
        assert_eq!(parts.finish(Some(3), false).unwrap(), whole);
        let empty = many().finish(Some(0), false).unwrap();
        assert_eq!(empty, LastBytes::Whole(Vec::new()));
    }

    /// One of several servers gets parts 5 and 7, and blocks of 7 are behind those of 5 on the same streams.
    #[test]
    fn a_part_before_the_one_with_memory_is_not_kept_waiting() {
        let memory = budget(PART).begin(PART, &ServedClient::default()).unwrap();
        let parts = ArrivingParts::new(PART, Duration::ZERO, memory, false);
        parts.write(6 * PART, b"x", NEVER).unwrap();
        assert!(parts.write(4 * PART, &[1; PART_LENGTH], NEVER).unwrap());
        assert_eq!(parts.next().map(|part| part.number), Some(5));
        let error = parts.write(8 * PART, b"x", NEVER).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        parts.write(6 * PART, &[1; PART_LENGTH], NEVER).unwrap();
        parts.finish_joined().unwrap();
    }

    #[test]
    fn missing_bytes_are_told() {
        let parts = many();
        parts.write(0, b"abc", NEVER).unwrap();
        parts.write(5, b"f", NEVER).unwrap();
        let error = parts.finish(None, false).unwrap_err().to_string();
        assert!(error.contains("3 to 5"), "{error}");
        let error = parts.finish(Some(9), false).unwrap_err().to_string();
        assert!(error.contains("have not arrived"), "{error}");
    }

    #[test]
    fn a_block_waits_until_a_part_was_sent() {
        let parts = parts(1, Duration::from_secs(60));
        parts.write(0, &[1; PART_LENGTH], NEVER).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| parts.write(PART, b"x", NEVER));
            let sent = parts.next().unwrap();
            assert!(parts.state.lock().open.is_empty());
            parts.note_sent(sent);
            assert!(!waiting.join().unwrap().unwrap());
        });
    }

    #[test]
    fn streams_of_which_one_is_far_ahead_complete_all_parts_with_memory_for_one() {
        let parts = parts(1, Duration::from_secs(60));
        let ahead_waits = AtomicBool::new(false);
        let half = PART / 2;
        let write = |at: u64, is_cancelled: &dyn Fn() -> bool| {
            parts
                .write(at, &[7; PART_LENGTH / 2], is_cancelled)
                .unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tell = || {
                    ahead_waits.store(true, Ordering::Relaxed);
                    false
                };
                (1..6).for_each(|part| write(part * PART, &tell));
            });
            while !ahead_waits.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let behind = scope.spawn(|| {
                write(0, NEVER);
                (0..6).for_each(|part| write(part * PART + half, NEVER));
            });
            for number in 1..=6 {
                let part = parts.next().unwrap();
                assert_eq!((part.number, &*part.bytes), (number, &[7; PART_LENGTH][..]));
                parts.note_sent(part);
            }
            behind.join().unwrap();
        });
    }

    #[test]
    fn further_parts_are_held_as_far_as_there_is_memory() {
        for (memory, held) in [(1, 1), (4, 2), (1 << 10, 1 + MAX_MORE)] {
            let parts = parts(memory, Duration::ZERO);
            let mut written = 0;
            while parts.write(written * PART, b"x", NEVER).is_ok() {
                written += 1;
            }
            assert_eq!(written, held as u64, "with memory for {memory}");
        }
    }

    #[test]
    fn more_bytes_than_were_announced_need_more_memory() {
        let write = |memory| {
            let parts = of(&budget(memory), 3, Duration::ZERO);
            parts.write(0, b"abc", NEVER).unwrap();
            parts.write(3, b"d", NEVER)
        };
        assert!(write(PART).is_err());
        assert!(write(3 * PART).is_ok());
    }

    #[test]
    fn a_wait_ends_with_the_transfer_a_failure_and_patience() {
        let full = |patience| {
            let parts = parts(1, patience);
            parts.write(0, b"x", NEVER).unwrap();
            parts
        };
        let parts = full(Duration::from_secs(60));
        let error = parts.write(PART, b"x", &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        parts.fail(&io::Error::new(io::ErrorKind::PermissionDenied, "no"));
        let error = parts.write(PART, b"x", NEVER).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let error = full(Duration::ZERO).write(PART, b"x", NEVER).unwrap_err();
        assert!(error.to_string().contains("out of order"), "{error}");
    }

    #[test]
    fn bytes_that_were_sent_are_not_taken_again_and_memory_is_given_back() {
        let budget = budget(4 * PART);
        let parts = of(&budget, PART, Duration::ZERO);
        for n in 0..2 {
            parts.write(n * PART, &[1; PART_LENGTH], NEVER).unwrap();
        }
        assert!(parts.write(0, b"x", NEVER).is_err());
        drop(parts);
        assert!(budget.begin(4 * PART, &ServedClient::default()).is_ok());
    }
}
