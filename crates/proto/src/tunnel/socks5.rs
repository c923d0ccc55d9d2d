//! SOCKS version 5: the choice of a method, the login, the request.

use std::net::IpAddr;

use super::{ProxyLogin, TargetHost, TunnelError, TunnelTarget};

/// VER of RFC 1928.
const VERSION: u8 = 5;
/// VER of the login (RFC 1929).
const LOGIN_VERSION: u8 = 1;
/// METHOD: no authentication.
const NO_LOGIN: u8 = 0;
/// METHOD: user name and password.
const USER_AND_PASSWORD: u8 = 2;
/// METHOD: none of those offered.
const NO_METHOD: u8 = 0xff;
/// CMD: CONNECT.
const CONNECT: u8 = 1;
/// ATYP of an IPv4 address, a name, an IPv6 address.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The reply that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Socks5Stage {
    /// The method that the proxy chooses: VER METHOD.
    Method,
    /// The answer to the login: VER STATUS.
    Login,
    /// The answer to the request: VER REP RSV ATYP BND.ADDR BND.PORT.
    Request,
}

/// The methods that this end offers.
pub(super) fn greeting(has_login: bool) -> Vec<u8> {
    match has_login {
        true => vec![VERSION, 2, NO_LOGIN, USER_AND_PASSWORD],
        false => vec![VERSION, 1, NO_LOGIN],
    }
}

impl Socks5Stage {
    /// The bytes that are missing at least.
    pub(super) fn wanted(self, received: &[u8]) -> usize {
        let length = match (self, received) {
            (Self::Method | Self::Login, _) => 2,
            // Some proxies send no address after a refusal.
            (Self::Request, [_, reply, ..]) if *reply != 0 => 2,
            (Self::Request, [_, _]) => 4,
            (Self::Request, [_, _, _, IPV4, ..]) => 4 + 4 + 2,
            (Self::Request, [_, _, _, IPV6, ..]) => 4 + 16 + 2,
            (Self::Request, [_, _, _, NAME]) => 5,
            (Self::Request, [_, _, _, NAME, length, ..]) => 4 + 1 + usize::from(*length) + 2,
            (Self::Request, _) => match received.len() {
                0 | 1 => 2,
                _ => 4,
            },
        };
        length.saturating_sub(received.len())
    }

    /// Refuses another protocol by the first byte.
    pub(super) fn check_begin(self, received: &[u8]) -> Result<(), TunnelError> {
        match (self, received.first()) {
            (Self::Method | Self::Request, Some(&first)) if first != VERSION => {
                Err(TunnelError::NotSocks5 {
                    speaks_http: first == b'H',
                })
            }
            _ => Ok(()),
        }
    }

    /// Evaluates a whole reply. Returns the next stage with what to send, or `None`: the tunnel is open.
    pub(super) fn next(
        self,
        reply: &[u8],
        target: &TunnelTarget,
        login: Option<&ProxyLogin>,
    ) -> Result<Option<(Self, Vec<u8>)>, TunnelError> {
        self.check_begin(reply)?;
        let (Some(version), Some(code)) = (reply.first(), reply.get(1)) else {
            return Err(TunnelError::Invalid("it is too short"));
        };
        match (self, *code, login) {
            (Self::Method, NO_LOGIN, _) => Ok(Some((Self::Request, request(target)))),
            (Self::Method, USER_AND_PASSWORD, Some(login)) => {
                Ok(Some((Self::Login, login_message(login))))
            }
            (Self::Method, NO_METHOD, None) => Err(TunnelError::LoginRequired),
            (Self::Method, NO_METHOD, Some(_)) => Err(TunnelError::Unsupported(
                "it takes no user name and password".to_owned(),
            )),
            (Self::Method, ..) => Err(TunnelError::Invalid(
                "it chooses a login that was not offered",
            )),
            (Self::Login, 0, _) if *version == LOGIN_VERSION => {
                Ok(Some((Self::Request, request(target))))
            }
            (Self::Login, ..) => Err(TunnelError::LoginRefused),
            (Self::Request, 0, _) => match reply.get(3) {
                Some(&(IPV4 | NAME | IPV6)) => Ok(None),
                _ => Err(TunnelError::Invalid("its address has an unknown type")),
            },
            (Self::Request, code, _) => Err(refusal(code)),
        }
    }
}

/// The error of a reply code (RFC 1928 §6).
fn refusal(code: u8) -> TunnelError {
    let unreachable = |reason: &str| TunnelError::Unreachable(reason.to_owned());
    match code {
        1 => unreachable("general failure"),
        2 => TunnelError::Forbidden("its rules do not allow it".to_owned()),
        3 => unreachable("network unreachable"),
        4 => unreachable("host unreachable, or its name is unknown there"),
        5 => TunnelError::ServerRefused,
        6 => unreachable("no answer in time"),
        7 => TunnelError::Unsupported("it has no command CONNECT".to_owned()),
        8 => TunnelError::Unsupported("it does not take this type of address".to_owned()),
        other => unreachable(&format!("reply {other}")),
    }
}

/// The login (RFC 1929 §2).
fn login_message(login: &ProxyLogin) -> Vec<u8> {
    let mut message = vec![LOGIN_VERSION];
    for field in [&login.user.0, &login.password.0] {
        message.extend(counted(field));
    }
    message
}

/// The request to connect (RFC 1928 §4).
fn request(target: &TunnelTarget) -> Vec<u8> {
    let mut message = vec![VERSION, CONNECT, 0];
    match &target.host {
        TargetHost::Name(name) => {
            message.push(NAME);
            message.extend(counted(name.as_bytes()));
        }
        TargetHost::Address(IpAddr::V4(ip)) => {
            message.push(IPV4);
            message.extend(ip.octets());
        }
        TargetHost::Address(IpAddr::V6(ip)) => {
            message.push(IPV6);
            message.extend(ip.octets());
        }
    }
    message.extend(target.port.to_be_bytes());
    message
}

/// A field after its length. Names and logins are checked to fit.
fn counted(field: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let length = u8::try_from(field.len()).unwrap_or(u8::MAX);
    std::iter::once(length).chain(field.iter().copied().take(usize::from(length)))
}
