//! Packets as TUN devices hand them over: IPv4 packets and super-packets of many TCP or UDP
//! segments, each behind a virtio-net header that says which of the two it is.
//!
//! Pure functions on byte slices. What is odd is refused with a reason, never a panic: the bytes
//! come from whatever runs on the hosts.

mod checksum;
mod corrupt;
mod segment_frame;
mod virtio_net_header;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

pub(crate) use corrupt::corrupt_payload;
pub(crate) use virtio_net_header::VirtioNetHeader;

/// Largest frame a TUN device hands over: an IPv4 packet of 65 535 bytes and its virtio-net header.
pub(crate) const LARGEST_FRAME: usize = 65_535 + VirtioNetHeader::SIZE;

/// IP protocol number of TCP (RFC 9293).
const TCP: u8 = 6;
/// IP protocol number of UDP (RFC 768).
const UDP: u8 = 17;
/// An IPv4 header without options (RFC 791 section 3.1).
const SMALLEST_IP_HEADER: usize = 20;
/// A TCP header without options (RFC 9293 section 3.1).
const SMALLEST_TCP_HEADER: usize = 20;
/// A UDP header (RFC 768).
const UDP_HEADER: usize = 8;

/// Whether frames carry a virtio-net header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunFraming {
    /// IP packets behind virtio-net headers.
    Offloaded,
    /// IP packets alone.
    Plain,
}

/// Why a frame is not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    /// IPv6: the hosts of a lab have IPv4 addresses only, but their kernels ask for IPv6 routers.
    #[error("it is an IPv6 packet")]
    Ipv6,
    /// It breaks the rules of its format.
    #[error("{0}")]
    Malformed(&'static str),
}

/// An IPv4 packet, or a super-packet that stands for several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawPacket<'a> {
    offload: Option<VirtioNetHeader>,
    bytes: &'a [u8],
    cut: Option<SegmentLayout>,
}

/// Where a super-packet divides.
#[derive(Debug, Clone, Copy)]
struct SegmentLayout {
    /// Bytes of the IP header.
    ip_header: usize,
    /// Bytes of IP and transport header together: each segment gets its own copy of them.
    headers: usize,
    /// Payload bytes of each segment but the last.
    segment: usize,
    transport: TransportProtocol,
}

/// Kind of a segment's second header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransportProtocol {
    Tcp,
    Udp,
}

impl<'a> RawPacket<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`PacketError`]: why it cannot be carried.
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
        let cut = match offload {
            Some(offload) if offload.is_super_packet() => {
                Some(segment_layout(&offload, bytes, ip_header)?)
            }
            _ => None,
        };
        Ok(Self {
            offload,
            bytes,
            cut,
        })
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> Ipv4Addr {
        let octets = self.bytes.get(16..20).and_then(|b| b.try_into().ok());
        Ipv4Addr::from(octets.unwrap_or([0; 4]))
    }

    /// How many packets it stands for, at least 1.
    pub(crate) fn segments(&self) -> usize {
        match self.cut {
            None => 1,
            Some(cut) => (self.bytes.len() - cut.headers).div_ceil(cut.segment),
        }
    }

    /// Bytes of segment `index` as an IP packet of its own, headers included.
    pub(crate) fn segment_bytes(&self, index: usize) -> u32 {
        let bytes = match self.cut {
            None => self.bytes.len(),
            Some(cut) => cut.headers + self.payload(cut, index..index + 1).len(),
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The payload of some segments.
    fn payload(&self, cut: SegmentLayout, segments: std::ops::Range<usize>) -> &'a [u8] {
        let payload = self.bytes.get(cut.headers..).unwrap_or_default();
        let end = (segments.end * cut.segment).min(payload.len());
        let start = (segments.start * cut.segment).min(end);
        payload.get(start..end).unwrap_or_default()
    }
}

/// Checks the fixed part of an IPv4 header; its length in bytes, options included.
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
    if header < SMALLEST_IP_HEADER || total < header || total > packet.len() {
        return Err(PacketError::Malformed("IP lengths contradict each other"));
    }
    Ok(header)
}

/// Checks a super-packet, and finds where it divides.
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
        _ => return Err(PacketError::Malformed("segmentation of another protocol")),
    };
    let headers = ip_header + header;
    if transport == TransportProtocol::Tcp && header < SMALLEST_TCP_HEADER || headers >= bytes.len()
    {
        return Err(PacketError::Malformed("a super-packet without payload"));
    }
    if read_u16(bytes, 2).map(usize::from) != Some(bytes.len()) {
        return Err(PacketError::Malformed("a super-packet of another length"));
    }
    // Virtio 1.2 section 5.1.6.2.1: with segmentation the checksum is always the device's work.
    let place = (usize::from(offload.checksum_start), offload.checksum_offset);
    if offload.gso_size == 0
        || !offload.needs_checksum()
        || place != (ip_header, transport.checksum_offset())
    {
        return Err(PacketError::Malformed("a super-packet with a wrong header"));
    }
    Ok(SegmentLayout {
        ip_header,
        headers,
        segment: usize::from(offload.gso_size),
        transport,
    })
}

impl TransportProtocol {
    /// Where the checksum is in the transport header.
    const fn checksum_offset(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// The big-endian word at `at`.
fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(word.try_into().ok()?))
}

/// Puts a big-endian word at `at`, if there is room.
fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}
