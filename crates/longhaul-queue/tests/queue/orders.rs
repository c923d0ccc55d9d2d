//! Cancelled jobs, failures, limits and credentials, as a worker carries them out.

use std::fs;

use crate::harness::{Fleet, wait_for};

#[test]
fn a_cancelled_copy_ends_and_goes_on_when_asked_again() {
    let Some(fleet) = Fleet::new("a_cancelled_copy_ends") else {
        return;
    };
    let source = fleet.file("f", 3_000_000);
    let id = fleet.submit(&["--limit-rate", "2M", &source, &fleet.copy_of("f")]);
    let _worker = fleet.worker("w", &["--lease", "10s"]);
    wait_for("progress", || {
        let (job, _) = fleet.job(id);
        job["done_bytes"].as_u64().filter(|bytes| *bytes > 0)
    });
    assert!(fleet.queue(&["cancel", &id.to_string()]).status.success());
    let (_, attempts) = fleet.until(id, "cancelled");
    assert_eq!(attempts[0]["outcome"], "stopped");
    assert!(!fleet.is_copied("f"));
    assert!(fleet.queue(&["retry", &id.to_string()]).status.success());
    let (_, attempts) = fleet.until(id, "done");
    // It did not begin at the first byte again.
    assert!(
        attempts[1]["bytes"].as_u64().unwrap() < 3_000_000,
        "{attempts:?}"
    );
    assert!(fleet.is_copied("f"));
}

#[test]
fn failures_are_final_or_repeated_by_their_exit_code() {
    let Some(fleet) = Fleet::new("failures_are_final_or_repeated") else {
        return;
    };
    let source = fleet.file("f", 10);
    let missing = source.replace("/f", "/missing");
    let missing = fleet.submit(&[&missing, &fleet.copy_of("f")]);
    let wrong = fleet.submit(&[&source, &fleet.copy_of("f"), "--", "--no-such-option"]);
    // Nobody listens on the port.
    let away = fleet.submit(&[
        "ftp://127.0.0.1:1/f",
        &fleet.copy_of("f"),
        "--",
        "--retries=0",
    ]);
    let secret = fleet.submit(&["--credential", "cms", &source, &fleet.copy_of("f")]);
    let _worker = fleet.worker("w", &[]);
    let (job, attempts) = fleet.until(missing, "failed");
    assert_eq!((&job["exit"], attempts.len()), (&4.into(), 1), "{job}");
    assert!(job["error"].as_str().unwrap().contains("missing"), "{job}");
    let (job, _) = fleet.until(wrong, "failed");
    assert_eq!(job["exit"], 2, "{job}");
    let waits = |id| {
        wait_for("a failed attempt", || {
            let (job, _) = fleet.job(id);
            (job["failures"] == 1).then_some(job)
        })
    };
    let job = waits(away);
    assert_eq!(
        (&job["state"], &job["exit"]),
        (&"waiting".into(), &5.into()),
        "{job}"
    );
    assert!(job["not_before"].as_f64() > job["submitted"].as_f64().map(|at| at + 20.0));
    let job = waits(secret);
    assert!(job["error"].as_str().unwrap().contains("cms"), "{job}");
}

#[test]
fn a_credential_is_in_the_environment_of_the_copy_alone() {
    let Some(fleet) = Fleet::new("a_credential_is_in_the_environment") else {
        return;
    };
    let file = fleet.path("credentials.toml");
    let seen = fleet.path("seen");
    let command = format!("echo run >> {}; echo token", seen.display());
    let text = format!("[cms]\ncommands.BEARER_TOKEN = ['sh', '-c', '{command}']\n");
    fs::write(&file, text).unwrap();
    let source = fleet.file("f", 10);
    let id = fleet.submit(&["--credential", "cms", &source, &fleet.copy_of("f")]);
    let _worker = fleet.worker("w", &["--credentials", file.to_str().unwrap()]);
    fleet.until(id, "done");
    assert_eq!(fs::read_to_string(seen).unwrap(), "run\n");
}

#[test]
fn running_copies_share_the_rate_of_an_endpoint() {
    let Some(fleet) = Fleet::new("running_copies_share_the_rate") else {
        return;
    };
    let limited = fleet.queue(&["limit", "127.0.0.1", "--rate", "400k", "--sessions", "9"]);
    assert!(limited.status.success(), "{limited:?}");
    let source = fleet.file("f", 4_000_000);
    let first = fleet.submit(&[&source, &fleet.copy_of("a")]);
    let _worker = fleet.worker("w", &[]);
    let rate = |id: i64| fs::read_to_string(fleet.path("w").join(format!("{id}-1.rate"))).ok();
    let is = |id, text: &str| {
        let wanted = format!("{text}\n");
        wait_for(text, || rate(id).filter(|found| *found == wanted));
    };
    is(first, "400000bit");
    let second = fleet.submit(&[&source, &fleet.copy_of("b")]);
    is(second, "200000bit");
    is(first, "200000bit");
    assert!(
        fleet
            .queue(&["cancel", &second.to_string()])
            .status
            .success()
    );
    is(first, "400000bit");
    // Without the limit the copy ends soon.
    let words = ["limit", "127.0.0.1", "--rate", "off", "--sessions", "off"];
    assert!(fleet.queue(&words).status.success());
    fleet.until(first, "done");
}
