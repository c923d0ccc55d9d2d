//! Base64 of tokens and credentials (RFC 2228 §9, RFC 4648 §4).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes text onto the end of `out`. Its capacity should be that of the text, since a buffer with secrets
/// must not move. Only the canonical encoding is accepted: with padding, and with zero in the unused bits of
/// the last digit. `None`: it is another one.
pub(crate) fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    STANDARD.decode_vec(text, out).ok()
}
