//! The lines of a trace. Units: seconds since the run began, bytes, microseconds for round trips,
//! bits per second for rates. docs/buffers.md describes them for users.

use std::time::Duration;

use serde::Serialize;
use tune::sample::{StreamId, TcpSample};
use tune::sizing::{BufferDecision, BufferSetting};
use tune::streams::auto::{self, TransferSetting};

use super::TraceSample;
use ftp::socket_stats;

/// One sample of a transfer.
#[derive(Serialize)]
pub(crate) struct TransferTraceLine<'a> {
    /// `transfer`
    sample: &'static str,
    time: f64,
    /// Source.
    file: &'a str,
    /// Bytes moved so far.
    bytes: u64,
    /// Rate since the previous sample.
    bandwidth: f64,
    /// Largest smoothed round-trip time of the streams.
    rtt: u64,
    /// Sum of the streams' windows.
    window: u64,
    /// Largest socket buffer in the direction of the transfer.
    buffer: u64,
    /// Memory held by the streams' sockets.
    memory: u64,
    /// Requested buffer size. Null if none was requested.
    buffer_set: Option<u64>,
    /// Open streams.
    streams: usize,
    /// Limiter of the transfer according to this end's kernel.
    limiter: &'static str,
}

/// One sample of a stream.
#[derive(Serialize)]
pub(crate) struct StreamTraceLine<'a> {
    /// `stream`
    sample: &'static str,
    time: f64,
    file: &'a str,
    /// Number of the stream, the same in all its lines.
    stream: StreamId,
    /// Bytes sent and acknowledged, or received.
    bytes: u64,
    /// Delivery rate as estimated by a sender's kernel. 0 otherwise.
    bandwidth: u64,
    rtt: u64,
    /// [`UNKNOWN_RTT`] while the kernel has no sample.
    min_rtt: u64,
    /// A receiver's own round-trip estimate, which includes queueing. 0: none.
    receive_rtt: u64,
    /// Congestion window of a sender, announced window of a receiver.
    window: u64,
    /// Window offered by the peer. At a sender: the receiver's window.
    peer_window: u64,
    /// Granted buffer in the stream's direction (twice the requested size). 0 before bytes moved.
    buffer: u64,
    /// Granted buffer for each direction.
    buffer_send: u64,
    buffer_receive: u64,
    /// Memory held by the socket: queued to send, received and not read.
    memory: u64,
    in_flight: u64,
    retransmits: u64,
    /// Time with data outstanding, and of that the time limited by the peer's window and by the
    /// send buffer, microseconds.
    busy: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

/// A decision about a stream's buffers.
#[derive(Serialize)]
pub(crate) struct BufferDecisionTraceLine<'a> {
    /// `decision`
    sample: &'static str,
    time: f64,
    file: &'a str,
    stream: StreamId,
    limiter: &'static str,
    /// The change. Null if none was made deliberately.
    change: Option<String>,
    reason: &'a str,
    /// With `drs` and `drs2004`, after an echo: its time, and the round trip and the bandwidth with which the
    /// buffer is sized. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    echo: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth: Option<u64>,
}

/// A decision about a transfer's streams: number, congestion control, pacing.
#[derive(Serialize)]
pub(crate) struct TransferDecisionTraceLine<'a> {
    /// `decision`, without a `stream` field
    sample: &'static str,
    time: f64,
    file: &'a str,
    limiter: &'static str,
    /// `streams 4`, `congestion bbr`, `pace 98.8M` (bits per second over all streams), `pace none`.
    /// Null if no change was made deliberately.
    change: Option<String>,
    reason: &'a str,
}

/// `min_rtt` of a stream without a sample: the value of `tcpi_min_rtt` in that case.
const UNKNOWN_RTT: u64 = u32::MAX as u64;

/// A time in whole microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn transfer_line<'a>(snapshot: &TraceSample<'a>) -> TransferTraceLine<'a> {
    let streams = snapshot.streams;
    // Two samples may have the same time; a rate needs a positive interval.
    let seconds = snapshot.since_previous.as_secs_f64().max(1e-6);
    TransferTraceLine {
        sample: "transfer",
        time: snapshot.time.as_secs_f64(),
        file: snapshot.file,
        bytes: snapshot.bytes,
        bandwidth: snapshot.new_bytes as f64 * 8.0 / seconds,
        rtt: streams
            .iter()
            .map(|s| micros(s.smoothed_rtt))
            .max()
            .unwrap_or(0),
        window: streams.iter().map(socket_stats::window).sum(),
        buffer: streams.iter().map(socket_stats::buffer).max().unwrap_or(0),
        memory: streams.iter().map(TcpSample::socket_memory).sum(),
        buffer_set: snapshot.buffer_set,
        streams: streams.len(),
        limiter: socket_stats::limiter(streams).name(),
    }
}

pub(crate) fn stream_line<'a>(
    snapshot: &TraceSample<'a>,
    sample: &TcpSample,
) -> StreamTraceLine<'a> {
    StreamTraceLine {
        sample: "stream",
        time: snapshot.time.as_secs_f64(),
        file: snapshot.file,
        stream: sample.stream,
        // A stream carries data in one direction, so the larger counter is its own.
        bytes: sample.bytes_acked.max(sample.bytes_received),
        bandwidth: sample.delivery_rate.saturating_mul(8),
        rtt: micros(sample.smoothed_rtt),
        min_rtt: if sample.min_rtt.is_zero() {
            UNKNOWN_RTT
        } else {
            micros(sample.min_rtt)
        },
        receive_rtt: micros(sample.receiver_rtt),
        window: socket_stats::window(sample),
        peer_window: sample.peer_window,
        buffer: socket_stats::buffer(sample),
        buffer_send: sample.send_buffer,
        buffer_receive: sample.receive_buffer,
        memory: sample.socket_memory(),
        in_flight: sample.unacked,
        retransmits: sample.retransmits,
        busy: micros(sample.busy_time),
        rwnd_limited: micros(sample.rwnd_limited),
        sndbuf_limited: micros(sample.sndbuf_limited),
    }
}

pub(crate) fn buffer_decision_line<'a>(
    time: Duration,
    file: &'a str,
    decision: &'a BufferDecision,
) -> BufferDecisionTraceLine<'a> {
    BufferDecisionTraceLine {
        sample: "decision",
        time: time.as_secs_f64(),
        file,
        stream: decision.stream,
        limiter: decision.limiter.name(),
        change: decision.setting.map(describe_buffer_setting),
        reason: &decision.reason,
        echo: decision.measured.map(|measured| micros(measured.echo)),
        rtt: decision
            .measured
            .map(|measured| micros(measured.round_trip)),
        bandwidth: decision.measured.map(|measured| measured.bandwidth),
    }
}

/// A change of a buffer, bytes.
pub(crate) fn describe_buffer_setting(change: BufferSetting) -> String {
    let (kind, bytes) = match change {
        BufferSetting::SendBuffer(bytes) => ("send buffer", bytes),
        BufferSetting::ReceiveBuffer(bytes) => ("receive buffer", bytes),
        BufferSetting::WindowClamp(bytes) => ("window", bytes),
        BufferSetting::RestoreAutotuning(bytes) => ("regrow", bytes),
    };
    format!("{kind} {bytes}")
}

pub(crate) fn transfer_decision_line<'a>(
    time: Duration,
    file: &'a str,
    decision: &'a auto::TransferDecision,
) -> TransferDecisionTraceLine<'a> {
    TransferDecisionTraceLine {
        sample: "decision",
        time: time.as_secs_f64(),
        file,
        limiter: decision.limiter.name(),
        change: decision.setting.as_ref().map(describe_transfer_setting),
        reason: &decision.reason,
    }
}

/// A change of the streams.
pub(crate) fn describe_transfer_setting(step: &TransferSetting) -> String {
    match step {
        TransferSetting::Streams(count) => format!("streams {count}"),
        TransferSetting::CongestionControl(name) => format!("congestion {name}"),
        TransferSetting::StreamCongestionControl { streams, name } => {
            format!("congestion {name} on {} streams", streams.len())
        }
        TransferSetting::PacingRate(Some(bytes)) => {
            format!("pace {:.1}M", *bytes as f64 * 8.0 / 1e6)
        }
        TransferSetting::PacingRate(None) => "pace none".to_owned(),
    }
}
