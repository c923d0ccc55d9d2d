//! The lines of `--json` are as docs/json-schema/copy-events.schema.json says, and the last one is the summary.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

mod served;

use served::ServedRoot;

const SCHEMA: &str = include_str!("../../../docs/json-schema/copy-events.schema.json");

/// A server that anybody may write to.
fn open_server(root: &Path) -> ServedRoot {
    fs::create_dir_all(root).unwrap();
    ServedRoot::start(root, "rw")
}

fn url(server: &ServedRoot, path: &str) -> String {
    format!("ftp://{}/{path}", server.address)
}

fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .env_remove("RUST_LOG")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off");
    command
}

/// The lines that a verb prints with `--json`, and its exit code.
fn lines_of(verb: &str, arguments: &[&str]) -> (Vec<Value>, i32) {
    let output = longhaul()
        .arg(verb)
        .arg("--json")
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|l| serde_json::from_str(l).unwrap());
    (lines.collect(), output.status.code().unwrap())
}

/// Checks lines, notes their events, and returns the last one, which is the summary.
fn check(lines: &[Value], seen: &mut BTreeSet<String>) -> Value {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let planned = lines.iter().filter(|line| line["event"] == "planned");
    let planned: Vec<_> = planned
        .map(|line| (&line["files"], &line["bytes"]))
        .collect();
    let mut different = planned.clone();
    different.dedup();
    assert_eq!(planned, different, "a size is reported when it has grown");
    for line in lines {
        let event = line["event"].as_str().unwrap().to_owned();
        // The part for the event, so that a message names its field.
        let mut part = schema["$defs"][&event].clone();
        assert!(part.is_object(), "the schema has no event {event}");
        part["$defs"] = schema["$defs"].clone();
        let validator = jsonschema::validator_for(&part).unwrap();
        let errors: Vec<_> = validator.iter_errors(line).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{line}: {errors:?}");
        seen.insert(event);
    }
    let is_summary = |line: &&Value| line["event"] == "summary";
    assert_eq!(lines.iter().filter(is_summary).count(), 1);
    lines.last().filter(is_summary).unwrap().clone()
}

#[test]
fn every_event_is_as_the_schema_says() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (
        open_server(&scratch.path().join("a")),
        open_server(&scratch.path().join("b")),
    );
    for name in ["a/t/x", "a/t/d/y", "there/x", "there/extra"] {
        let file = scratch.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, name).unwrap();
    }
    fs::create_dir_all(path("links")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("links/l")).unwrap();
    // It ends each connection before its greeting.
    let broken = TcpListener::bind("127.0.0.1:0").unwrap();
    let broken_url = format!("ftp://{}/f", broken.local_addr().unwrap());
    std::thread::spawn(move || broken.incoming().for_each(drop));
    let mut seen = BTreeSet::new();
    let mut run = |verb: &str, arguments: &[&str], code: i32| {
        let (lines, status) = lines_of(verb, arguments);
        assert_eq!(status, code, "{verb} {arguments:?}: {lines:?}");
        let summary = check(&lines, &mut seen);
        assert_eq!(summary["exit"], code);
        summary
    };
    let (tree, single) = (url(&a, "t"), url(&a, "t/x"));
    run("cp", &["-r", &tree, &path("got")], 0);
    run("cp", &["-r", &tree, &url(&b, "third")], 0);
    run("cp", &[&path("got/x"), &url(&b, "put")], 0);
    run("cp", &["-n", &single, &path("dry")], 0);
    run("cp", &["--plan", &single, &path("dry")], 0);
    run("cp", &["-r", &path("links"), &path("copied-links")], 0);
    // It differs from its source: a warning.
    run("cp", &["--keep-existing", &single, &path("there/x")], 0);
    run("sync", &["-n", "--delete", &tree, &path("there")], 0);
    run("sync", &["--delete", &tree, &path("there")], 0);
    run("cp", &[&url(&a, "missing"), &path("m")], 4);
    // One of two pairs is missing, so its list can be continued.
    fs::write(
        path("list"),
        format!("{single} {}\n/no/such/file /x\n", path("p")),
    )
    .unwrap();
    let pairs = ["--journal", &path("journal"), "--from", &path("list")];
    for _ in 0..2 {
        run("cp", &pairs, 1);
    }
    let lost = run("cp", &["--retries", "1", &broken_url, &path("f")], 5);
    assert!(lost["error"].is_string());
    // Refused before anything begins.
    let none = path("none");
    run("cp", &["-r", "--files-from", &none, &tree, &path("c")], 4);
    check(&suspended_limit(&a), &mut seen);
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let events = schema["oneOf"].as_array().unwrap().iter();
    let described: BTreeSet<String> = events
        .map(|part| part["$ref"].as_str().unwrap())
        .map(|part| part.rsplit('/').next().unwrap().to_owned())
        .collect();
    assert_eq!(seen, described);
}

/// A copy of standard input, which runs until its input ends.
struct EndlessCopy {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    lines: Vec<Value>,
}

impl EndlessCopy {
    /// Begins with some bytes, and waits until they move.
    fn start(flags: &[&str], to: &str) -> Self {
        let mut child = longhaul()
            .args(["cp", "--json"])
            .args(flags)
            .args(["-", to])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut copy = Self {
            input: child.stdin.take(),
            child,
            output,
            lines: Vec::new(),
        };
        copy.write(&[7; 4096]);
        copy.read_until(|line| line["event"] == "started");
        copy
    }

    fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn read_until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.output.next().map(Result::unwrap);
            let line: Value = serde_json::from_str(&line.unwrap_or_default()).unwrap();
            self.lines.push(line.clone());
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Ends the input, and returns the summary.
    fn end(&mut self) -> Value {
        self.input = None;
        let summary = self.read_until(|line| line["event"] == "summary");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        summary
    }
}

fn send_signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The lines of a copy whose limit is suspended, put in force, and suspended again.
fn suspended_limit(server: &ServedRoot) -> Vec<Value> {
    let mut copy = EndlessCopy::start(&["--limit-rate", "80k"], &url(server, "limited"));
    for (is_suspended, limit) in [(true, None), (false, Some(80_000.0)), (true, None)] {
        send_signal(&copy.child, Signal::USR2);
        let event = copy.read_until(|line| line["event"] == "rate_limit");
        assert_eq!(event["suspended"], is_suspended);
        assert_eq!(event["limit_bps"].as_f64(), limit);
    }
    // At 80 kbit/s they would take more than half an hour.
    copy.write(&vec![8; 20 << 20]);
    assert_eq!(copy.end()["bytes"], (20 << 20) + 4096);
    copy.lines
}

#[test]
fn sigusr1_prints_the_progress_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let server = open_server(&scratch.path().join("root"));
    // By itself it would print none within an hour.
    let mut copy = EndlessCopy::start(&["--stats", "1h"], &url(&server, "f"));
    let pid = Pid::from_child(&copy.child);
    let is_seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_seen.load(Ordering::Relaxed) {
                kill_process(pid, Signal::USR1).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        copy.read_until(|line| line["event"] == "progress");
        is_seen.store(true, Ordering::Relaxed);
    });
    assert_eq!(copy.end()["bytes"], 4096);
}

/// A copy from a server that says nothing goes on after `signal`. `program` is longhaul, or starts it.
fn goes_on_after(signal: Signal, mut program: Command) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://{}/f", silent.local_addr().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let mut copy = program
        .args(["cp", &url])
        .arg(scratch.path().join("f"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _connection = silent.accept().unwrap();
    send_signal(&copy, signal);
    send_signal(&copy, Signal::USR1);
    let mut lines = BufReader::new(copy.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line, "no file moves yet", "the answer to SIGUSR1");
    assert!(copy.try_wait().unwrap().is_none(), "it goes on");
    send_signal(&copy, Signal::TERM);
    assert_eq!(copy.wait().unwrap().code(), Some(130));
}

#[test]
fn without_a_limit_sigusr2_is_ignored() {
    goes_on_after(Signal::USR2, longhaul());
}

#[test]
fn a_copy_under_nohup_survives_its_terminal() {
    // As nohup(1) does.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_longhaul"));
    goes_on_after(Signal::HUP, shell);
}

#[test]
fn the_schema_refuses_unknown_fields_and_wrong_types() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let time = "2026-01-02T03:04:05.678Z";
    let good = json!({"event": "deleted", "path": "p", "time": time});
    assert!(validator.is_valid(&good));
    for bad in [
        json!({"event": "deleted", "path": "p"}),
        json!({"event": "deleted", "path": 7, "time": time}),
        json!({"event": "deleted", "path": "p", "time": "today"}),
        json!({"event": "deleted", "path": "p", "time": time, "more": 1}),
        json!({"event": "invented", "time": time}),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}

#[test]
fn an_interrupted_copy_ends_with_its_summary() {
    let scratch = tempfile::tempdir().unwrap();
    let server = open_server(&scratch.path().join("root"));
    let big = fs::File::create(scratch.path().join("root/big")).unwrap();
    big.set_len(64 << 20).unwrap();
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    for (nth, signal) in signals.into_iter().enumerate() {
        let to = scratch.path().join(nth.to_string());
        // Where nohup(1) runs the tests, SIGHUP is ignored.
        let mut copying = Command::new("env")
            .arg("--default-signal=HUP")
            .arg(env!("CARGO_BIN_EXE_longhaul"))
            .args(["cp", "--json", "--limit-rate", "80M", &url(&server, "big")])
            .arg(to)
            .env_remove("RUST_LOG")
            .env("LONGHAUL_HISTORY", "off")
            .env("LONGHAUL_BATCHES", "off")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(copying.stdout.take().unwrap()).lines();
        let mut next = || -> Option<Value> {
            let line = output.next()?.unwrap();
            Some(serde_json::from_str(&line).unwrap())
        };
        let mut lines = Vec::new();
        let is_moving = |line: &Value| line["bytes"].as_u64() > Some(0);
        while !lines
            .last()
            .is_some_and(|l: &Value| l["event"] == "progress" && is_moving(l))
        {
            lines.push(next().unwrap());
        }
        let moved = lines.last().unwrap()["bytes"].as_u64();
        kill_process(Pid::from_child(&copying), signal).unwrap();
        lines.extend(std::iter::from_fn(next));
        assert_eq!(copying.wait().unwrap().code(), Some(130));
        let summary = check(&lines, &mut BTreeSet::new());
        assert_eq!(summary["exit"], 130);
        assert!(summary["bytes"].as_u64() >= moved, "{summary}");
        assert!(
            summary["error"]
                .as_str()
                .unwrap()
                .contains("repeat the command")
        );
        assert!(summary["safe"].is_u64(), "{summary}");
    }
}
