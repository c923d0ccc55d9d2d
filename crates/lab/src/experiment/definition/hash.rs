//! The hash behind seeds and fingerprints: the same on every machine and in every version.

use std::path::Path;

/// Tells versions of an experiment's file apart: 16 hexadecimal digits, the hash of its text.
pub(crate) fn fingerprint(text: &str) -> String {
    format!("{:016x}", fnv1a(text.as_bytes()))
}

/// Tells builds of a program apart: the hash of its file. `None`: it cannot be read.
pub(crate) fn build(program: &Path) -> Option<String> {
    let bytes = std::fs::read(program).ok()?;
    Some(format!("{:016x}", fnv1a(&bytes)))
}

/// The 64-bit FNV-1a hash of Fowler, Noll and Vo.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_agrees_with_published_test_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint("foobar"), "85944171f73967e8");
    }
}
