//! The parts of an object whose bytes arrive in any order, until they are sent.
//!
//! Blocks are gathered into parts. A part is sent when it is complete, and its memory is free then. So many parts may be open or
//! on their way at a time; whoever brings a block of a further one waits. That ends as soon as one of them is complete or
//! sent, because each stream of a sender goes forward in the file. The bytes are not kept on a disk of the server: what arrives
//! faster than the bucket takes it has to wait anyway.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use proto::ranges::RangeSet;

use super::memory::TransferMemoryBudget;

/// Parts that a transfer may hold without asking for memory: one that is filled, one that others have not completed yet, and
/// one that is sent.
const OWN_PARTS: usize = 3;
/// Most parts that a transfer holds.
const MAX_HELD: usize = 8;
/// How often a waiting thread looks whether its transfer was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The parts of one object.
#[derive(Debug)]
pub(super) struct ArrivingParts {
    /// Bytes of a part.
    part: u64,
    /// Longest wait for room.
    patience: Duration,
    memory: Arc<TransferMemoryBudget>,
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
    /// With parts of `part` bytes. A block that waits for room longer than `patience` ends the upload.
    pub(super) fn new(part: u64, patience: Duration, memory: Arc<TransferMemoryBudget>) -> Self {
        Self {
            part,
            patience,
            memory,
            state: Mutex::default(),
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
        let mut state = self.state.lock();
        self.open(&mut state, number, at, is_cancelled)?;
        let start = u64::from(number - 1) * self.part;
        let Some(held) = state.open.get_mut(&number) else {
            return Err(io::Error::other("the part is not open"));
        };
        let from = usize::try_from(at - start).map_err(|_| too_long())?;
        let end = from + bytes.len();
        if held.bytes.len() < end {
            held.bytes.resize(end, 0);
        }
        held.bytes[from..end].copy_from_slice(bytes);
        held.arrived.insert(from as u64, end as u64);
        let is_complete = held.arrived.contains(0, self.part);
        state.arrived.insert(at, at + bytes.len() as u64);
        if is_complete {
            complete(&mut state, number);
        }
        drop(state);
        if is_complete {
            self.changed.notify_all();
        }
        Ok(is_complete)
    }

    /// Opens a part as soon as there is room for it.
    fn open(
        &self,
        state: &mut MutexGuard<'_, ArrivalState>,
        number: u32,
        at: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let began = Instant::now();
        loop {
            state.check()?;
            if state.open.contains_key(&number) {
                return Ok(());
            }
            if state.arrived.contains(at, at + 1) {
                return Err(io::Error::other(format!(
                    "byte {at} had arrived before, and is in the bucket"
                )));
            }
            let held = state.open.len() + state.complete.len() + state.sending;
            let is_shared = held >= OWN_PARTS;
            if !is_shared || held < MAX_HELD && self.memory.try_take(self.part) {
                let mut bytes = Vec::new();
                // The system gives the memory when bytes are written there.
                bytes.reserve_exact(usize::try_from(self.part).map_err(|_| too_long())?);
                let part = HeldPart {
                    bytes,
                    arrived: RangeSet::new(),
                    is_shared,
                };
                state.open.insert(number, part);
                return Ok(());
            }
            if is_cancelled() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if began.elapsed() >= self.patience {
                return Err(io::Error::other(format!(
                    "a block at {at} waited for {} s: the blocks of this transfer come too far out of order, or the bucket takes \
                     none; use fewer streams",
                    self.patience.as_secs()
                )));
            }
            self.changed.wait_for(state, CHECK_INTERVAL);
        }
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
        if part.is_shared {
            self.memory.give_back(self.part);
        }
        drop(part);
        self.state.lock().sending -= 1;
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

impl Drop for ArrivingParts {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let open = state.open.values().filter(|part| part.is_shared).count();
        let complete = state.complete.iter().filter(|part| part.is_shared).count();
        self.memory.give_back(self.part * (open + complete) as u64);
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
    use super::*;

    const PART: u64 = 8;
    const PART_LENGTH: usize = 8;
    const NEVER: &dyn Fn() -> bool = &|| false;

    fn parts(memory: u64, patience: Duration) -> ArrivingParts {
        ArrivingParts::new(PART, patience, Arc::new(TransferMemoryBudget::of(memory)))
    }

    fn many() -> ArrivingParts {
        parts(1 << 20, Duration::from_secs(60))
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
        let parts = parts(0, Duration::from_secs(60));
        for n in 0..OWN_PARTS as u64 {
            parts.write(n * PART, &[1; PART_LENGTH], NEVER).unwrap();
        }
        let at = OWN_PARTS as u64 * PART;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| parts.write(at, b"x", NEVER));
            let sent = parts.next().unwrap();
            assert!(parts.state.lock().open.is_empty());
            parts.note_sent(sent);
            assert!(!waiting.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_wait_ends_with_the_transfer_a_failure_and_patience() {
        let full = |patience| {
            let parts = parts(0, patience);
            for n in 0..OWN_PARTS as u64 {
                parts.write(n * PART, b"x", NEVER).unwrap();
            }
            parts
        };
        let at = OWN_PARTS as u64 * PART;
        let parts = full(Duration::from_secs(60));
        let error = parts.write(at, b"x", &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        parts.fail(&io::Error::new(io::ErrorKind::PermissionDenied, "no"));
        let error = parts.write(at, b"x", NEVER).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let error = full(Duration::ZERO).write(at, b"x", NEVER).unwrap_err();
        assert!(error.to_string().contains("out of order"), "{error}");
    }

    #[test]
    fn bytes_that_were_sent_are_not_taken_again_and_memory_is_given_back() {
        let memory = Arc::new(TransferMemoryBudget::of(PART));
        let parts = ArrivingParts::new(PART, Duration::ZERO, Arc::clone(&memory));
        for n in 0..=OWN_PARTS as u64 {
            parts.write(n * PART, &[1; PART_LENGTH], NEVER).unwrap();
        }
        assert!(!memory.try_take(1));
        assert!(parts.write(0, b"x", NEVER).is_err());
        drop(parts);
        assert!(memory.try_take(PART));
    }
}
