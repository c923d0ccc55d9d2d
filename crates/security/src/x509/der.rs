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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_take_as_few_bytes_as_possible() {
        assert_eq!(element(SEQUENCE, &[]), [0x30, 0]);
        assert_eq!(element(SEQUENCE, &[7; 127])[..2], [0x30, 127]);
        assert_eq!(element(SEQUENCE, &[7; 128])[..3], [0x30, 0x81, 128]);
        assert_eq!(element(SEQUENCE, &[7; 256])[..4], [0x30, 0x82, 1, 0]);
    }

    #[test]
    fn integers_are_never_negative() {
        assert_eq!(integer(0), [2, 1, 0]);
        assert_eq!(integer(127), [2, 1, 127]);
        assert_eq!(integer(128), [2, 2, 0, 128]);
        assert_eq!(integer(u32::MAX), [2, 5, 0, 255, 255, 255, 255]);
    }

    #[test]
    fn elements_are_read_as_they_are_written() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let mut bytes = element(SEQUENCE, &vec![7; length]);
            bytes.push(9);
            assert_eq!(read(&bytes), Some((SEQUENCE, &*vec![7; length], &[9][..])));
        }
        for value in [0, 1, 127, 128, 65_535, u32::MAX] {
            let bytes = integer(value);
            assert_eq!(read_integer(&bytes), Some(value));
        }
        assert_eq!(read(&[0x30, 0x80]), None);
        assert_eq!(read(&[0x30, 2, 0]), None);
        assert_eq!(read(&[0x3f, 0x81, 1, 0]), None);
        for bytes in [
            &[2, 1, 0xff][..],
            &[2, 0],
            &[2, 5, 1, 0, 0, 0, 0],
            &[2, 1, 1, 0],
            &[4, 1, 1],
        ] {
            assert_eq!(read_integer(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            read(&bytes);
            read_integer(&bytes);
        }
    }
}
