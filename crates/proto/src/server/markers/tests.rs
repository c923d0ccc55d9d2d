use super::{MarkerSchedule, MarkerTimer, difference};
use crate::command::{DataType, TransferMode};
use crate::path::VPath;
use crate::ranges::RangeSet;
use crate::server::{StoreDisposition, TransferKind, TransferProgress, TransferRequest};
use crate::sizing::SocketBuffers;

use proptest::prelude::*;

fn markers(perf: u32, range: u32) -> MarkerSchedule {
    MarkerSchedule::new(&TransferRequest {
        protection: crate::security::DataChannelProtection::default(),
        kind: TransferKind::Store {
            path: VPath::root(),
            disposition: StoreDisposition::Truncate,
            announced_size: None,
            checksum_algorithm: None,
            expected_checksum: None,
            modified: None,
        },
        mode: TransferMode::Extended,
        type_: DataType::Image,
        streams: crate::streams::ParallelismRange::fixed(1),
        congestion_control: String::new(),
        delayed_passive: None,
        buffers: SocketBuffers::default(),
        perf_marker_seconds: perf,
        range_marker_seconds: range,
    })
}

fn set(ranges: &[(u64, u64)]) -> RangeSet {
    let mut set = RangeSet::new();
    for (start, end) in ranges {
        set.insert(*start, *end);
    }
    set
}

fn at(now: f64, stored: &[(u64, u64)]) -> TransferProgress {
    let stored = set(stored);
    TransferProgress {
        now,
        bytes: stored.byte_count(),
        stored,
    }
}

fn codes(replies: &[crate::reply::Reply]) -> Vec<u16> {
    replies.iter().map(|r| r.code).collect()
}

#[test]
fn a_timer_keeps_its_phase_and_skips_missed_periods() {
    let mut period = MarkerTimer::new(5).unwrap();
    assert!(!period.take_due(100.0), "the first call starts the timer");
    assert!(!period.take_due(104.9));
    assert!(period.take_due(105.3));
    assert!(!period.take_due(109.9));
    assert!(
        period.take_due(110.0),
        "the phase is kept, not shifted by 0.3 s"
    );
    assert!(period.take_due(131.0));
    assert!(!period.take_due(131.1), "four missed periods are one");
    assert!(!period.take_due(135.9));
    assert!(period.take_due(136.0));
}

#[test]
fn a_clock_that_is_set_back_or_nan_restarts_the_timer() {
    let mut period = MarkerTimer::new(5).unwrap();
    assert!(!period.take_due(1000.0));
    assert!(!period.take_due(10.0));
    assert!(period.take_due(15.0));
    assert!(!period.take_due(f64::NAN));
    assert!(!period.take_due(16.0));
    assert!(period.take_due(21.0));
}

#[test]
fn periods_of_zero_send_no_markers() {
    let mut markers = markers(0, 0);
    assert!(markers.on_progress(at(0.0, &[])).is_empty());
    assert!(markers.on_progress(at(100.0, &[(0, 5)])).is_empty());
    assert!(markers.on_complete(at(200.0, &[(0, 9)])).is_empty());
    assert_eq!(markers.bytes(), 9);
}

#[test]
fn a_transfer_without_progress_reports_has_a_first_and_a_last_marker() {
    let replies = markers(5, 5).on_complete(at(7.0, &[(0, 12)]));
    assert_eq!(codes(&replies), [112, 112, 111]);
}

#[test]
fn an_empty_file_has_no_restart_marker() {
    let replies = markers(5, 5).on_complete(at(7.0, &[]));
    assert_eq!(codes(&replies), [112, 112]);
}

#[test]
fn a_failure_reports_ranges_once() {
    let mut markers = markers(0, 5);
    markers.on_progress(at(0.0, &[(0, 10)]));
    assert_eq!(codes(&markers.on_failure()), [111]);
    assert!(markers.on_failure().is_empty());
}

proptest! {
    /// The union of all 111 markers is exactly the stored ranges, and no byte is listed twice.
    #[test]
    fn restart_markers_list_every_byte_once(
        ticks in prop::collection::vec((0.0..7.0f64, 0u64..2000, 1u64..300), 1..40),
    ) {
        let mut markers = markers(5, 5);
        let (mut now, mut stored, mut reported, mut reported_bytes) = (0.0, RangeSet::new(), RangeSet::new(), 0);
        let mut replies = Vec::new();
        for (wait, start, length) in ticks {
            now += wait;
            stored.insert(start, start + length);
            let progress = TransferProgress { now, bytes: stored.byte_count(), stored: stored.clone() };
            replies.extend(markers.on_progress(progress));
        }
        let last = TransferProgress { now, bytes: stored.byte_count(), stored: stored.clone() };
        replies.extend(markers.on_complete(last));
        for reply in replies.iter().filter(|r| r.code == 111) {
            let ranges = crate::marker::parse_range_marker(reply).unwrap();
            reported_bytes += ranges.byte_count();
            reported.extend(&ranges);
        }
        prop_assert_eq!(&reported, &stored);
        prop_assert_eq!(reported_bytes, stored.byte_count());
    }

    #[test]
    fn the_difference_equals_that_of_a_naive_implementation(
        all in prop::collection::vec((0u64..200, 1u64..30), 0..20),
        known in prop::collection::vec((0u64..200, 1u64..30), 0..20),
    ) {
        let build = |list: &[(u64, u64)]| {
            let list: Vec<_> = list.iter().map(|(s, l)| (*s, s + l)).collect();
            set(&list)
        };
        let (all, known) = (build(&all), build(&known));
        let mut naive = all.clone();
        for range in known.iter() {
            naive.remove(range.start, range.end);
        }
        prop_assert_eq!(difference(&all, &known), naive);
    }
}
