//! Answers of the service. The same fields are the members of the XML-RPC struct and of the JSON object.

use crate::processor::HostCapacity;
use serde::{Deserialize, Deserializer, Serialize};
use units::names;
pub use units::names::is_congestion_control as is_kernel_name;

/// TCP port of an Enable server unless its configuration names another one.
pub const DEFAULT_PORT: u16 = 2812;

/// The way of the data of a transfer, as the client of a data server names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataDirection {
    /// From the data server to the client.
    #[default]
    Download,
    /// From the client to the data server.
    Upload,
}

impl DataDirection {
    fn is_download(&self) -> bool {
        *self == Self::Download
    }
}

/// Advice for transfers between a data server and one client, in the direction of the question.
///
/// A value that is unknown, or that is best left to the kernel, is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Advice {
    /// The client that the advice is for, an IP address.
    pub client: String,
    /// Socket buffer of one stream to set with SO_SNDBUF and SO_RCVBUF, bytes. `None`: leave the kernel's
    /// autotuning alone, because a buffer that is set ends it for the life of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_buffer_bytes: Option<u64>,
    /// Round trip × bottleneck bandwidth (section 5 of the paper), bytes: what all streams together
    /// need. Programs that cannot leave the buffer to the kernel set this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bdp_bytes: Option<u64>,
    /// Streams to open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Congestion control of the sender, by its kernel name. What cannot be such a name is left out when advice is read.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "kernel_name"
    )]
    pub congestion_control: Option<String>,
    /// Pacing rate of all streams together, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace_bps: Option<u64>,
    /// Expected goodput of a long transfer, bits per second: the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_bps: Option<u64>,
    /// One transfer in ten is slower than this, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p10_bps: Option<u64>,
    /// One transfer in ten is faster than this, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90_bps: Option<u64>,
    /// Round trip, seconds: trimmed mean of the latest tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<f64>,
    /// Bandwidth of the bottleneck in this direction, bits per second: trimmed mean of the latest tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bps: Option<u64>,
    /// Measured rate of the path from the data server to the client, bits per second: bandwidth, or what three or more
    /// transfers carried if that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_bps: Option<u64>,
    /// The same from the client to the data server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_bps: Option<u64>,
    /// Share of lost packets, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The expected limiter of a transfer, in the words of `longhaul cp --why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// The two directions of the path differ: one rate is at least twice the other, or the routes differ.
    pub asymmetric: bool,
    /// How far to trust the advice, 0 (a guess) to 1.
    pub confidence: f64,
    /// Age of the newest measurement that the advice rests on, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// Another client whose measurements stand in for this one's, and why (aggregation).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<String>,
    /// One sentence: the reason.
    pub why: String,
}

/// Facts that a client tells about itself and its transfer with a question. Everything may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Question {
    /// Another client than the caller, an IP address or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Bytes to transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The way of the data.
    #[serde(skip_serializing_if = "DataDirection::is_download")]
    pub direction: DataDirection,
    /// Files to transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Largest receive buffer that the client's kernel allows (the third number of tcp_rmem), bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_receive_buffer: Option<u64>,
    /// Largest send buffer that the client's kernel allows (the third number of tcp_wmem), bytes. For uploads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_send_buffer: Option<u64>,
    /// Largest buffer that a program may set on the client (rmem_max, for uploads wmem_max), bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_set_buffer: Option<u64>,
    /// Fastest rate at which the client's processor or disk takes data, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_bps: Option<u64>,
    /// Rate that the client's processors can receive by estimate, all cores together, bits per second. It decides streams;
    /// no rate is advised by it. A client library fills it in for its own host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_bps: Option<u64>,
    /// Cores of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_cores: Option<u32>,
    /// The client cannot let the kernel choose its buffer: it sets one in any case.
    pub must_set_buffer: bool,
    /// Most streams that the client can open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_streams: Option<u32>,
}

impl Question {
    /// The question with the estimate of this host's processors, if it is about this host and does not tell its own.
    #[must_use]
    pub fn with_own_processor(self) -> Self {
        if self.client.is_some() || self.processor_bps.is_some() {
            return self;
        }
        let found = HostCapacity::of_this_host();
        Self {
            processor_bps: Some(found.bps),
            processor_cores: Some(found.cores),
            ..self
        }
    }
}

/// The transfer that advice on the service class is wanted for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QosQuestion {
    /// Address or name. `None`: the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// `background`, `bulk` (the default), `interactive` or `streaming`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Rate that it needs, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
}

/// Advice on the service class of transfers to a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QosAdvice {
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Name of the class, as RFC 4594 and RFC 8622 have it.
    pub class: String,
    /// A reservation of bandwidth would make transfers faster.
    pub reservation_helps: bool,
    /// One sentence: the reason.
    pub why: String,
}

fn kernel_name<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(value)?;
    Ok(name.filter(|name| names::is_congestion_control(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_question_about_this_host_tells_its_processor() {
        let own = Question::default().with_own_processor();
        assert!(own.processor_bps.is_some() && own.processor_cores.is_some());
        let other = Question {
            client: Some("192.0.2.7".to_owned()),
            ..Question::default()
        };
        assert_eq!(other.clone().with_own_processor(), other);
        let told = Question {
            processor_bps: Some(1),
            ..Question::default()
        };
        assert_eq!(told.clone().with_own_processor(), told);
    }

    #[test]
    fn a_congestion_control_that_no_kernel_has_is_left_out() {
        let read = |name: &str| {
            let advice = json!({"congestion_control": name, "streams": 4});
            let advice: Advice = serde_json::from_value(advice).unwrap();
            assert_eq!(advice.streams, Some(4));
            advice.congestion_control
        };
        assert_eq!(read("bbr").as_deref(), Some("bbr"));
        assert_eq!(read("dctcp-reno_1").as_deref(), Some("dctcp-reno_1"));
        for wrong in [
            "",
            "bbr --logfile /etc/passwd",
            "bbr\nx=1",
            "a;b",
            "sixteen_letters_",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        let without: Advice = serde_json::from_value(json!({})).unwrap();
        assert_eq!(without, Advice::default());
    }
}
