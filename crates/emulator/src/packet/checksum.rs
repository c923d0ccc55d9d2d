//! The Internet checksum (RFC 1071): the complement of the one's complement sum of 16-bit words.

/// The one's complement sum of the 16-bit words of `bytes`, folded but not complemented. An odd last
/// byte is the first byte of a word.
pub(super) fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    let total = words
        .iter()
        .fold(last, |sum, word| sum + u64::from(u16::from_be_bytes(*word)));
    fold(total)
}

/// Folds a sum of words to one word by adding the carries.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // The loop ends with a sum of 16 bits; the fallback is never used.
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// The sum of the pseudo-header that TCP (RFC 9293 section 3.1) and UDP (RFC 768) checksums include.
/// `addresses` are source and destination as in the IPv4 header.
pub(super) fn pseudo_header_sum(addresses: &[u8], protocol: u8, length: u16) -> u16 {
    fold(u64::from(ones_complement_sum(addresses)) + u64::from(protocol) + u64::from(length))
}

/// The checksum after a word of the data changed (RFC 1624, equation 3).
pub(super) fn updated_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_has_the_expected_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_complement_sum(&bytes), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_has_the_expected_checksum() {
        assert_eq!(updated_checksum(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn an_updated_checksum_equals_a_recomputed_one(
            mut bytes in prop::collection::vec(any::<u8>(), 4..64),
            at in any::<prop::sample::Index>(),
            new in any::<u16>(),
        ) {
            bytes[0] |= 1; // an all-zero sum has two representations; real packets never have it
            let before = !ones_complement_sum(&bytes);
            let at = 2 + at.index((bytes.len() - 2) / 2) * 2;
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(updated_checksum(before, old, new), !ones_complement_sum(&bytes));
        }
    }
}
