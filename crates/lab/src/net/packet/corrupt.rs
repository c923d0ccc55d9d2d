//! Damage that no checksum on the way notices, as faulty memory in a router does it: the packet is
//! changed and given a right checksum.

use super::{TCP, TransportProtocol, TunFraming, UDP, UDP_HEADER, VirtioNetHeader};
use super::{checksum, ip_header_length, read_u16, write_u16};

/// Changes one payload byte of a single packet's frame, and makes the TCP or UDP checksum right
/// again; `choice` chooses the byte and its value. Returns whether there was anything to change:
/// headers never are, so a packet without payload or of another protocol stays as it is.
pub(crate) fn corrupt_payload(frame: &mut [u8], framing: TunFraming, choice: u64) -> bool {
    let (is_partial, skip) = match framing {
        TunFraming::Plain => (false, 0),
        TunFraming::Offloaded => match VirtioNetHeader::decode(frame) {
            Some((offload, _)) => (offload.needs_checksum(), VirtioNetHeader::SIZE),
            None => return false,
        },
    };
    let packet = frame.get_mut(skip..).unwrap_or_default();
    let Some(place) = locate_payload(packet) else {
        return false;
    };
    let length = u64::try_from(place.payload.len()).unwrap_or(u64::MAX);
    let offset = usize::try_from(choice % length).unwrap_or(0);
    // Never 0, which would change nothing.
    let change = u8::try_from(1 + (choice / length) % 255).unwrap_or(1);
    let at = place.payload.start + offset;
    let Some(byte) = packet.get_mut(at) else {
        return false;
    };
    let old = *byte;
    let new = old ^ change;
    *byte = new;
    // With a partial sum the receiving kernel trusts the data; there is nothing to make right.
    if !is_partial {
        let is_first_of_word = (at - place.header).is_multiple_of(2);
        let in_word = |byte: u8| u16::from(byte) << if is_first_of_word { 8 } else { 0 };
        update_transport_checksum(packet, &place, in_word(old), in_word(new));
    }
    true
}

/// Where things are in a packet.
struct PayloadLocation {
    /// Where the transport header begins.
    header: usize,
    transport: TransportProtocol,
    payload: std::ops::Range<usize>,
}

/// Finds the payload; `None`: there is none, or it cannot be told from headers.
fn locate_payload(packet: &[u8]) -> Option<PayloadLocation> {
    let header = ip_header_length(packet).ok()?;
    let is_later_fragment = read_u16(packet, 6)? & 0x1fff != 0;
    if is_later_fragment {
        return None;
    }
    let (transport, length) = match *packet.get(9)? {
        TCP => (
            TransportProtocol::Tcp,
            usize::from(packet.get(header + 12)? >> 4) * 4,
        ),
        UDP => (TransportProtocol::Udp, UDP_HEADER),
        _ => return None,
    };
    let payload = header + length..usize::from(read_u16(packet, 2)?);
    (!payload.is_empty() && length >= UDP_HEADER).then_some(PayloadLocation {
        header,
        transport,
        payload,
    })
}

/// Makes the transport checksum right after the change of a word.
fn update_transport_checksum(packet: &mut [u8], place: &PayloadLocation, old: u16, new: u16) {
    let at = place.header + usize::from(place.transport.checksum_offset());
    let before = read_u16(packet, at).unwrap_or(0);
    let after = match (
        place.transport,
        checksum::updated_checksum(before, old, new),
    ) {
        // RFC 768: 0 says that there is no checksum; one that computes to 0 is sent as ones.
        (TransportProtocol::Udp, _) if before == 0 => 0,
        (TransportProtocol::Udp, 0) => u16::MAX,
        (_, sum) => sum,
    };
    write_u16(packet, at, after);
}
