//! Tokens of a security exchange, and their base64 encoding (RFC 2228 §9).

use super::Secret;
use super::base64::{decode_base64, encode_base64};

/// Longest token, bytes: enough for DCSC with a PEM text of [`super::MAX_CREDENTIAL`] inside a protected
/// command.
pub const MAX_TOKEN: usize = 96 * 1024 - 16;

/// Longest line that holds a token, bytes, without line ending: a verb or reply code and the token in
/// base64.
pub const MAX_TOKEN_LINE: usize = 128 * 1024;

/// Opaque bytes from the mechanism of one end to that of the other: a token of an exchange, or a
/// protected command. [`std::fmt::Debug`] hides them, so that they are never logged. They are overwritten
/// when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecurityToken(Secret);

/// Error in a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not base64 (RFC 2228 §9).
    #[error("not base64")]
    Malformed,
    /// Longer than [`MAX_TOKEN`].
    #[error("longer than {MAX_TOKEN} bytes")]
    TooLong,
}

impl SecurityToken {
    /// Makes a token from the output of a mechanism.
    ///
    /// # Errors
    /// [`TokenError::TooLong`]
    pub fn new(bytes: Vec<u8>) -> Result<Self, TokenError> {
        Self(Secret(bytes)).checked()
    }

    /// Decodes base64. Only the canonical encoding is accepted: with padding, and with zero in the unused
    /// bits of the last digit.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn decode(text: &[u8]) -> Result<Self, TokenError> {
        // The length is checked before memory is allocated.
        if text.len() > MAX_TOKEN.div_ceil(3) * 4 {
            return Err(TokenError::TooLong);
        }
        let mut bytes = Secret(Vec::with_capacity(text.len()));
        decode_base64(text, &mut bytes.0).ok_or(TokenError::Malformed)?;
        Self(bytes).checked()
    }

    fn checked(self) -> Result<Self, TokenError> {
        match self.as_bytes().len() {
            0..=MAX_TOKEN => Ok(self),
            _ => Err(TokenError::TooLong),
        }
    }

    /// Encodes the token in base64.
    pub fn encode(&self) -> String {
        encode_base64(self.as_bytes())
    }

    /// The raw bytes, for the mechanism.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }
}

impl std::fmt::Debug for SecurityToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecurityToken({} bytes)", self.as_bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vectors_of_rfc_4648_are_encoded_and_decoded() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let token = SecurityToken::new(bytes.into()).unwrap();
            assert_eq!(token.encode(), text);
            assert_eq!(SecurityToken::decode(text.as_bytes()), Ok(token));
        }
        let all = SecurityToken::new((0..=255).collect()).unwrap();
        assert_eq!(SecurityToken::decode(all.encode().as_bytes()), Ok(all));
    }

    #[test]
    fn malformed_base64_is_refused() {
        for text in [
            "Z", "Zg", "Zg=", "Zg===", "=", "====", "Z===", "Zh==", "Zm9=", "Zm9v=", "Z=g=",
            "Zg==Zg==", "Zm 9", "Zm-_", "Zm9v\n", "Zm9vZ",
        ] {
            let read = SecurityToken::decode(text.as_bytes());
            assert_eq!(read, Err(TokenError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn tokens_longer_than_the_limit_are_refused() {
        let largest = SecurityToken::new(vec![7; MAX_TOKEN]).unwrap().encode();
        assert!(largest.len() <= MAX_TOKEN_LINE - "335 ADAT=".len());
        assert!(SecurityToken::decode(largest.as_bytes()).is_ok());
        let more = "AAAA".repeat(MAX_TOKEN.div_ceil(3) + 1);
        let read = SecurityToken::decode(more.as_bytes());
        assert_eq!(read, Err(TokenError::TooLong));
        assert!(SecurityToken::new(vec![7; MAX_TOKEN + 1]).is_err());
    }

    #[test]
    fn debug_output_hides_the_token() {
        let token = SecurityToken::new(b"foo".to_vec()).unwrap();
        assert_eq!(format!("{token:?}"), "SecurityToken(3 bytes)");
    }
}
