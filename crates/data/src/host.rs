//! Which addresses are one host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether two addresses are the same host: an IPv4 peer of an IPv6 socket shows up as
/// `::ffff:a.b.c.d`, and 127.0.0.1 and ::1 are this host in two families.
pub fn same_host(a: IpAddr, b: IpAddr) -> bool {
    let (a, b) = (a.to_canonical(), b.to_canonical());
    a == b || (is_localhost(a) && is_localhost(b))
}

fn is_localhost(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_loopback_addresses_are_the_same_host() {
        let same = |a: &str, b: &str| same_host(a.parse().unwrap(), b.parse().unwrap());
        assert!(same("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("127.0.0.1", "127.0.0.2"));
        assert!(same("127.0.0.1", "::1") && same("::1", "::ffff:127.0.0.1"));
        assert!(!same("127.0.0.2", "::1") && !same("10.0.0.1", "fd00::1"));
    }
}
