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
    fn a_congestion_control_has_1_to_15_letters() {
        let long = "123456789012345";
        assert!(
            ["cubic", "dctcp-reno", "a_B", long]
                .into_iter()
                .all(is_congestion_control)
        );
        let no = ["", "1234567890123456", "bbr;", "b 2", "b\u{e9}", "a.b"];
        assert!(!no.into_iter().any(is_congestion_control));
    }
}
