//! Workers that die, or stand still.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Fleet, wait_for};

/// Attempts of one job that ran at the same time, as far as the database knows.
const OVERLAPS: &str = "SELECT COUNT(*) FROM longhaul_queue.attempts a JOIN longhaul_queue.attempts b \
    ON a.job = b.job AND a.number < b.number AND (a.ended_at IS NULL OR b.started_at < a.ended_at)";

/// Jobs that are not done by exactly one attempt.
const NOT_ONCE: &str = "SELECT COUNT(*) FROM (SELECT jobs.id FROM longhaul_queue.jobs LEFT JOIN longhaul_queue.attempts \
    ON job = id AND outcome = 'done' GROUP BY jobs.id HAVING COUNT(number) <> 1) AS wrong";

const OPEN: &str =
    "SELECT COUNT(*) FROM longhaul_queue.jobs WHERE state NOT IN ('done', 'failed', 'cancelled')";

#[test]
fn each_file_is_delivered_once_although_workers_are_killed() {
    let Some(fleet) = Fleet::new("each_file_is_delivered_once_although_workers_are_killed") else {
        return;
    };
    let names: Vec<String> = (0..60).map(|n| format!("f{n}")).collect();
    let lines: Vec<String> = names
        .iter()
        .map(|name| {
            format!(
                "{}\t{}",
                fleet.file(name, 200_000 + name.len()),
                fleet.copy_of(name)
            )
        })
        .collect();
    let list = fleet.path("list");
    std::fs::write(&list, lines.join("\n")).unwrap();
    // Each copy takes about a second.
    let submitted = fleet.queue(&[
        "submit",
        "--limit-rate",
        "2M",
        "--from",
        list.to_str().unwrap(),
    ]);
    assert!(submitted.status.success(), "{submitted:?}");
    let start = |n: usize| fleet.worker(&format!("w{n}"), &["--jobs", "3", "--lease", "20s"]);
    let mut workers: Vec<_> = (0..3).map(start).collect();
    let (begun, mut kills) = (Instant::now(), 0);
    while fleet.number(OPEN) > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "the queue does not end"
        );
        std::thread::sleep(Duration::from_millis(1500));
        let victim = kills % workers.len();
        workers.remove(victim).kill();
        workers.insert(victim, start(victim));
        kills += 1;
    }
    let lost = fleet.number("SELECT COUNT(*) FROM longhaul_queue.attempts WHERE outcome = 'lost'");
    eprintln!("{kills} workers killed, {lost} attempts lost with them");
    assert!(kills > 2 && lost > 0, "the test tests nothing");
    assert_eq!(fleet.number(NOT_ONCE), 0);
    assert_eq!(fleet.number(OVERLAPS), 0);
    for name in &names {
        assert!(fleet.is_copied(name), "{name}");
    }
}

#[test]
fn the_copy_of_a_worker_that_stands_still_ends_before_another_begins() {
    let Some(fleet) = Fleet::new("the_copy_of_a_worker_that_stands_still") else {
        return;
    };
    let source = fleet.file("slow", 1_000_000);
    let id = fleet.submit(&["--limit-rate", "100k", &source, &fleet.copy_of("slow")]);
    let stopped = fleet.worker("still", &["--lease", "8s"]);
    fleet.until(id, "running");
    let lock = fleet.path("still").join(format!("{id}-1.attempt"));
    // The program holds the lock, too: nobody gets it while one of the two lives.
    let lock = wait_for("the attempt's lock", || File::open(&lock).ok());
    wait_for("a program that copies", || {
        lock.try_lock().is_err().then_some(())
    });
    stopped.signal(Signal::STOP);
    let _other = fleet.worker("other", &["--lease", "4s"]);
    let question = "SELECT COUNT(*) FROM longhaul_queue.attempts WHERE number = 2";
    wait_for("another attempt", || {
        (fleet.number(question) == 1).then_some(())
    });
    assert!(lock.try_lock().is_ok(), "the first program still runs");
    drop(lock);
    // Awake again, the worker must not disturb the other.
    stopped.signal(Signal::CONT);
    let (_, attempts) = wait_for("the result of the first", || {
        let job = fleet.job(id);
        (job.1[0]["outcome"] == "stopped").then_some(job)
    });
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[1]["outcome"], "running");
}

#[test]
fn a_worker_that_ends_gives_its_jobs_back() {
    let Some(fleet) = Fleet::new("a_worker_that_ends_gives_its_jobs_back") else {
        return;
    };
    let source = fleet.file("slow", 1_000_000);
    let id = fleet.submit(&["--limit-rate", "100k", &source, &fleet.copy_of("slow")]);
    let worker = fleet.worker("w", &[]);
    fleet.until(id, "running");
    assert_eq!(worker.end(), Some(0));
    let (job, attempts) = fleet.job(id);
    assert_eq!(
        (&job["state"], &job["failures"]),
        (&"waiting".into(), &0.into())
    );
    assert_eq!(attempts[0]["outcome"], "stopped");
}
