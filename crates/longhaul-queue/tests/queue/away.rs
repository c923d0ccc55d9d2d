//! The database is away for a while.

use crate::harness::{Fleet, wait_for};

#[test]
fn a_copy_ends_without_the_database_and_its_result_survives_the_worker() {
    let Some(mut fleet) = Fleet::new("a_copy_ends_without_the_database") else {
        return;
    };
    // About eight seconds.
    let source = fleet.file("f", 1_000_000);
    let id = fleet.submit(&["--limit-rate", "1M", &source, &fleet.copy_of("f")]);
    let worker = fleet.worker("w", &["--lease", "60s"]);
    fleet.until(id, "running");
    fleet.postgres.halt();
    let result = fleet.path("w").join(format!("{id}-1.result"));
    wait_for("the result on the disk", || result.exists().then_some(()));
    assert!(fleet.is_copied("f"));
    worker.kill();
    // A worker starts without a database, too, and is ready when there is one.
    let (worker, mut said) = fleet.starting_worker("w", &["--lease", "60s"]);
    fleet.postgres.resume();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let (_, attempts) = fleet.until(id, "done");
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    assert_eq!(attempts[0]["bytes"], 1_000_000);
    wait_for("the result is forgotten", || {
        (!result.exists()).then_some(())
    });
    // It takes jobs again.
    let source = fleet.file("g", 1000);
    let next = fleet.submit(&[&source, &fleet.copy_of("g")]);
    fleet.until(next, "done");
    assert_eq!(worker.end(), Some(0));
}

#[test]
fn a_copy_goes_on_while_the_database_is_away() {
    let Some(mut fleet) = Fleet::new("a_copy_goes_on_while_the_database_is_away") else {
        return;
    };
    let source = fleet.file("f", 1_000_000);
    let id = fleet.submit(&["--limit-rate", "1M", &source, &fleet.copy_of("f")]);
    let _worker = fleet.worker("w", &["--lease", "60s"]);
    fleet.until(id, "running");
    for _ in 0..3 {
        fleet.postgres.halt();
        fleet.postgres.resume();
    }
    let (job, attempts) = fleet.until(id, "done");
    assert_eq!((attempts.len(), &job["losses"]), (1, &0.into()));
    assert!(fleet.is_copied("f"));
}
