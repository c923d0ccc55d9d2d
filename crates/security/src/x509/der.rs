//! The few DER encodings (ITU-T X.690) that OpenSSL's safe interface does not write.

/// SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// OBJECT IDENTIFIER.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
/// INTEGER.
pub(crate) const INTEGER: u8 = 0x02;

/// One element: tag, length, content.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    match significant {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            // At most 8 bytes, the size of a usize.
            out.push(0x80 | long.len().to_le_bytes()[0]);
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

/// An INTEGER that is not negative.
pub(crate) fn integer(value: u32) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let leading = bytes.iter().take_while(|byte| **byte == 0).count().min(3);
    let mut content = bytes[leading..].to_vec();
    if content[0] >= 0x80 {
        content.insert(0, 0);
    }
    element(INTEGER, &content)
}

#[cfg(test)]
mod tests {
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
}
