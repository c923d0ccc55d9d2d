//! ICMP echo messages (RFC 792, RFC 4443 section 4): encoding of requests, decoding of answers. Pure functions
//! on bytes, which come from anybody: what is not the answer to a request of this run is `None`.

/// Size of an ICMP header, bytes.
pub(super) const ICMP_HEADER: usize = 8;
/// Bytes of a request after its header that identify its run.
const TOKEN: usize = 8;
/// Largest message, bytes: an IPv4 packet without its header.
const LARGEST_MESSAGE: usize = 65_515;

/// The version of ICMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IcmpVersion {
    /// ICMP (RFC 792).
    V4,
    /// ICMPv6 (RFC 4443).
    V6,
}

impl IcmpVersion {
    /// The version of this address family.
    pub(super) const fn of(address: std::net::IpAddr) -> Self {
        match address {
            std::net::IpAddr::V4(_) => Self::V4,
            std::net::IpAddr::V6(_) => Self::V6,
        }
    }

    /// Size of the IP and the ICMP header together, bytes.
    pub(super) const fn headers(self) -> usize {
        match self {
            Self::V4 => 20 + ICMP_HEADER,
            Self::V6 => 40 + ICMP_HEADER,
        }
    }

    const fn request(self) -> u8 {
        match self {
            Self::V4 => 8,
            Self::V6 => 128,
        }
    }

    const fn reply(self) -> u8 {
        match self {
            Self::V4 => 0,
            Self::V6 => 129,
        }
    }

    /// Whether this error message says that the hop limit was used up.
    pub(super) const fn is_time_exceeded(self, kind: u8) -> bool {
        match self {
            Self::V4 => kind == 11,
            Self::V6 => kind == 3,
        }
    }

    /// Whether this error message says that nobody listens at a port.
    pub(super) const fn is_port_unreachable(self, kind: u8, code: u8) -> bool {
        match self {
            Self::V4 => kind == 3 && code == 3,
            Self::V6 => kind == 1 && code == 4,
        }
    }
}

/// An echo request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EchoMessage {
    /// Identifier; the kernel writes its own into the requests of an unprivileged socket.
    pub(super) identifier: u16,
    /// Sequence number.
    pub(super) sequence: u16,
    /// First bytes of the data, which name the run.
    pub(super) token: u64,
}

impl EchoMessage {
    /// The request as an ICMP message of `bytes`, at least 16, with its checksum. In ICMPv6 the kernel computes the
    /// checksum, because it covers the addresses (RFC 4443 section 2.3).
    pub(super) fn request(self, version: IcmpVersion, bytes: usize) -> Vec<u8> {
        let bytes = bytes.clamp(ICMP_HEADER + TOKEN, LARGEST_MESSAGE);
        let mut message = vec![version.request(), 0, 0, 0];
        message.extend(self.identifier.to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(self.token.to_be_bytes());
        // Bytes that compress badly: some links compress.
        let mut state = self.token ^ u64::from(self.sequence);
        while message.len() < bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            message.push(state.to_be_bytes()[0]);
        }
        if version == IcmpVersion::V4 {
            let sum = checksum(&message).to_be_bytes();
            message.splice(2..4, sum);
        }
        message
    }

    /// The reply in an ICMP message.
    pub(super) fn of_reply(version: IcmpVersion, message: &[u8]) -> Option<Self> {
        let token = message.get(ICMP_HEADER..)?.first_chunk::<TOKEN>()?;
        Some(Self {
            token: u64::from_be_bytes(*token),
            ..Self::header(version.reply(), message)?
        })
    }

    /// The request that an error message quotes. Routers quote as little as the header, so the token is 0
    /// if it is missing.
    pub(super) fn of_quoted_request(version: IcmpVersion, quoted: &[u8]) -> Option<Self> {
        let token = quoted
            .get(ICMP_HEADER..)
            .and_then(<[u8]>::first_chunk::<TOKEN>);
        Some(Self {
            token: token.map_or(0, |token| u64::from_be_bytes(*token)),
            ..Self::header(version.request(), quoted)?
        })
    }

    fn header(kind: u8, message: &[u8]) -> Option<Self> {
        let [found, 0, _, _, i0, i1, s0, s1] = *message.first_chunk::<ICMP_HEADER>()? else {
            return None;
        };
        (found == kind).then_some(Self {
            identifier: u16::from_be_bytes([i0, i1]),
            sequence: u16::from_be_bytes([s0, s1]),
            token: 0,
        })
    }
}

/// The message after the IPv4 header, which a raw socket receives as well (raw(7)).
pub(super) fn after_ipv4_header(packet: &[u8]) -> Option<&[u8]> {
    let first = packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    (first >> 4 == 4 && header >= 20).then(|| packet.get(header..))?
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    let mut sum = words
        .iter()
        .fold(last, |sum, word| sum + u64::from(u16::from_be_bytes(*word)));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Number of routers that an answer passed, from the hop limit that it arrived with. Hosts and routers start
/// with 64, 128 or 255.
pub(super) fn hops_passed(hop_limit: u8) -> u8 {
    let start = match hop_limit {
        0..=64 => 64,
        65..=128 => 128,
        129.. => 255,
    };
    start - hop_limit
}

/// Requests with the numbers that were read in an ICMP message: as a reply, and as the request that an error quotes.
#[cfg(feature = "fuzzing")]
pub fn echo_again(is_v6: bool, message: &[u8]) -> [Option<Vec<u8>>; 2] {
    let version = if is_v6 {
        IcmpVersion::V6
    } else {
        IcmpVersion::V4
    };
    [
        EchoMessage::of_reply(version, message),
        EchoMessage::of_quoted_request(version, message),
    ]
    .map(|understood| Some(understood?.request(version, ICMP_HEADER + TOKEN)))
}

/// The message in an IPv4 packet.
#[cfg(feature = "fuzzing")]
pub fn message_in_ipv4(packet: &[u8]) -> Option<&[u8]> {
    after_ipv4_header(packet)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MESSAGE: EchoMessage = EchoMessage {
        identifier: 7,
        sequence: 513,
        token: 0x0102_0304_0506_0708,
    };

    fn versions() -> impl Strategy<Value = IcmpVersion> {
        prop::sample::select(vec![IcmpVersion::V4, IcmpVersion::V6])
    }

    #[test]
    fn a_request_has_the_layout_of_rfc_792() {
        let request = MESSAGE.request(IcmpVersion::V4, 17);
        assert_eq!(request.len(), 17);
        assert_eq!(request[..2], [8, 0]);
        assert_eq!(request[4..16], [0, 7, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(checksum(&request), 0);
    }

    #[test]
    fn the_example_of_rfc_1071_has_the_expected_checksum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    #[test]
    fn a_quoted_header_alone_is_enough() {
        let request = MESSAGE.request(IcmpVersion::V6, 100);
        let quoted = EchoMessage::of_quoted_request(IcmpVersion::V6, &request[..8]);
        assert_eq!(
            quoted,
            Some(EchoMessage {
                token: 0,
                ..MESSAGE
            })
        );
    }

    #[test]
    fn passed_routers_are_counted_from_the_usual_hop_limits() {
        assert_eq!(
            [64, 60, 128, 117, 255, 254].map(hops_passed),
            [0, 4, 0, 11, 0, 1]
        );
    }

    proptest! {
        #[test]
        fn a_reply_is_read_back(
            version in versions(), identifier: u16, sequence: u16, token: u64, bytes in 0_usize..3000,
        ) {
            let sent = EchoMessage { identifier, sequence, token };
            let mut message = sent.request(version, bytes);
            prop_assert_eq!(EchoMessage::of_quoted_request(version, &message), Some(sent));
            prop_assert_eq!(EchoMessage::of_reply(version, &message), None);
            message[0] = version.reply();
            prop_assert_eq!(EchoMessage::of_reply(version, &message), Some(sent));
        }

        #[test]
        fn junk_is_survived(version in versions(), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = EchoMessage::of_reply(version, &bytes);
            let _ = EchoMessage::of_quoted_request(version, &bytes);
            if let Some(rest) = after_ipv4_header(&bytes) {
                prop_assert!(rest.len() + 20 <= bytes.len());
            }
        }
    }
}
