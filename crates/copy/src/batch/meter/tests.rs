//! Tests of the totals.

use super::*;

#[test]
fn totals_never_decrease_while_files_end() {
    let meter = Arc::new(BatchMeter::default());
    let files = 2000;
    let other = Arc::clone(&meter);
    let copies = std::thread::spawn(move || {
        for _ in 0..files {
            let file = other.begin_file("one".to_owned(), Some(200));
            file.begin_attempt(Arc::new(TransferControl::new()), SafeByteCount::default());
            file.report_bytes(1);
        }
    });
    let mut previous = 0;
    while previous < files {
        let moved = meter.totals().moved;
        assert!(moved >= previous, "{moved} after {previous}");
        previous = moved;
    }
    copies.join().unwrap();
}

#[test]
fn totals_include_finished_files_and_every_attempt() {
    let meter = Arc::new(BatchMeter::default());
    let file = meter.begin_file("one".to_owned(), Some(200));
    let reported = Arc::new(AtomicU64::new(100));
    let safe = || {
        let reported = Arc::clone(&reported);
        SafeByteCount::from_fn(move || reported.load(Ordering::Relaxed))
    };
    file.begin_attempt(Arc::new(TransferControl::new()), safe());
    file.report_bytes(30);
    let totals = meter.totals();
    // Moved bytes are not yet safe.
    assert_eq!((totals.moved, totals.safe), (30, 100));
    reported.store(120, Ordering::Relaxed);
    assert_eq!(meter.totals().safe, 120);
    file.begin_attempt(Arc::new(TransferControl::new()), safe());
    file.report_bytes(5);
    assert_eq!(meter.totals().safe, 120);
    file.confirm_attempt();
    let totals = meter.totals();
    assert_eq!((totals.moved, totals.safe), (35, 125));
    drop(file);
    // Nothing else will come of a file that has ended.
    let left_out = 200 - totals.done;
    assert_eq!(meter.totals(), ProgressTotals { left_out, ..totals });
    assert!(meter.active().is_empty());
}

#[test]
fn what_servers_report_of_their_transfer_is_done_before_it_is_safe() {
    let meter = Arc::new(BatchMeter::default());
    let file = meter.begin_file("one".to_owned(), Some(200));
    // Resumed bytes are safe, and no marker follows.
    let resumed = SafeByteCount::from_fn(|| 50);
    file.begin_attempt(Arc::new(TransferControl::new()), resumed);
    file.report_bytes(30);
    let totals = meter.totals();
    assert_eq!((totals.safe, totals.done), (50, 80));
    assert_eq!(file.shown().done, 80);
    file.report_bytes(150);
    file.confirm_attempt();
    drop(file);
    let totals = meter.totals();
    assert_eq!((totals.done, totals.left_out), (200, 0));
}

#[test]
fn files_that_move_together_count_when_their_bytes_have_arrived() {
    let meter = Arc::new(BatchMeter::default());
    let files = meter.begin_files("4 files".to_owned(), [0, 10, 20, 0].into_iter());
    assert_eq!((files.shown().bytes, files.arrived_files()), (Some(30), 0));
    for (bytes, arrived) in [(9, 1), (10, 2), (29, 2), (30, 4)] {
        files.report_bytes(bytes);
        assert_eq!(files.arrived_files(), arrived, "{bytes}");
    }
    let single = meter.begin_file("one".to_owned(), Some(10));
    single.report_bytes(10);
    assert_eq!(single.arrived_files(), 0, "it counts when it is verified");
}

#[test]
fn an_attempt_refused_before_it_began_counts_no_bytes() {
    let meter = Arc::new(BatchMeter::default());
    let file = meter.begin_file("one".to_owned(), Some(200));
    file.begin_attempt(
        Arc::new(TransferControl::new()),
        SafeByteCount::from_fn(|| 7),
    );
    file.report_bytes(30);
    file.discard_attempt();
    assert_eq!(meter.totals().moved, 0);
}

#[test]
fn decisions_are_kept_after_the_attempt_and_the_file_end() {
    let meter = Arc::new(BatchMeter::default());
    let file = meter.begin_file("one".to_owned(), Some(200));
    let reasons = || -> Vec<String> {
        let decided = meter.take_decisions().into_iter();
        let reasons = decided.map(|d| match d.decision {
            TuningDecision::Streams(decision) => decision.reason,
            TuningDecision::Buffers(decision) => decision.reason,
        });
        reasons.collect()
    };
    for reason in ["first", "second", "third"] {
        let control = Arc::new(TransferControl::new());
        control.note_stream_decision(auto::TransferDecision {
            at: std::time::Duration::ZERO,
            setting: Some(auto::TransferSetting::Streams(2)),
            limiter: Limiter::Loss,
            reason: reason.to_owned(),
        });
        file.begin_attempt(control, SafeByteCount::default());
        if reason == "second" {
            assert_eq!(reasons(), ["first", "second"]);
        }
    }
    drop(file);
    assert_eq!(reasons(), ["third"]);
    assert!(reasons().is_empty());
}
