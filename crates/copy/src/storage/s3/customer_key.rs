//! A key of the user's, with which the server encrypts and decrypts objects (SSE-C). The server does not keep it: each request
//! about such an object has it.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data::checksum::ChecksumHasher;
use ftp::Failure;
use proto::checksum::ChecksumAlgorithm;
use zeroize::Zeroizing;

use super::checksums::base64_of_hex;
use super::settings::read_secret;

/// Bytes of a key: the only cipher is AES-256.
const KEY_BYTES: usize = 32;

/// The headers of a request with the key; those of a copy within the server name the old object's, too.
const HEADERS: [&str; 3] = [
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
];
const COPY_SOURCE_HEADERS: [&str; 3] = [
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key-md5",
];

/// A key, as requests have it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CustomerKey {
    /// Base64.
    key: Zeroizing<String>,
    /// MD5 of the key, base64.
    md5: String,
}

/// Without the key.
impl std::fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CustomerKey")
    }
}

impl CustomerKey {
    /// Reads a file with the 32 bytes of a key, or with these in base64.
    ///
    /// # Errors
    /// `Refused`: others may read the file, or it holds no key.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Failure> {
        let bytes = read_secret(path)?;
        let text = std::str::from_utf8(&bytes).ok();
        let decoded = text.and_then(|text| BASE64_STANDARD.decode(text.trim()).ok());
        let decoded = Zeroizing::new(decoded.unwrap_or_default());
        let key = match (bytes.len(), decoded.len()) {
            (KEY_BYTES, _) => &bytes,
            (_, KEY_BYTES) => &decoded,
            _ => {
                return Err(Failure::refused(format!(
                    "{} has no key for encryption: it must be 32 bytes, or these in base64",
                    path.display()
                )));
            }
        };
        let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Md5);
        hasher.update(key);
        Ok(Self {
            key: Zeroizing::new(BASE64_STANDARD.encode(&**key)),
            md5: base64_of_hex(&hasher.finish()).unwrap_or_default(),
        })
    }

    /// The headers of a request about an object. `is_copy`: it copies one within the server.
    pub(super) fn headers(&self, is_copy: bool) -> impl Iterator<Item = (&'static str, String)> {
        let sets = [Some(HEADERS), is_copy.then_some(COPY_SOURCE_HEADERS)];
        let values = ["AES256".to_owned(), self.key.to_string(), self.md5.clone()];
        sets.into_iter()
            .flatten()
            .flat_map(move |names| names.into_iter().zip(values.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_has_a_key_of_32_bytes_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let load = |bytes: &[u8], mode| {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            CustomerKey::from_file(&path)
        };
        let raw = load(&[b'k'; 32], 0o600).unwrap();
        let text = format!("{}\n", BASE64_STANDARD.encode([b'k'; 32]));
        assert!(load(text.as_bytes(), 0o600).unwrap() == raw);
        assert_eq!(format!("{raw:?}"), "CustomerKey");
        let headers: Vec<_> = raw.headers(false).collect();
        assert_eq!(headers[0].1, "AES256");
        assert_eq!((headers.len(), raw.headers(true).count()), (3, 6));
        for (bytes, mode) in [(&[b'k'; 31][..], 0o600), (&[b'k'; 32], 0o644), (b"", 0o600)] {
            load(bytes, mode).unwrap_err();
        }
        CustomerKey::from_file(&folder.path().join("missing")).unwrap_err();
    }
}
