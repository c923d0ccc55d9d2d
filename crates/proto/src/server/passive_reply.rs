//! How a passive address is told: the replies to PASV, EPSV and SPAS.

use std::net::SocketAddr;

use crate::address::{format_eprt, format_port};
use crate::reply::Reply;
use crate::stripes::StripeAddresses;

/// How a passive address is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassiveReplyForm {
    /// PASV: 227, six numbers.
    Pasv,
    /// EPSV: 229, the port alone.
    Epsv,
    /// SPAS: 229 of several lines, six numbers.
    Spas,
    /// SPAS with an argument: 229 of several lines, EPRT form.
    SpasExtended,
}

impl PassiveReplyForm {
    /// The reply with the addresses: 227 or 229; as a preliminary reply of a transfer (delayed
    /// passive) 127 or 129. PASV and EPSV have room for one.
    pub(super) fn reply(self, addresses: &StripeAddresses, preliminary: bool) -> Reply {
        let minus = if preliminary { 100 } else { 0 };
        let first = addresses.first();
        let told = match self {
            Self::Epsv => Some(Reply::new(
                229 - minus,
                format!("Entering Extended Passive Mode (|||{}|)", first.port()),
            )),
            Self::Pasv => format_port(first)
                .map(|text| Reply::new(227 - minus, format!("Entering Passive Mode ({text})"))),
            Self::Spas => striped_reply(229 - minus, addresses, format_port),
            Self::SpasExtended => striped_reply(229 - minus, addresses, |a| Some(format_eprt(a))),
        };
        told.unwrap_or_else(ipv6_unsupported_reply)
    }
}

/// No parenthesis may occur here: the globus client takes it for EPSV's reply then. `None`: an address
/// has no such form.
fn striped_reply(
    code: u16,
    addresses: &StripeAddresses,
    form: impl Fn(SocketAddr) -> Option<String>,
) -> Option<Reply> {
    let lines = addresses
        .iter()
        .map(|(_, address)| form(address).map(String::into_bytes));
    let lines = lines.collect::<Option<Vec<_>>>()?;
    Some(Reply::with_inner_lines(
        code,
        "Entering Striped Passive Mode.",
        lines,
        "End",
    ))
}

/// Six numbers have no room for an IPv6 address (RFC 2428 §3).
pub(super) fn ipv6_unsupported_reply() -> Reply {
    Reply::new(
        522,
        "Network protocol not supported: use EPSV or SPAS 2 over IPv6.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stripe_has_a_line_where_there_is_room_for_lines() {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let two = StripeAddresses::new(vec![at(256), at(257)]).unwrap();
        let text = |form: PassiveReplyForm| form.reply(&two, false).text();
        assert!(text(PassiveReplyForm::Pasv).contains("(192,0,2,1,1,0)"));
        assert!(text(PassiveReplyForm::Epsv).contains("(|||256|)"));
        let lines = |form: PassiveReplyForm| form.reply(&two, true).lines;
        let plain = lines(PassiveReplyForm::Spas);
        assert!(plain.iter().any(|l| l.ends_with(b"192,0,2,1,1,0")));
        assert!(plain.iter().any(|l| l.ends_with(b"192,0,2,1,1,1")));
        let extended = lines(PassiveReplyForm::SpasExtended);
        assert!(extended.iter().any(|l| l.ends_with(b"|1|192.0.2.1|257|")));
    }

    #[test]
    fn an_address_without_a_plain_form_is_not_told_in_it() {
        let v6 = StripeAddresses::single("[2001:db8::1]:9".parse().unwrap());
        for form in [PassiveReplyForm::Pasv, PassiveReplyForm::Spas] {
            assert_eq!(form.reply(&v6, false), ipv6_unsupported_reply());
        }
    }
}
