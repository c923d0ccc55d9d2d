//! The frames of TLS records (RFC 8446 §5.1), which are the only structure of a token.

/// Length of a record's header, bytes.
const HEADER: usize = 5;

/// Longest content of an encrypted record: TLS 1.2 allows 2048 bytes more than the plain content.
const LONGEST: usize = (16 << 10) + 2048;

/// The first record of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstRecord {
    /// It is whole; its length with the header, bytes.
    Whole(usize),
    /// More bytes are needed.
    Partial,
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
        return FirstRecord::Partial;
    };
    let content = usize::from(u16::from_be_bytes([high, low]));
    if content > LONGEST {
        return FirstRecord::Invalid;
    }
    match HEADER + content {
        length if length <= bytes.len() => FirstRecord::Whole(length),
        _ => FirstRecord::Partial,
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
