//! Receipts: a line of JSON that says what is copied, one for each file, and one at the end.

use std::collections::BTreeMap;

use ftp::ServerIdentity;
use proto::checksum::ChecksumAlgorithm;
use serde::{Deserialize, Serialize};

use super::line::SumLine;

/// Version of the format.
pub(crate) const FORMAT: u32 = 1;

/// A line of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub(crate) enum ReceiptLine {
    /// The first one.
    Receipt(ReceiptBegin),
    /// A file that is complete and verified.
    File(ReceiptFile),
    /// The last one. A receipt without it is not whole.
    End(ReceiptEnd),
}

/// The copy that a receipt is for. Times are those of RFC 3339.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiptBegin {
    pub(crate) format: u32,
    /// Name and version.
    pub(crate) program: String,
    /// Name of this machine.
    pub(crate) host: String,
    pub(crate) started: String,
    pub(crate) destination: String,
    /// How much was forced to the disk of this machine: `file` or `none`.
    pub(crate) sync: String,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiptFile {
    /// Name below the base of the receipt. `None`: it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The bytes of the name in hex, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name_hex: Option<String>,
    pub(crate) source: String,
    pub(crate) destination: String,
    /// Size, if it was known before the copy.
    pub(crate) bytes: Option<u64>,
    /// Modification time of the source, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<String>,
    pub(crate) algorithm: String,
    /// Lower-case hex.
    pub(crate) digest: String,
    /// Who computed the digest, from the complete file: `this machine`, or a server.
    pub(crate) digest_by: String,
    /// How the copy was verified: `crc32c`, `size`, `none` ...
    pub(crate) verified: String,
}

/// The end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiptEnd {
    /// The directory that the names are below, as a path or URL.
    pub(crate) base: String,
    pub(crate) ended: String,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
    /// How the servers have shown themselves, by name and port.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) servers: BTreeMap<String, ServerIdentity>,
}

impl ReceiptLine {
    /// Reads a line. `None`: it has another form.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The line with its line feed.
    pub(crate) fn format(&self) -> Vec<u8> {
        // A structure of texts and numbers has a form in JSON.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl ReceiptFile {
    /// A name of any bytes, as the two fields have it.
    pub(crate) fn name_fields(name: &[u8]) -> (Option<String>, Option<String>) {
        match str::from_utf8(name) {
            Ok(name) => (Some(name.to_owned()), None),
            Err(_) => {
                let hex = name.iter().map(|byte| format!("{byte:02x}"));
                (None, Some(hex.collect()))
            }
        }
    }

    /// The checksum of the file. `None`: a field is no such thing.
    pub(crate) fn sum(&self) -> Option<SumLine> {
        let algorithm = ChecksumAlgorithm::parse(&self.algorithm)?;
        let name = match (&self.name, &self.name_hex) {
            (Some(name), _) => name.clone().into_bytes(),
            (None, Some(hex)) => bytes_of_hex(hex)?,
            (None, None) => return None,
        };
        let is_name = !name.is_empty() && !name.contains(&0);
        is_name.then_some(SumLine {
            algorithm,
            checksum: algorithm.parse_hex(&self.digest)?,
            name,
        })
    }
}

fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| match pair {
            // A sign would be read as a number, too.
            [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &[u8]) -> ReceiptFile {
        let (name, name_hex) = ReceiptFile::name_fields(name);
        ReceiptFile {
            name,
            name_hex,
            source: "a".into(),
            destination: "b".into(),
            bytes: Some(0),
            modified: None,
            algorithm: "md5".into(),
            digest: "d41d8cd98f00b204e9800998ecf8427e".into(),
            digest_by: "this machine".into(),
            verified: "crc32c".into(),
        }
    }

    #[test]
    fn names_of_any_bytes_come_back() {
        for name in [&b"a \"b\"\n"[..], b"\xff/x", "\u{e9}".as_bytes()] {
            let line = ReceiptLine::File(file(name)).format();
            let Some(ReceiptLine::File(read)) = ReceiptLine::parse(&line) else {
                panic!("{line:?}");
            };
            assert_eq!(read.sum().unwrap().name, name);
        }
    }

    #[test]
    fn fields_that_say_nothing_are_no_checksum() {
        let wrong: [fn(&mut ReceiptFile); 4] = [
            |file| file.algorithm = "rot13".into(),
            |file| file.digest = "d41d".into(),
            |file| file.name = Some("a\0b".into()),
            |file| file.name = None,
        ];
        for change in wrong {
            let mut file = file(b"a");
            change(&mut file);
            assert_eq!(file.sum(), None);
        }
        assert_eq!(bytes_of_hex("0"), None);
        assert_eq!(bytes_of_hex("+1"), None);
    }
}
