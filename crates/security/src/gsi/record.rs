//! The frames of TLS records (RFC 8446 §5.1), which are the only structure of a token.

/// Length of a record's header, bytes.
const HEADER: usize = 5;

/// Longest content of an encrypted record: TLS 1.2 allows 2048 bytes more than the plain content.
const MAX_RECORD: usize = (16 << 10) + 2048;

/// The first record of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstRecord {
    /// It is whole; its length with the header, bytes.
    Whole(usize),
    /// So many more bytes are needed up to the end of its header, or of the record; not 0.
    Partial(usize),
    /// The bytes are no record.
    Invalid,
}

/// Looks at the first record.
pub(super) fn first_record(bytes: &[u8]) -> FirstRecord {
    // change_cipher_spec, alert, handshake, application_data.
    if bytes.first().is_some_and(|kind| !(20..=23).contains(kind))
        || bytes.get(1).is_some_and(|&major| major != 3)
    {
        return FirstRecord::Invalid;
    }
    let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER>() else {
        return FirstRecord::Partial(HEADER - bytes.len());
    };
    let content = usize::from(u16::from_be_bytes([high, low]));
    if content > MAX_RECORD {
        return FirstRecord::Invalid;
    }
    match HEADER + content {
        length if length <= bytes.len() => FirstRecord::Whole(length),
        length => FirstRecord::Partial(length - bytes.len()),
    }
}

/// Whether the bytes are whole records, at least one, and nothing else.
pub(super) fn is_whole_records(mut bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return false;
    }
    while !bytes.is_empty() {
        let FirstRecord::Whole(length) = first_record(bytes) else {
            return false;
        };
        bytes = &bytes[length..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_record_needs_its_header_and_then_its_body() {
        assert_eq!(first_record(&[]), FirstRecord::Partial(5));
        let record = [&[22, 3, 3, 1, 2][..], &[0; 0x102]].concat();
        for length in 0..5 {
            assert_eq!(
                first_record(&record[..length]),
                FirstRecord::Partial(5 - length)
            );
        }
        for length in 5..record.len() {
            let missing = record.len() - length;
            assert_eq!(
                first_record(&record[..length]),
                FirstRecord::Partial(missing)
            );
        }
        assert_eq!(first_record(&record), FirstRecord::Whole(record.len()));
        let two = [&record[..], &record[..1]].concat();
        assert_eq!(first_record(&two), FirstRecord::Whole(record.len()));
        assert!(!is_whole_records(&two));
        // A record without a body ends with its header.
        assert_eq!(first_record(&[23, 3, 3, 0, 0]), FirstRecord::Whole(5));
        assert_eq!(first_record(&[24]), FirstRecord::Invalid);
        assert_eq!(first_record(&[22, 2]), FirstRecord::Invalid);
        assert_eq!(first_record(&[22, 3, 3, 0xff, 0xff]), FirstRecord::Invalid);
    }
}
