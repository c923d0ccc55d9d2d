//! Checksum algorithms of CKSM, SCKS and the `CKSM` feature line (GFD.47).

/// A checksum algorithm that longhaul supports.
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
    /// All algorithms, in order of measured cost per byte, cheapest first. Verification uses the first
    /// one that both ends support.
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

    /// Parses a name. The case and hyphens are ignored (`SHA-256`).
    pub fn parse(text: &str) -> Option<Self> {
        // HTTP and some servers write `SHA-256` and `CRC-32C`.
        let plain: String = text.chars().filter(|c| *c != '-').collect();
        Self::CHEAPEST_FIRST
            .into_iter()
            .find(|a| a.name().eq_ignore_ascii_case(&plain))
    }

    /// Length of the checksum, hexadecimal digits.
    pub const fn hex_len(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32 | Self::Crc32c => 8,
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha512 => 128,
        }
    }

    /// Whether the checksums of two adjacent parts can be combined into that of the whole, so that
    /// blocks can be checksummed in any order of arrival.
    pub const fn is_combinable(self) -> bool {
        matches!(self, Self::Adler32 | Self::Crc32 | Self::Crc32c)
    }

    /// Parses a hexadecimal checksum of this algorithm; returns it in lower case. Some peers omit the
    /// leading zeros of 32-bit checksums; they are restored.
    pub fn parse_hex(self, text: &str) -> Option<String> {
        let width = self.hex_len();
        let shortest = if self.is_combinable() { 1 } else { width };
        let fits = (shortest..=width).contains(&text.len());
        let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        (fits && hex).then(|| format!("{:0>width$}", text.to_ascii_lowercase()))
    }
}
