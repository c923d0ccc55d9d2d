//! Checksum algorithms of CKSM, SCKS and the `CKSM` feature line (GFD.47), and checksums in replies.

use std::collections::BTreeSet;

use crate::echo::replace_path;
use crate::reply::Reply;

/// A checksum algorithm that longhaul supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumAlgorithm {
    /// Adler-32 (RFC 1950), 8 hex digits.
    Adler32,
    /// CRC-32 (IEEE 802.3), 8 hex digits.
    Crc32,
    /// CRC-32C (Castagnoli), 8 hex digits.
    Crc32c,
    /// CRC-64/NVME (NVM Express), 16 hex digits.
    Crc64Nvme,
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
    pub const CHEAPEST_FIRST: [Self; 9] = [
        Self::Crc32c,
        Self::Crc32,
        Self::Crc64Nvme,
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
            Self::Crc64Nvme => "CRC64NVME",
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
            Self::Crc64Nvme => 16,
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha512 => 128,
        }
    }

    /// Whether the checksums of two adjacent parts can be combined into that of the whole, so that
    /// blocks can be checksummed in any order of arrival.
    pub const fn is_combinable(self) -> bool {
        matches!(
            self,
            Self::Adler32 | Self::Crc32 | Self::Crc32c | Self::Crc64Nvme
        )
    }

    /// Parses a hexadecimal checksum of this algorithm; returns it in lower case. Some peers omit the
    /// leading zeros of short checksums; they are restored.
    pub fn parse_hex(self, text: &str) -> Option<String> {
        let width = self.hex_len();
        let shortest = if self.is_combinable() { 1 } else { width };
        let fits = (shortest..=width).contains(&text.len());
        let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        (fits && hex).then(|| format!("{:0>width$}", text.to_ascii_lowercase()))
    }

    /// The checksum of this algorithm that a reply about the file `path` holds, in lower case. Replies of XCRC and the
    /// like have no standard: the checksum is in any line, and the path may be there, too, whose words can look like
    /// one. Text with several different candidates holds none.
    pub fn find_in_reply(self, reply: &Reply, path: &[u8]) -> Option<String> {
        let lines = || reply.lines.iter().map(|line| line.trim_ascii());
        // A line that is nothing else, as CKSM sends it (GFD.47), whatever the name of the file.
        if let Some(found) = self.only_checksum(lines()) {
            return Some(found);
        }
        let lines: Vec<Vec<u8>> = lines().map(|line| replace_path(line, path, b" ")).collect();
        let last_words = || lines.iter().filter_map(|line| words(line).last());
        let is_full = |word: &&[u8]| word.len() == self.hex_len();
        self.only_checksum(lines.iter().flat_map(|line| words(line)).filter(is_full))
            .or_else(|| self.only_checksum(last_words().filter(|word| !is_full(word))))
    }

    /// The checksum, if these words hold one and no other.
    fn only_checksum<'a>(self, words: impl Iterator<Item = &'a [u8]>) -> Option<String> {
        let known = |word| self.parse_hex(std::str::from_utf8(word).ok()?);
        let mut found = BTreeSet::from_iter(words.filter_map(known)).into_iter();
        found.next().filter(|_| found.next().is_none())
    }
}

/// The words of a line, without the marks around them.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_mark = |byte: &u8| byte.is_ascii_whitespace() || b"\"'(),;:=".contains(byte);
    line.split(is_mark).filter(|word| !word.is_empty())
}

/// The bytes of a checksum in hexadecimal digits; `None` if it is none.
pub fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let is_hex = hex.len().is_multiple_of(2) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pairs = (0..hex.len()).step_by(2).filter(|_| is_hex);
    let bytes = pairs.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
    bytes.collect::<Option<Vec<_>>>().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(algorithm: ChecksumAlgorithm, lines: &[&str], path: &str) -> Option<String> {
        let reply = Reply {
            code: 250,
            lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
        };
        algorithm.find_in_reply(&reply, path.as_bytes())
    }

    #[test]
    fn checksums_in_replies_of_real_servers_are_found() {
        let crc = |lines: &[&str], path| found(ChecksumAlgorithm::Crc32, lines, path);
        let sum = Some("509e2ae1".to_owned());
        for (lines, path) in [
            (&["509E2AE1"][..], "/f"),
            // ProFTPD 1.3.8.
            (&["Computing CRC32 digest", "509E2AE1"], "/f"),
            (&["XCRC \"/cafe 1 b.dat\" 509E2AE1"], "/cafe 1 b.dat"),
            (&["File /d/cafe 1 b.dat CRC32: 509E2AE1"], "/d/cafe 1 b.dat"),
            // The server has another root, or shows the name only.
            (&["\"/home/u/face 2\" 509E2AE1"], "/face 2"),
            (&["face 2: 509E2AE1"], "/d/face 2"),
            (&["deadbeef 509e2ae1"], "/deadbeef"),
            (&["509e2ae1"], "/509e2ae1"),
        ] {
            assert_eq!(crc(lines, path), sum, "{lines:?}");
        }
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        let line = format!("\"/a b\" {}", md5.to_ascii_uppercase());
        let md5_of = |line: &str| found(ChecksumAlgorithm::Md5, &[line], "/a b");
        assert_eq!(md5_of(&line).as_deref(), Some(md5));
    }

    #[test]
    fn leading_zeros_of_a_short_checksum_are_restored() {
        let adler = |line: &str| found(ChecksumAlgorithm::Adler32, &[line], "/f");
        assert_eq!(adler("40001").as_deref(), Some("00040001"));
        assert_eq!(adler("/f 1a0b").as_deref(), Some("00001a0b"));
        assert_eq!(
            found(ChecksumAlgorithm::Md5, &["deadbeef"], "/f"),
            None,
            "only 32-bit checksums are shortened"
        );
    }

    #[test]
    fn text_without_one_certain_checksum_has_none() {
        let crc = |lines: &[&str]| found(ChecksumAlgorithm::Crc32, lines, "/f");
        assert_eq!(crc(&[""]), None);
        assert_eq!(crc(&["1 file of 3 bytes"]), None);
        assert_eq!(crc(&["deadbeef 509e2ae1"]), None);
        assert_eq!(crc(&["deadbeef", "509e2ae1"]), None);
        assert_eq!(crc(&["8Nbe7658"]), None);
        let sha2 = "sha2:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(found(ChecksumAlgorithm::Md5, &[sha2], "/f"), None);
    }
}
