//! A big file of a server of another program over several sessions in MODE E: complete and verified with bytes of each, and
//! resumed after SIGKILL.

use serde_json::Value;

use crate::harness::{LabScriptRun, LabTestGuard, TestLab, is_installed};

const GLOBUS: &str = "globus-gridftp-server";
/// Size of the file, bytes: more sessions join while much of it is left.
const SIZE: u64 = 120_000_000;

/// Starts globus-gridftp-server on host b with its logs, and defines `fetch OPTIONS`, which gets the file `source` as `copy`.
const SERVER: &str = r#"
head -c 120000000 /dev/urandom > source
on b env GLOBUS_HOSTNAME=localhost "PATH=$PATH:/usr/sbin" \
    globus-gridftp-server -aa -anonymous-user nobody -p 2811 -d ALL -log-module stdio:buffer=0 \
    -l "$PWD/commands" -Z "$PWD/transfers" > server.log 2>&1 &
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { cat events server.log >&2; return 1; }
        sleep 0.1
    done
}
# The server does not announce when it is ready.
ready() { await on a "$LONGHAUL" ls "ftp://$LAB_B:2811$PWD/source" > events; }
fetch() {
    on a sh -c 'echo $$ > pid; exec "$@"' sh "$LONGHAUL" cp --json --no-history --mode e --timeout 20 --trace trace \
        "$@" "ftp://$LAB_B:2811$PWD/source" copy > events
}
"#;

/// A long path without losses on which a stream has a window of some KB: 16 of them are not enough.
const NARROW: [&str; 4] = [
    "--rtt",
    "80ms",
    "--sysctl",
    "net.ipv4.tcp_wmem=4096 8192 8192",
];

fn fetch(script: &str, verify: impl Fn(&LabScriptRun)) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed(GLOBUS) {
        return;
    }
    let script = [SERVER, script].concat();
    TestLab::new(&turn, &NARROW).check(&script, verify);
}

fn summary(run: &LabScriptRun) -> Value {
    let events = run.text("events");
    serde_json::from_str(events.lines().last().unwrap()).unwrap()
}

/// Processes of the server, one for each session, that were told to send the file or a part of it.
fn sending_sessions(run: &LabScriptRun) -> usize {
    let commands = run.text("commands");
    let sends = commands
        .lines()
        .filter(|line| line.contains("[CLIENT]: RETR ") || line.contains("[CLIENT]: ERET "));
    let mut processes: Vec<&str> = sends
        .filter_map(|line| line.split_once(']').map(|(process, _)| process))
        .collect();
    processes.sort_unstable();
    processes.dedup();
    processes.len()
}

#[test]
fn several_sessions_share_a_file_of_another_program() {
    let script = "ready\nfetch\ncmp source copy\n";
    fetch(script, |run| {
        let summary = summary(run);
        assert_eq!(summary["verified"], "adler32", "{summary}");
        assert!(sending_sessions(run) >= 2, "{}", run.text("commands"));
        // The range that was taken last is sent to its end: a part of the file, by a later session.
        let transfers = run.text("transfers");
        let part = |line: &str| -> Option<u64> {
            let (_, bytes) = line
                .split_once("TYPE=ERET CODE=226")
                .and(line.split_once("NBYTES="))?;
            bytes.split(' ').next()?.parse().ok()
        };
        let parts: Vec<u64> = transfers.lines().filter_map(part).collect();
        assert!(
            parts.iter().any(|bytes| (1..SIZE).contains(bytes)),
            "{transfers}"
        );
    });
}

#[test]
fn a_killed_get_over_several_sessions_moves_only_what_is_missing() {
    // Killed while two sessions send. What was safe for a while is in the journal.
    let script = r#"
        ready
        fetch & fetching=$!
        await grep -q "CLIENT.: ERET" commands
        sleep 1.5
        grep '"event":"progress"' events | tail -n 1 > safe
        sleep 1
        kill -9 "$(cat pid)"
        wait $fetching || true
        [ ! -e copy ] || { echo "killed after its end" >&2; exit 1; }
        # As many streams as the first session had, so that no two sessions fetch bytes at the border of their ranges.
        fetch -p 16 --resume
        cmp source copy
    "#;
    fetch(script, |run| {
        let safe = run.json("safe")["safe"].as_u64().unwrap();
        let summary = summary(run);
        let bytes = summary["bytes"].as_u64().unwrap();
        assert!(safe > SIZE / 10, "{safe}");
        assert!(
            bytes > 0 && bytes <= SIZE - safe,
            "{safe} were safe: {summary}"
        );
        assert_eq!(summary["verified"], "adler32", "{summary}");
        assert!(sending_sessions(run) >= 2, "{}", run.text("commands"));
    });
}
