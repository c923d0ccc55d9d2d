//! Packets as TUN devices deliver them: IPv4 packets and super-packets of many TCP or UDP segments,
//! each after a virtio-net header that says which of the two it is.
//!
//! Pure functions on byte slices. Malformed input gives an error and never a panic, because the bytes
//! come from arbitrary programs on the hosts.

mod checksum;
mod corrupt;
mod router_answer;
mod segment_frame;
mod virtio_net_header;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

pub(crate) use corrupt::corrupt_payload;
pub(crate) use router_answer::{RouterStop, lower_ttl, router_answer};
pub(crate) use virtio_net_header::VirtioNetHeader;

/// Largest frame of a TUN device: an IPv4 packet of 65 535 bytes and its virtio-net header.
pub(crate) const LARGEST_FRAME: usize = 65_535 + VirtioNetHeader::SIZE;

/// IP protocol number of TCP (RFC 9293).
const TCP: u8 = 6;
/// IP protocol number of UDP (RFC 768).
const UDP: u8 = 17;
/// Size of an IPv4 header without options, bytes (RFC 791 section 3.1).
const SMALLEST_IP_HEADER: usize = 20;
/// Size of a TCP header without options, bytes (RFC 9293 section 3.1).
const SMALLEST_TCP_HEADER: usize = 20;
/// Size of a UDP header, bytes (RFC 768).
const UDP_HEADER: usize = 8;

/// Whether frames carry a virtio-net header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunFraming {
    /// IP packets with virtio-net headers.
    Offloaded,
    /// IP packets without other headers.
    Plain,
}

/// Reasons why a frame cannot be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    /// An IPv6 packet. Hosts have only IPv4 addresses, but some kernels send router solicitations.
    #[error("IPv6 packet")]
    Ipv6,
    /// A malformed frame.
    #[error("{0}")]
    Malformed(&'static str),
}

/// An IPv4 packet, or a super-packet with several segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawPacket<'a> {
    offload: Option<VirtioNetHeader>,
    bytes: &'a [u8],
    layout: Option<SegmentLayout>,
}

/// How a super-packet divides into segments.
#[derive(Debug, Clone, Copy)]
struct SegmentLayout {
    /// Length of the IP header, bytes.
    ip_header: usize,
    /// Length of IP and transport header together, bytes. Each segment gets a copy of both.
    headers: usize,
    /// Payload bytes of each segment except the last.
    segment: usize,
    transport: TransportProtocol,
}

/// Transport protocol of a super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransportProtocol {
    Tcp,
    Udp,
}

impl<'a> RawPacket<'a> {
    /// Parses a frame.
    ///
    /// # Errors
    /// [`PacketError`]: the frame cannot be forwarded.
    pub(crate) fn parse(frame: &'a [u8], framing: TunFraming) -> Result<Self, PacketError> {
        let (offload, bytes) = match framing {
            TunFraming::Plain => (None, frame),
            TunFraming::Offloaded => {
                let (offload, bytes) = VirtioNetHeader::decode(frame)
                    .ok_or(PacketError::Malformed("shorter than its virtio-net header"))?;
                (Some(offload), bytes)
            }
        };
        let ip_header = ip_header_length(bytes)?;
        let layout = match offload {
            Some(offload) if offload.is_super_packet() => {
                Some(segment_layout(&offload, bytes, ip_header)?)
            }
            _ => None,
        };
        Ok(Self {
            offload,
            bytes,
            layout,
        })
    }

    /// Destination address.
    pub(crate) fn destination(&self) -> Ipv4Addr {
        let octets = self.bytes.get(16..20).and_then(|b| b.try_into().ok());
        Ipv4Addr::from(octets.unwrap_or([0; 4]))
    }

    /// Number of segments, at least 1.
    pub(crate) fn segments(&self) -> usize {
        match self.layout {
            None => 1,
            // `segment_layout` checked that there is payload and that the segment size is not 0.
            Some(layout) => (self.bytes.len() - layout.headers).div_ceil(layout.segment),
        }
    }

    /// Length of segment `index` as a separate IP packet, with headers, bytes.
    pub(crate) fn segment_bytes(&self, index: usize) -> u32 {
        let bytes = match self.layout {
            None => self.bytes.len(),
            Some(layout) => layout.headers + self.payload(layout, index..index + 1).len(),
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The payload of some segments.
    fn payload(&self, layout: SegmentLayout, segments: std::ops::Range<usize>) -> &'a [u8] {
        let payload = self.bytes.get(layout.headers..).unwrap_or_default();
        let end = (segments.end * layout.segment).min(payload.len());
        let start = (segments.start * layout.segment).min(end);
        payload.get(start..end).unwrap_or_default()
    }
}

/// Checks the fixed part of an IPv4 header; returns the header's length in bytes, with options.
fn ip_header_length(packet: &[u8]) -> Result<usize, PacketError> {
    let first = *packet
        .first()
        .ok_or(PacketError::Malformed("no IP header"))?;
    match first >> 4 {
        4 => {}
        6 => return Err(PacketError::Ipv6),
        _ => return Err(PacketError::Malformed("unknown IP version")),
    }
    let header = usize::from(first & 0x0f) * 4;
    let total = usize::from(read_u16(packet, 2).unwrap_or(0));
    // A frame may be longer than the packet (padding), but not shorter.
    if header < SMALLEST_IP_HEADER || total < header || total > packet.len() {
        return Err(PacketError::Malformed("inconsistent IP lengths"));
    }
    Ok(header)
}

/// Checks a super-packet, and computes how it divides into segments.
fn segment_layout(
    offload: &VirtioNetHeader,
    bytes: &[u8],
    ip_header: usize,
) -> Result<SegmentLayout, PacketError> {
    let protocol = bytes.get(9).copied();
    let (transport, header) = match (offload.segmentation_type(), protocol) {
        (VirtioNetHeader::TCP_IPV4, Some(TCP)) => {
            let offset = bytes.get(ip_header + 12).copied().unwrap_or(0);
            (TransportProtocol::Tcp, usize::from(offset >> 4) * 4)
        }
        (VirtioNetHeader::UDP, Some(UDP)) => (TransportProtocol::Udp, UDP_HEADER),
        _ => {
            return Err(PacketError::Malformed(
                "segmentation type does not match the protocol",
            ));
        }
    };
    let headers = ip_header + header;
    if transport == TransportProtocol::Tcp && header < SMALLEST_TCP_HEADER || headers >= bytes.len()
    {
        return Err(PacketError::Malformed("super-packet without payload"));
    }
    // Padding would become payload of the last segment.
    if read_u16(bytes, 2).map(usize::from) != Some(bytes.len()) {
        return Err(PacketError::Malformed("super-packet with a wrong length"));
    }
    // Virtio 1.2 section 5.1.6.2.1: a header with a segmentation type always leaves the checksum to the
    // device (VIRTIO_NET_HDR_F_NEEDS_CSUM).
    let field = (usize::from(offload.checksum_start), offload.checksum_offset);
    if offload.gso_size == 0
        || !offload.needs_checksum()
        || field != (ip_header, transport.checksum_offset())
    {
        return Err(PacketError::Malformed(
            "super-packet with an invalid virtio-net header",
        ));
    }
    Ok(SegmentLayout {
        ip_header,
        headers,
        segment: usize::from(offload.gso_size),
        transport,
    })
}

impl TransportProtocol {
    /// Offset of the checksum in the transport header.
    const fn checksum_offset(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// The big-endian 16-bit number at offset `at`.
fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(word.try_into().ok()?))
}

/// Writes a big-endian 16-bit number at offset `at`, if there is room.
fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
