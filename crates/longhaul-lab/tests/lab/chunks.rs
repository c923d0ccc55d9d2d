//! Gets in chunks from a server of another program: the number of streams per chunk follows the path.

use serde_json::Value;

use crate::harness::{LabScriptRun, LabTestGuard, TestLab, is_installed};

const GLOBUS: &str = "globus-gridftp-server";

/// Fetches a file of 100 MB from globus-gridftp-server on host b, and compares it.
const SCRIPT: &str = r#"
head -c 100000000 /dev/urandom > source
on b env GLOBUS_HOSTNAME=localhost "PATH=$PATH:/usr/sbin" \
    globus-gridftp-server -aa -anonymous-user nobody -p 2811 > server.log 2>&1 &
fetch() {
    on a "$LONGHAUL" cp --json --timeout 20 --trace trace "$@" \
        "ftp://$LAB_B:2811$PWD/source" copy > events
}
# The server does not announce when it is ready.
tries=0
until fetch "$@"; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || { cat events server.log >&2; exit 1; }
    sleep 0.1
done
cmp source copy
"#;

/// A path with a BDP of 500 KB on which one stream has a window of 64 KB.
const NARROW: [&str; 8] = [
    "--rtt",
    "20ms",
    "--rate",
    "200mbit",
    "--queue",
    "1bdp",
    "--sysctl",
    "net.ipv4.tcp_wmem=4096 65536 65536",
];

fn fetch(options: &[&str], verify: impl Fn(&LabScriptRun)) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed(GLOBUS) {
        return;
    }
    let script = format!("set -- {}\n{SCRIPT}", options.join(" "));
    TestLab::new(&turn, &NARROW).check(&script, verify);
}

/// Number of streams of each chunk.
fn chunks(run: &LabScriptRun) -> Vec<u64> {
    let trace = run.text("trace");
    let lines = trace
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter_map(|line: Value| {
            line["change"]
                .as_str()?
                .strip_prefix("streams ")?
                .parse()
                .ok()
        })
        .collect()
}

fn summary(run: &LabScriptRun) -> Value {
    let events = run.text("events");
    serde_json::from_str(events.lines().last().unwrap()).unwrap()
}

#[test]
fn auto_has_enough_streams_if_windows_are_small() {
    fetch(&[], |run| {
        let summary = summary(run);
        let streams = summary["streams_max"].as_u64();
        assert!(streams.is_some_and(|streams| streams >= 8), "{summary}");
        assert_eq!(summary["verified"], "adler32", "{summary}");
        // One stream gets 26 Mbit/s on this path.
        assert!(summary["goodput_bps"].as_f64().unwrap() > 60e6, "{summary}");
    });
}

#[test]
fn mode_mi_doubles_the_streams_and_then_stops() {
    let options = ["-p", "mi", "--autopar", "delta=500ms", "--buffer", "64Ki"];
    fetch(&options, |run| {
        let chunks = chunks(run);
        assert_eq!(chunks[..3], [1, 2, 4], "{chunks:?}");
        assert!(chunks.windows(2).all(|w| w[1] == w[0] || w[1] == 2 * w[0]));
    });
}
