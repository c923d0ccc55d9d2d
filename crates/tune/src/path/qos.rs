//! Advice on quality of service: a class for the packets of a transfer, and whether a reservation would help
//! (future work of the paper; RFC 4594, RFC 8622).

use units::show;

use super::facts::PathFacts;

/// Rates of which this many are known tell whether the path keeps a promise.
const ENOUGH_RATES: u32 = 3;
/// Loss ratio from which on a path is congested or broken, and other traffic in its queue matters.
const HARMFUL_LOSS: f64 = 1e-4;

/// A Differentiated Services code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dscp {
    /// Default forwarding (RFC 2474), RFC 4594 §4.7 "Standard".
    Default,
    /// Lower effort (RFC 8622): yields to all other traffic.
    LowerEffort,
    /// High-throughput data (RFC 4594 §4.8), low drop precedence.
    Af11,
    /// Low-latency data (RFC 4594 §4.6), low drop precedence.
    Af21,
    /// Multimedia streaming (RFC 4594 §4.5), low drop precedence.
    Af31,
}

impl Dscp {
    /// The six bits of the code point.
    pub const fn code_point(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::LowerEffort => 1,
            Self::Af11 => 10,
            Self::Af21 => 18,
            Self::Af31 => 26,
        }
    }

    /// Value for IP_TOS and IPV6_TCLASS, whose lower two bits are ECN's.
    pub const fn traffic_class(self) -> u8 {
        self.code_point() << 2
    }

    /// The name in RFC 4594 and RFC 8622.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "DF",
            Self::LowerEffort => "LE",
            Self::Af11 => "AF11",
            Self::Af21 => "AF21",
            Self::Af31 => "AF31",
        }
    }
}

/// Kind of traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrafficPurpose {
    /// Nobody waits for it: replication, backup.
    Background,
    /// Files that somebody waits for.
    #[default]
    Bulk,
    /// A program reads as it computes or displays.
    Interactive,
    /// A stream with a fixed rate.
    Streaming,
}

/// Needs of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QosNeed {
    /// Kind of traffic.
    pub purpose: TrafficPurpose,
    /// Rate that it needs, bits per second.
    pub rate_bps: Option<u64>,
}

/// The class of service that suits a transfer, and whether a reservation would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosVerdict {
    /// Class to mark the packets with. A network that does not know it treats it as the default.
    pub dscp: Dscp,
    /// Whether reserved bandwidth (a circuit, an admission-controlled class) would make a difference.
    pub reservation_helps: bool,
    /// One sentence: the reason.
    pub why: String,
}

/// The class of service that suits a transfer over this path.
pub fn qos(facts: &PathFacts, need: &QosNeed) -> QosVerdict {
    let goodput = facts
        .goodput
        .filter(|goodput| goodput.count >= ENOUGH_RATES);
    let (dscp, class) = match need.purpose {
        TrafficPurpose::Background => (
            Dscp::LowerEffort,
            "LE (RFC 8622) lets all other traffic go first",
        ),
        TrafficPurpose::Bulk => (Dscp::Af11, "AF11 (RFC 4594) is the class of bulk transfers"),
        TrafficPurpose::Interactive => (
            Dscp::Af21,
            "AF21 (RFC 4594) is the class of data that a program waits for",
        ),
        TrafficPurpose::Streaming => (
            Dscp::Af31,
            "AF31 (RFC 4594) is the class of streams with a fixed rate",
        ),
    };
    let lost = facts.loss.or(facts.retransmits).unwrap_or(0.0);
    let (reservation_helps, reservation) = match (need.rate_bps, facts.bandwidth_bps, goodput) {
        (None, _, _) => (
            false,
            "no rate is asked for that could be reserved".to_owned(),
        ),
        (Some(rate), Some(bandwidth), _) if rate > bandwidth => (
            false,
            format!(
                "no reservation makes {} of a path of {}",
                show::bits(rate),
                show::bits(bandwidth)
            ),
        ),
        (Some(rate), _, Some(goodput)) if goodput.p10_bps < rate => (
            true,
            format!(
                "one transfer in ten gets less than {}, so that {} need a reservation",
                show::bits(goodput.p10_bps),
                show::bits(rate)
            ),
        ),
        (Some(rate), _, Some(goodput)) => (
            false,
            format!(
                "nine transfers in ten get {} or more without a reservation of {}",
                show::bits(goodput.p10_bps),
                show::bits(rate)
            ),
        ),
        (Some(rate), _, None) if lost >= HARMFUL_LOSS => (
            true,
            format!(
                "{:.2} % of packets are lost, so that {} need a reservation",
                lost.min(1.0) * 100.0,
                show::bits(rate)
            ),
        ),
        (Some(_), Some(bandwidth), None) => (
            false,
            format!("the path of {} loses nothing", show::bits(bandwidth)),
        ),
        (Some(_), None, None) => (false, "the path was not measured".to_owned()),
    };
    QosVerdict {
        dscp,
        reservation_helps,
        why: format!("{class}; {reservation}."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Spread;
    use super::*;

    fn need(purpose: TrafficPurpose, rate_bps: Option<u64>) -> QosNeed {
        QosNeed { purpose, rate_bps }
    }

    #[test]
    fn the_class_follows_the_purpose() {
        for (purpose, name, class) in [
            (TrafficPurpose::Background, "LE", 0x04),
            (TrafficPurpose::Bulk, "AF11", 0x28),
            (TrafficPurpose::Interactive, "AF21", 0x48),
            (TrafficPurpose::Streaming, "AF31", 0x68),
        ] {
            let advice = qos(&PathFacts::default(), &need(purpose, None));
            assert_eq!(
                (advice.dscp.name(), advice.dscp.traffic_class()),
                (name, class)
            );
            assert!(!advice.reservation_helps);
        }
        assert_eq!(Dscp::Default.code_point(), 0);
    }

    #[test]
    fn a_reservation_helps_where_the_path_could_and_often_does_not_carry_the_rate() {
        let facts = PathFacts {
            bandwidth_bps: Some(1_000_000_000),
            goodput: Some(Spread {
                p10_bps: 200_000_000,
                median_bps: 600_000_000,
                p90_bps: 900_000_000,
                count: 5,
            }),
            ..PathFacts::default()
        };
        let helps = |rate| qos(&facts, &need(TrafficPurpose::Streaming, Some(rate)));
        assert!(!helps(100_000_000).reservation_helps);
        let advice = helps(500_000_000);
        assert!(advice.reservation_helps);
        assert_eq!(
            advice.why,
            "AF31 (RFC 4594) is the class of streams with a fixed rate; one transfer in ten gets less \
             than 200 Mbit/s, so that 500 Mbit/s need a reservation."
        );
        assert!(!helps(2_000_000_000).reservation_helps);
    }

    #[test]
    fn losses_count_where_no_transfer_was_seen() {
        let lossy = |loss| PathFacts {
            loss: Some(loss),
            ..PathFacts::default()
        };
        let need = need(TrafficPurpose::Bulk, Some(1));
        assert!(qos(&lossy(0.01), &need).reservation_helps);
        assert!(!qos(&lossy(0.0), &need).reservation_helps);
        assert!(!qos(&lossy(f64::NAN), &need).reservation_helps);
    }
}
