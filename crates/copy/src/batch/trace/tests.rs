use tune::limiter::Limiter;
use tune::sample::TcpSample;
use tune::sizing::{BufferSetting, DrsMeasurement};
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
fn a_second_run_cannot_write_the_same_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let first = TraceFile::create(&path).unwrap();
    let failure = TraceFile::create(&path).unwrap_err();
    assert!(failure.to_string().contains("another run"), "{failure}");
    drop(first);
    TraceFile::create(&path).unwrap();
}

#[test]
fn a_sample_has_one_line_per_stream_and_one_per_transfer() {
    let sender = |stream, send_queue_memory| TcpSample {
        stream,
        bytes_acked: 5_000_000,
        cwnd: 14_480,
        smoothed_rtt: Duration::from_millis(50),
        busy_time: Duration::from_micros(100),
        rwnd_limited: Duration::from_micros(90),
        send_buffer: 4_194_304,
        send_queue_memory,
        receive_buffer: 131_072,
        ..TcpSample::default()
    };
    let lines = written(|trace| {
        trace.write_sample(&TraceSample {
            time: Duration::from_millis(1500),
            since_previous: Duration::from_millis(200),
            file: "ftp://h/a",
            bytes: 10_000_000,
            new_bytes: 1_000_000,
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
fn a_buffer_decision_has_its_change_and_reason() {
    let mut decision = BufferDecision {
        stream: 3,
        at: Duration::from_secs(9),
        setting: Some(BufferSetting::SendBuffer(8 << 20)),
        limiter: Limiter::SendBuffer,
        reason: "autotuning is at its end".to_owned(),
        measured: None,
    };
    let lines = written(|trace| {
        trace.write_buffer_decision(Duration::from_millis(2500), "f", &decision);
        decision.setting = None;
        decision.measured = Some(DrsMeasurement {
            echo: Duration::from_millis(180),
            round_trip: Duration::from_millis(75),
            bandwidth: 55_000_000,
        });
        trace.write_buffer_decision(Duration::from_millis(2500), "f", &decision);
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
    let measured = ["echo", "rtt", "bandwidth"].map(|field| lines[1][field].as_u64());
    assert_eq!(measured, [Some(180_000), Some(75_000), Some(55_000_000)]);
}

#[test]
fn a_transfer_decision_has_its_change_and_reason() {
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
            trace.write_transfer_decision(Duration::from_millis(2500), "f", &of(step));
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
