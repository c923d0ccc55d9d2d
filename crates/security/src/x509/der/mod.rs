//! DER (ITU-T X.690) as `asn1-rs` reads and writes it, where OpenSSL's safe interface does neither.

use x509_parser::asn1_rs::{Any, FromDer, Length, ToDer};

/// SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// OBJECT IDENTIFIER.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
/// INTEGER.
pub(crate) const INTEGER: u8 = 0x02;

/// One element: tag, length, content.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    // A vector takes all bytes.
    let length = Length::Definite(content.len()).to_der_vec();
    [&[tag], &*length.unwrap_or_default(), content].concat()
}

/// An INTEGER that is not negative.
pub(crate) fn integer(value: u32) -> Vec<u8> {
    value.to_der_vec().unwrap_or_default()
}

/// The first element of `bytes`: tag, content, and the bytes behind it. `None` if it is cut off, or
/// has a form that DER does not know (tags of several bytes are in no structure read here).
pub(crate) fn read(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (behind, element) = Any::from_der(bytes).ok()?;
    match element.header.raw_tag()? {
        [tag] => Some((*tag, element.data, behind)),
        _ => None,
    }
}

/// The value of an INTEGER that is not negative and below 2^32, and with nothing behind it.
pub(crate) fn read_integer(bytes: &[u8]) -> Option<u32> {
    let (behind, value) = u32::from_der(bytes).ok()?;
    behind.is_empty().then_some(value)
}

#[cfg(test)]
mod tests;
