//! How a passive address is told: the replies to PASV, EPSV and SPAS.

use std::net::SocketAddr;

use crate::address::{format_eprt, format_port};
use crate::reply::Reply;

/// How a passive address is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassiveForm {
    /// PASV: 227, six numbers.
    Pasv,
    /// EPSV: 229, the port alone.
    Epsv,
    /// SPAS: 229 of several lines, six numbers.
    Spas,
    /// SPAS with an argument: 229 of several lines, EPRT form.
    SpasExtended,
}

impl PassiveForm {
    /// The reply with the address: 227 or 229; as a preliminary reply of a transfer (delayed
    /// passive) 127 or 129.
    pub(super) fn reply(self, address: SocketAddr, preliminary: bool) -> Reply {
        let minus = if preliminary { 100 } else { 0 };
        let plain = || format_port(address);
        match self {
            Self::Epsv => Reply::new(
                229 - minus,
                format!("Entering Extended Passive Mode (|||{}|)", address.port()),
            ),
            Self::SpasExtended => striped(229 - minus, format_eprt(address)),
            Self::Pasv => match plain() {
                Some(text) => Reply::new(227 - minus, format!("Entering Passive Mode ({text})")),
                None => no_plain_form(),
            },
            Self::Spas => match plain() {
                Some(text) => striped(229 - minus, text),
                None => no_plain_form(),
            },
        }
    }
}

/// No parenthesis may occur here: the globus client takes it for EPSV's reply then.
fn striped(code: u16, address: String) -> Reply {
    Reply::data(
        code,
        "Entering Striped Passive Mode.",
        vec![address.into_bytes()],
        "End",
    )
}

/// Six numbers have no room for an IPv6 address (RFC 2428 §3).
pub(super) fn no_plain_form() -> Reply {
    Reply::new(
        522,
        "Network protocol not supported: use EPSV or SPAS 2 over IPv6.",
    )
}
