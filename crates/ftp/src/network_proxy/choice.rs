//! The proxy for a server: of `--proxy`, or of the variables that curl reads, unless `no_proxy` has the server.

use std::net::IpAddr;
use std::sync::Arc;

use super::NetworkProxy;
use crate::Failure;

/// Reads a variable of the environment.
type ProxyVariables<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The user's choice of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum ProxyChoice {
    /// The variables of the environment: `SCHEME_proxy`, `all_proxy`.
    #[default]
    Environment,
    /// No proxy.
    Off,
    /// This one.
    Named(Arc<NetworkProxy>),
}

impl ProxyChoice {
    /// Parses the value of `--proxy`: a URL, or `none`.
    ///
    /// # Errors
    /// The mistake, without the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Off),
            url => NetworkProxy::parse(url, None).map(|proxy| Self::Named(Arc::new(proxy))),
        }
    }

    /// The proxy for a host with a scheme (`ftp`, ...).
    ///
    /// # Errors
    /// `Usage`: a variable has no valid proxy.
    pub fn proxy_for(
        &self,
        scheme: &str,
        host: &str,
    ) -> Result<Option<Arc<NetworkProxy>>, Failure> {
        self.choose(scheme, host, &variable).map_err(Failure::usage)
    }

    pub(super) fn choose(
        &self,
        scheme: &str,
        host: &str,
        variables: &ProxyVariables<'_>,
    ) -> Result<Option<Arc<NetworkProxy>>, String> {
        let is_excluded = || {
            let list = ["no_proxy", "NO_PROXY"].into_iter().find_map(variables);
            list.is_some_and(|list| is_in_list(host, &list))
        };
        match self {
            Self::Off => Ok(None),
            _ if is_excluded() => Ok(None),
            Self::Named(proxy) => Ok(Some(Arc::clone(proxy))),
            Self::Environment => match in_environment(scheme, variables) {
                Some((name, text)) => NetworkProxy::parse(&text, Some(&name))
                    .map(|proxy| Some(Arc::new(proxy)))
                    .map_err(|problem| format!("{name}: {problem}; --proxy none does without")),
                None => Ok(None),
            },
        }
    }
}

/// The variables that name a proxy for these schemes, each with its value without the login, and the schemes.
pub fn proxies_of_environment() -> Vec<(String, String, Vec<&'static str>)> {
    let mut found: Vec<(String, String, Vec<&'static str>)> = Vec::new();
    for scheme in ["ftp", "ftps", "gsiftp", "http", "https"] {
        let Some((name, text)) = in_environment(scheme, &variable) else {
            continue;
        };
        match found.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, schemes)) => schemes.push(scheme),
            None => found.push((name, super::mask_proxy(&text), vec![scheme])),
        }
    }
    found
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Name and value of the variable for a scheme, as curl chooses it. HTTP_PROXY in upper case is ignored: in a CGI process
/// it holds a header of the request (CVE-2016-5385, "httpoxy").
fn in_environment(scheme: &str, variables: &ProxyVariables<'_>) -> Option<(String, String)> {
    let own = format!("{scheme}_proxy");
    let upper = own.to_uppercase();
    let mut names = vec![own, upper, "all_proxy".to_owned(), "ALL_PROXY".to_owned()];
    names.retain(|name| name != "HTTP_PROXY");
    names.into_iter().find_map(|name| {
        let text = variables(&name).filter(|text| !text.trim().is_empty())?;
        Some((name, text.trim().to_owned()))
    })
}

/// Whether a list such as `localhost,.example.org,10.0.0.0/8` has the host; `*` has all. A name stands for itself and for all names
/// below it.
fn is_in_list(host: &str, list: &str) -> bool {
    let host = host.trim_end_matches('.');
    let ip: Option<IpAddr> = host.parse().ok();
    let ip = ip.map(|ip| ip.to_canonical());
    let entries = list.split(|c: char| c == ',' || c.is_whitespace());
    entries.filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.trim_start_matches('[').trim_end_matches(']');
        match (entry, ip) {
            ("*", _) => true,
            (_, Some(ip)) => is_in_network(ip, entry),
            (_, None) => is_same_or_below(host, entry),
        }
    })
}

fn is_same_or_below(host: &str, domain: &str) -> bool {
    let domain = domain.trim_start_matches("*.").trim_start_matches('.');
    let domain = domain.trim_end_matches('.');
    let Some(at) = host.len().checked_sub(domain.len()) else {
        return false;
    };
    let is_end = host
        .get(at..)
        .is_some_and(|end| end.eq_ignore_ascii_case(domain));
    is_end && !domain.is_empty() && (at == 0 || host.as_bytes().get(at - 1) == Some(&b'.'))
}

/// Whether an address is the entry, or in its network (`10.0.0.0/8`).
fn is_in_network(ip: IpAddr, entry: &str) -> bool {
    let (network, bits) = match entry.split_once('/') {
        Some((network, bits)) => (network, Some(bits)),
        None => (entry, None),
    };
    let Ok(network) = network.parse::<IpAddr>() else {
        return false;
    };
    let (ip, network, length) = match (ip, network.to_canonical()) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            (u128::from(ip.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let Ok(bits) = bits.map_or(Ok(length), str::parse::<u32>) else {
        return false;
    };
    match length.checked_sub(bits) {
        // A shift by all bits of the number is no shift.
        Some(rest) => (ip ^ network).checked_shr(rest).unwrap_or(0) == 0,
        None => false,
    }
}
