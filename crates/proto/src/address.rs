//! Data channel addresses in PORT, EPRT, SPOR and in the replies 127, 129, 227 and 229, and comparison of
//! hosts.
//!
//! Sources: RFC 959 §4.1.2, RFC 2428, GFD.20 §3 (SPAS/SPOR).
//!
//! IPv4-mapped IPv6 addresses are converted to IPv4, so that a rule about an address cannot be bypassed by
//! writing it in the other form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::stripes::{MAX_STRIPES, StripeAddresses};

/// Address family (RFC 2428 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// Protocol number 1.
    V4,
    /// Protocol number 2.
    V6,
}

impl AddressFamily {
    /// The protocol number of RFC 2428 §2.
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

    /// Parses a protocol number.
    ///
    /// # Errors
    /// [`AddressError::UnsupportedProtocol`] for a number other than 1 and 2, [`AddressError::Malformed`] for
    /// anything that is not a number.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        match text {
            "1" => Ok(Self::V4),
            "2" => Ok(Self::V6),
            _ if is_digits(text) => Err(AddressError::UnsupportedProtocol),
            _ => Err(AddressError::Malformed),
        }
    }
}

/// Error in an address argument or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text does not have the form of the command.
    #[error("malformed host-port")]
    Malformed,
    /// EPRT or EPSV with a protocol other than 1 or 2 (reply 522).
    #[error("network protocol not supported, use (1,2)")]
    UnsupportedProtocol,
}

/// Address of a passive server, from its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassiveAddress {
    /// IP address; `None` in `229 (|||port|)`, which stands for the address of the control connection.
    pub ip: Option<IpAddr>,
    /// TCP port, never 0.
    pub port: u16,
}

/// Parses `h1,h2,h3,h4,p1,p2` (PORT argument, RFC 959 §4.1.2).
pub fn parse_port(text: &str) -> Result<SocketAddr, AddressError> {
    let mut bytes = [0u8; 6];
    let mut items = text.trim_matches(' ').split(',');
    for byte in &mut bytes {
        *byte = items
            .next()
            .and_then(parse_decimal_byte)
            .ok_or(AddressError::Malformed)?;
    }
    if items.next().is_some() {
        return Err(AddressError::Malformed);
    }
    let [h1, h2, h3, h4, p1, p2] = bytes;
    let port = u16::from_be_bytes([p1, p2]);
    if port == 0 {
        return Err(AddressError::Malformed);
    }
    Ok((Ipv4Addr::new(h1, h2, h3, h4), port).into())
}

/// Parses `|1|127.0.0.1|port|`; the first character is the delimiter (RFC 2428 §2).
pub fn parse_eprt(text: &str) -> Result<SocketAddr, AddressError> {
    let address = parse_delimited_address(text.trim_matches(' '))?;
    let ip = address.ip.ok_or(AddressError::Malformed)?;
    Ok((ip, address.port).into())
}

/// Parses a list of 1 to [`MAX_STRIPES`] addresses, separated by spaces, each in PORT or EPRT form (SPOR
/// argument).
pub fn parse_spor(text: &str) -> Result<StripeAddresses, AddressError> {
    let mut stripes = Vec::new();
    // One item beyond the limit suffices to detect an oversized list.
    let items = text.split(' ').filter(|s| !s.is_empty());
    for item in items.take(MAX_STRIPES + 1) {
        // PORT form starts with a digit, EPRT form with its delimiter.
        let plain = item.starts_with(|c: char| c.is_ascii_digit());
        stripes.push(if plain {
            parse_port(item)?
        } else {
            parse_eprt(item)?
        });
    }
    StripeAddresses::new(stripes).ok_or(AddressError::Malformed)
}

/// Writes `h1,h2,h3,h4,p1,p2`; `None` for an IPv6 address that is not IPv4-mapped.
pub fn format_port(addr: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = addr.ip().to_canonical() else {
        return None;
    };
    let [h1, h2, h3, h4] = ip.octets();
    let [p1, p2] = addr.port().to_be_bytes();
    Some(format!("{h1},{h2},{h3},{h4},{p1},{p2}"))
}

/// Writes `|1|127.0.0.1|port|` or `|2|::1|port|`.
pub fn format_eprt(addr: SocketAddr) -> String {
    let ip = addr.ip().to_canonical();
    let family = if ip.is_ipv4() {
        AddressFamily::V4
    } else {
        AddressFamily::V6
    };
    format!("|{}|{ip}|{}|", family.number(), addr.port())
}

/// Finds the address in the text of a 227 or 127 reply: six numbers after `(` if there is one, otherwise
/// the first six comma-separated numbers, as RFC 1123 §4.1.2.6 recommends.
pub fn find_in_227(text: &str) -> Result<PassiveAddress, AddressError> {
    // Text before the parenthesis may contain numbers.
    let text = text.split_once('(').map_or(text, |(_, after)| after);
    text.split(|c: char| !c.is_ascii_digit() && c != ',')
        // Commas of the text around the address may touch it.
        .find_map(|run| parse_port(run.trim_matches(',')).ok())
        .map(|addr| PassiveAddress {
            ip: Some(addr.ip()),
            port: addr.port(),
        })
        .ok_or(AddressError::Malformed)
}

/// Finds the address in the text of a 229 reply or a single-line 129: `(|||port|)` or
/// `(|2|::1|port|)`.
pub fn find_in_229(text: &str) -> Result<PassiveAddress, AddressError> {
    let (_, after) = text.split_once('(').ok_or(AddressError::Malformed)?;
    let (inside, _) = after.split_once(')').ok_or(AddressError::Malformed)?;
    parse_delimited_address(inside)
}

/// Parses the inner lines of a multi-line 229 or 129 reply to SPAS, in PORT or EPRT form.
pub fn parse_spas_lines<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<PassiveAddress>, AddressError> {
    let mut stripes = Vec::new();
    for line in lines.map(str::trim) {
        if stripes.len() >= MAX_STRIPES {
            return Err(AddressError::Malformed);
        }
        stripes.push(if line.starts_with(|c: char| c.is_ascii_digit()) {
            let addr = parse_port(line)?;
            PassiveAddress {
                ip: Some(addr.ip()),
                port: addr.port(),
            }
        } else {
            parse_delimited_address(line)?
        });
    }
    if stripes.is_empty() {
        return Err(AddressError::Malformed);
    }
    Ok(stripes)
}

/// Parses `|family|address|port|`; family and address may be empty.
fn parse_delimited_address(text: &str) -> Result<PassiveAddress, AddressError> {
    let delimiter = text
        .chars()
        .next()
        // RFC 2428 §2: the delimiter is an ASCII character of 33-126.
        .filter(char::is_ascii_graphic)
        .ok_or(AddressError::Malformed)?;
    // A sixth field shows surplus delimiters.
    let fields: Vec<&str> = text.splitn(6, delimiter).collect();
    let &["", family, host, port, ""] = fields.as_slice() else {
        return Err(AddressError::Malformed);
    };
    let family = match family {
        "" => None,
        number => Some(AddressFamily::parse(number)?),
    };
    let ip = match (family, host) {
        // `229 (|||port|)` leaves family and address empty (RFC 2428 §3).
        (_, "") => None,
        (Some(AddressFamily::V4), host) => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        (Some(AddressFamily::V6), host) => host.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        (None, host) => host.parse().ok(),
    };
    if ip.is_none() && !host.is_empty() {
        return Err(AddressError::Malformed);
    }
    let port = Some(port)
        .filter(|p| is_digits(p))
        .and_then(|p| p.parse().ok())
        .filter(|p| *p != 0)
        .ok_or(AddressError::Malformed)?;
    Ok(PassiveAddress {
        ip: ip.map(|ip| ip.to_canonical()),
        port,
    })
}

fn parse_decimal_byte(text: &str) -> Option<u8> {
    is_digits(text).then(|| text.parse().ok()).flatten()
}

/// Whether the text is all digits. `FromStr` of integers alone would accept a leading `+`.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether two addresses are the same host. An IPv4 peer of an IPv6 socket has the address
/// `::ffff:a.b.c.d`, and both 127.0.0.1 and ::1 are this host.
pub fn is_same_host(a: IpAddr, b: IpAddr) -> bool {
    let (a, b) = (a.to_canonical(), b.to_canonical());
    a == b || (is_localhost_address(a) && is_localhost_address(b))
}

fn is_localhost_address(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn port_arguments_are_parsed() {
        assert_eq!(
            parse_port("127,0,0,1,156,64"),
            Ok(socket("127.0.0.1:40000"))
        );
        assert_eq!(
            parse_port(" 127,0,0,1,156,64 "),
            parse_port("127,0,0,1,156,64")
        );
        for text in [
            "",
            "127,0,0,1,156",
            "127,0,0,1,156,64,1",
            "256,0,0,1,1,1",
            "1,2,3,4,0,0",
            "1,2,3,4,+1,1",
            "1,2,3,4,,1",
            "a,b,c,d,e,f",
        ] {
            assert_eq!(parse_port(text), Err(AddressError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn eprt_arguments_are_parsed() {
        assert_eq!(parse_eprt("|1|127.0.0.1|99|"), Ok(socket("127.0.0.1:99")));
        assert_eq!(parse_eprt("|2|::1|99|"), Ok(socket("[::1]:99")));
        assert_eq!(parse_eprt("!2!::1!99!"), Ok(socket("[::1]:99")));
        assert_eq!(
            parse_eprt("|3|::1|99|"),
            Err(AddressError::UnsupportedProtocol)
        );
        for text in [
            "",
            "|",
            "|1|::1|99|",
            "|2|127.0.0.1|99|",
            "|1|127.0.0.1|0|",
            "|1|127.0.0.1|65536|",
            "|1|127.0.0.1|+9|",
            "|1|127.0.0.1|99",
            "|1|127.0.0.1|99||",
            "|1||99|",
            "|x|::1|99|",
            "é1é127.0.0.1é99é",
        ] {
            assert_eq!(parse_eprt(text), Err(AddressError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn ipv4_mapped_addresses_are_converted_to_ipv4() {
        assert_eq!(
            parse_eprt("|2|::ffff:10.0.0.1|99|"),
            Ok(socket("10.0.0.1:99"))
        );
        assert_eq!(
            format_port(socket("[::ffff:10.0.0.1]:256")).as_deref(),
            Some("10,0,0,1,1,0")
        );
        assert_eq!(
            format_eprt(socket("[::ffff:10.0.0.1]:256")),
            "|1|10.0.0.1|256|"
        );
        assert_eq!(format_port(socket("[::1]:256")), None);
    }

    fn stripes(addresses: Vec<SocketAddr>) -> StripeAddresses {
        StripeAddresses::new(addresses).unwrap()
    }

    #[test]
    fn spor_lists_of_both_forms_are_parsed() {
        assert_eq!(
            parse_spor("127,0,0,1,1,0 |2|::1|99|"),
            Ok(stripes(vec![socket("127.0.0.1:256"), socket("[::1]:99")]))
        );
        assert_eq!(parse_spor(""), Err(AddressError::Malformed));
        let many = "127,0,0,1,1,0 ".repeat(MAX_STRIPES);
        assert_eq!(
            parse_spor(&many).map(|s| s.as_slice().len()),
            Ok(MAX_STRIPES)
        );
        let more = format!("{many}127,0,0,1,1,0");
        assert_eq!(parse_spor(&more), Err(AddressError::Malformed));
    }

    #[test]
    fn the_address_is_found_in_227_replies_of_real_servers() {
        let expected = Ok(PassiveAddress {
            ip: Some([127, 0, 0, 1].into()),
            port: 40000,
        });
        for text in [
            "Entering Passive Mode (127,0,0,1,156,64)",
            "Entering Passive Mode (127,0,0,1,156,64).",
            "Entering Passive Mode. 127,0,0,1,156,64",
            "1 file, =127,0,0,1,156,64",
            "127,0,0,1,156,64, I listen",
            "PORT (127,0,0,1,156,64)",
        ] {
            assert_eq!(find_in_227(text), expected, "{text}");
        }
        for text in ["", "(1,2,3)", "Entering (300,0,0,1,2,3)", ",,,,,,"] {
            assert_eq!(find_in_227(text), Err(AddressError::Malformed), "{text}");
        }
    }

    #[test]
    fn the_port_is_found_in_a_229_reply() {
        assert_eq!(
            find_in_229("Entering Extended Passive Mode (|||6446|)"),
            Ok(PassiveAddress {
                ip: None,
                port: 6446
            })
        );
        assert_eq!(
            find_in_229("Entering Extended Passive Mode (|2|::1|6446|)."),
            Ok(PassiveAddress {
                ip: Some(Ipv6Addr::LOCALHOST.into()),
                port: 6446
            })
        );
        for text in [
            "EPSV ALL Successful.",
            "(|||0|)",
            "(|||x|)",
            "(||6446|)",
            ")(",
        ] {
            assert_eq!(find_in_229(text), Err(AddressError::Malformed), "{text}");
        }
    }

    #[test]
    fn spas_lines_of_both_forms_are_parsed() {
        let lines = [" 127,0,0,1,1,0", " |2|::1|99|", " |1||98|"];
        let ports: Vec<u16> = parse_spas_lines(lines.into_iter())
            .unwrap()
            .iter()
            .map(|a| a.port)
            .collect();
        assert_eq!(ports, [256, 99, 98]);
        assert!(parse_spas_lines(std::iter::empty()).is_err());
        assert!(parse_spas_lines([" x"].into_iter()).is_err());
    }

    #[test]
    fn mapped_and_loopback_addresses_are_the_same_host() {
        let same = |a: &str, b: &str| is_same_host(a.parse().unwrap(), b.parse().unwrap());
        assert!(same("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("127.0.0.1", "127.0.0.2"));
        assert!(same("127.0.0.1", "::1") && same("::1", "::ffff:127.0.0.1"));
        assert!(!same("127.0.0.2", "::1") && !same("10.0.0.1", "fd00::1"));
    }
}
