//! The virtio-net header that a TUN device puts before each packet: the 10 bytes of
//! `struct virtio_net_hdr` (virtio 1.2 section 5.1.6). Numbers are in the machine's byte order, which
//! is the default of TUN.

/// Segmentation and checksum work that the kernel leaves to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VirtioNetHeader {
    flags: u8,
    gso_type: u8,
    /// Length of all headers of the packet, bytes.
    pub(super) header_length: u16,
    /// Payload bytes of each segment except the last.
    pub(super) gso_size: u16,
    /// Offset of the first byte that the checksum covers.
    pub(super) checksum_start: u16,
    /// Offset of the checksum field from `checksum_start`.
    pub(super) checksum_offset: u16,
}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds only the sum of the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`: the first segment has CWR set.
const ECN: u8 = 0x80;
/// `VIRTIO_NET_HDR_GSO_NONE`.
const ONE_PACKET: u8 = 0;

impl VirtioNetHeader {
    /// Size of the header, bytes.
    pub(crate) const SIZE: usize = 10;
    /// `VIRTIO_NET_HDR_GSO_TCPV4`.
    pub(super) const TCP_IPV4: u8 = 1;
    /// `VIRTIO_NET_HDR_GSO_UDP_L4`.
    pub(super) const UDP: u8 = 5;

    /// Splits a frame into its header and the packet.
    pub(super) fn decode(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = frame.split_first_chunk::<{ Self::SIZE }>()?;
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let offload = Self {
            flags: header[0],
            gso_type: header[1],
            header_length: number(2),
            gso_size: number(4),
            checksum_start: number(6),
            checksum_offset: number(8),
        };
        Some((offload, rest))
    }

    /// The header as bytes.
    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let [l0, l1] = self.header_length.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, l0, l1, g0, g1, s0, s1, o0, o1]
    }

    /// Whether the packet has several segments.
    pub(super) const fn is_super_packet(&self) -> bool {
        self.segmentation_type() != ONE_PACKET
    }

    /// The segmentation type, without the ECN flag.
    pub(super) const fn segmentation_type(&self) -> u8 {
        self.gso_type & !ECN
    }

    /// Whether the checksum still has to be computed.
    pub(super) const fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// The header for a single segment of this super-packet.
    pub(super) const fn for_single_segment(mut self) -> Self {
        self.gso_type = ONE_PACKET;
        // NEEDS_CHECKSUM stays set: the receiving kernel completes the checksum.
        self.gso_size = 0;
        self
    }

    /// The header for segments that do not include the first one, the only one that may have CWR set.
    pub(super) const fn without_first(mut self) -> Self {
        self.gso_type &= !ECN;
        self
    }
}

#[cfg(test)]
impl VirtioNetHeader {
    /// The header of a TCP or UDP super-packet.
    pub(super) fn for_super_packet(kind: u8, gso_size: u16, start: u16, offset: u16) -> Self {
        Self {
            flags: NEEDS_CHECKSUM,
            gso_type: kind,
            header_length: 0,
            gso_size,
            checksum_start: start,
            checksum_offset: offset,
        }
    }
}
