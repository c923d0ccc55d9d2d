//! Random numbers of the system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills at most 256 bytes with numbers that nobody guesses.
///
/// # Errors
/// The system has none.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    // getrandom(2) fills up to 256 bytes without interruption.
    match getrandom(&mut *bytes, GetRandomFlags::empty())? {
        count if count < bytes.len() => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fillings_differ() {
        let [mut one, mut other] = [[0; 32]; 2];
        fill(&mut one).unwrap();
        fill(&mut other).unwrap();
        assert_ne!(one, other);
    }
}
