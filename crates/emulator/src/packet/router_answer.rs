//! A router's work on packets besides passing them on: it lowers their time to live, and answers those
//! that end at it (RFC 792, RFC 1812 section 4.3).

use std::net::Ipv4Addr;

use super::{RawPacket, TunFraming, UDP, VirtioNetHeader, checksum, ip_header_length};
use super::{read_u16, write_u16};

/// IP protocol number of ICMP (RFC 792).
const ICMP: u8 = 1;
const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
/// Code of an unreachable port.
const PORT: u8 = 3;

/// Offset of the time to live in the IPv4 header.
const TTL: usize = 8;
/// Size of an ICMP header, bytes.
const ICMP_HEADER: usize = 8;
/// Largest error message with its IP header, bytes (RFC 1812 section 4.3.2.3).
const LARGEST_ERROR: usize = 576;
/// Bits of the third header word of a fragment: more fragments, and the offset.
const FRAGMENT: u16 = 0x3fff;
/// Offset alone, zero in a first fragment.
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Why a packet ends at a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouterStop {
    /// Its time to live is used up.
    Expired,
    /// The router is its destination.
    Addressed,
}

impl RawPacket<'_> {
    /// Time to live.
    pub(crate) fn ttl(&self) -> u8 {
        self.bytes.get(TTL).copied().unwrap_or(0)
    }
}

/// Lowers the time to live of a frame with an IPv4 packet, which must exceed `hops`.
pub(crate) fn lower_ttl(frame: &mut [u8], framing: TunFraming, hops: u8) {
    let packet = frame.get_mut(header_size(framing)..).unwrap_or_default();
    if let Some(ttl) = packet.get(TTL) {
        let ttl = ttl.saturating_sub(hops);
        set_ttl(packet, ttl);
    }
}

/// The frame that a router sends back for a frame that ends at it. `ttl` is the time to live of the answer
/// as it arrives. `None`: a router does not answer such a packet.
pub(crate) fn router_answer(
    frame: &[u8],
    framing: TunFraming,
    router: Ipv4Addr,
    stop: RouterStop,
    ttl: u8,
) -> Option<Vec<u8>> {
    let skip = header_size(framing);
    let packet = frame.get(skip..)?;
    let header = ip_header_length(packet).ok()?;
    let length = usize::from(read_u16(packet, 2)?);
    let packet = packet.get(..length)?;
    let (protocol, fragment) = (*packet.get(9)?, read_u16(packet, 6)?);
    let kind = packet.get(header).copied();
    let message = match (stop, protocol, kind) {
        // RFC 1122 section 3.2.2: no error about an error, and none about a later fragment.
        (RouterStop::Expired, ICMP, kind) if kind != Some(ECHO_REQUEST) => return None,
        (RouterStop::Expired, ..) if fragment & FRAGMENT_OFFSET == 0 => {
            error_message(TIME_EXCEEDED, 0, packet)
        }
        (RouterStop::Addressed, ICMP, Some(ECHO_REQUEST)) if fragment & FRAGMENT == 0 => {
            let mut message = packet.get(header..)?.to_vec();
            *message.first_mut()? = ECHO_REPLY;
            message
        }
        (RouterStop::Addressed, UDP, _) if fragment & FRAGMENT_OFFSET == 0 => {
            error_message(UNREACHABLE, PORT, packet)
        }
        _ => return None,
    };
    let source = packet.get(12..16)?;
    let offload = VirtioNetHeader::default().encode();
    let mut answer = offload.get(..skip)?.to_vec();
    answer.extend(ip_header(message.len(), ttl, router, source));
    let at = answer.len();
    answer.extend(message);
    let message = answer.get_mut(at..)?;
    write_u16(message, 2, 0);
    let sum = !checksum::ones_complement_sum(message);
    write_u16(message, 2, sum);
    Some(answer)
}

/// An ICMP error about a packet. It quotes the packet as the router received it, with the last of its
/// time to live.
fn error_message(kind: u8, code: u8, packet: &[u8]) -> Vec<u8> {
    let room = LARGEST_ERROR - super::SMALLEST_IP_HEADER - ICMP_HEADER;
    let mut quoted = packet
        .get(..packet.len().min(room))
        .unwrap_or(packet)
        .to_vec();
    set_ttl(&mut quoted, 1);
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.append(&mut quoted);
    message
}

fn ip_header(payload: usize, ttl: u8, source: Ipv4Addr, destination: &[u8]) -> Vec<u8> {
    let length = u16::try_from(super::SMALLEST_IP_HEADER + payload).unwrap_or(u16::MAX);
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0, 0, ttl, ICMP, 0, 0]);
    header.extend(source.octets());
    header.extend(destination);
    let sum = !checksum::ones_complement_sum(&header);
    write_u16(&mut header, 10, sum);
    header
}

/// Sets the time to live and corrects the header's checksum.
fn set_ttl(packet: &mut [u8], ttl: u8) {
    let (Some(old), Some(sum)) = (read_u16(packet, TTL), read_u16(packet, 10)) else {
        return;
    };
    let new = u16::from(ttl) << 8 | old & 0xff;
    write_u16(packet, TTL, new);
    write_u16(packet, 10, checksum::updated_checksum(sum, old, new));
}

/// Size of what precedes the IP packet in a frame, bytes.
const fn header_size(framing: TunFraming) -> usize {
    match framing {
        TunFraming::Offloaded => VirtioNetHeader::SIZE,
        TunFraming::Plain => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 101);

    fn packet(protocol: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(20 + body.len()).unwrap();
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0, 0, 3, protocol, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2]);
        let sum = !checksum::ones_complement_sum(&packet);
        write_u16(&mut packet, 10, sum);
        packet.extend(body);
        packet
    }

    fn answer(packet: &[u8], stop: RouterStop) -> Option<Vec<u8>> {
        router_answer(packet, TunFraming::Plain, ROUTER, stop, 60)
    }

    /// Checks both checksums of an answer and returns its ICMP message.
    fn message(answer: &[u8]) -> &[u8] {
        assert_eq!(checksum::ones_complement_sum(&answer[..20]), 0xffff);
        assert_eq!(checksum::ones_complement_sum(&answer[20..]), 0xffff);
        assert_eq!(usize::from(read_u16(answer, 2).unwrap()), answer.len());
        assert_eq!(answer[12..20], [10, 99, 0, 101, 10, 99, 0, 1]);
        assert_eq!(answer[TTL], 60);
        &answer[20..]
    }

    #[test]
    fn an_expired_packet_is_quoted_in_a_time_exceeded_message() {
        let request = packet(UDP, &[1, 2, 3, 4, 0, 8, 0, 0]);
        let answer = answer(&request, RouterStop::Expired).unwrap();
        let message = message(&answer);
        assert_eq!(message[..2], [TIME_EXCEEDED, 0]);
        assert_eq!(message[8..][20..], request[20..]);
        assert_eq!(message[8 + TTL], 1);
        assert_eq!(checksum::ones_complement_sum(&message[8..28]), 0xffff);
    }

    #[test]
    fn a_long_packet_is_quoted_in_part() {
        let answer = answer(&packet(UDP, &[7; 1400]), RouterStop::Expired).unwrap();
        message(&answer);
        assert_eq!(answer.len(), LARGEST_ERROR);
    }

    #[test]
    fn a_router_answers_an_echo_request_with_its_data() {
        let request = packet(ICMP, &[8, 0, 0, 0, 0, 1, 0, 2, 9, 9, 9]);
        let answer = answer(&request, RouterStop::Addressed).unwrap();
        let message = message(&answer);
        assert_eq!((message[0], &message[4..]), (0, &[0, 1, 0, 2, 9, 9, 9][..]));
    }

    #[test]
    fn a_port_of_a_router_is_unreachable() {
        let request = packet(UDP, &[1, 2, 3, 4, 0, 8, 0, 0]);
        let answer = answer(&request, RouterStop::Addressed).unwrap();
        assert_eq!(message(&answer)[..2], [UNREACHABLE, PORT]);
    }

    #[test]
    fn errors_and_later_fragments_are_not_answered() {
        let error = packet(ICMP, &[TIME_EXCEEDED, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer(&error, RouterStop::Expired), None);
        let mut fragment = packet(UDP, &[0; 8]);
        fragment[7] = 1;
        assert_eq!(answer(&fragment, RouterStop::Expired), None);
        assert_eq!(answer(&packet(6, &[0; 20]), RouterStop::Addressed), None);
    }

    #[test]
    fn a_lowered_ttl_keeps_the_checksum_right() {
        let mut passed = packet(UDP, &[0; 8]);
        lower_ttl(&mut passed, TunFraming::Plain, 2);
        assert_eq!(passed[TTL], 1);
        assert_eq!(checksum::ones_complement_sum(&passed[..20]), 0xffff);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            offloaded in any::<bool>(),
            expired in any::<bool>(),
        ) {
            let framing = if offloaded { TunFraming::Offloaded } else { TunFraming::Plain };
            let stop = if expired { RouterStop::Expired } else { RouterStop::Addressed };
            let _ = router_answer(&bytes, framing, ROUTER, stop, 64);
            lower_ttl(&mut bytes.clone(), framing, 3);
        }
    }
}
