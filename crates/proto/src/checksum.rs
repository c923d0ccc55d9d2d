//! Names of the checksum algorithms of CKSM, SCKS and the `CKSM` feature line.

/// A checksum algorithm that longhaul can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumAlgorithm {
    /// Adler-32 (RFC 1950), 8 hex digits.
    Adler32,
    /// CRC-32 (IEEE 802.3), 8 hex digits.
    Crc32,
    /// CRC-32C (Castagnoli), 8 hex digits.
    Crc32c,
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE3, 256 bit.
    Blake3,
}

impl ChecksumAlgorithm {
    /// All algorithms, cheapest first by measured cost per byte; verification picks the first that
    /// both ends have.
    pub const CHEAPEST_FIRST: [Self; 8] = [
        Self::Crc32c,
        Self::Crc32,
        Self::Adler32,
        Self::Blake3,
        Self::Sha256,
        Self::Sha1,
        Self::Md5,
        Self::Sha512,
    ];

    /// The name in CKSM and FEAT, upper case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "ADLER32",
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Blake3 => "BLAKE3",
        }
    }

    /// Reads a name, whatever its case; a hyphen is tolerated (`SHA-256`).
    pub fn parse(text: &str) -> Option<Self> {
        let plain: String = text.chars().filter(|c| *c != '-').collect();
        Self::CHEAPEST_FIRST
            .into_iter()
            .find(|a| a.name().eq_ignore_ascii_case(&plain))
    }

    /// Length of the digest in hexadecimal digits.
    pub const fn hex_len(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32 | Self::Crc32c => 8,
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha512 => 128,
        }
    }

    /// Whether the sums of two neighbouring pieces give the sum of the whole, so that blocks may
    /// be summed in any order of arrival.
    pub const fn is_combinable(self) -> bool {
        matches!(self, Self::Adler32 | Self::Crc32 | Self::Crc32c)
    }

    /// Reads a digest of this algorithm in hexadecimal; gives it in lower case. Peers write 32-bit
    /// sums without leading zeros now and then: those are restored.
    pub fn parse_hex(self, text: &str) -> Option<String> {
        let width = self.hex_len();
        let shortest = if self.is_combinable() { 1 } else { width };
        let fits = (shortest..=width).contains(&text.len());
        let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        (fits && hex).then(|| format!("{:0>width$}", text.to_ascii_lowercase()))
    }
}
