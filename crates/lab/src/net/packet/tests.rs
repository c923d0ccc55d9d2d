use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// A TCP or UDP super-packet to be built.
#[derive(Debug, Clone)]
struct TestPacketSpec {
    is_tcp: bool,
    /// 32-bit words of options.
    ip_options: usize,
    tcp_options: usize,
    identification: u16,
    sequence: u32,
    flags: u8,
    gso_size: u16,
    payload: Vec<u8>,
}

impl TestPacketSpec {
    fn ip_header(&self) -> usize {
        SMALLEST_IP_HEADER + 4 * self.ip_options
    }

    fn header(&self) -> usize {
        match self.is_tcp {
            true => SMALLEST_TCP_HEADER + 4 * self.tcp_options,
            false => UDP_HEADER,
        }
    }

    fn checksum_at(&self) -> usize {
        self.ip_header() + if self.is_tcp { 16 } else { 6 }
    }

    fn segments(&self) -> usize {
        self.payload.len().div_ceil(usize::from(self.gso_size))
    }

    /// Payload bytes of some segments.
    fn bytes_of(&self, segments: Range<usize>) -> &[u8] {
        let size = usize::from(self.gso_size);
        let end = (segments.end * size).min(self.payload.len());
        &self.payload[segments.start * size..end]
    }

    /// The IP packet; its transport checksum holds the pseudo-header's sum.
    fn packet(&self) -> Vec<u8> {
        let ip_header = self.ip_header();
        let length = ip_header + self.header() + self.payload.len();
        let mut ip = vec![0; ip_header];
        ip[0] = 0x40 | u8::try_from(ip_header / 4).unwrap();
        write_u16(&mut ip, 2, u16::try_from(length).unwrap());
        write_u16(&mut ip, 4, self.identification);
        ip[8] = 64;
        ip[9] = if self.is_tcp { TCP } else { UDP };
        ip[12..20].copy_from_slice(&[10, 99, 0, 1, 10, 99, 0, 2]);
        ip[20..].fill(1); // no-operation options
        let sum = !checksum::ones_complement_sum(&ip);
        write_u16(&mut ip, 10, sum);

        let mut header = vec![0; self.header()];
        if self.is_tcp {
            header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
            header[12] = u8::try_from(self.header() / 4).unwrap() << 4;
            header[13] = self.flags;
            header[20..].fill(1);
        } else {
            write_u16(&mut header, 4, u16::try_from(length - ip_header).unwrap());
        }
        let mut packet = [&ip[..], &header, &self.payload].concat();
        let length = u16::try_from(length - ip_header).unwrap();
        let sum = checksum::pseudo_header_sum(&ip[12..20], ip[9], length);
        write_u16(&mut packet, self.checksum_at(), sum);
        packet
    }

    fn frame(&self) -> Vec<u8> {
        let (kind, offset) = match self.is_tcp {
            true => (VirtioNetHeader::TCP_IPV4, 16),
            false => (VirtioNetHeader::UDP, 6),
        };
        let start = u16::try_from(self.ip_header()).unwrap();
        let offload = VirtioNetHeader::for_super_packet(kind, self.gso_size, start, offset);
        [&offload.encode()[..], &self.packet()].concat()
    }

    /// A plain packet with a finished checksum.
    fn finished(&self) -> Vec<u8> {
        let mut packet = self.packet();
        complete_checksum(&mut packet, self.ip_header(), self.checksum_at());
        packet
    }
}

fn recipe() -> impl Strategy<Value = TestPacketSpec> {
    let numbers = (any::<u16>(), any::<u32>(), any::<u8>(), 1_u16..1500);
    let payload = prop::collection::vec(any::<u8>(), 1..6_000);
    (any::<bool>(), 0_usize..3, 0_usize..10, numbers, payload).prop_map(
        |(is_tcp, ip_options, tcp_options, numbers, payload)| TestPacketSpec {
            is_tcp,
            ip_options,
            tcp_options,
            identification: numbers.0,
            sequence: numbers.1,
            flags: numbers.2,
            gso_size: numbers.3,
            payload,
        },
    )
}

/// Does what the kernel does for a partial checksum: sums the segment into its checksum field.
fn complete_checksum(packet: &mut [u8], transport: usize, at: usize) {
    let sum = match !checksum::ones_complement_sum(&packet[transport..]) {
        0 => u16::MAX,
        sum => sum,
    };
    write_u16(packet, at, sum);
}

/// A receiver's check: the sum over pseudo-header and segment is all ones.
fn has_valid_checksums(packet: &[u8]) -> bool {
    let header = usize::from(packet[0] & 15) * 4;
    let length = u16::try_from(packet.len() - header).unwrap();
    let pseudo = checksum::pseudo_header_sum(&packet[12..20], packet[9], length);
    let sum = u64::from(pseudo) + u64::from(checksum::ones_complement_sum(&packet[header..]));
    checksum::ones_complement_sum(&packet[..header]) == u16::MAX && checksum::fold(sum) == u16::MAX
}

/// Checks that a frame is a right packet of these segments; gives its payload.
fn check(frame: &[u8], recipe: &TestPacketSpec, segments: Range<usize>) -> Vec<u8> {
    let (offload, packet) = VirtioNetHeader::decode(frame).unwrap();
    let headers = recipe.ip_header() + recipe.header();
    assert_eq!(read_u16(packet, 2).map(usize::from), Some(packet.len()));
    assert!(offload.needs_checksum());
    assert_eq!(usize::from(offload.checksum_start), recipe.ip_header());
    if segments.len() == 1 {
        assert_eq!((offload.segmentation_type(), offload.gso_size), (0, 0));
    } else if segments.len() < recipe.segments() {
        assert!(offload.is_super_packet());
        assert_eq!(offload.gso_size, recipe.gso_size);
        assert_eq!(usize::from(offload.header_length), headers);
    }
    let step = u16::try_from(segments.start).unwrap();
    let id = recipe.identification.wrapping_add(step);
    assert_eq!(read_u16(packet, 4), Some(id));
    let at = recipe.ip_header();
    if recipe.is_tcp {
        let skipped = u32::from(step) * u32::from(recipe.gso_size);
        let sequence = recipe.sequence.wrapping_add(skipped);
        assert_eq!(packet[at + 4..at + 8], sequence.to_be_bytes());
        let mut flags = recipe.flags;
        if segments.start > 0 {
            flags &= !0x80;
        }
        if segments.end < recipe.segments() {
            flags &= !0x09;
        }
        assert_eq!(packet[at + 13], flags);
    } else {
        assert_eq!(
            read_u16(packet, at + 4).map(usize::from),
            Some(packet.len() - at)
        );
    }
    let mut sent = packet.to_vec();
    complete_checksum(&mut sent, at, recipe.checksum_at());
    assert!(has_valid_checksums(&sent));
    packet[headers..].to_vec()
}

/// Cuts `0..count` at random places.
fn ranges(count: usize, lengths: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    let mut lengths = lengths.iter().cycle();
    std::iter::from_fn(|| {
        let end = (start + lengths.next()?).min(count);
        let range = (start < count).then_some(start..end);
        start = end;
        range
    })
    .collect()
}

proptest! {
    #[test]
    fn pieces_are_right_and_give_the_same_stream(
        recipe in recipe(),
        lengths in prop::collection::vec(1_usize..20, 1..8),
    ) {
        let frame = recipe.frame();
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        prop_assert_eq!(packet.destination(), Ipv4Addr::new(10, 99, 0, 2));
        prop_assert_eq!(packet.segments(), recipe.segments());
        let mut stream = Vec::new();
        for range in ranges(recipe.segments(), &lengths) {
            let piece = packet.frame_of_segments(range.clone());
            prop_assert_eq!(piece.capacity(), piece.len());
            let payload = check(&piece, &recipe, range.clone());
            prop_assert_eq!(&payload, recipe.bytes_of(range));
            stream.extend(payload);
        }
        prop_assert_eq!(stream, recipe.payload);
    }

    #[test]
    fn a_piece_divides_as_the_whole_does(recipe in recipe(), a in 0_usize..40, b in 1_usize..40) {
        let frame = recipe.frame();
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        let start = a.min(packet.segments() - 1);
        let range = start..(start + b).min(packet.segments());
        let piece = packet.frame_of_segments(range.clone());
        let piece = RawPacket::parse(&piece, TunFraming::Offloaded).unwrap();
        prop_assert_eq!(piece.segments(), range.len());
        for (inner, outer) in range.enumerate() {
            prop_assert_eq!(piece.segment_bytes(inner), packet.segment_bytes(outer));
            let one = piece.frame_of_segments(inner..inner + 1);
            prop_assert_eq!(one.len() - VirtioNetHeader::SIZE, packet.segment_bytes(outer) as usize);
            check(&one, &recipe, outer..outer + 1);
        }
    }

    #[test]
    fn corruption_changes_one_payload_byte_under_a_right_checksum(
        recipe in recipe(),
        choice in any::<u64>(),
    ) {
        let before = recipe.finished();
        let mut after = before.clone();
        prop_assert!(corrupt_payload(&mut after, TunFraming::Plain, choice));
        prop_assert!(has_valid_checksums(&before) && has_valid_checksums(&after));
        let sum = recipe.checksum_at();
        let differs = |at: &usize| before[*at] != after[*at] && *at != sum && *at != sum + 1;
        let changed: Vec<_> = (0..before.len()).filter(differs).collect();
        prop_assert_eq!(changed.len(), 1);
        prop_assert!(changed[0] >= recipe.ip_header() + recipe.header());
    }

    #[test]
    fn corruption_leaves_a_partial_sum_alone(recipe in recipe(), choice in any::<u64>()) {
        let frame = recipe.frame();
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        let before = packet.frame_of_segments(0..1);
        let mut after = before.clone();
        prop_assert!(corrupt_payload(&mut after, TunFraming::Offloaded, choice));
        let different = before.iter().zip(&after).filter(|(b, a)| b != a).count();
        prop_assert_eq!(different, 1);
        let changed = check(&after, &recipe, 0..1);
        prop_assert!(changed != recipe.bytes_of(0..1));
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), choice in any::<u64>()) {
        for framing in [TunFraming::Plain, TunFraming::Offloaded] {
            if let Ok(packet) = RawPacket::parse(&bytes, framing) {
                let last = packet.segments() - 1;
                packet.frame_of_segments(last..last + 1);
            }
            corrupt_payload(&mut bytes, framing, choice);
        }
    }

    /// Bytes that are nearly right come further than random ones.
    #[test]
    fn no_damaged_packet_panics(
        recipe in recipe(),
        damage in prop::collection::vec((0_usize..70, any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        choice in any::<u64>(),
    ) {
        let mut frame = recipe.frame();
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        for length in [frame.len(), cut.index(frame.len())] {
            let frame = &mut frame[..length];
            if let Ok(packet) = RawPacket::parse(frame, TunFraming::Offloaded) {
                let count = packet.segments();
                for range in ranges(count, &[count / 2 + 1]) {
                    let piece = packet.frame_of_segments(range.clone());
                    prop_assert!(piece.len() <= frame.len());
                    RawPacket::parse(&piece, TunFraming::Offloaded).unwrap();
                }
            }
            corrupt_payload(frame, TunFraming::Offloaded, choice);
        }
    }
}

fn datagram(payload: &[u8]) -> TestPacketSpec {
    TestPacketSpec {
        is_tcp: false,
        ip_options: 0,
        tcp_options: 0,
        identification: 7,
        sequence: 0,
        flags: 0,
        gso_size: 1000,
        payload: payload.to_vec(),
    }
}

#[test]
fn a_plain_packet_passes_as_it_is() {
    let packet = datagram(b"hello").finished();
    let parsed = RawPacket::parse(&packet, TunFraming::Plain).unwrap();
    assert_eq!((parsed.segments(), parsed.segment_bytes(0)), (1, 33));
    assert_eq!(parsed.frame_of_segments(0..1), packet);
    let framed = [&[0; VirtioNetHeader::SIZE][..], &packet].concat();
    let parsed = RawPacket::parse(&framed, TunFraming::Offloaded).unwrap();
    assert_eq!(parsed.frame_of_segments(0..1), framed);
}

#[test]
fn an_absent_udp_checksum_stays_absent() {
    let mut packet = datagram(b"hello").finished();
    write_u16(&mut packet, 26, 0);
    assert!(corrupt_payload(&mut packet, TunFraming::Plain, 5));
    assert_eq!(read_u16(&packet, 26), Some(0));
    assert_ne!(packet[28..], *b"hello");
}

#[test]
fn headers_are_never_corrupted() {
    let mut empty = datagram(b"").finished();
    assert!(!corrupt_payload(&mut empty, TunFraming::Plain, 5));
    let mut icmp = datagram(b"hello").finished();
    icmp[9] = 1;
    assert!(!corrupt_payload(&mut icmp, TunFraming::Plain, 5));
    let mut fragment = datagram(b"hello").finished();
    write_u16(&mut fragment, 6, 185);
    assert!(!corrupt_payload(&mut fragment, TunFraming::Plain, 5));
}

#[test]
fn what_is_odd_is_refused() {
    let refused = |frame: &[u8]| RawPacket::parse(frame, TunFraming::Offloaded).unwrap_err();
    let good = datagram(&[1; 3000]).frame();
    assert!(RawPacket::parse(&good, TunFraming::Offloaded).is_ok());
    let changed = |at: usize, to: u8| {
        let mut frame = good.clone();
        frame[at] = to;
        refused(&frame)
    };
    assert_eq!(changed(10, 0x65), PacketError::Ipv6);
    let malformed = [
        refused(&good[..9]),
        refused(&good[..10]),
        refused(&good[..good.len() - 1]),
        changed(0, 0),     // segmentation, but no checksum to be computed
        changed(1, 4),     // IPv6 segmentation
        changed(1, 1),     // TCP segmentation of a UDP packet
        changed(6, 24),    // checksum from elsewhere
        changed(8, 16),    // checksum to elsewhere
        changed(10, 0x44), // IP header of 16 bytes
        changed(10, 0x75), // IP version 7
    ];
    for unfit in malformed {
        assert!(matches!(unfit, PacketError::Malformed(_)), "{unfit:?}");
    }
}
