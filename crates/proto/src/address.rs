//! Data channel addresses as they travel in PORT, EPRT, SPOR and in the replies 127, 129, 227, 229.
//!
//! Sources: RFC 959 §4.1.2, RFC 2428, GFD.20 §3 (SPAS/SPOR).

use std::net::{IpAddr, SocketAddr};

/// Address family as numbered by RFC 2428 §2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Protocol number 1.
    V4,
    /// Protocol number 2.
    V6,
}

/// Why an address argument or reply could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not of the form the command prescribes.
    #[error("malformed host-port")]
    Malformed,
    /// EPRT or EPSV with a protocol other than 1 or 2 (reply 522).
    #[error("network protocol not supported, use (1,2)")]
    Protocol,
}

/// Where a passive server listens, as a client learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassiveAddress {
    /// Absent in `229 (|||port|)`: the control connection's address is meant.
    pub ip: Option<IpAddr>,
    /// TCP port, never 0.
    pub port: u16,
}

/// Reads `h1,h2,h3,h4,p1,p2` (RFC 959 PORT argument).
pub fn parse_port(text: &str) -> Result<SocketAddr, AddressError> {
    let _ = text;
    todo!()
}

/// Reads `|1|127.0.0.1|port|`; the first character is the delimiter (RFC 2428 §2).
pub fn parse_eprt(text: &str) -> Result<SocketAddr, AddressError> {
    let _ = text;
    todo!()
}

/// Reads a blank-separated list in which each item is in PORT or EPRT form (SPOR argument).
/// At most [`MAX_STRIPES`] items.
pub fn parse_spor(text: &str) -> Result<Vec<SocketAddr>, AddressError> {
    let _ = text;
    todo!()
}

/// Most host-ports taken from one SPOR command or SPAS reply.
pub const MAX_STRIPES: usize = 256;

/// Writes `h1,h2,h3,h4,p1,p2`; `None` for an IPv6 address that is not v4-mapped.
pub fn format_port(addr: SocketAddr) -> Option<String> {
    let _ = addr;
    todo!()
}

/// Writes `|1|127.0.0.1|port|` or `|2|::1|port|`.
pub fn format_eprt(addr: SocketAddr) -> String {
    let _ = addr;
    todo!()
}

/// Finds the address in the text of a 227 or 127 reply: six numbers after `(` if there is one,
/// otherwise the first six comma-separated numbers (RFC 1123 §4.1.2.6 advises to search for them).
pub fn find_in_227(text: &str) -> Result<PassiveAddress, AddressError> {
    let _ = text;
    todo!()
}

/// Finds the address in the text of a 229 reply or a single-line 129: `(|||port|)` or
/// `(|2|::1|port|)`.
pub fn find_in_229(text: &str) -> Result<PassiveAddress, AddressError> {
    let _ = text;
    todo!()
}

/// Reads the inner lines of a SPAS reply (229 or 129 multi-line), plain or `|` form.
pub fn parse_spas_lines<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<PassiveAddress>, AddressError> {
    let _ = lines.count();
    todo!()
}
