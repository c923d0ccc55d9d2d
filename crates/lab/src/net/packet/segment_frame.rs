//! Some neighbouring segments of a super-packet as a packet of their own.

use std::ops::Range;

use super::{RawPacket, SegmentLayout, TCP, TransportProtocol, UDP, checksum, read_u16, write_u16};

/// TCP flags (RFC 9293 section 3.1, RFC 3168 section 6.1) that only one segment of many carries:
/// they lie at this offset of the header.
const FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl RawPacket<'_> {
    /// The frame of these segments alone: a packet if it is one, else a smaller super-packet. The
    /// buffer is as large as the frame. `segments` is within `0..self.segments()` and not empty.
    pub(crate) fn frame_of_segments(&self, segments: Range<usize>) -> Vec<u8> {
        match self.cut {
            Some(_) if 1 < segments.len() && segments.len() == self.segments() => {
                self.whole_frame()
            }
            Some(cut) => self.copy_segments(cut, segments),
            None => self.whole_frame(),
        }
    }

    /// The frame as it came.
    fn whole_frame(&self) -> Vec<u8> {
        let header = self.offload.map(|offload| offload.encode());
        let header = header.as_ref().map_or(&[][..], |header| header);
        [header, self.bytes].concat()
    }

    fn copy_segments(&self, cut: SegmentLayout, segments: Range<usize>) -> Vec<u8> {
        let payload = self.payload(cut, segments.clone());
        let headers = self.bytes.get(..cut.headers).unwrap_or_default();
        let mut offload = self.offload.unwrap_or_default();
        offload.header_length = u16::try_from(cut.headers).unwrap_or(u16::MAX);
        if segments.len() == 1 {
            offload = offload.for_single_segment();
        } else if segments.start > 0 {
            offload = offload.without_first();
        }
        let mut frame = [&offload.encode()[..], headers, payload].concat();
        let packet = frame
            .get_mut(super::VirtioNetHeader::SIZE..)
            .unwrap_or_default();
        advance_identification_and_sequence(packet, cut, segments.start);
        if cut.transport == TransportProtocol::Tcp {
            let is_last = segments.end == self.segments();
            clear_unshared_flags(packet, cut, segments.start == 0, is_last);
        }
        write_lengths_and_checksums(packet, cut);
        frame
    }
}

/// Counts the IP identification and the TCP sequence number on to the segment the piece begins
/// with, as the kernel does when it divides a super-packet itself.
fn advance_identification_and_sequence(packet: &mut [u8], cut: SegmentLayout, first: usize) {
    let step = u16::try_from(first).unwrap_or(u16::MAX);
    let identification = read_u16(packet, 4).unwrap_or(0);
    write_u16(packet, 4, identification.wrapping_add(step));
    if cut.transport == TransportProtocol::Tcp {
        let skipped = u32::try_from(first * cut.segment).unwrap_or(u32::MAX);
        let at = cut.ip_header + 4;
        if let Some(sequence) = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *sequence = u32::from_be_bytes(*sequence)
                .wrapping_add(skipped)
                .to_be_bytes();
        }
    }
}

/// Only the first segment says that the window was reduced, only the last that data end or should
/// be handed on.
fn clear_unshared_flags(packet: &mut [u8], cut: SegmentLayout, is_first: bool, is_last: bool) {
    if let Some(flags) = packet.get_mut(cut.ip_header + FLAGS) {
        if !is_first {
            *flags &= !CWR;
        }
        if !is_last {
            *flags &= !(FIN | PSH);
        }
    }
}

/// Writes the lengths, and the checksums that cover them.
fn write_lengths_and_checksums(packet: &mut [u8], cut: SegmentLayout) {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    write_u16(packet, 2, total);
    write_u16(packet, 10, 0);
    let header = packet.get(..cut.ip_header).unwrap_or_default();
    let sum = !checksum::ones_complement_sum(header);
    write_u16(packet, 10, sum);

    let length = u16::try_from(packet.len() - cut.ip_header).unwrap_or(u16::MAX);
    let protocol = match cut.transport {
        TransportProtocol::Tcp => TCP,
        TransportProtocol::Udp => {
            write_u16(packet, cut.ip_header + 4, length);
            UDP
        }
    };
    let addresses = packet.get(12..20).unwrap_or_default();
    let sum = checksum::pseudo_header_sum(addresses, protocol, length);
    let place = cut.ip_header + usize::from(cut.transport.checksum_offset());
    write_u16(packet, place, sum);
}
