//! Lines of checksum files: `HEX  NAME`, `HEX *NAME`, and `ALGORITHM (NAME) = HEX`.
//!
//! A line that begins with `\` has a name in which `\\`, `\n` and `\r` stand for a backslash, a line feed and a carriage
//! return.

use proto::checksum::ChecksumAlgorithm;

/// A checksum and the name of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SumLine {
    pub(crate) algorithm: ChecksumAlgorithm,
    /// Lower-case hex of full length.
    pub(crate) checksum: String,
    pub(crate) name: Vec<u8>,
}

/// The line, with its line feed, that `sha256sum -c` reads.
pub(crate) fn format_line(checksum: &str, name: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(checksum.len() + name.len() + 4);
    let escaped = escape_name(name);
    if escaped.is_some() {
        line.push(b'\\');
    }
    line.extend_from_slice(checksum.as_bytes());
    line.extend_from_slice(b"  ");
    line.extend_from_slice(escaped.as_deref().unwrap_or(name));
    line.push(b'\n');
    line
}

/// The name with escapes, if it needs them.
pub(crate) fn escape_name(name: &[u8]) -> Option<Vec<u8>> {
    if !name.iter().any(|byte| b"\\\n\r".contains(byte)) {
        return None;
    }
    let mut escaped = Vec::with_capacity(name.len() + 2);
    for byte in name {
        match byte {
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            other => escaped.push(*other),
        }
    }
    Some(escaped)
}

/// Parses a line without its line feed. `expected` is the algorithm of lines that name none; `None`: the length of the
/// checksum tells it. `None` for a line of another form, and for a name that is empty or has a NUL.
pub(crate) fn parse_line(line: &[u8], expected: Option<ChecksumAlgorithm>) -> Option<SumLine> {
    let line = line.trim_ascii_start();
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (algorithm, checksum, name) = split_tagged(line).or_else(|| split_plain(line, expected))?;
    let checksum = algorithm.parse_hex(str::from_utf8(checksum).ok()?)?;
    let name = match is_escaped {
        true => unescape_name(name)?,
        false => name.to_vec(),
    };
    let is_name = !name.is_empty() && !name.contains(&0);
    is_name.then_some(SumLine {
        algorithm,
        checksum,
        name,
    })
}

type SplitLine<'l> = (ChecksumAlgorithm, &'l [u8], &'l [u8]);

/// `SHA256 (NAME) = HEX`
fn split_tagged(line: &[u8]) -> Option<SplitLine<'_>> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let algorithm = ChecksumAlgorithm::parse(str::from_utf8(&line[..space]).ok()?)?;
    let rest = line[space..].strip_prefix(b" (")?;
    // The name may contain such a text, the checksum does not.
    const END: &[u8] = b") = ";
    let end = rest.windows(END.len()).rposition(|window| window == END)?;
    Some((algorithm, &rest[end + END.len()..], &rest[..end]))
}

/// `HEX  NAME` and `HEX *NAME`
fn split_plain(line: &[u8], expected: Option<ChecksumAlgorithm>) -> Option<SplitLine<'_>> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (checksum, rest) = (&line[..space], &line[space + 1..]);
    let name = rest
        .strip_prefix(b" ")
        .or_else(|| rest.strip_prefix(b"*"))?;
    let algorithm = expected.or_else(|| algorithm_of_length(checksum.len()))?;
    Some((algorithm, checksum, name))
}

fn algorithm_of_length(digits: usize) -> Option<ChecksumAlgorithm> {
    // BLAKE3 has as many as SHA-256; its files are told by their name.
    let known = [
        ChecksumAlgorithm::Md5,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
        ChecksumAlgorithm::Sha512,
    ];
    known.into_iter().find(|known| known.hex_len() == digits)
}

fn unescape_name(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(plain)
}

/// The algorithm that the name of a checksum file tells: `SHA256SUMS`, `md5sum.txt`, `data.sha512`, `B3SUMS`.
pub(crate) fn algorithm_of_file(name: &[u8]) -> Option<ChecksumAlgorithm> {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    // Longer names first: CRC32C contains CRC32.
    let names = [
        ("CRC64NVME", ChecksumAlgorithm::Crc64Nvme),
        ("CRC32C", ChecksumAlgorithm::Crc32c),
        ("CRC32", ChecksumAlgorithm::Crc32),
        ("ADLER32", ChecksumAlgorithm::Adler32),
        ("BLAKE3", ChecksumAlgorithm::Blake3),
        ("B3SUM", ChecksumAlgorithm::Blake3),
        (".B3", ChecksumAlgorithm::Blake3),
        ("SHA512", ChecksumAlgorithm::Sha512),
        ("SHA256", ChecksumAlgorithm::Sha256),
        ("SHA1", ChecksumAlgorithm::Sha1),
        ("MD5", ChecksumAlgorithm::Md5),
    ];
    let found = names.into_iter().find(|(text, _)| name.contains(text));
    found.map(|(_, algorithm)| algorithm)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

    fn parsed(line: &str) -> Option<(ChecksumAlgorithm, String)> {
        let line = parse_line(line.as_bytes(), None)?;
        assert_eq!(line.checksum, MD5);
        Some((line.algorithm, String::from_utf8(line.name).unwrap()))
    }

    #[test]
    fn lines_of_md5sum_are_read() {
        let name = |text: &str| Some((ChecksumAlgorithm::Md5, text.to_owned()));
        assert_eq!(parsed(&format!("{MD5}  a b")), name("a b"));
        assert_eq!(parsed(&format!("{}  x", MD5.to_uppercase())), name("x"));
        assert_eq!(parsed(&format!("{MD5} *a")), name("a"));
        assert_eq!(parsed(&format!("{MD5}   a")), name(" a"));
        assert_eq!(parsed(&format!("\\{MD5}  a\\\\b\\nc")), name("a\\b\nc"));
        assert_eq!(parsed(&format!("{MD5}  a\\nc")), name("a\\nc"));
        assert_eq!(parsed(&format!("MD5 (a) = b) = {MD5}")), name("a) = b"));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            String::new(),
            MD5.to_owned(),
            format!("{MD5} a"),
            format!("{MD5}  "),
            format!("{MD5}0  a"),
            format!("\\{MD5}  a\\x"),
            format!("\\{MD5}  a\\"),
            format!("{MD5}  a\0b"),
            format!("SHA1 (a) = {MD5}"),
        ] {
            assert_eq!(parsed(&line), None, "{line:?}");
        }
        let other = parse_line(
            format!("{MD5}  a").as_bytes(),
            Some(ChecksumAlgorithm::Sha256),
        );
        assert_eq!(other, None, "the file is one of another algorithm");
    }

    #[test]
    fn the_name_of_the_file_tells_the_algorithm() {
        for (name, algorithm) in [
            ("SHA256SUMS", Some(ChecksumAlgorithm::Sha256)),
            ("md5sum.txt", Some(ChecksumAlgorithm::Md5)),
            ("data.sha512", Some(ChecksumAlgorithm::Sha512)),
            ("SHA1SUMS", Some(ChecksumAlgorithm::Sha1)),
            ("B3SUMS", Some(ChecksumAlgorithm::Blake3)),
            ("x.crc32c", Some(ChecksumAlgorithm::Crc32c)),
            ("sums", None),
        ] {
            assert_eq!(algorithm_of_file(name.as_bytes()), algorithm, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_read_as_it_was_written(name in proptest::collection::vec(1_u8.., 1..40)) {
            let line = format_line(MD5, &name);
            let (end, text) = line.split_last().unwrap();
            prop_assert_eq!(*end, b'\n');
            prop_assert!(!text.contains(&b'\n'));
            let read = parse_line(text, None).unwrap();
            prop_assert_eq!(read.name, name);
        }

        #[test]
        fn arbitrary_lines_never_panic(line: Vec<u8>) {
            parse_line(&line, None);
        }
    }
}
