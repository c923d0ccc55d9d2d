//! The pieces of an object that are read ahead of a sender: which is fetched next, and which are held in memory.
//!
//! The streams of a sender take blocks of a file in turn, so that all of them together read it about in order. Pieces are
//! fetched in that order by several threads, each piece by one request. How far ahead grows with the pieces that were read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use proto::ranges::{ByteRange, RangeSet};

use super::memory::TransferMemoryBudget;

/// Bytes of a piece: the time of a request is small beside the time that its bytes take.
pub(super) const PIECE: u64 = 8 << 20;
/// Pieces that a transfer may hold without asking for memory.
const OWN_PIECES: usize = 2;
/// Most pieces that a transfer holds or fetches.
const MAX_PIECES: usize = 12;
/// How often a waiting reader looks whether its transfer was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The pieces of one object.
#[derive(Debug)]
pub(super) struct ReadAhead {
    size: u64,
    wanted: RangeSet,
    memory: Arc<TransferMemoryBudget>,
    state: Mutex<PieceState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PieceState {
    /// By number: offset divided by [`PIECE`].
    pieces: BTreeMap<u64, FetchedPiece>,
    /// Pieces for which a reader waits, and where.
    demanded: BTreeMap<u64, u64>,
    /// Pieces before this one were fetched ahead.
    ahead: u64,
    /// Pieces that were read to their end.
    finished: usize,
    /// Counts reads, to find the piece that was not read for the longest time.
    reads: u64,
    failure: Option<(io::ErrorKind, String)>,
    has_ended: bool,
}

#[derive(Debug)]
struct FetchedPiece {
    range: ByteRange,
    /// `None`: it is being fetched.
    bytes: Option<Arc<Vec<u8>>>,
    /// Wanted bytes that were not read yet.
    unread: u64,
    last_read: u64,
    /// Its memory is of the budget.
    is_shared: bool,
}

impl ReadAhead {
    /// Of an object with `size` bytes, of which those in `wanted` are read.
    pub(super) fn new(size: u64, wanted: &RangeSet, memory: Arc<TransferMemoryBudget>) -> Self {
        Self {
            size,
            wanted: wanted.clone(),
            memory,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Most pieces that are worth a thread each.
    pub(super) fn piece_count(&self) -> usize {
        let numbers: BTreeSet<u64> = self
            .wanted
            .iter()
            .flat_map(|range| {
                let last = range.end.saturating_sub(1) / PIECE;
                (range.start / PIECE..=last).take(MAX_PIECES)
            })
            .take(MAX_PIECES)
            .collect();
        numbers.len().max(1)
    }

    /// Reads bytes at `offset`, as soon as they are there.
    ///
    /// # Errors
    /// They cannot be fetched; [`io::ErrorKind::ConnectionAborted`] if `is_cancelled`.
    pub(super) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<usize> {
        if offset >= self.size || buf.is_empty() {
            return Ok(0);
        }
        let number = offset / PIECE;
        let mut state = self.state.lock();
        let (bytes, at) = loop {
            if let Some((kind, text)) = &state.failure {
                return Err(io::Error::new(*kind, text.clone()));
            }
            match state.pieces.get_mut(&number) {
                Some(piece) if !piece.has(offset) => {
                    // It was fetched for other bytes.
                    if piece.bytes.is_some() {
                        self.forget(&mut state, number);
                        continue;
                    }
                }
                Some(piece) => {
                    if let Some(bytes) = &piece.bytes {
                        break (Arc::clone(bytes), offset - piece.range.start);
                    }
                }
                None => {
                    if state.demanded.insert(number, offset).is_none() {
                        self.changed.notify_all();
                    }
                }
            }
            if is_cancelled() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.changed.wait_for(&mut state, CHECK_INTERVAL);
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let n = buf.len().min(bytes.len() - at);
        self.note_read(&mut state, number, n as u64);
        drop(state);
        buf[..n].copy_from_slice(&bytes[at..at + n]);
        Ok(n)
    }

    fn note_read(&self, state: &mut PieceState, number: u64, n: u64) {
        state.reads += 1;
        let reads = state.reads;
        let Some(piece) = state.pieces.get_mut(&number) else {
            return;
        };
        piece.last_read = reads;
        piece.unread = piece.unread.saturating_sub(n);
        if piece.unread == 0 {
            state.finished += 1;
            self.forget(state, number);
        }
    }

    fn forget(&self, state: &mut PieceState, number: u64) {
        if let Some(piece) = state.pieces.remove(&number)
            && piece.is_shared
        {
            self.memory.give_back(PIECE);
        }
        // There may be room for another one.
        self.changed.notify_all();
    }

    /// The range that is to be fetched next, as soon as there is one; `None`: nothing will be fetched any more.
    pub(super) fn next_piece(&self) -> Option<ByteRange> {
        let mut state = self.state.lock();
        loop {
            if state.has_ended || state.failure.is_some() {
                return None;
            }
            if let Some(range) = self.demanded_piece(&mut state) {
                return Some(range);
            }
            if let Some(range) = self.piece_ahead(&mut state) {
                return Some(range);
            }
            self.changed.wait(&mut state);
        }
    }

    /// A piece for which a reader waits. It takes the place of one that was not read for the longest time, if need be.
    fn demanded_piece(&self, state: &mut PieceState) -> Option<ByteRange> {
        let (number, offset) = state.demanded.iter().next().map(|(n, at)| (*n, *at))?;
        if state.pieces.len() >= OWN_PIECES {
            let is_room = state.pieces.len() < MAX_PIECES && self.memory.try_take(PIECE);
            if is_room {
                return self.begin(state, number, Some(offset), true);
            }
            let held = state.pieces.iter();
            let held = held.filter(|(_, piece)| piece.bytes.is_some());
            let (oldest, _) = held.min_by_key(|(_, piece)| piece.last_read)?;
            let oldest = *oldest;
            self.forget(state, oldest);
        }
        self.begin(state, number, Some(offset), false)
    }

    /// The next piece behind those that were fetched, if there is room for it.
    fn piece_ahead(&self, state: &mut PieceState) -> Option<ByteRange> {
        let window = (OWN_PIECES + state.finished).min(MAX_PIECES);
        // Nothing is fetched before the first read.
        if state.pieces.is_empty() && state.finished == 0 || state.pieces.len() >= window {
            return None;
        }
        let number = self.next_number(state)?;
        let is_shared = state.pieces.len() >= OWN_PIECES;
        if is_shared && !self.memory.try_take(PIECE) {
            return None;
        }
        self.begin(state, number, None, is_shared)
    }

    fn next_number(&self, state: &PieceState) -> Option<u64> {
        let mut number = state.ahead;
        loop {
            let from = self.wanted.next_from(number.checked_mul(PIECE)?)?;
            number = from / PIECE;
            if !state.pieces.contains_key(&number) {
                return Some(number);
            }
            number += 1;
        }
    }

    /// Begins a piece, for the read at `offset` or for those that come later.
    fn begin(
        &self,
        state: &mut PieceState,
        number: u64,
        offset: Option<u64>,
        is_shared: bool,
    ) -> Option<ByteRange> {
        state.demanded.remove(&number);
        let (start, end) = (number * PIECE, ((number + 1) * PIECE).min(self.size));
        let wanted = self.wanted.within(start, end);
        let first = wanted.iter().next().map_or(start, |range| range.start);
        let hull = ByteRange::new(first, wanted.end());
        let has =
            |range: &ByteRange| offset.is_none_or(|at| (range.start..range.end).contains(&at));
        let range = match hull.filter(has) {
            Some(hull) => hull,
            None => ByteRange::new(start, end)?,
        };
        let unread = match wanted.byte_count() {
            0 => range.len(),
            bytes => bytes,
        };
        state.ahead = state.ahead.max(number + 1);
        let last_read = state.reads;
        state.pieces.insert(
            number,
            FetchedPiece {
                range,
                bytes: None,
                unread,
                last_read,
                is_shared,
            },
        );
        // Another thread may find a further one.
        self.changed.notify_all();
        Some(range)
    }

    /// Takes the bytes of a piece.
    pub(super) fn supply(&self, range: ByteRange, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        if let Some(piece) = state.pieces.get_mut(&(range.start / PIECE)) {
            piece.bytes = Some(Arc::new(bytes));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends all reads with an error.
    pub(super) fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock();
        state
            .failure
            .get_or_insert_with(|| (error.kind(), error.to_string()));
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing is read any more.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut self.state.get_mut().pieces);
        let shared = pieces.values().filter(|piece| piece.is_shared).count();
        self.memory.give_back(PIECE * shared as u64);
    }
}

impl FetchedPiece {
    fn has(&self, offset: u64) -> bool {
        (self.range.start..self.range.end).contains(&offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(size: u64, wanted: &[(u64, u64)], memory: u64) -> ReadAhead {
        let mut set = RangeSet::new();
        for (start, end) in wanted {
            set.insert(*start, *end);
        }
        ReadAhead::new(size, &set, Arc::new(TransferMemoryBudget::of(memory)))
    }

    /// Reads all that is wanted, while `threads` fetch zeros. Returns the ranges that were fetched, sorted.
    fn read_all(ahead: &ReadAhead, threads: usize) -> Vec<(u64, u64)> {
        let fetched = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(range) = ahead.next_piece() {
                        fetched.lock().push((range.start, range.end));
                        ahead.supply(range, vec![0; usize::try_from(range.len()).unwrap()]);
                    }
                });
            }
            let mut buf = vec![1; 256 << 10];
            for range in ahead.wanted.iter() {
                let mut at = range.start;
                while at < range.end {
                    let most = usize::try_from((range.end - at).min(buf.len() as u64)).unwrap();
                    let n = ahead.read(at, &mut buf[..most], &|| false).unwrap();
                    assert!(n > 0);
                    at += n as u64;
                }
            }
            ahead.end();
        });
        let mut fetched = fetched.into_inner();
        fetched.sort_unstable();
        fetched
    }

    #[test]
    fn every_byte_is_fetched_once_in_large_pieces() {
        let size = 3 * PIECE + 5;
        for threads in [1, 4] {
            let ahead = of(size, &[(0, size)], 1 << 30);
            let pieces: Vec<_> = (0..4)
                .map(|n| (n * PIECE, size.min((n + 1) * PIECE)))
                .collect();
            assert_eq!(read_all(&ahead, threads), pieces);
        }
    }

    #[test]
    fn only_what_is_wanted_is_fetched() {
        let wanted = [
            (10, 20),
            (PIECE + 7, PIECE + MIB),
            (9 * PIECE, 9 * PIECE + 1),
        ];
        let ahead = of(20 * PIECE, &wanted, 1 << 30);
        assert_eq!(ahead.piece_count(), 3);
        assert_eq!(read_all(&ahead, 2), wanted);
    }

    #[test]
    fn a_transfer_goes_on_with_its_own_memory_when_the_others_have_all() {
        let size = 6 * PIECE;
        let ahead = of(size, &[(0, size)], 0);
        assert_eq!(read_all(&ahead, 4).len(), 6);
    }

    #[test]
    fn a_reader_that_has_read_little_is_not_far_ahead() {
        let size = 40 * PIECE;
        let ahead = of(size, &[(0, size)], 1 << 30);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| ahead.read(0, &mut [0; 10], &|| false));
            let first = ahead.next_piece().unwrap();
            ahead.supply(first, vec![0; usize::try_from(first.len()).unwrap()]);
            assert_eq!(reader.join().unwrap().unwrap(), 10);
        });
        let second = ahead.next_piece().unwrap();
        assert_eq!(second.start, PIECE);
        // The window is two pieces until one of them was read.
        assert!(ahead.piece_ahead(&mut ahead.state.lock()).is_none());
        ahead.supply(second, Vec::new());
    }

    #[test]
    fn memory_is_given_back() {
        let memory = Arc::new(TransferMemoryBudget::of(4 * PIECE));
        let size = 10 * PIECE;
        let mut wanted = RangeSet::new();
        wanted.insert(0, size);
        let ahead = ReadAhead::new(size, &wanted, Arc::clone(&memory));
        read_all(&ahead, 4);
        drop(ahead);
        assert!(memory.try_take(4 * PIECE));
    }

    #[test]
    fn a_waiting_read_ends_with_its_transfer_and_with_a_failure() {
        let ahead = of(100, &[(0, 100)], 0);
        let error = ahead.read(0, &mut [0; 10], &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        ahead.fail(&io::Error::new(io::ErrorKind::NotFound, "gone"));
        let error = ahead.read(0, &mut [0; 10], &|| false).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::NotFound, "gone".to_owned())
        );
        assert!(ahead.next_piece().is_none());
        assert_eq!(ahead.read(100, &mut [0; 10], &|| false).unwrap(), 0);
    }
}
