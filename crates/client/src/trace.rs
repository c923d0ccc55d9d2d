//! `--trace`: JSON Lines, one sample a line per stream and one per transfer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use data::job::StreamSample;
use data::os::TcpInfo;
use serde::Serialize;

use crate::Failure;
use crate::partial::local;

/// An open trace file.
#[derive(Debug)]
pub(crate) struct Trace {
    out: Mutex<BufWriter<File>>,
}

#[derive(Serialize)]
struct TransferLine<'a> {
    /// `transfer`
    sample: &'static str,
    /// Seconds since the run began.
    time: f64,
    /// Source.
    file: &'a str,
    /// Bytes moved so far.
    bytes: u64,
    /// Bits per second since the previous sample.
    bandwidth: f64,
    /// Largest smoothed RTT, microseconds.
    rtt: u32,
    /// Sum of the streams' windows, bytes.
    window: u64,
    /// Buffer that was set, bytes; absent: the kernel's autotuning.
    buffer_set: Option<u64>,
    /// Streams open.
    streams: usize,
    /// What the windows say holds the transfer back now.
    limiter: &'static str,
}

#[derive(Serialize)]
struct StreamLine<'a> {
    /// `stream`
    sample: &'static str,
    time: f64,
    file: &'a str,
    /// Number of the stream in this sample, from 0.
    stream: usize,
    /// Sent and acknowledged, or received.
    bytes: u64,
    /// The kernel's delivery rate, bits per second (senders; 0 otherwise).
    bandwidth: u64,
    rtt: u32,
    min_rtt: u32,
    /// Congestion window of a sender, announced window of a receiver, bytes.
    window: u64,
    /// Receive buffer that the kernel's autotuning has reached, bytes.
    buffer: u32,
    /// Bytes in flight.
    in_flight: u64,
    retransmits: u32,
    /// Microseconds: outstanding data; of that limited by the peer's window, by the send buffer.
    busy: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

/// One transfer at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// Since the run began.
    pub(crate) time: Duration,
    /// Since the previous sample.
    pub(crate) since: Duration,
    /// Source.
    pub(crate) file: &'a str,
    /// Bytes moved so far.
    pub(crate) bytes: u64,
    /// Bytes moved since the previous sample.
    pub(crate) fresh: u64,
    /// Pinned buffer, bytes.
    pub(crate) buffer_set: Option<u64>,
    /// The streams.
    pub(crate) streams: &'a [StreamSample],
}

impl Trace {
    /// Creates the file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|e| local(path, e))?;
        Ok(Self {
            out: Mutex::new(BufWriter::new(file)),
        })
    }

    /// Writes the lines of one moment. A trace that cannot be written does not stop a transfer.
    pub(crate) fn write(&self, snapshot: &Snapshot<'_>) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        for (stream, sample) in snapshot.streams.iter().enumerate() {
            line(&mut *out, &stream_sample(snapshot, stream, &sample.info));
        }
        line(&mut *out, &transfer_sample(snapshot));
        if let Err(e) = out.flush() {
            tracing::debug!("trace: {e}");
        }
    }
}

fn line(out: &mut impl Write, value: &impl Serialize) {
    let written = serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from);
    if let Err(e) = written.and_then(|()| out.write_all(b"\n")) {
        tracing::debug!("trace: {e}");
    }
}

fn window(info: &TcpInfo) -> u64 {
    if info.bytes_acked > info.bytes_received {
        u64::from(info.snd_cwnd) * u64::from(info.snd_mss)
    } else {
        u64::from(info.rcv_wnd)
    }
}

fn transfer_sample<'a>(snapshot: &Snapshot<'a>) -> TransferLine<'a> {
    let seconds = snapshot.since.as_secs_f64().max(1e-6);
    TransferLine {
        sample: "transfer",
        time: snapshot.time.as_secs_f64(),
        file: snapshot.file,
        bytes: snapshot.bytes,
        bandwidth: snapshot.fresh as f64 * 8.0 / seconds,
        rtt: snapshot
            .streams
            .iter()
            .map(|s| s.info.rtt_us)
            .max()
            .unwrap_or(0),
        window: snapshot.streams.iter().map(|s| window(&s.info)).sum(),
        buffer_set: snapshot.buffer_set,
        streams: snapshot.streams.len(),
        limiter: limiter(snapshot.streams).name(),
    }
}

fn stream_sample<'a>(snapshot: &Snapshot<'a>, stream: usize, info: &TcpInfo) -> StreamLine<'a> {
    StreamLine {
        sample: "stream",
        time: snapshot.time.as_secs_f64(),
        file: snapshot.file,
        stream,
        bytes: info.bytes_acked.max(info.bytes_received),
        bandwidth: info.delivery_rate.saturating_mul(8),
        rtt: info.rtt_us,
        min_rtt: info.min_rtt_us,
        window: window(info),
        buffer: info.rcv_space,
        in_flight: u64::from(info.unacked) * u64::from(info.snd_mss),
        retransmits: info.total_retrans,
        busy: info.busy_us,
        rwnd_limited: info.rwnd_limited_us,
        sndbuf_limited: info.sndbuf_limited_us,
    }
}

/// The limiter that the kernel's own accounts show on the senders' streams so far.
fn limiter(streams: &[StreamSample]) -> tune::limiter::Limiter {
    use tune::limiter::Limiter;
    let sum = |field: fn(&TcpInfo) -> u64| streams.iter().map(|s| field(&s.info)).sum::<u64>();
    let busy = sum(|s| s.busy_us);
    let (rwnd, sndbuf) = (sum(|s| s.rwnd_limited_us), sum(|s| s.sndbuf_limited_us));
    if busy == 0 {
        Limiter::Unknown
    } else if rwnd >= sndbuf && rwnd * 2 >= busy {
        Limiter::ReceiveWindow
    } else if sndbuf * 2 >= busy {
        Limiter::SendBuffer
    } else if sum(|s| u64::from(s.total_retrans)) > 0 {
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_stream_and_one_a_transfer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let trace = Trace::create(&path).unwrap();
        let info = TcpInfo {
            bytes_acked: 5_000_000,
            snd_cwnd: 10,
            snd_mss: 1_448,
            rtt_us: 50_000,
            busy_us: 100,
            rwnd_limited_us: 90,
            ..TcpInfo::default()
        };
        let sender = StreamSample {
            info,
            ..StreamSample::default()
        };
        trace.write(&Snapshot {
            time: Duration::from_millis(1500),
            since: Duration::from_millis(200),
            file: "ftp://h/a",
            bytes: 10_000_000,
            fresh: 1_000_000,
            buffer_set: None,
            streams: &[sender, sender],
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["sample"], "stream");
        assert_eq!(lines[0]["window"], 14_480);
        assert_eq!(lines[2]["sample"], "transfer");
        assert_eq!(lines[2]["streams"], 2);
        assert_eq!(lines[2]["bandwidth"], 40_000_000.0);
        assert_eq!(lines[2]["limiter"], "receive window");
    }
}
