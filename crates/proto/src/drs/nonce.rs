//! The secret that the ends of a DRS channel share.

use std::fmt;
use std::hint::black_box;

/// Secret of the two ends of one data channel: 128 random bits, told on the control channel.
#[derive(Clone, Copy)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Hexadecimal digits of one.
    pub const DIGITS: usize = 32;

    /// Of random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Reads 32 hexadecimal digits, in any case.
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
    /// Takes as long for a near miss as for a far one, so that the time of an answer does not tell
    /// how many bytes were guessed right.
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        black_box(pairs.fold(0, |differs, (a, b)| black_box(differs | (a ^ b)))) == 0
    }
}

impl Eq for Nonce {}

impl fmt::Debug for Nonce {
    /// It is a secret.
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
    fn is_read_and_written_as_32_digits() {
        assert_eq!(nonce().to_hex(), TEXT);
        assert_eq!(Nonce::parse(TEXT), Some(nonce()));
        assert_eq!(Nonce::parse(&TEXT.to_uppercase()), Some(nonce()));
        let signed = TEXT.replacen("00", "+0", 1);
        for text in ["", "00", &TEXT[1..], &format!("{TEXT}0"), &signed, "é"] {
            assert_eq!(Nonce::parse(text), None, "{text}");
        }
    }

    #[test]
    fn any_bit_makes_another() {
        for at in 0..16 {
            for bit in 0..8 {
                let mut bytes = nonce().0;
                bytes[at] ^= 1 << bit;
                assert_ne!(Nonce(bytes), nonce());
            }
        }
    }

    #[test]
    fn does_not_show_itself() {
        assert_eq!(format!("{:?}", nonce()), "Nonce(..)");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: [u8; 16]) {
            let nonce = Nonce::new(bytes);
            prop_assert_eq!(Nonce::parse(&nonce.to_hex()), Some(nonce));
        }
    }
}
