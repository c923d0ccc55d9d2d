use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

/// Asks for these chunks, the last one again and again, and keeps what it is told.
struct ScriptedChunkTuner {
    chunks: VecDeque<(u32, u64)>,
    told: Arc<Mutex<Vec<Option<ChunkResult>>>>,
}

impl ChunkTuner for ScriptedChunkTuner {
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk {
        self.told.lock().unwrap().push(last.copied());
        let last = self.chunks.len() == 1;
        let next = if last {
            self.chunks.front().copied()
        } else {
            self.chunks.pop_front()
        };
        let (streams, bytes) = next.unwrap();
        Chunk { streams, bytes }
    }

    fn reason(&self) -> String {
        "scripted".to_owned()
    }

    fn is_settled(&self) -> bool {
        false
    }
}

type RecordedResults = Arc<Mutex<Vec<Option<ChunkResult>>>>;

fn work(
    missing: &[(u64, u64)],
    chunks: &[(u32, u64)],
    sessions: u32,
) -> (ChunkQueue, RecordedResults) {
    let told = RecordedResults::default();
    let tuner = ScriptedChunkTuner {
        chunks: chunks.iter().copied().collect(),
        told: Arc::clone(&told),
    };
    let mut ranges = RangeSet::new();
    for (start, end) in missing {
        ranges.insert(*start, *end);
    }
    (ChunkQueue::new(ranges, Box::new(tuner), sessions), told)
}

fn seen(seconds: u64, moved: u64) -> ChunkProgress {
    ChunkProgress {
        at: Duration::from_secs(seconds),
        moved,
        window: 64_000,
        rtt: Duration::from_millis(20),
    }
}

/// Start, end and streams of the next piece.
fn take(
    work: &mut ChunkQueue,
    session: u32,
    seen: ChunkProgress,
) -> (RangeAssignment, (u64, u64, u32)) {
    let piece = work.next_range(session, seen).unwrap().assignment;
    (piece, (piece.range.start, piece.range.end, piece.streams))
}

#[test]
fn one_session_moves_chunk_after_chunk_and_tells_their_time() {
    let (mut work, told) = work(&[(0, 1_000)], &[(1, 300), (2, 600)], 1);
    let order = work.next_range(0, seen(0, 0)).unwrap();
    assert_eq!(order.decision, Some((1, "scripted".to_owned())));
    assert_eq!(
        (order.assignment.range.start, order.assignment.range.end),
        (0, 300)
    );
    work.range_done(&order.assignment, 1, Duration::from_secs(3), seen(3, 300));
    let (piece, what) = take(&mut work, 0, seen(4, 300));
    assert_eq!(what, (300, 900, 2));
    // Fewer streams came than were asked for.
    work.range_done(&piece, 1, Duration::from_secs(2), seen(6, 900));
    assert_eq!(take(&mut work, 0, seen(6, 900)).1, (900, 1_000, 2));
    assert!(work.next_range(0, seen(7, 1_000)).is_none() && !work.has_more());
    let chunk = |streams, bytes, seconds| {
        Some(ChunkResult {
            streams,
            bytes,
            time: Duration::from_secs(seconds),
            window: 64_000,
            rtt: Duration::from_millis(20),
        })
    };
    let told = told.lock().unwrap().clone();
    assert_eq!(told, [None, chunk(1, 300, 3), chunk(1, 600, 2)]);
}

#[test]
fn a_chunk_with_a_gap_is_one_chunk() {
    let (mut work, told) = work(&[(0, 100), (500, 700)], &[(1, 250), (1, 50)], 1);
    for (at, wanted) in [(1, (0, 100, 1)), (2, (500, 650, 1)), (3, (650, 700, 1))] {
        let (piece, what) = take(&mut work, 0, seen(at, 0));
        assert_eq!(what, wanted);
        work.range_done(&piece, 1, Duration::from_secs(at), seen(at, 0));
    }
    let told = told.lock().unwrap();
    let chunk = told[1].unwrap();
    assert_eq!((told.len(), chunk.bytes, chunk.time.as_secs()), (2, 250, 3));
}

#[test]
fn two_sessions_share_a_chunk_and_its_streams() {
    const MIB: u64 = 1 << 20;
    let (mut work, told) = work(&[(0, 1_000 * MIB)], &[(3, 20 * MIB), (6, 60 * MIB)], 2);
    assert_eq!(take(&mut work, 0, seen(0, 0)).1, (0, 10 * MIB, 2));
    // Measured from when both are at it, until they have moved most of a chunk together.
    let mut next = |session, seconds, mib| take(&mut work, session, seen(seconds, mib * MIB)).1;
    assert_eq!(next(1, 2, 8), (10 * MIB, 20 * MIB, 1));
    assert_eq!(next(0, 3, 13), (20 * MIB, 30 * MIB, 2));
    assert_eq!(next(1, 5, 24), (30 * MIB, 60 * MIB, 3));
    let told = told.lock().unwrap();
    let chunk = told[1].unwrap();
    let measured = (chunk.streams, chunk.bytes, chunk.time.as_secs());
    assert_eq!(measured, (3, 16 * MIB, 3));
}

#[test]
fn nothing_is_told_of_a_chunk_before_all_sessions_are_at_it() {
    const MIB: u64 = 1 << 20;
    let (mut work, told) = work(&[(0, 1_000 * MIB)], &[(2, 8 * MIB), (4, 8 * MIB)], 2);
    // The other session takes long to open: the pieces grow.
    let mut lengths = Vec::new();
    for at in 0..4 {
        let (_, (start, end, streams)) = take(&mut work, 0, seen(at, at * 10 * MIB));
        assert_eq!(streams, 1);
        lengths.push((end - start) / MIB);
    }
    assert_eq!(lengths, [4, 4, 8, 16]);
    assert_eq!(told.lock().unwrap().len(), 1);
    take(&mut work, 1, seen(4, 40 * MIB));
    take(&mut work, 0, seen(5, 60 * MIB));
    let chunk = told.lock().unwrap()[1].unwrap();
    assert_eq!((chunk.bytes, chunk.time.as_secs()), (20 * MIB, 1));
}

#[test]
fn each_session_has_a_stream_at_least() {
    let (mut work, _) = work(&[(0, 1 << 30)], &[(1, 1 << 25)], 2);
    let order = work.next_range(0, seen(0, 0)).unwrap();
    assert_eq!(order.decision.unwrap().0, 2);
    assert_eq!(order.assignment.streams, 1);
    assert_eq!(take(&mut work, 1, seen(0, 0)).1.2, 1);
}

#[test]
fn towards_the_end_pieces_shrink() {
    const MIB: u64 = 1 << 20;
    let (mut work, _) = work(&[(0, 40 * MIB)], &[(2, 1 << 40)], 2);
    let mut lengths = Vec::new();
    let mut session = 0;
    while let Some(order) = work.next_range(session, seen(1, 0)) {
        lengths.push(order.assignment.range.len());
        session = 1 - session;
    }
    assert_eq!(lengths[..3], [20 * MIB, 10 * MIB, 5 * MIB]);
    assert!(lengths.len() < 10 && lengths.iter().all(|n| *n <= 20 * MIB));
}

#[test]
fn a_session_that_cannot_begin_leaves_its_piece_and_its_streams() {
    let (mut work, _) = work(&[(0, 1 << 30)], &[(4, 1 << 25)], 2);
    take(&mut work, 0, seen(0, 0));
    let (piece, what) = take(&mut work, 1, seen(0, 0));
    assert_eq!(what.2, 2);
    work.return_range(&piece);
    let (_, what) = take(&mut work, 0, seen(1, 0));
    assert_eq!((what.0, what.2), (piece.range.start, 4));
}

#[test]
fn without_streams_the_rest_is_one_piece() {
    let (mut work, _) = work(&[(0, 1_000)], &[(4, 10)], 2);
    take(&mut work, 0, seen(0, 0));
    work.stop_chunking();
    let (_, what) = take(&mut work, 0, seen(1, 0));
    assert_eq!((what.1, work.has_more()), (1_000, false));
}

proptest! {
    /// Whatever the tuner wants and whoever asks: every missing byte is handed out once.
    #[test]
    fn every_byte_is_handed_out_once(
        missing in prop::collection::vec((0_u64..1 << 32, 1_u64..1 << 28), 1..6),
        chunks in prop::collection::vec((0_u32..300, 1_u64 << 22..1 << 40), 1..8),
        sessions in 1_u32..3,
        moved in 0_u64..1 << 40,
    ) {
        let missing: Vec<_> = missing.into_iter().map(|(start, length)| (start, start + length)).collect();
        let (mut work, _) = work(&missing, &chunks, sessions);
        let (all, mut done) = (work.missing.clone(), RangeSet::new());
        let mut session = 0;
        while let Some(QueuedRange { assignment: piece, .. }) = work.next_range(session, seen(1, moved)) {
            let range = piece.range;
            prop_assert!(range.start < range.end && piece.streams >= 1);
            prop_assert!(all.contains(range.start, range.end));
            prop_assert_eq!(done.insert(range.start, range.end), range.len());
            work.range_done(&piece, piece.streams, Duration::from_secs(1), seen(1, moved));
            session = (session + 1) % sessions;
        }
        prop_assert_eq!(done, all);
    }
}
