//! Replies with a passive address: PASV, EPSV and SPAS.

use std::net::SocketAddr;

use crate::address::{format_eprt, format_port};
use crate::reply::Reply;
use crate::stripes::StripeAddresses;

/// Form of the reply that holds a passive address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassiveReplyForm {
    /// PASV: 227 with `h1,h2,h3,h4,p1,p2`.
    Pasv,
    /// EPSV: 229 with the port only.
    Epsv,
    /// SPAS: multi-line 229, one `h1,h2,h3,h4,p1,p2` per stripe.
    Spas,
    /// SPAS with an argument: multi-line 229, one address in EPRT form per stripe.
    SpasExtended,
}

impl PassiveReplyForm {
    /// The reply with the addresses: 227 or 229, or 127 or 129 as the preliminary reply of a
    /// delayed-passive transfer. PASV and EPSV hold the first address only.
    pub(super) fn reply(self, addresses: &StripeAddresses, preliminary: bool) -> Reply {
        // GridFTP delayed passive: the same text with a 1xx code (127, 129).
        let minus = if preliminary { 100 } else { 0 };
        let first = addresses.first();
        let reply = match self {
            Self::Epsv => Some(Reply::new(
                229 - minus,
                format!("Entering Extended Passive Mode (|||{}|)", first.port()),
            )),
            Self::Pasv => format_port(first)
                .map(|text| Reply::new(227 - minus, format!("Entering Passive Mode ({text})"))),
            Self::Spas => striped_reply(229 - minus, addresses, format_port),
            Self::SpasExtended => striped_reply(229 - minus, addresses, |a| Some(format_eprt(a))),
        };
        reply.unwrap_or_else(ipv6_unsupported_reply)
    }
}

/// Reply to SPAS. The text must not contain a parenthesis, or the globus client parses it as the reply
/// to EPSV. `None` when an address cannot be written in this form.
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

/// Reply when an IPv6 address would have to be written as six numbers (RFC 2428 §3).
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
    fn spas_replies_list_every_stripe_and_pasv_only_the_first() {
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
    fn pasv_and_spas_refuse_an_ipv6_address() {
        let v6 = StripeAddresses::single("[2001:db8::1]:9".parse().unwrap());
        for form in [PassiveReplyForm::Pasv, PassiveReplyForm::Spas] {
            assert_eq!(form.reply(&v6, false), ipv6_unsupported_reply());
        }
    }
}
