//! Some neighbouring segments of a super-packet as a packet of their own.

use std::ops::Range;

use super::{Cut, Packet, TCP, Transport, UDP, checksum, set_word, word};

/// TCP flags (RFC 9293 section 3.1, RFC 3168 section 6.1) that only one segment of many carries:
/// they lie at this offset of the header.
const FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl Packet<'_> {
    /// The frame of these segments alone: a packet if it is one, else a smaller super-packet. The
    /// buffer is as large as the frame. `segments` is within `0..self.segments()` and not empty.
    pub(crate) fn piece(&self, segments: Range<usize>) -> Vec<u8> {
        match self.cut {
            Some(_) if 1 < segments.len() && segments.len() == self.segments() => self.whole(),
            Some(cut) => self.cut_out(cut, segments),
            None => self.whole(),
        }
    }

    /// The frame as it came.
    fn whole(&self) -> Vec<u8> {
        let header = self.offload.map(|offload| offload.encode());
        let header = header.as_ref().map_or(&[][..], |header| header);
        [header, self.bytes].concat()
    }

    fn cut_out(&self, cut: Cut, segments: Range<usize>) -> Vec<u8> {
        let payload = self.payload(cut, segments.clone());
        let headers = self.bytes.get(..cut.headers).unwrap_or_default();
        let mut offload = self.offload.unwrap_or_default();
        offload.header_length = u16::try_from(cut.headers).unwrap_or(u16::MAX);
        if segments.len() == 1 {
            offload = offload.single();
        } else if segments.start > 0 {
            offload = offload.without_first();
        }
        let mut frame = [&offload.encode()[..], headers, payload].concat();
        let packet = frame.get_mut(super::Offload::SIZE..).unwrap_or_default();
        number(packet, cut, segments.start);
        if cut.transport == Transport::Tcp {
            let is_last = segments.end == self.segments();
            settle_flags(packet, cut, segments.start == 0, is_last);
        }
        measure(packet, cut);
        frame
    }
}

/// Counts the IP identification and the TCP sequence number on to the segment the piece begins
/// with, as the kernel does when it divides a super-packet itself.
fn number(packet: &mut [u8], cut: Cut, first: usize) {
    let step = u16::try_from(first).unwrap_or(u16::MAX);
    let identification = word(packet, 4).unwrap_or(0);
    set_word(packet, 4, identification.wrapping_add(step));
    if cut.transport == Transport::Tcp {
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
fn settle_flags(packet: &mut [u8], cut: Cut, is_first: bool, is_last: bool) {
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
fn measure(packet: &mut [u8], cut: Cut) {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    set_word(packet, 2, total);
    set_word(packet, 10, 0);
    let header = packet.get(..cut.ip_header).unwrap_or_default();
    let sum = !checksum::sum(header);
    set_word(packet, 10, sum);

    let length = u16::try_from(packet.len() - cut.ip_header).unwrap_or(u16::MAX);
    let protocol = match cut.transport {
        Transport::Tcp => TCP,
        Transport::Udp => {
            set_word(packet, cut.ip_header + 4, length);
            UDP
        }
    };
    let addresses = packet.get(12..20).unwrap_or_default();
    let sum = checksum::pseudo_header(addresses, protocol, length);
    let place = cut.ip_header + usize::from(cut.transport.checksum_offset());
    set_word(packet, place, sum);
}
