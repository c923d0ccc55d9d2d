use data::os::TcpInfo;
use data::os::tcp_info::SocketMemory;
use tune::limiter::Limiter;
use tune::sizing::BufferSetting;
use tune::streams::auto::TransferSetting;

use super::*;

fn written(write: impl FnOnce(&TraceFile)) -> Vec<serde_json::Value> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    write(&TraceFile::create(&path).unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

#[test]
fn two_runs_do_not_write_one_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let first = TraceFile::create(&path).unwrap();
    let failure = TraceFile::create(&path).unwrap_err();
    assert!(failure.message.contains("another run"), "{failure}");
    drop(first);
    TraceFile::create(&path).unwrap();
}

#[test]
fn one_line_a_stream_and_one_a_transfer() {
    let info = TcpInfo {
        bytes_acked: 5_000_000,
        snd_cwnd: 10,
        snd_mss: 1_448,
        rtt_us: 50_000,
        busy_us: 100,
        rwnd_limited_us: 90,
        ..TcpInfo::default()
    };
    let sender = |stream, wmem_queued| StreamSample {
        stream,
        info,
        memory: SocketMemory {
            rmem_alloc: 0,
            rcvbuf: 131_072,
            sndbuf: 4_194_304,
            wmem_queued,
        },
    };
    let lines = written(|trace| {
        trace.write(&TraceSample {
            time: Duration::from_millis(1500),
            since: Duration::from_millis(200),
            file: "ftp://h/a",
            bytes: 10_000_000,
            fresh: 1_000_000,
            buffer_set: None,
            streams: &[sender(8, 1000), sender(11, 20)],
        });
    });
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["sample"], "stream");
    assert_eq!(
        (&lines[0]["stream"], &lines[1]["stream"]),
        (&8.into(), &11.into())
    );
    assert_eq!(lines[0]["window"], 14_480);
    assert_eq!(lines[0]["buffer"], 4_194_304);
    assert_eq!(lines[0]["buffer_receive"], 131_072);
    assert_eq!(lines[1]["memory"], 20);
    assert_eq!(lines[2]["sample"], "transfer");
    assert_eq!(lines[2]["streams"], 2);
    assert_eq!(lines[2]["memory"], 1020);
    assert_eq!(lines[2]["bandwidth"], 40_000_000.0);
    assert_eq!(lines[2]["limiter"], "receive window");
}

#[test]
fn a_decision_tells_what_is_done_and_why() {
    let mut decision = BufferDecision {
        stream: 3,
        at: Duration::from_secs(9),
        setting: Some(BufferSetting::SendBuffer(8 << 20)),
        limiter: Limiter::SendBuffer,
        reason: "autotuning is at its end".to_owned(),
    };
    let lines = written(|trace| {
        trace.decided(Duration::from_millis(2500), "f", &decision);
        decision.setting = None;
        trace.decided(Duration::from_millis(2500), "f", &decision);
    });
    assert_eq!(
        lines[0],
        serde_json::json!({
            "sample": "decision", "time": 2.5, "file": "f", "stream": 3,
            "limiter": "send buffer", "change": "send buffer 8388608",
            "reason": "autotuning is at its end",
        })
    );
    assert!(lines[1]["change"].is_null());
}

#[test]
fn a_decision_about_streams_says_which_step_is_taken() {
    let of = |step| auto::TransferDecision {
        at: Duration::from_secs(9),
        setting: step,
        limiter: Limiter::Loss,
        reason: "losses without a queue".to_owned(),
    };
    let steps = [
        Some(TransferSetting::Streams(4)),
        Some(TransferSetting::CongestionControl("bbr".to_owned())),
        Some(TransferSetting::PacingRate(Some(12_345_678))),
        Some(TransferSetting::PacingRate(None)),
        None,
    ];
    let lines = written(|trace| {
        for step in steps {
            trace.streams_decided(Duration::from_millis(2500), "f", &of(step));
        }
    });
    assert_eq!(
        lines[0],
        serde_json::json!({
            "sample": "decision", "time": 2.5, "file": "f", "change": "streams 4",
            "limiter": "congestion window (loss)", "reason": "losses without a queue",
        })
    );
    let changes: Vec<_> = lines.iter().map(|l| l["change"].as_str()).collect();
    let expected = ["streams 4", "congestion bbr", "pace 98.8M", "pace none"];
    assert_eq!(changes[..4], expected.map(Some));
    assert_eq!(changes[4], None);
}
