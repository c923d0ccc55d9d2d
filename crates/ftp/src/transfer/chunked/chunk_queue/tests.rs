use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;

/// Asks for these chunks, the last one repeatedly, and records the results it is given.
struct ScriptedChunkTuner {
    chunks: VecDeque<(u32, u64)>,
    results: Arc<Mutex<Vec<Option<ChunkResult>>>>,
}

impl ChunkTuner for ScriptedChunkTuner {
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk {
        self.results.lock().push(last.copied());
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

fn queue(
    missing: &[(u64, u64)],
    chunks: &[(u32, u64)],
    sessions: u32,
) -> (ChunkQueue, RecordedResults) {
    let results = RecordedResults::default();
    let tuner = ScriptedChunkTuner {
        chunks: chunks.iter().copied().collect(),
        results: Arc::clone(&results),
    };
    let mut ranges = RangeSet::new();
    for (start, end) in missing {
        ranges.insert(*start, *end);
    }
    (ChunkQueue::new(ranges, Box::new(tuner), sessions), results)
}

fn progress(seconds: u64, moved: u64) -> ChunkProgress {
    ChunkProgress {
        at: Duration::from_secs(seconds),
        moved,
        window: 64_000,
        rtt: Duration::from_millis(20),
    }
}

/// Start, end and streams of the next range.
fn next_range(
    queue: &mut ChunkQueue,
    session: u32,
    progress: ChunkProgress,
) -> (RangeAssignment, (u64, u64, u32)) {
    let assignment = queue.next_range(session, progress).unwrap().assignment;
    (
        assignment,
        (
            assignment.range.start,
            assignment.range.end,
            assignment.streams,
        ),
    )
}

#[test]
fn one_session_moves_chunks_in_turn_and_reports_their_times() {
    let (mut queue, results) = queue(&[(0, 1_000)], &[(1, 300), (2, 600)], 1);
    let order = queue.next_range(0, progress(0, 0)).unwrap();
    assert_eq!(order.decision, Some((1, "scripted".to_owned())));
    assert_eq!(
        (order.assignment.range.start, order.assignment.range.end),
        (0, 300)
    );
    queue.range_done(
        &order.assignment,
        1,
        Duration::from_secs(3),
        progress(3, 300),
    );
    let (assignment, range) = next_range(&mut queue, 0, progress(4, 300));
    assert_eq!(range, (300, 900, 2));
    // Fewer streams were opened than requested.
    queue.range_done(&assignment, 1, Duration::from_secs(2), progress(6, 900));
    assert_eq!(
        next_range(&mut queue, 0, progress(6, 900)).1,
        (900, 1_000, 2)
    );
    assert!(queue.next_range(0, progress(7, 1_000)).is_none() && !queue.has_more());
    let chunk = |streams, bytes, seconds| {
        Some(ChunkResult {
            streams,
            bytes,
            time: Duration::from_secs(seconds),
            window: 64_000,
            rtt: Duration::from_millis(20),
        })
    };
    let results = results.lock().clone();
    assert_eq!(results, [None, chunk(1, 300, 3), chunk(1, 600, 2)]);
}

#[test]
fn a_chunk_with_a_gap_counts_as_one_chunk() {
    let (mut queue, results) = queue(&[(0, 100), (500, 700)], &[(1, 250), (1, 50)], 1);
    for (at, wanted) in [(1, (0, 100, 1)), (2, (500, 650, 1)), (3, (650, 700, 1))] {
        let (assignment, range) = next_range(&mut queue, 0, progress(at, 0));
        assert_eq!(range, wanted);
        queue.range_done(&assignment, 1, Duration::from_secs(at), progress(at, 0));
    }
    let results = results.lock();
    let chunk = results[1].unwrap();
    assert_eq!(
        (results.len(), chunk.bytes, chunk.time.as_secs()),
        (2, 250, 3)
    );
}

#[test]
fn two_sessions_share_a_chunk_and_its_streams() {
    const MIB: u64 = 1 << 20;
    let (mut queue, results) = queue(&[(0, 1_000 * MIB)], &[(3, 20 * MIB), (6, 60 * MIB)], 2);
    assert_eq!(
        next_range(&mut queue, 0, progress(0, 0)).1,
        (0, 10 * MIB, 2)
    );
    // Measured from the start of the second session until both have moved most of a chunk together.
    let mut next =
        |session, seconds, mib| next_range(&mut queue, session, progress(seconds, mib * MIB)).1;
    assert_eq!(next(1, 2, 8), (10 * MIB, 20 * MIB, 1));
    assert_eq!(next(0, 3, 13), (20 * MIB, 30 * MIB, 2));
    assert_eq!(next(1, 5, 24), (30 * MIB, 60 * MIB, 3));
    let results = results.lock();
    let chunk = results[1].unwrap();
    let measured = (chunk.streams, chunk.bytes, chunk.time.as_secs());
    assert_eq!(measured, (3, 16 * MIB, 3));
}

#[test]
fn a_chunk_is_measured_only_after_all_sessions_started_it() {
    const MIB: u64 = 1 << 20;
    let (mut queue, results) = queue(&[(0, 1_000 * MIB)], &[(2, 8 * MIB), (4, 8 * MIB)], 2);
    // The other session takes long to open, so the ranges grow.
    let mut lengths = Vec::new();
    for at in 0..4 {
        let (_, (start, end, streams)) = next_range(&mut queue, 0, progress(at, at * 10 * MIB));
        assert_eq!(streams, 1);
        lengths.push((end - start) / MIB);
    }
    assert_eq!(lengths, [4, 4, 8, 16]);
    assert_eq!(results.lock().len(), 1);
    next_range(&mut queue, 1, progress(4, 40 * MIB));
    next_range(&mut queue, 0, progress(5, 60 * MIB));
    let chunk = results.lock()[1].unwrap();
    assert_eq!((chunk.bytes, chunk.time.as_secs()), (20 * MIB, 1));
}

#[test]
fn each_session_has_at_least_one_stream() {
    let (mut queue, _) = queue(&[(0, 1 << 30)], &[(1, 1 << 25)], 2);
    let order = queue.next_range(0, progress(0, 0)).unwrap();
    assert_eq!(order.decision.unwrap().0, 2);
    assert_eq!(order.assignment.streams, 1);
    assert_eq!(next_range(&mut queue, 1, progress(0, 0)).1.2, 1);
}

#[test]
fn ranges_shrink_towards_the_end() {
    const MIB: u64 = 1 << 20;
    let (mut queue, _) = queue(&[(0, 40 * MIB)], &[(2, 1 << 40)], 2);
    let mut lengths = Vec::new();
    let mut session = 0;
    while let Some(order) = queue.next_range(session, progress(1, 0)) {
        lengths.push(order.assignment.range.len());
        session = 1 - session;
    }
    assert_eq!(lengths[..3], [20 * MIB, 10 * MIB, 5 * MIB]);
    assert!(lengths.len() < 10 && lengths.iter().all(|n| *n <= 20 * MIB));
}

#[test]
fn a_returned_range_and_its_streams_go_to_the_other_session() {
    let (mut queue, _) = queue(&[(0, 1 << 30)], &[(4, 1 << 25)], 2);
    next_range(&mut queue, 0, progress(0, 0));
    let (assignment, range) = next_range(&mut queue, 1, progress(0, 0));
    assert_eq!(range.2, 2);
    queue.return_range(&assignment);
    let (_, range) = next_range(&mut queue, 0, progress(1, 0));
    assert_eq!((range.0, range.2), (assignment.range.start, 4));
}

#[test]
fn without_extended_mode_the_rest_is_one_range() {
    let (mut queue, _) = queue(&[(0, 1_000)], &[(4, 10)], 2);
    next_range(&mut queue, 0, progress(0, 0));
    queue.stop_chunking();
    let (_, range) = next_range(&mut queue, 0, progress(1, 0));
    assert_eq!((range.1, queue.has_more()), (1_000, false));
}

proptest! {
    /// Whatever the tuner chooses and whichever session asks, every missing byte is handed out
    /// once.
    #[test]
    fn every_byte_is_handed_out_once(
        missing in prop::collection::vec((0_u64..1 << 32, 1_u64..1 << 28), 1..6),
        chunks in prop::collection::vec((0_u32..300, 1_u64 << 22..1 << 40), 1..8),
        sessions in 1_u32..3,
        moved in 0_u64..1 << 40,
    ) {
        let missing: Vec<_> = missing.into_iter().map(|(start, length)| (start, start + length)).collect();
        let (mut queue, _) = queue(&missing, &chunks, sessions);
        let (all, mut done) = (queue.missing.clone(), RangeSet::new());
        let mut session = 0;
        while let Some(QueuedRange { assignment, .. }) = queue.next_range(session, progress(1, moved)) {
            let range = assignment.range;
            prop_assert!(range.start < range.end && assignment.streams >= 1);
            prop_assert!(all.contains(range.start, range.end));
            prop_assert_eq!(done.insert(range.start, range.end), range.len());
            queue.range_done(&assignment, assignment.streams, Duration::from_secs(1), progress(1, moved));
            session = (session + 1) % sessions;
        }
        prop_assert_eq!(done, all);
    }
}
