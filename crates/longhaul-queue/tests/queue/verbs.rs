//! The verbs, their exit codes, and the state over HTTP.

use crate::harness::{Fleet, http};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_that_no_worker_could_run_is_refused() {
    let Some(fleet) = Fleet::new("a_job_that_no_worker_could_run_is_refused") else {
        return;
    };
    for words in [
        &["submit", "ftp://joe:hidden@h/x", "/data/"][..],
        &["submit", "x", "/data/"],
        &["submit", "ftp://h/x"],
        &["submit", "ftp://h/x", "/data/", "--", "--json"],
        &["submit", "ftp://h/x", "/data/", "--", "-r", "more"],
        &["submit", "--sync", "ftp://h/x", "ftp://h/y", "/data/"],
        &["limit", "--sessions", "3"],
        &["limit", "h"],
        &["limit", "h", "--hours", "soon"],
        &[
            "limit",
            "h",
            "--hours",
            "01:00-02:00",
            "--time-zone",
            "Nowhere",
        ],
        &["list", "--state", "asleep"],
        &["list", "--database", "mysql://h/x"],
    ] {
        let output = fleet.queue(words);
        assert_eq!(output.status.code(), Some(2), "{words:?} {output:?}");
        assert!(!text(&output.stderr).contains("hidden"), "{output:?}");
    }
    let away = fleet.queue(&["list", "--database", "postgres://joe:hidden@127.0.0.1:1/x"]);
    assert_eq!(away.status.code(), Some(5), "{away:?}");
    assert!(!text(&away.stderr).contains("hidden"), "{away:?}");
    assert_eq!(fleet.queue(&["show", "7"]).status.code(), Some(4));
    assert_eq!(fleet.queue(&["cancel", "7"]).status.code(), Some(1));
}

#[test]
fn a_reader_that_has_ended_is_no_failure_and_every_job_is_submitted() {
    let name = "a_reader_that_has_ended_is_no_failure_and_every_job_is_submitted";
    let Some(fleet) = Fleet::new(name) else {
        return;
    };
    let jobs = fleet.path("jobs");
    std::fs::write(&jobs, "ftp://h/a\t/a\nftp://h/b\t/b\nftp://h/c\t/c\n").unwrap();
    for words in [
        &["submit", "--from", jobs.to_str().unwrap()][..],
        &["list"],
        &["list", "--json"],
        &["show", "1"],
        &["show", "1", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = fleet.queue_command(words).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?} {output:?}");
        assert_eq!(text(&output.stderr), "", "{words:?}");
    }
    let listed = text(&fleet.queue(&["list"]).stdout);
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

#[test]
fn jobs_are_listed_shown_and_told_over_http() {
    let Some(fleet) = Fleet::new("jobs_are_listed_shown_and_told_over_http") else {
        return;
    };
    let source = fleet.file("f", 1000);
    let done = fleet.submit(&[&source, &fleet.copy_of("f")]);
    let _worker = fleet.worker("w", &[]);
    fleet.until(done, "done");
    let later = fleet.submit(&[
        "--after",
        "1h",
        "--owner",
        "ben",
        "ftp://h/<x>",
        "/data/",
        "--",
        "-r",
    ]);
    let listed = text(&fleet.queue(&["list"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines[0].contains("waiting") && lines[0].contains("ftp://h/<x> -> /data/"),
        "{listed}"
    );
    assert!(
        lines[1].contains("done") && lines[1].contains("anna"),
        "{listed}"
    );
    let of = text(&fleet.queue(&["list", "--state", "done", "--json"]).stdout);
    let object: serde_json::Value = serde_json::from_str(&of).unwrap();
    assert_eq!(
        (&object["job"], &object["owner"]),
        (&done.into(), &"anna".into())
    );
    let shown = text(&fleet.queue(&["show", &later.to_string()]).stdout);
    assert!(
        shown.contains("longhaul cp -r ftp://h/<x> /data/"),
        "{shown}"
    );
    let shown = text(&fleet.queue(&["show", &done.to_string()]).stdout);
    assert!(shown.contains("attempt 1: done at w"), "{shown}");
    let (_served, address) = fleet.shown();
    let page = http(&address, "/");
    assert!(
        page.contains("Queue") && page.contains(&fleet.copy_of("f")),
        "{page}"
    );
    let metrics = http(&address, "/metrics");
    for line in [
        "longhaul_queue_database_up 1",
        "longhaul_queue_jobs{state=\"done\"} 1",
        "longhaul_queue_owner_jobs{owner=\"ben\",state=\"waiting\"} 1",
        "longhaul_queue_attempts_total{outcome=\"done\"} 1",
        "longhaul_queue_moved_bytes_total 1000",
        "longhaul_queue_workers 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let overview: serde_json::Value =
        serde_json::from_str(&http(&address, "/api/v1/overview")).unwrap();
    assert_eq!(overview["jobs"]["waiting"], 1);
    assert_eq!(overview["ended"][0]["destination"], fleet.copy_of("f"));
    assert_eq!(http(&address, "/health"), "ok\n");
}
