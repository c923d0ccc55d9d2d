//! The secret shared by the ends of a DRS channel.

use std::fmt;
use std::hint::black_box;

/// Secret of the two ends of one data channel: 128 random bits, sent on the control channel.
#[derive(Clone, Copy)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Number of hexadecimal digits of a nonce.
    pub const DIGITS: usize = 32;

    /// Makes a nonce from random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Parses 32 hexadecimal digits, upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// Writes 32 hexadecimal digits in lower case.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

impl PartialEq for Nonce {
    /// Compares in constant time, so that the response time does not reveal how many bytes of a guess
    /// were right.
    fn eq(&self, other: &Self) -> bool {
        // `black_box` keeps the compiler from ending the loop at the first difference.
        let pairs = self.0.iter().zip(&other.0);
        black_box(pairs.fold(0, |differs, (a, b)| black_box(differs | (a ^ b)))) == 0
    }
}

impl Eq for Nonce {}

impl fmt::Debug for Nonce {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "000102030405060708090a0b0c0d0eff";

    fn nonce() -> Nonce {
        Nonce::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255])
    }

    #[test]
    fn a_nonce_is_parsed_and_written_as_32_digits() {
        assert_eq!(nonce().to_hex(), TEXT);
        assert_eq!(Nonce::parse(TEXT), Some(nonce()));
        assert_eq!(Nonce::parse(&TEXT.to_uppercase()), Some(nonce()));
        let signed = TEXT.replacen("00", "+0", 1);
        for text in ["", "00", &TEXT[1..], &format!("{TEXT}0"), &signed, "é"] {
            assert_eq!(Nonce::parse(text), None, "{text}");
        }
    }

    #[test]
    fn nonces_that_differ_in_one_bit_are_unequal() {
        for at in 0..16 {
            for bit in 0..8 {
                let mut bytes = nonce().0;
                bytes[at] ^= 1 << bit;
                assert_ne!(Nonce(bytes), nonce());
            }
        }
    }

    #[test]
    fn debug_output_hides_the_nonce() {
        assert_eq!(format!("{:?}", nonce()), "Nonce(..)");
    }

    proptest! {
        #[test]
        fn written_nonces_are_parsed_back(bytes: [u8; 16]) {
            let nonce = Nonce::new(bytes);
            prop_assert_eq!(Nonce::parse(&nonce.to_hex()), Some(nonce));
        }
    }
}
