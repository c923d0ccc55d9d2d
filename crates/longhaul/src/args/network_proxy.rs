//! The flag about the proxy through which servers are reached.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Error};
use ftp::ProxyChoice;

use super::headings;

/// The flag of all verbs that connect to servers.
#[derive(Debug, Args)]
pub(crate) struct NetworkProxyArgs {
    /// Reach servers through this proxy, control and data: `http://[USER:PASSWORD@]HOST:PORT` (CONNECT),
    /// `socks5://...`, `socks5h://...` (the proxy resolves names); `none`: through none. By default SCHEME_proxy
    /// (ftp_proxy, ftps_proxy, gsiftp_proxy, http_proxy, https_proxy) or all_proxy names it. Hosts in no_proxy are
    /// reached directly. docs/proxies.md
    #[arg(long, value_name = "URL|none", help_heading = headings::NETWORK, value_parser = ProxyParser)]
    proxy: Option<ProxyChoice>,
}

impl NetworkProxyArgs {
    /// The choice.
    pub(crate) fn choice(&self) -> ProxyChoice {
        self.proxy.clone().unwrap_or_default()
    }
}

/// Parses a proxy. Its errors do not show the value, which may have a password.
#[derive(Debug, Clone)]
struct ProxyParser;

impl TypedValueParser for ProxyParser {
    type Value = ProxyChoice;

    fn parse_ref(
        &self,
        command: &Command,
        _arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<ProxyChoice, Error> {
        let parsed = match value.to_str() {
            Some(text) => ProxyChoice::parse(text),
            None => Err("the proxy is not UTF-8".to_owned()),
        };
        parsed.map_err(|problem| {
            let message = format!("invalid value for '--proxy': {problem}\n");
            Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_flags;

    #[test]
    fn an_invalid_proxy_is_refused_without_its_password() {
        let parsed = |text: &str| parse_flags::<NetworkProxyArgs>(&["--proxy", text]);
        assert!(parsed("socks5h://ann:hush@h:1").is_ok() && parsed("none").is_ok());
        for text in ["socks4://ann:hush@h:1", "ann:hush@h:port", ""] {
            let error = parsed(text).unwrap_err();
            assert!(
                error.contains("--proxy") && !error.contains("hush"),
                "{error}"
            );
        }
    }
}
