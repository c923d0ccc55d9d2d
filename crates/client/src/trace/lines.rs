//! The lines of a trace. Times are seconds since the run began, sizes bytes, round trips
//! microseconds, rates bits per second; docs/buffers.md explains them to users.

use std::time::Duration;

use data::job::StreamSample;
use serde::Serialize;
use tune::sample::StreamId;
use tune::sizing::{BufferDecision, BufferSetting};
use tune::streams::auto::{self, TransferSetting};

use super::TraceSample;
use crate::socket_stats;

/// A transfer at one moment.
#[derive(Serialize)]
pub(super) struct TransferTraceLine<'a> {
    /// `transfer`
    sample: &'static str,
    time: f64,
    /// Source.
    file: &'a str,
    /// Moved so far.
    bytes: u64,
    /// Since the previous sample.
    bandwidth: f64,
    /// Largest smoothed round trip.
    rtt: u32,
    /// Sum of the streams' windows.
    window: u64,
    /// Largest buffer of a stream in the transfer's direction.
    buffer: u64,
    /// Sum of what the streams' sockets hold.
    memory: u64,
    /// Buffer that was pinned; null: none was.
    buffer_set: Option<u64>,
    /// Open now.
    streams: usize,
    /// Limiter of the transfer as far as this end's kernel tells.
    limiter: &'static str,
}

/// One stream at one moment.
#[derive(Serialize)]
pub(super) struct StreamTraceLine<'a> {
    /// `stream`
    sample: &'static str,
    time: f64,
    file: &'a str,
    /// The same stream has the same number in all lines.
    stream: StreamId,
    /// Sent and acknowledged, or received.
    bytes: u64,
    /// The kernel's delivery rate (senders; 0 otherwise).
    bandwidth: u64,
    rtt: u32,
    min_rtt: u32,
    /// A receiver's own estimate, with its queueing; 0: none.
    receive_rtt: u32,
    /// Congestion window of a sender, announced window of a receiver.
    window: u64,
    /// Window that the peer offers: at a sender, the receiver's.
    peer_window: u32,
    /// Granted in the stream's direction (twice what was asked for); 0 before bytes moved.
    buffer: u64,
    /// Granted for each direction.
    buffer_send: u32,
    buffer_receive: u32,
    /// Memory that the socket holds: queued to send, received and not read.
    memory: u64,
    in_flight: u64,
    retransmits: u32,
    /// Microseconds with data outstanding; of that limited by the peer's window, by the send
    /// buffer.
    busy: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

/// A decision about a stream's buffers.
#[derive(Serialize)]
pub(super) struct DecisionLine<'a> {
    /// `decision`
    sample: &'static str,
    time: f64,
    file: &'a str,
    stream: StreamId,
    limiter: &'static str,
    /// The change; null: none, on purpose.
    change: Option<String>,
    reason: &'a str,
}

/// A decision about a transfer's streams: their number, congestion control, pace.
#[derive(Serialize)]
pub(super) struct StreamDecisionLine<'a> {
    /// `decision`; one without `stream`
    sample: &'static str,
    time: f64,
    file: &'a str,
    limiter: &'static str,
    /// `streams 4`, `congestion bbr`, `pace 98.8M` (bits per second over all streams), `pace none`;
    /// null: nothing, on purpose.
    change: Option<String>,
    reason: &'a str,
}

pub(super) fn transfer<'a>(snapshot: &TraceSample<'a>) -> TransferTraceLine<'a> {
    let streams = snapshot.streams;
    let seconds = snapshot.since.as_secs_f64().max(1e-6);
    TransferTraceLine {
        sample: "transfer",
        time: snapshot.time.as_secs_f64(),
        file: snapshot.file,
        bytes: snapshot.bytes,
        bandwidth: snapshot.fresh as f64 * 8.0 / seconds,
        rtt: streams.iter().map(|s| s.info.rtt_us).max().unwrap_or(0),
        window: streams.iter().map(|s| socket_stats::window(&s.info)).sum(),
        buffer: streams.iter().map(socket_stats::buffer).max().unwrap_or(0),
        memory: streams.iter().map(|s| s.memory.held()).sum(),
        buffer_set: snapshot.buffer_set,
        streams: streams.len(),
        limiter: socket_stats::limiter(streams).name(),
    }
}

pub(super) fn stream<'a>(snapshot: &TraceSample<'a>, one: &StreamSample) -> StreamTraceLine<'a> {
    let info = &one.info;
    StreamTraceLine {
        sample: "stream",
        time: snapshot.time.as_secs_f64(),
        file: snapshot.file,
        stream: one.stream,
        bytes: info.bytes_acked.max(info.bytes_received),
        bandwidth: info.delivery_rate.saturating_mul(8),
        rtt: info.rtt_us,
        min_rtt: info.min_rtt_us,
        receive_rtt: info.rcv_rtt_us,
        window: socket_stats::window(info),
        peer_window: info.snd_wnd,
        buffer: socket_stats::buffer(one),
        buffer_send: one.memory.sndbuf,
        buffer_receive: one.memory.rcvbuf,
        memory: one.memory.held(),
        in_flight: u64::from(info.unacked) * u64::from(info.snd_mss),
        retransmits: info.total_retrans,
        busy: info.busy_us,
        rwnd_limited: info.rwnd_limited_us,
        sndbuf_limited: info.sndbuf_limited_us,
    }
}

pub(super) fn decision<'a>(
    time: Duration,
    file: &'a str,
    decision: &'a BufferDecision,
) -> DecisionLine<'a> {
    DecisionLine {
        sample: "decision",
        time: time.as_secs_f64(),
        file,
        stream: decision.stream,
        limiter: decision.limiter.name(),
        change: decision.setting.map(change),
        reason: &decision.reason,
    }
}

fn change(change: BufferSetting) -> String {
    let (what, bytes) = match change {
        BufferSetting::SendBuffer(bytes) => ("send buffer", bytes),
        BufferSetting::ReceiveBuffer(bytes) => ("receive buffer", bytes),
        BufferSetting::WindowClamp(bytes) => ("window", bytes),
        BufferSetting::RestoreAutotuning(bytes) => ("regrow", bytes),
    };
    format!("{what} {bytes}")
}

pub(super) fn stream_decision<'a>(
    time: Duration,
    file: &'a str,
    decision: &'a auto::TransferDecision,
) -> StreamDecisionLine<'a> {
    StreamDecisionLine {
        sample: "decision",
        time: time.as_secs_f64(),
        file,
        limiter: decision.limiter.name(),
        change: decision.setting.as_ref().map(step),
        reason: &decision.reason,
    }
}

fn step(step: &TransferSetting) -> String {
    match step {
        TransferSetting::Streams(count) => format!("streams {count}"),
        TransferSetting::CongestionControl(name) => format!("congestion {name}"),
        TransferSetting::PacingRate(Some(bytes)) => {
            format!("pace {:.1}M", *bytes as f64 * 8.0 / 1e6)
        }
        TransferSetting::PacingRate(None) => "pace none".to_owned(),
    }
}
