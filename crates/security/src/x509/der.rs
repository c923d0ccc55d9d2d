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

/// The first element of `bytes`: tag, content, and the bytes behind it. `None` if it is cut off, or
/// has a form that DER does not know (tags of several bytes are in no structure read here).
pub(crate) fn read(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        let length = digits
            .iter()
            .fold(0, |length, digit| length << 8 | usize::from(*digit));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The value of an INTEGER's content that is not negative and below 2^32.
pub(crate) fn read_integer(content: &[u8]) -> Option<u32> {
    let digits = match content {
        [] => return None,
        [first, ..] if *first >= 0x80 => return None,
        [0, rest @ ..] => rest,
        all => all,
    };
    if digits.len() > 4 {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |value, digit| value << 8 | u32::from(*digit)),
    )
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
            assert_eq!(read_integer(read(&bytes).unwrap().1), Some(value));
        }
        assert_eq!(read(&[0x30, 0x80]), None);
        assert_eq!(read_integer(&[0xff]), None);
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some((_, content, _)) = read(&bytes) {
                read_integer(content);
            }
        }
    }
}
