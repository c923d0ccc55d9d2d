//! Names that the kernel gives.

/// Longest name of a congestion control, bytes: `TCP_CA_NAME_MAX` of linux/tcp.h without the closing NUL.
const MAX_CONGESTION_CONTROL: usize = 15;

/// Whether a kernel can have a congestion control of this name: 1 to 15 ASCII letters, digits, `_` and `-`. It becomes a
/// parameter of commands and a flag of other programs, where a space or a semicolon would begin another one.
pub fn is_congestion_control(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (1..=MAX_CONGESTION_CONTROL).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_has_the_letters_and_the_length_of_a_kernel_name() {
        for name in ["cubic", "bbr2", "dctcp-reno", "a_b", "B", "123456789012345"] {
            assert!(is_congestion_control(name), "{name}");
        }
        for name in [
            "",
            "1234567890123456",
            "bbr;",
            "bbr 2",
            "b\u{e9}",
            "a.b",
            "a\0",
        ] {
            assert!(!is_congestion_control(name), "{name:?}");
        }
    }
}
