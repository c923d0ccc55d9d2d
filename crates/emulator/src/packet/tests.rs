use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// Parameters of a TCP or UDP super-packet.
#[derive(Debug, Clone)]
struct TestPacketSpec {
    is_tcp: bool,
    /// Number of 32-bit words of options.
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

    /// The IP packet, with a partial checksum: the sum of the pseudo-header.
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

    /// A plain packet with a complete checksum.
    fn finished(&self) -> Vec<u8> {
        let mut packet = self.packet();
        complete_checksum(&mut packet, self.ip_header(), self.checksum_at());
        packet
    }
}

fn spec() -> impl Strategy<Value = TestPacketSpec> {
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

/// Completes a partial checksum as the kernel does: adds the sum of the segment.
fn complete_checksum(packet: &mut [u8], transport: usize, at: usize) {
    let sum = match !checksum::ones_complement_sum(&packet[transport..]) {
        0 => u16::MAX,
        sum => sum,
    };
    write_u16(packet, at, sum);
}

/// Verifies the checksums like a receiver: the sum over pseudo-header and segment is all ones.
fn has_valid_checksums(packet: &[u8]) -> bool {
    let header = usize::from(packet[0] & 15) * 4;
    let length = u16::try_from(packet.len() - header).unwrap();
    let pseudo = checksum::pseudo_header_sum(&packet[12..20], packet[9], length);
    let sum = u64::from(pseudo) + u64::from(checksum::ones_complement_sum(&packet[header..]));
    checksum::ones_complement_sum(&packet[..header]) == u16::MAX && checksum::fold(sum) == u16::MAX
}

/// Checks that a frame is a valid packet with these segments; returns its payload.
fn check(frame: &[u8], spec: &TestPacketSpec, segments: Range<usize>) -> Vec<u8> {
    let (offload, packet) = VirtioNetHeader::decode(frame).unwrap();
    let headers = spec.ip_header() + spec.header();
    assert_eq!(read_u16(packet, 2).map(usize::from), Some(packet.len()));
    assert!(offload.needs_checksum());
    assert_eq!(usize::from(offload.checksum_start), spec.ip_header());
    if segments.len() == 1 {
        assert_eq!((offload.segmentation_type(), offload.gso_size), (0, 0));
    } else if segments.len() < spec.segments() {
        assert!(offload.is_super_packet());
        assert_eq!(offload.gso_size, spec.gso_size);
        assert_eq!(usize::from(offload.header_length), headers);
    }
    let step = u16::try_from(segments.start).unwrap();
    let id = spec.identification.wrapping_add(step);
    assert_eq!(read_u16(packet, 4), Some(id));
    let at = spec.ip_header();
    if spec.is_tcp {
        let skipped = u32::from(step) * u32::from(spec.gso_size);
        let sequence = spec.sequence.wrapping_add(skipped);
        assert_eq!(packet[at + 4..at + 8], sequence.to_be_bytes());
        let mut flags = spec.flags;
        if segments.start > 0 {
            flags &= !0x80;
        }
        if segments.end < spec.segments() {
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
    complete_checksum(&mut sent, at, spec.checksum_at());
    assert!(has_valid_checksums(&sent));
    packet[headers..].to_vec()
}

/// Divides `0..count` into ranges of these lengths.
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
    fn extracted_segments_are_valid_and_give_the_same_payload(
        spec in spec(),
        lengths in prop::collection::vec(1_usize..20, 1..8),
    ) {
        let frame = spec.frame();
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        prop_assert_eq!(packet.destination(), Ipv4Addr::new(10, 99, 0, 2));
        prop_assert_eq!(packet.segments(), spec.segments());
        let mut stream = Vec::new();
        for range in ranges(spec.segments(), &lengths) {
            let frame_part = packet.frame_of_segments(range.clone());
            prop_assert_eq!(frame_part.capacity(), frame_part.len());
            let payload = check(&frame_part, &spec, range.clone());
            prop_assert_eq!(&payload, spec.bytes_of(range));
            stream.extend(payload);
        }
        prop_assert_eq!(stream, spec.payload);
    }

    #[test]
    fn an_extracted_frame_divides_like_the_super_packet(spec in spec(), a in 0_usize..40, b in 1_usize..40) {
        let frame = spec.frame();
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        let start = a.min(packet.segments() - 1);
        let range = start..(start + b).min(packet.segments());
        let frame_part = packet.frame_of_segments(range.clone());
        let frame_part = RawPacket::parse(&frame_part, TunFraming::Offloaded).unwrap();
        prop_assert_eq!(frame_part.segments(), range.len());
        for (inner, outer) in range.enumerate() {
            prop_assert_eq!(frame_part.segment_bytes(inner), packet.segment_bytes(outer));
            let one = frame_part.frame_of_segments(inner..inner + 1);
            prop_assert_eq!(one.len() - VirtioNetHeader::SIZE, packet.segment_bytes(outer) as usize);
            check(&one, &spec, outer..outer + 1);
        }
    }

    #[test]
    fn corruption_changes_one_payload_byte_and_keeps_checksums_valid(
        spec in spec(),
        choice in any::<u64>(),
    ) {
        let before = spec.finished();
        let mut after = before.clone();
        prop_assert!(corrupt_payload(&mut after, TunFraming::Plain, choice));
        prop_assert!(has_valid_checksums(&before) && has_valid_checksums(&after));
        let sum = spec.checksum_at();
        let differs = |at: &usize| before[*at] != after[*at] && *at != sum && *at != sum + 1;
        let changed: Vec<_> = (0..before.len()).filter(differs).collect();
        prop_assert_eq!(changed.len(), 1);
        prop_assert!(changed[0] >= spec.ip_header() + spec.header());
    }

    #[test]
    fn corruption_does_not_change_a_partial_checksum(spec in spec(), choice in any::<u64>()) {
        let frame = spec.frame();
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        let before = packet.frame_of_segments(0..1);
        let mut after = before.clone();
        prop_assert!(corrupt_payload(&mut after, TunFraming::Offloaded, choice));
        let different = before.iter().zip(&after).filter(|(b, a)| b != a).count();
        prop_assert_eq!(different, 1);
        let changed = check(&after, &spec, 0..1);
        prop_assert!(changed != spec.bytes_of(0..1));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), choice in any::<u64>()) {
        for framing in [TunFraming::Plain, TunFraming::Offloaded] {
            if let Ok(packet) = RawPacket::parse(&bytes, framing) {
                let last = packet.segments() - 1;
                packet.frame_of_segments(last..last + 1);
            }
            corrupt_payload(&mut bytes, framing, choice);
        }
    }

    /// Nearly valid packets reach code that random bytes do not.
    #[test]
    fn damaged_packets_do_not_panic(
        spec in spec(),
        damage in prop::collection::vec((0_usize..70, any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        choice in any::<u64>(),
    ) {
        let mut frame = spec.frame();
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
                    let frame_part = packet.frame_of_segments(range.clone());
                    prop_assert!(frame_part.len() <= frame.len());
                    RawPacket::parse(&frame_part, TunFraming::Offloaded).unwrap();
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
fn a_plain_packet_is_not_changed() {
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
fn malformed_super_packets_are_refused() {
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
        changed(0, 0),     // segmentation without checksum offload
        changed(1, 4),     // IPv6 segmentation
        changed(1, 1),     // TCP segmentation of a UDP packet
        changed(6, 24),    // wrong checksum start
        changed(8, 16),    // wrong checksum offset
        changed(10, 0x44), // IP header of 16 bytes
        changed(10, 0x75), // IP version 7
    ];
    for error in malformed {
        assert!(matches!(error, PacketError::Malformed(_)), "{error:?}");
    }
}
