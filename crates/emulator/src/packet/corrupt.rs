//! Corruption that TCP does not detect, like that of faulty memory in a router: the payload is changed
//! and the checksum is corrected.

use super::{TCP, TransportProtocol, TunFraming, UDP, UDP_HEADER, VirtioNetHeader};
use super::{checksum, ip_header_length, read_u16, write_u16};

/// Changes one payload byte of a frame with a single packet, and corrects the TCP or UDP checksum.
/// `choice` selects the byte and its new value. Headers are never changed. Returns false, and changes
/// nothing, if there is no payload or the packet has another protocol.
pub(crate) fn corrupt_payload(frame: &mut [u8], framing: TunFraming, choice: u64) -> bool {
    let (is_partial, skip) = match framing {
        TunFraming::Plain => (false, 0),
        TunFraming::Offloaded => match VirtioNetHeader::decode(frame) {
            Some((offload, _)) => (offload.needs_checksum(), VirtioNetHeader::SIZE),
            None => return false,
        },
    };
    let packet = frame.get_mut(skip..).unwrap_or_default();
    let Some(location) = locate_payload(packet) else {
        return false;
    };
    let length = u64::try_from(location.payload.len()).unwrap_or(u64::MAX);
    let offset = usize::try_from(choice % length).unwrap_or(0);
    // Never 0, because XOR with 0 changes nothing.
    let change = u8::try_from(1 + (choice / length) % 255).unwrap_or(1);
    let at = location.payload.start + offset;
    let Some(byte) = packet.get_mut(at) else {
        return false;
    };
    let old = *byte;
    let new = old ^ change;
    *byte = new;
    // With a partial checksum (VIRTIO_NET_HDR_F_NEEDS_CSUM) the receiving kernel does not verify it.
    if !is_partial {
        let is_first_of_word = (at - location.header).is_multiple_of(2);
        let in_word = |byte: u8| u16::from(byte) << if is_first_of_word { 8 } else { 0 };
        update_transport_checksum(packet, &location, in_word(old), in_word(new));
    }
    true
}

/// Location of the payload in a packet.
struct PayloadLocation {
    /// Offset of the transport header.
    header: usize,
    transport: TransportProtocol,
    payload: std::ops::Range<usize>,
}

/// Finds the payload; `None` if there is none, or if headers and payload cannot be distinguished.
fn locate_payload(packet: &[u8]) -> Option<PayloadLocation> {
    let header = ip_header_length(packet).ok()?;
    // Only the first fragment has the transport header (RFC 791 section 3.2).
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

/// Corrects the transport checksum after the change of a word.
fn update_transport_checksum(packet: &mut [u8], location: &PayloadLocation, old: u16, new: u16) {
    let at = location.header + usize::from(location.transport.checksum_offset());
    let before = read_u16(packet, at).unwrap_or(0);
    let after = match (
        location.transport,
        checksum::updated_checksum(before, old, new),
    ) {
        // RFC 768: 0 means that there is no checksum; a computed checksum of 0 is sent as all ones.
        (TransportProtocol::Udp, _) if before == 0 => 0,
        (TransportProtocol::Udp, 0) => u16::MAX,
        (_, sum) => sum,
    };
    write_u16(packet, at, after);
}
