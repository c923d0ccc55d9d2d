//! Extracts consecutive segments of a super-packet as a separate frame.

use std::ops::Range;

use super::{RawPacket, SegmentLayout, TCP, TransportProtocol, UDP, checksum, read_u16, write_u16};

/// Offset of the flags in the TCP header. FIN, PSH and CWR are set in only one of many segments (RFC
/// 9293 section 3.1, RFC 3168 section 6.1).
const FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl RawPacket<'_> {
    /// A frame with only these segments: a packet if it is one segment, otherwise a smaller
    /// super-packet. `segments` must not be empty and must be within `0..self.segments()`. The vector
    /// has no excess capacity, because it counts against the engine's memory limit.
    pub(crate) fn frame_of_segments(&self, segments: Range<usize>) -> Vec<u8> {
        match self.layout {
            // The whole super-packet needs no changes. A single segment does: it is not a
            // super-packet.
            Some(_) if 1 < segments.len() && segments.len() == self.segments() => {
                self.whole_frame()
            }
            Some(layout) => self.copy_segments(layout, segments),
            None => self.whole_frame(),
        }
    }

    /// The unchanged frame.
    fn whole_frame(&self) -> Vec<u8> {
        let header = self.offload.map(|offload| offload.encode());
        let header = header.as_ref().map_or(&[][..], |header| header);
        [header, self.bytes].concat()
    }

    fn copy_segments(&self, layout: SegmentLayout, segments: Range<usize>) -> Vec<u8> {
        let payload = self.payload(layout, segments.clone());
        let headers = self.bytes.get(..layout.headers).unwrap_or_default();
        let mut offload = self.offload.unwrap_or_default();
        offload.header_length = u16::try_from(layout.headers).unwrap_or(u16::MAX);
        if segments.len() == 1 {
            offload = offload.for_single_segment();
        } else if segments.start > 0 {
            offload = offload.without_first();
        }
        let mut frame = [&offload.encode()[..], headers, payload].concat();
        let packet = frame
            .get_mut(super::VirtioNetHeader::SIZE..)
            .unwrap_or_default();
        advance_identification_and_sequence(packet, layout, segments.start);
        if layout.transport == TransportProtocol::Tcp {
            let is_last = segments.end == self.segments();
            clear_unshared_flags(packet, layout, segments.start == 0, is_last);
        }
        write_lengths_and_checksums(packet, layout);
        frame
    }
}

/// Advances the IP identification and the TCP sequence number to those of the first extracted segment,
/// as the kernel does when it segments a super-packet (GSO).
fn advance_identification_and_sequence(packet: &mut [u8], layout: SegmentLayout, first: usize) {
    let step = u16::try_from(first).unwrap_or(u16::MAX);
    let identification = read_u16(packet, 4).unwrap_or(0);
    write_u16(packet, 4, identification.wrapping_add(step));
    if layout.transport == TransportProtocol::Tcp {
        let skipped = u32::try_from(first * layout.segment).unwrap_or(u32::MAX);
        let at = layout.ip_header + 4;
        if let Some(sequence) = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *sequence = u32::from_be_bytes(*sequence)
                .wrapping_add(skipped)
                .to_be_bytes();
        }
    }
}

/// Clears flags that only one segment may have: CWR belongs to the first, FIN and PSH to the last.
fn clear_unshared_flags(packet: &mut [u8], layout: SegmentLayout, is_first: bool, is_last: bool) {
    if let Some(flags) = packet.get_mut(layout.ip_header + FLAGS) {
        if !is_first {
            *flags &= !CWR;
        }
        if !is_last {
            *flags &= !(FIN | PSH);
        }
    }
}

/// Writes the lengths, and the checksums that cover them.
fn write_lengths_and_checksums(packet: &mut [u8], layout: SegmentLayout) {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    write_u16(packet, 2, total);
    // The checksum field counts as 0 in its own computation (RFC 791 section 3.1).
    write_u16(packet, 10, 0);
    let header = packet.get(..layout.ip_header).unwrap_or_default();
    let sum = !checksum::ones_complement_sum(header);
    write_u16(packet, 10, sum);

    let length = u16::try_from(packet.len() - layout.ip_header).unwrap_or(u16::MAX);
    let protocol = match layout.transport {
        TransportProtocol::Tcp => TCP,
        TransportProtocol::Udp => {
            write_u16(packet, layout.ip_header + 4, length);
            UDP
        }
    };
    let addresses = packet.get(12..20).unwrap_or_default();
    let sum = checksum::pseudo_header_sum(addresses, protocol, length);
    let checksum_at = layout.ip_header + usize::from(layout.transport.checksum_offset());
    // Only the sum of the pseudo-header: the receiving kernel adds the rest (NEEDS_CSUM).
    write_u16(packet, checksum_at, sum);
}
