//! Proxies through which connections are made (HTTP CONNECT, SOCKS5): their URLs, and the choice of one for a server.
//!
//! A proxy certificate of GSI is another thing ([`crate::protection`]).

mod choice;
mod failures;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use data::tunnel::ProxyService;
use percent_encoding::percent_decode_str;
use proto::tunnel::{ProxyLogin, TunnelProtocol, TunnelTarget};

pub use choice::{ProxyChoice, proxies_of_environment};
pub use failures::proxy_advice;
pub(crate) use failures::proxy_failure;

/// The port of a SOCKS proxy whose URL has none (IANA).
const SOCKS_PORT: u16 = 1080;

/// The protocol that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyScheme {
    /// `http:`: CONNECT.
    Http,
    /// `https:`: CONNECT inside TLS.
    Https,
    /// `socks5:`: the proxy gets an address.
    Socks5,
    /// `socks5h:`: the proxy gets a name.
    Socks5WithNames,
}

impl ProxyScheme {
    const ALL: [(&'static str, Self); 4] = [
        ("http", Self::Http),
        ("https", Self::Https),
        ("socks5", Self::Socks5),
        ("socks5h", Self::Socks5WithNames),
    ];

    fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, scheme)| *scheme == self);
        named.map_or("", |(name, _)| name)
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 | Self::Socks5WithNames => SOCKS_PORT,
        }
    }
}

/// A proxy as its URL names it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NetworkProxy {
    /// Its protocol.
    pub scheme: ProxyScheme,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    user_and_password: Option<(Vec<u8>, proto::command::Secret)>,
    /// Protocol and login for the connections.
    pub service: Arc<ProxyService>,
}

impl NetworkProxy {
    /// Parses `[SCHEME://][USER[:PASSWORD]@]HOST[:PORT]`; without a scheme it is `http`. User and password are
    /// percent-decoded. `origin` is the variable with the text, if it is not `--proxy`.
    ///
    /// # Errors
    /// The mistake, without the text, which may have a password.
    pub fn parse(text: &str, origin: Option<&str>) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme_of(scheme)?, rest),
            None => (ProxyScheme::Http, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, address) = match rest.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, rest),
        };
        let (host, port) = host_and_port(address).ok_or(
            "the proxy has no valid host and port: write http://HOST:PORT or socks5://HOST:PORT",
        )?;
        let user_and_password = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            let user: Vec<u8> = percent_decode_str(user).collect();
            (
                user,
                proto::command::Secret(percent_decode_str(password).collect()),
            )
        });
        let login = match &user_and_password {
            Some((user, password)) => {
                Some(ProxyLogin::new(user, &password.0).map_err(|error| error.to_string())?)
            }
            None => None,
        };
        let port = port.unwrap_or(scheme.default_port());
        let mut name = format!("{}://", scheme.name());
        if let Some(login) = &login {
            name.push_str(&login.user());
            name.push('@');
        }
        match host.contains(':') {
            true => name.push_str(&format!("[{host}]:{port}")),
            false => name.push_str(&format!("{host}:{port}")),
        }
        if let Some(variable) = origin {
            name.push_str(&format!(" (from {variable})"));
        }
        let protocol = match scheme {
            ProxyScheme::Http | ProxyScheme::Https => TunnelProtocol::HttpConnect,
            ProxyScheme::Socks5 | ProxyScheme::Socks5WithNames => TunnelProtocol::Socks5,
        };
        Ok(Self {
            scheme,
            host,
            port,
            user_and_password,
            service: Arc::new(ProxyService {
                name,
                protocol,
                login,
            }),
        })
    }

    /// Whether names of servers are resolved on this machine.
    pub fn resolves_here(&self) -> bool {
        self.scheme == ProxyScheme::Socks5
    }

    /// User and password, as far as they are text.
    pub fn login_texts(&self) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
        let (user, password) = self.user_and_password.as_ref()?;
        let text = |bytes| String::from_utf8_lossy(bytes);
        Some((text(user), text(&password.0)))
    }
}

/// The URL without the password, and where it comes from.
impl fmt::Display for NetworkProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service.name)
    }
}

impl fmt::Debug for NetworkProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetworkProxy({self})")
    }
}

/// The text of a proxy with everything before the `@` masked, whether it is valid or not.
pub fn mask_proxy(text: &str) -> String {
    // Other letters may be those of a password.
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), text),
    };
    match rest.rsplit_once('@') {
        Some((_, address)) => format!("{scheme}***@{address}"),
        None => text.to_owned(),
    }
}

fn scheme_of(name: &str) -> Result<ProxyScheme, String> {
    let name = name.to_ascii_lowercase();
    // Desktops write `socks` for SOCKS of any version; version 4 is out of use.
    let known = match name.as_str() {
        "socks" => "socks5h",
        other => other,
    };
    let found = ProxyScheme::ALL.iter().find(|(name, _)| *name == known);
    found.map(|(_, scheme)| *scheme).ok_or_else(|| {
        // A password with `://` in it would otherwise be shown.
        let is_short = name.len() <= 10 && name.bytes().all(|b| b.is_ascii_alphanumeric());
        let what = if is_short { name.as_str() } else { "this" };
        format!("{what} is no proxy that can be used: write http://, socks5:// or socks5h://")
    })
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn host_and_port(address: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return None,
            }
        }
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = match port {
        Some(text) => Some(text.parse().ok().filter(|port| *port > 0)?),
        None => None,
    };
    // The same letters as in the host that a proxy is asked for.
    TunnelTarget::new(host, 1).ok()?;
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests;
