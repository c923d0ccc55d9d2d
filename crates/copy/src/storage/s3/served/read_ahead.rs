//! The pieces of an object that are read ahead of a sender: which is fetched next, and which are held in memory.
//!
//! The streams of a sender take blocks of a file in turn, so that all of them together read it about in order. Pieces are
//! fetched in that order by several threads, each piece by one request. How far ahead grows with the pieces that were read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use data::served::ServedBytes;
use parking_lot::{Condvar, Mutex};
use proto::ranges::{ByteRange, RangeSet};

use super::memory::TransferMemoryShare;

/// Bytes of a piece: the time of a request is small beside the time that its bytes take.
pub(super) const PIECE: u64 = 8 << 20;
/// Pieces for which a transfer has memory when it begins.
const OWN_PIECES: usize = 2;
/// Most pieces that a transfer holds or fetches.
const MAX_PIECES: usize = 12;
/// How often a waiting reader looks whether its transfer was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The pieces of one object.
#[derive(Debug)]
pub(super) struct ReadAhead {
    size: u64,
    /// Pieces that have the memory with which the transfer has begun, at most.
    own: usize,
    memory: TransferMemoryShare,
    state: Mutex<PieceState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PieceState {
    wanted: RangeSet,
    /// By number: offset divided by [`PIECE`].
    pieces: BTreeMap<u64, FetchedPiece>,
    /// Pieces for which a reader waits, and where.
    demanded: BTreeMap<u64, u64>,
    /// Pieces before this one were fetched ahead.
    ahead: u64,
    /// Pieces that were read to their end.
    finished: usize,
    /// Counts reads and arrivals, to find the piece that was not read for the longest time.
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
    /// Of an object with `size` bytes, of which those in `wanted` are read. `memory`: of [`own_bytes`].
    pub(super) fn new(size: u64, wanted: &RangeSet, memory: TransferMemoryShare) -> Self {
        Self {
            size,
            own: usize::try_from(memory.own().div_ceil(PIECE)).unwrap_or(OWN_PIECES),
            memory,
            state: Mutex::new(PieceState {
                wanted: wanted.clone(),
                ..PieceState::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Most pieces that are worth a thread each.
    pub(super) fn piece_count(&self) -> usize {
        piece_count(&self.state.lock().wanted)
    }

    /// These are not read after all.
    pub(super) fn forgo(&self, ranges: &RangeSet) {
        let mut state = self.state.lock();
        for range in ranges.iter() {
            state.wanted.remove(range.start, range.end);
        }
    }

    /// These are read, too.
    pub(super) fn want(&self, more: &RangeSet) {
        let mut state = self.state.lock();
        state.wanted.extend(more);
        // They may be before others that were fetched.
        let first = more.iter().next().map(|range| range.start / PIECE);
        state.ahead = first.map_or(state.ahead, |first| first.min(state.ahead));
        drop(state);
        self.changed.notify_all();
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
        state.wanted.remove(offset, offset + n as u64);
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
        let room = self.room(state).or_else(|| {
            let held = state.pieces.iter();
            let held = held.filter(|(_, piece)| piece.bytes.is_some());
            let (oldest, _) = held.min_by_key(|(_, piece)| piece.last_read)?;
            let oldest = *oldest;
            // Its memory passes to the new one.
            state.pieces.remove(&oldest).map(|piece| piece.is_shared)
        });
        self.begin(state, number, Some(offset), room?)
    }

    /// Room for a further piece; `Some(true)`: its memory is of the budget.
    fn room(&self, state: &PieceState) -> Option<bool> {
        let shared = state.pieces.values().filter(|piece| piece.is_shared);
        if state.pieces.len() - shared.count() < self.own {
            return Some(false);
        }
        let is_room = state.pieces.len() < MAX_PIECES && self.memory.try_take(PIECE);
        is_room.then_some(true)
    }

    /// The next piece behind those that were fetched, if there is room for it.
    fn piece_ahead(&self, state: &mut PieceState) -> Option<ByteRange> {
        let window = (OWN_PIECES + state.finished).min(MAX_PIECES);
        // Nothing is fetched before the first read.
        if state.pieces.is_empty() && state.finished == 0 || state.pieces.len() >= window {
            return None;
        }
        let number = self.next_number(state)?;
        let is_shared = self.room(state)?;
        self.begin(state, number, None, is_shared)
    }

    fn next_number(&self, state: &PieceState) -> Option<u64> {
        let mut number = state.ahead;
        loop {
            let from = state.wanted.next_from(number.checked_mul(PIECE)?)?;
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
        let wanted = state.wanted.within(start, end);
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
        state.reads += 1;
        let reads = state.reads;
        if let Some(piece) = state.pieces.get_mut(&(range.start / PIECE)) {
            piece.bytes = Some(Arc::new(bytes));
            // The reader that waits for it comes before another one that needs its place.
            piece.last_read = reads;
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

/// Bytes of memory with which a read of an object with `size` bytes begins. `wanted`: what is read, or the first of it.
pub(super) fn own_bytes(size: u64, wanted: &RangeSet, bytes: ServedBytes) -> u64 {
    let pieces = match bytes {
        ServedBytes::All => piece_count(wanted).min(OWN_PIECES),
        ServedBytes::Some => OWN_PIECES,
        ServedBytes::None => 0,
    };
    size.min(PIECE * pieces as u64)
}

fn piece_count(wanted: &RangeSet) -> usize {
    let numbers: BTreeSet<u64> = wanted
        .iter()
        .flat_map(|range| {
            let last = range.end.saturating_sub(1) / PIECE;
            (range.start / PIECE..=last).take(MAX_PIECES)
        })
        .take(MAX_PIECES)
        .collect();
    numbers.len().max(1)
}

impl FetchedPiece {
    fn has(&self, offset: u64) -> bool {
        (self.range.start..self.range.end).contains(&offset)
    }
}

#[cfg(test)]
mod tests {
    use data::served::ServedClient;

    use super::super::memory::TransferMemoryBudget;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget(memory: u64) -> Arc<TransferMemoryBudget> {
        Arc::new(TransferMemoryBudget::of(memory, Duration::ZERO))
    }

    /// `memory`: bytes besides those with which the transfer begins.
    fn of(size: u64, wanted: &[(u64, u64)], memory: u64) -> ReadAhead {
        let mut set = RangeSet::new();
        for (start, end) in wanted {
            set.insert(*start, *end);
        }
        let own = own_bytes(size, &set, ServedBytes::All);
        begin(&budget(own + memory), size, &set)
    }

    fn begin(budget: &Arc<TransferMemoryBudget>, size: u64, wanted: &RangeSet) -> ReadAhead {
        let memory = budget.begin(
            own_bytes(size, wanted, ServedBytes::All),
            &ServedClient::default(),
        );
        ReadAhead::new(size, wanted, memory.unwrap())
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
            let wanted = ahead.state.lock().wanted.clone();
            for range in wanted.iter() {
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
    fn ranges_that_are_told_later_are_fetched_and_those_that_are_taken_back_not() {
        let ahead = of(20 * PIECE, &[(0, PIECE)], 1 << 30);
        let mut more = RangeSet::new();
        more.insert(10 * PIECE, 14 * PIECE);
        ahead.want(&more);
        more.remove(10 * PIECE, 12 * PIECE);
        ahead.forgo(&more);
        let wanted = [
            (0, PIECE),
            (10 * PIECE, 11 * PIECE),
            (11 * PIECE, 12 * PIECE),
        ];
        assert_eq!(read_all(&ahead, 2), wanted);
        // Bytes that were read are not wanted again, whatever comes before them.
        more.insert(5 * PIECE, 6 * PIECE);
        ahead.want(&more);
        assert!(!ahead.state.lock().wanted.contains(10 * PIECE, 12 * PIECE));
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
        let budget = budget(8 * PIECE);
        let size = 10 * PIECE;
        let mut wanted = RangeSet::new();
        wanted.insert(0, size);
        let ahead = begin(&budget, size, &wanted);
        read_all(&ahead, 4);
        drop(ahead);
        assert!(budget.begin(8 * PIECE, &ServedClient::default()).is_ok());
    }

    #[test]
    fn a_transfer_begins_with_memory_for_what_it_reads_first() {
        let own = |size, wanted: (u64, u64)| {
            let mut set = RangeSet::new();
            set.insert(wanted.0, wanted.1);
            own_bytes(size, &set, ServedBytes::All)
        };
        assert_eq!(own(5, (0, 5)), 5);
        assert_eq!(own(9 * PIECE, (0, 1)), PIECE);
        assert_eq!(own(9 * PIECE, (0, 9 * PIECE)), 2 * PIECE);
    }

    #[test]
    fn a_piece_that_takes_the_place_of_another_needs_no_more_memory() {
        let size = 40 * PIECE;
        let ahead = of(size, &[(0, size)], 20 * PIECE);
        let mut state = ahead.state.lock();
        for number in 0..30 {
            state.demanded.insert(number, number * PIECE);
            let range = ahead.demanded_piece(&mut state).unwrap();
            let piece = state.pieces.get_mut(&(range.start / PIECE)).unwrap();
            piece.bytes = Some(Arc::default());
        }
        let shared = state.pieces.values().filter(|piece| piece.is_shared);
        assert_eq!(state.pieces.len() - shared.count(), OWN_PIECES);
        assert!(state.pieces.len() <= MAX_PIECES);
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
