//! From facts to the answer that a client gets.

use std::fmt;
use std::net::IpAddr;

use enable::advice::{Advice, DataDirection, Question};
use tune::path::{ClientLimits, PathFacts, ProcessorCapacity, SendingEnd, advise};
use tune::sizing::host_limits::HostBufferLimits;

use crate::aggregation::ClientGroup;
use crate::sender_limits::SenderLimits;

/// Facts of a path, and whose they are.
#[derive(Debug, Clone, Default)]
pub(super) struct FoundFacts {
    pub(super) facts: Option<PathFacts>,
    /// Who was measured, or who measured, in place of the client asked about and this server.
    pub(super) stand_in: Option<StandIn>,
    /// The next step for a client of which nothing is known.
    pub(super) remedy: &'static str,
}

/// The source of facts that this server has not measured at the client itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StandIn {
    /// Another client of its group.
    Client(IpAddr, ClientGroup),
    /// Another server of the database.
    Server(String),
}

impl fmt::Display for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(member, group) => {
                write!(f, "Measured at {member}, which is also {group}.")
            }
            Self::Server(name) => write!(f, "Measured by the server {name} of the same database."),
        }
    }
}

/// The answer to a question about `client`. `busy`: share of this host's processors that is in use, 0 to 1.
pub(super) fn answer(
    client: IpAddr,
    question: &Question,
    found: FoundFacts,
    sender: &SenderLimits,
    busy: f64,
) -> Advice {
    let Some(mut facts) = found.facts else {
        return Advice {
            client: client.to_string(),
            why: format!(
                "Nothing is known of the path to {client}; {}.",
                found.remedy
            ),
            ..Advice::default()
        };
    };
    facts
        .congestion_controls
        .clone_from(&sender.congestion_controls);
    let rates = (facts.rate_bps(), facts.reverse_rate_bps());
    if question.direction == DataDirection::Upload {
        facts = facts.reversed();
    }
    let (receiving, sending) = ends(question, sender, busy);
    let advice = advise(&facts, &receiving, &sending, question.bytes);
    let mut why = advice.why;
    if let Some(stand_in) = &found.stand_in {
        why = format!("{why} {stand_in}");
    }
    Advice {
        client: client.to_string(),
        set_buffer_bytes: advice.set_buffer_bytes,
        bdp_bytes: advice.bdp_bytes,
        streams: advice.streams,
        congestion_control: advice.congestion_control,
        pace_bps: advice.pace_bps,
        expected_bps: advice.expected_bps,
        p10_bps: advice.p10_bps,
        p90_bps: advice.p90_bps,
        rtt_seconds: facts.rtt.map(|rtt| rtt.as_secs_f64()),
        bandwidth_bps: facts.bandwidth_bps,
        loss: facts.loss,
        limited_by: advice.limited_by.map(|limiter| limiter.name().to_owned()),
        download_bps: rates.0,
        upload_bps: rates.1,
        asymmetric: facts.is_asymmetric(),
        confidence: advice.confidence,
        age_seconds: facts.age.map(|age| age.as_secs_f64()),
        measured_by: match found.stand_in {
            Some(StandIn::Client(member, _)) => Some(member.to_string()),
            Some(StandIn::Server(_)) | None => None,
        },
        why,
    }
}

/// Limits of the receiving end and of the sending one. This host, whose processors are in use to the share `busy`, sends
/// what a client downloads.
fn ends(question: &Question, own: &SenderLimits, busy: f64) -> (ClientLimits, SendingEnd) {
    let own_processor = own.free_processor(busy);
    let bps = question.processor_bps.filter(|bps| *bps > 0);
    let of_client = bps.map(|bps| ProcessorCapacity {
        bps,
        cores: question.processor_cores.unwrap_or(1),
    });
    let client = ClientLimits {
        max_receive_buffer: question.max_receive_buffer,
        max_set_buffer: question.max_set_buffer,
        rate_bps: question.client_bps,
        processor: of_client,
        must_set_buffer: question.must_set_buffer,
        max_streams: question.max_streams,
    };
    match question.direction {
        DataDirection::Download => {
            let sending = SendingEnd {
                buffers: own.buffers,
                processor: own_processor,
            };
            (client, sending)
        }
        DataDirection::Upload => {
            let usual = HostBufferLimits::default();
            let settable = question.max_set_buffer.map(|most| most.saturating_mul(2));
            let buffers = HostBufferLimits {
                max_autotuned_send: question.max_send_buffer.unwrap_or(usual.max_autotuned_send),
                max_settable_send: settable.unwrap_or(usual.max_settable_send),
                ..usual
            };
            let receiving = ClientLimits {
                max_receive_buffer: Some(own.buffers.max_autotuned_receive),
                // The kernel grants twice of what is asked for.
                max_set_buffer: Some(own.buffers.max_unforced_receive / 2),
                processor: own_processor,
                ..client
            };
            let sending = SendingEnd {
                buffers,
                processor: of_client,
            };
            (receiving, sending)
        }
    }
}
