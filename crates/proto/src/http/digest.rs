//! Checksums of whole files in header fields: Repr-Digest (RFC 9530), its predecessors (Digest of
//! RFC 3230, Content-MD5), and the fields of object stores.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::checksum::ChecksumAlgorithm;

/// Longest field that is parsed, bytes.
const MAX_FIELD: usize = 4096;

/// Base64 decoder that accepts missing padding (RFC 8941 §4.2.7).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Value of Want-Repr-Digest (RFC 9530 §4): all supported algorithms that have a name there. The cheapest to
/// compute is preferred, and the broken ones (MD5, SHA-1) come last.
pub const WANT_REPR_DIGEST: &str = "crc32c=10, adler=9, sha-256=8, sha-512=5, md5=3, sha=1";

/// The same as Want-Digest (RFC 3230 §4.3.1), which servers of large archives support.
pub const WANT_DIGEST: &str =
    "crc32c;q=1, adler32;q=0.9, sha-256;q=0.8, sha-512;q=0.5, md5;q=0.3, sha;q=0.1";

/// The checksums of the complete representation in `fields` (lower-case names and values), in lower-case
/// hexadecimal. `partial` is set for a 206 response, where checksums of the message are not those of the
/// file. A checksum with contradicting values is left out.
pub fn checksums_from_fields<'f>(
    fields: impl IntoIterator<Item = (&'f str, &'f str)>,
    partial: bool,
) -> Vec<(ChecksumAlgorithm, String)> {
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|(_, value)| value.len() <= MAX_FIELD)
        .collect();
    let value = |name: &str| {
        let named = fields.iter().find(|(field, _)| *field == name);
        named.map(|(_, value)| value.trim())
    };
    let mut checksums = DigestSet::default();
    for (name, value) in &fields {
        match *name {
            "repr-digest" => checksums.extend(parse_repr_digest(value)),
            "digest" => checksums.extend(parse_digest_field(value)),
            // Content-MD5 covers the message body (RFC 2616 §14.15), which is only a part in a 206.
            "content-md5" if !partial => checksums.add_bytes(ChecksumAlgorithm::Md5, value),
            _ => {}
        }
    }
    checksums.extend(object_store_checksums(&fields, &value));
    checksums.finish()
}

/// Checksums found so far. The value is `None` after a contradiction.
#[derive(Default)]
struct DigestSet(Vec<(ChecksumAlgorithm, Option<String>)>);

impl DigestSet {
    fn add(&mut self, algorithm: ChecksumAlgorithm, hex: String) {
        match self.0.iter_mut().find(|(known, _)| *known == algorithm) {
            // One of the two values is wrong, and it is unknown which.
            Some((_, checksum)) if checksum.as_ref() != Some(&hex) => *checksum = None,
            Some(_) => {}
            None => self.0.push((algorithm, Some(hex))),
        }
    }

    fn add_bytes(&mut self, algorithm: ChecksumAlgorithm, base64: &str) {
        self.extend(from_base64(algorithm, base64).map(|hex| (algorithm, hex)));
    }

    fn extend(&mut self, checksums: impl IntoIterator<Item = (ChecksumAlgorithm, String)>) {
        for (algorithm, hex) in checksums {
            self.add(algorithm, hex);
        }
    }

    fn finish(self) -> Vec<(ChecksumAlgorithm, String)> {
        let known = self.0.into_iter();
        known
            .filter_map(|(algorithm, checksum)| Some((algorithm, checksum?)))
            .collect()
    }
}

/// Algorithm with this name in the IANA registries of RFC 9530 and RFC 3230; the case is ignored.
fn algorithm_from_registry(name: &str) -> Option<ChecksumAlgorithm> {
    match name.to_ascii_lowercase().as_str() {
        "sha-512" => Some(ChecksumAlgorithm::Sha512),
        "sha-256" => Some(ChecksumAlgorithm::Sha256),
        "sha" => Some(ChecksumAlgorithm::Sha1),
        "md5" => Some(ChecksumAlgorithm::Md5),
        "adler" | "adler32" => Some(ChecksumAlgorithm::Adler32),
        "crc32c" => Some(ChecksumAlgorithm::Crc32c),
        _ => None,
    }
}

/// Checksums in a Repr-Digest field, a dictionary of byte sequences (RFC 8941 §3.2). A field with a syntax
/// error is ignored as a whole (RFC 8941 §4.2).
fn parse_repr_digest(text: &str) -> Vec<(ChecksumAlgorithm, String)> {
    let mut checksums = Vec::new();
    let mut rest = text.trim_matches([' ', '\t']);
    while !rest.is_empty() {
        let Some((key, value, after)) = parse_member(rest) else {
            return Vec::new();
        };
        if let Some(algorithm) = algorithm_from_registry(key)
            && let Some(hex) = from_base64(algorithm, value)
        {
            checksums.push((algorithm, hex));
        }
        rest = after.trim_start_matches([' ', '\t']);
        match rest.strip_prefix(',') {
            Some(next) => {
                rest = next.trim_start_matches([' ', '\t']);
                if rest.is_empty() {
                    return Vec::new();
                }
            }
            // A trailing comma is a syntax error (RFC 8941 §4.2.2), so the end is valid only here.
            None if rest.is_empty() => break,
            None => return Vec::new(),
        }
    }
    checksums
}

/// Parses `key=:base64:;parameters`: the key, the text between the colons, and the rest of the field.
fn parse_member(text: &str) -> Option<(&str, &str, &str)> {
    let key_end = text.find(|c: char| !is_key(c)).unwrap_or(text.len());
    let (key, rest) = text.split_at(key_end);
    let rest = rest.strip_prefix("=:")?;
    let (value, rest) = rest.split_once(':')?;
    let has_valid_start = key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*');
    has_valid_start.then(|| (key, value, after_parameters(rest)))
}

fn is_key(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c)
}

/// The text after the parameters of a member. Commas inside quoted strings do not end them.
fn after_parameters(text: &str) -> &str {
    if !text.starts_with(';') {
        return text;
    }
    let (mut quoted, mut escaped) = (false, false);
    let end = text.find(|c: char| {
        let ends = !quoted && c == ',';
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        ends
    });
    &text[end.unwrap_or(text.len())..]
}

/// Checksums in a Digest field (RFC 3230 §4.3.2): `sha-256=base64,adler32=hex`. The registry defines 32-bit
/// checksums as hexadecimal, but some servers send base64.
fn parse_digest_field(text: &str) -> impl Iterator<Item = (ChecksumAlgorithm, String)> {
    text.split(',').filter_map(|item| {
        let (name, value) = item.trim().split_once('=')?;
        let algorithm = algorithm_from_registry(name.trim())?;
        let value = value.trim().trim_matches('"');
        // 32-bit checksums are tried as hexadecimal first: 8 digits cannot be their base64, which has
        // 6 characters and padding.
        let hex = match algorithm.is_combinable() {
            true => hex_of_full_length(algorithm, value),
            false => None,
        };
        Some((algorithm, hex.or_else(|| from_base64(algorithm, value))?))
    })
}

/// Checksums in the fields of object stores. They are those of the object as stored.
fn object_store_checksums<'f>(
    fields: &[(&'f str, &'f str)],
    value: &dyn Fn(&str) -> Option<&'f str>,
) -> Vec<(ChecksumAlgorithm, String)> {
    let mut checksums = Vec::new();
    let mut add = |algorithm, base64: &str| {
        checksums.extend(from_base64(algorithm, base64).map(|hex| (algorithm, hex)));
    };
    // The checksum of a compressed object is that of its compressed bytes, but the server may send
    // it decompressed.
    let as_stored =
        value("x-goog-stored-content-encoding").is_none_or(|coding| coding == "identity");
    let is_of_parts = value("etag").is_some_and(|tag| tag.contains('-'));
    let is_of_bytes = match value("x-amz-checksum-type") {
        Some(kind) => kind != "COMPOSITE",
        None => !is_of_parts,
    };
    for (name, text) in fields {
        match *name {
            "x-goog-hash" if as_stored => {
                for item in text.split(',') {
                    match item.trim().split_once('=') {
                        Some(("crc32c", checksum)) => add(ChecksumAlgorithm::Crc32c, checksum),
                        Some(("md5", checksum)) => add(ChecksumAlgorithm::Md5, checksum),
                        _ => {}
                    }
                }
            }
            // A composite checksum is computed from the checksums of the parts, not from the bytes. Servers that do not tell
            // it from one of the bytes have it for objects of parts, whose tags end with their number.
            name if is_of_bytes => match name.strip_prefix("x-amz-checksum-") {
                Some("crc32") => add(ChecksumAlgorithm::Crc32, text),
                Some("crc32c") => add(ChecksumAlgorithm::Crc32c, text),
                Some("crc64nvme") => add(ChecksumAlgorithm::Crc64Nvme, text),
                Some("sha1") => add(ChecksumAlgorithm::Sha1, text),
                Some("sha256") => add(ChecksumAlgorithm::Sha256, text),
                _ => {}
            },
            _ => {}
        }
    }
    checksums.extend(s3_etag_md5(value).map(|hex| (ChecksumAlgorithm::Md5, hex)));
    checksums
}

/// The ETag, if it is known to be the MD5 of the object: at S3, unless the object was uploaded in parts (`-`
/// and their number follow) or is encrypted with a key other than S3's own.
fn s3_etag_md5<'f>(value: &dyn Fn(&str) -> Option<&'f str>) -> Option<String> {
    if value("server") != Some("AmazonS3") {
        return None;
    }
    let encrypted = value("x-amz-server-side-encryption")
        .is_some_and(|algorithm| algorithm != "AES256")
        || value("x-amz-server-side-encryption-customer-algorithm").is_some();
    let etag = value("etag")?.strip_prefix('"')?.strip_suffix('"')?;
    (!encrypted).then(|| hex_of_full_length(ChecksumAlgorithm::Md5, etag))?
}

fn hex_of_full_length(algorithm: ChecksumAlgorithm, text: &str) -> Option<String> {
    let full = text.len() == algorithm.hex_len();
    full.then(|| algorithm.parse_hex(text))?
}

/// Lower-case hexadecimal of a checksum in base64; `None` unless it has the length of the algorithm.
fn from_base64(algorithm: ChecksumAlgorithm, text: &str) -> Option<String> {
    let text = text.trim();
    // Base64 is always shorter than hexadecimal, so longer text cannot be valid.
    if text.len() > algorithm.hex_len() {
        return None;
    }
    let bytes = BASE64.decode(text).ok()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    (hex.len() == algorithm.hex_len()).then_some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChecksumAlgorithm::{Adler32, Crc32, Crc32c, Md5, Sha1, Sha256};

    /// Checksums of `hello`, in hexadecimal and base64.
    const SHA256: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    const SHA256_BASE64: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    const MD5: &str = "5d41402abc4b2a76b9719d911017c592";
    const MD5_BASE64: &str = "XUFAKrxLKna5cZ2REBfFkg==";

    fn checksums(fields: &[(&str, &str)]) -> Vec<(ChecksumAlgorithm, String)> {
        checksums_from_fields(fields.iter().copied(), false)
    }

    fn one(name: &str, value: &str) -> Vec<(ChecksumAlgorithm, String)> {
        checksums(&[(name, value)])
    }

    #[test]
    fn a_repr_digest_field_is_parsed() {
        let sha = vec![(Sha256, SHA256.to_owned())];
        let field = |text: &str| one("repr-digest", text);
        assert_eq!(field(&format!("sha-256=:{SHA256_BASE64}:")), sha);
        let unpadded = SHA256_BASE64.trim_end_matches('=');
        assert_eq!(field(&format!("sha-256=:{unpadded}:")), sha);
        let parameters = format!("new=:AA==:;p=\"a,\\\"b\", sha-256=:{SHA256_BASE64}:;q=1 ");
        assert_eq!(field(&parameters), sha);
        let two = format!("md5=:{MD5_BASE64}:,\tsha-256=:{SHA256_BASE64}:");
        assert_eq!(field(&two), [(Md5, MD5.to_owned()), sha[0].clone()]);
        assert_eq!(
            field("adler=:BiwCFQ==:, crc32c=:mnGvKQ==:"),
            [(Adler32, "062c0215".into()), (Crc32c, "9a71af29".into())]
        );
    }

    #[test]
    fn a_repr_digest_field_with_a_syntax_error_is_ignored() {
        for text in [
            format!("sha-256=:{SHA256_BASE64}"),
            format!("sha-256={SHA256_BASE64}"),
            format!("sha-256=:{SHA256_BASE64}:,"),
            format!("sha-256=:{SHA256_BASE64}: x"),
            format!("SHA-256=:{SHA256_BASE64}:"),
            "sha-256=:AAAA:".to_owned(),
            "sha-256=:not base64:".to_owned(),
            "sha-256".to_owned(),
            ",".to_owned(),
            format!("sha-256=:{}:", "A".repeat(10_000)),
        ] {
            assert_eq!(one("repr-digest", &text), [], "{text}");
        }
    }

    #[test]
    fn digest_and_content_md5_fields_are_parsed() {
        assert_eq!(one("content-md5", MD5_BASE64), [(Md5, MD5.to_owned())]);
        assert_eq!(
            checksums_from_fields([("content-md5", MD5_BASE64)], true),
            []
        );
        let digest = format!("SHA-256={SHA256_BASE64},adler32=062c0215, UNIXsum=3");
        let expected = [(Sha256, SHA256.to_owned()), (Adler32, "062c0215".into())];
        assert_eq!(one("digest", &digest), expected);
        let sha1 = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
        assert_eq!(
            one("digest", "SHA=qvTGHdzF6KLavt4PO0gs2a6pQ00=,crc32c=mnGvKQ=="),
            [(Sha1, sha1.to_owned()), (Crc32c, "9a71af29".into())]
        );
        assert_eq!(one("digest", "adler32=62c0215,md5=xyz,,="), []);
    }

    #[test]
    fn contradicting_checksums_are_left_out() {
        let digest = format!("sha-256={SHA256_BASE64}");
        let other = format!("sha-256=:{}=:", "A".repeat(43));
        let both = [("digest", digest.as_str()), ("repr-digest", &other)];
        assert_eq!(checksums(&both), []);
        let same = [("digest", digest.as_str()), ("digest", &digest)];
        assert_eq!(checksums(&same).len(), 1);
    }

    #[test]
    fn fields_of_object_stores_are_parsed() {
        let google = [(
            "x-goog-hash",
            "crc32c=mnGvKQ==,md5=XUFAKrxLKna5cZ2REBfFkg==",
        )];
        assert_eq!(
            checksums(&google),
            [(Crc32c, "9a71af29".into()), (Md5, MD5.to_owned())]
        );
        let compressed = [google[0], ("x-goog-stored-content-encoding", "gzip")];
        assert_eq!(checksums(&compressed), []);
        let amazon = [("x-amz-checksum-crc32", "NhCmhg==")];
        assert_eq!(checksums(&amazon), [(Crc32, "3610a686".into())]);
        // The check value of the algorithm, of `123456789`.
        assert_eq!(
            one("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
            [(ChecksumAlgorithm::Crc64Nvme, "ae8b14860a799888".into())]
        );
        let parts = [amazon[0], ("x-amz-checksum-type", "COMPOSITE")];
        assert_eq!(checksums(&parts), []);
        assert_eq!(one("x-amz-checksum-crc32", "NhCmhg==-3"), []);
        let of_parts = [
            amazon[0],
            ("etag", "\"5d41402abc4b2a76b9719d911017c592-3\""),
        ];
        assert_eq!(checksums(&of_parts), []);
        let whole = [
            of_parts[0],
            of_parts[1],
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ];
        assert_eq!(checksums(&whole).len(), 1);
    }

    #[test]
    fn an_etag_is_used_as_md5_only_for_plain_s3_objects() {
        let quoted = format!("\"{MD5}\"");
        let s3 = [("server", "AmazonS3"), ("etag", quoted.as_str())];
        assert_eq!(checksums(&s3), [(Md5, MD5.to_owned())]);
        assert_eq!(checksums(&s3[1..]), []);
        let with = |more| checksums(&[s3[0], s3[1], more]).len();
        assert_eq!(with(("x-amz-server-side-encryption", "AES256")), 1);
        assert_eq!(with(("x-amz-server-side-encryption", "aws:kms")), 0);
        let own_key = "x-amz-server-side-encryption-customer-algorithm";
        assert_eq!(with((own_key, "AES256")), 0);
        for etag in [
            format!("\"{MD5}-2\""),
            format!("W/\"{MD5}\""),
            MD5.to_owned(),
        ] {
            assert_eq!(checksums(&[s3[0], ("etag", &etag)]), [], "{etag}");
        }
    }
}
