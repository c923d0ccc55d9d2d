//! Base64 with padding (RFC 2228 §9, RFC 4648 §4).

/// The base64 alphabet.
const BASE64_ALPHABET: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (nth, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = BASE64_ALPHABET[(bits >> shift & 63) as usize];
            text.push(if nth <= group.len() {
                digit.into()
            } else {
                '='
            });
        }
    }
    text
}

/// Decodes text onto the end of `out`, which should have capacity for all of it: a buffer with secrets
/// must not move. Only the canonical encoding is accepted: with padding, and with zero in the unused bits of
/// the last digit. `None`: it is another one; `out` may hold a part of it then.
pub(crate) fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (groups, rest) = text.as_chunks::<4>();
    let Some((last, whole)) = groups.split_last() else {
        return rest.is_empty().then_some(());
    };
    for group in whole {
        out.extend(three_bytes(group)?);
    }
    let padding = last.iter().rev().take_while(|b| **b == b'=').count();
    let digits = last.map(|b| if b == b'=' { b'A' } else { b });
    let bytes = three_bytes(&digits)?;
    let (kept, spare) = bytes.split_at(3usize.saturating_sub(padding));
    // Padding may only stand at the end of the last group.
    let in_order = padding <= 2 && !last[..4 - padding.min(2)].contains(&b'=');
    if !rest.is_empty() || !in_order || spare.iter().any(|b| *b != 0) {
        return None;
    }
    out.extend(kept);
    Some(())
}

fn three_bytes(group: &[u8; 4]) -> Option<[u8; 3]> {
    let mut bits = 0;
    for digit in group {
        bits = bits << 6 | value(*digit)?;
    }
    let [_, bytes @ ..] = u32::to_be_bytes(bits);
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}
