//! Checksums in base64, as S3 has them, and in hexadecimal digits.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proto::checksum::bytes_of_hex;

/// Hexadecimal digits as base64; `None` if they are none.
pub(super) fn base64_of_hex(hex: &str) -> Option<String> {
    bytes_of_hex(hex).map(|bytes| BASE64_STANDARD.encode(bytes))
}

/// Base64 as hexadecimal digits; `None` if it is none.
pub(super) fn hex_of_base64(text: &str) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(text.trim()).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_the_same_bytes() {
        assert_eq!(base64_of_hex("9a71af29").as_deref(), Some("mnGvKQ=="));
        assert_eq!(hex_of_base64("mnGvKQ==").as_deref(), Some("9a71af29"));
        assert_eq!((base64_of_hex("9a7"), base64_of_hex("zz")), (None, None));
        assert_eq!(hex_of_base64("mnGvKQ==-2"), None);
    }
}
