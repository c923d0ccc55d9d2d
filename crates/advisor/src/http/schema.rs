//! Shapes of questions and advice in the OpenAPI description. Their types belong to the client library, which knows
//! nothing of OpenAPI; a test of the description compares both.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Advice for transfers from the data server to one client. A value that is unknown, or that is best left to
/// the kernel, is absent.
#[derive(Serialize, ToSchema)]
#[schema(as = Advice)]
pub(super) struct AdviceSchema {
    /// The client that the advice is for, an IP address.
    client: String,
    /// Socket buffer of one stream to set, bytes. Absent: leave the kernel's autotuning alone.
    set_buffer_bytes: Option<u64>,
    /// Round trip × bottleneck bandwidth, bytes: what all streams together need.
    bdp_bytes: Option<u64>,
    /// Streams to open.
    streams: Option<u32>,
    /// Congestion control of the sender, by its kernel name.
    congestion_control: Option<String>,
    /// Pacing rate of all streams together, bits per second.
    pace_bps: Option<u64>,
    /// Expected goodput of a long transfer, bits per second: the median.
    expected_bps: Option<u64>,
    /// One transfer in ten is slower than this, bits per second.
    p10_bps: Option<u64>,
    /// One transfer in ten is faster than this, bits per second.
    p90_bps: Option<u64>,
    /// Round trip, seconds.
    rtt_seconds: Option<f64>,
    /// Bandwidth of the bottleneck, bits per second.
    bandwidth_bps: Option<u64>,
    /// Share of lost packets, 0 to 1.
    loss: Option<f64>,
    /// The expected limiter of a transfer.
    limited_by: Option<String>,
    /// The two directions of the path differ.
    asymmetric: bool,
    /// How far to trust the advice, 0 (a guess) to 1.
    confidence: f64,
    /// Age of the newest measurement that the advice rests on, seconds.
    age_seconds: Option<f64>,
    /// Another client whose measurements stand in for this one's.
    measured_by: Option<String>,
    /// One sentence: the reason.
    why: String,
}

/// Facts about the client and its transfer. Everything may be absent.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes the parameters of a question")]
pub(super) struct QuestionParameters {
    /// Another client than the caller, an IP address or a name.
    client: Option<String>,
    /// Bytes to transfer.
    bytes: Option<u64>,
    /// Files to transfer.
    files: Option<u64>,
    /// Largest receive buffer that the client's kernel allows (the third number of tcp_rmem), bytes.
    max_receive_buffer: Option<u64>,
    /// Largest receive buffer that a program may set on the client (rmem_max), bytes.
    max_set_buffer: Option<u64>,
    /// Fastest rate at which the client's processor or disk takes data, bits per second.
    client_bps: Option<u64>,
    /// The client cannot let the kernel choose its buffer: it sets one in any case.
    must_set_buffer: Option<bool>,
    /// Most streams that the client can open.
    max_streams: Option<u32>,
}

/// Advice on the service class of transfers to a client.
#[derive(Serialize, ToSchema)]
#[schema(as = QosAdvice)]
pub(super) struct QosSchema {
    /// Differentiated services code point, 0 to 63.
    dscp: u8,
    /// Name of the class, as RFC 4594 and RFC 8622 have it.
    class: String,
    /// A reservation of bandwidth would make transfers faster.
    reservation_helps: bool,
    /// One sentence: the reason.
    why: String,
}
