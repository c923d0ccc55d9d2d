//! A run that other programs disturb is no result, and its exit code says so.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{available_parallelism, scope};

use crate::harness::{INVALID, LabTestGuard, TestLab, stderr};

/// Ends the threads that wait for it, also when a check fails.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_run_beside_busy_programs_ends_with_the_code_of_an_invalid_run() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let stopped = AtomicBool::new(false);
    let run = scope(|scope| {
        let _stop = StopOnDrop(&stopped);
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !stopped.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        TestLab::new(&turn, &[]).run_to_any_end("sleep 1")
    });
    assert_eq!(run.output.status.code(), Some(INVALID));
    let told = stderr(&run.output);
    let reason = "INVALID: programs outside the lab used";
    assert!(told.contains(reason), "{told}");
    assert!(!run.report.invalid.is_empty());
}
