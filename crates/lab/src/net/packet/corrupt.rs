//! Damage that no checksum on the way notices, as faulty memory in a router does it: the packet is
//! changed and given a right checksum.

use super::{Framing, Offload, TCP, Transport, UDP, UDP_HEADER};
use super::{checksum, ip_header_length, set_word, word};

/// Changes one payload byte of a single packet's frame, and makes the TCP or UDP checksum right
/// again; `choice` chooses the byte and its value. Returns whether there was anything to change:
/// headers never are, so a packet without payload or of another protocol stays as it is.
pub(crate) fn corrupt(frame: &mut [u8], framing: Framing, choice: u64) -> bool {
    let (is_partial, skip) = match framing {
        Framing::Plain => (false, 0),
        Framing::Offloaded => match Offload::decode(frame) {
            Some((offload, _)) => (offload.needs_checksum(), Offload::SIZE),
            None => return false,
        },
    };
    let packet = frame.get_mut(skip..).unwrap_or_default();
    let Some(place) = locate(packet) else {
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
        mend(packet, &place, in_word(old), in_word(new));
    }
    true
}

/// Where things are in a packet.
struct Place {
    /// Where the transport header begins.
    header: usize,
    transport: Transport,
    payload: std::ops::Range<usize>,
}

/// Finds the payload; `None`: there is none, or it cannot be told from headers.
fn locate(packet: &[u8]) -> Option<Place> {
    let header = ip_header_length(packet).ok()?;
    let is_later_fragment = word(packet, 6)? & 0x1fff != 0;
    if is_later_fragment {
        return None;
    }
    let (transport, length) = match *packet.get(9)? {
        TCP => (
            Transport::Tcp,
            usize::from(packet.get(header + 12)? >> 4) * 4,
        ),
        UDP => (Transport::Udp, UDP_HEADER),
        _ => return None,
    };
    let payload = header + length..usize::from(word(packet, 2)?);
    (!payload.is_empty() && length >= UDP_HEADER).then_some(Place {
        header,
        transport,
        payload,
    })
}

/// Makes the transport checksum right after the change of a word.
fn mend(packet: &mut [u8], place: &Place, old: u16, new: u16) {
    let at = place.header + usize::from(place.transport.checksum_offset());
    let before = word(packet, at).unwrap_or(0);
    let after = match (place.transport, checksum::updated(before, old, new)) {
        // RFC 768: 0 says that there is no checksum; one that computes to 0 is sent as ones.
        (Transport::Udp, _) if before == 0 => 0,
        (Transport::Udp, 0) => u16::MAX,
        (_, sum) => sum,
    };
    set_word(packet, at, after);
}
