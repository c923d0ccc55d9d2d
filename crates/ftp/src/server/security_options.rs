//! Choices of the user about the protection of connections.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::Failure;
use crate::network_proxy::ProxyChoice;
use crate::ssh::FarEndOptions;

/// TLS on the control connections of `ftp:` URLs (RFC 4217). `ftps:` URLs always require it, and take
/// [`TlsUse::Implicit`] from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TlsUse {
    /// Clear connections.
    #[default]
    Off,
    /// TLS, or a clear connection with a warning where the server refuses AUTH TLS. A failed
    /// handshake is never followed by a clear connection.
    Try,
    /// TLS or no session.
    Require,
    /// TLS from the first byte or no session, on any port; also for `ftps:` URLs.
    Implicit,
}

/// Protection of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DataProtectionChoice {
    /// As strong as the session allows without a delegated credential: private inside TLS,
    /// authenticated inside GSI.
    #[default]
    Auto,
    /// None (PROT C, DCAU N).
    Clear,
    /// Both ends prove their identity, then the bytes are clear (GSI: DCAU A, PROT C).
    Authenticated,
    /// Authenticated and unchanged on the way (GSI: PROT S). Also encrypted here.
    Safe,
    /// Authenticated and encrypted (PROT P).
    Private,
}

impl DataProtectionChoice {
    /// Whether a clear data connection would not be what the user asked for.
    pub fn excludes_clear(self) -> bool {
        matches!(self, Self::Authenticated | Self::Safe | Self::Private)
    }

    /// The value of `--data-protection`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Clear => "clear",
            Self::Authenticated => "authenticated",
            Self::Safe => "safe",
            Self::Private => "private",
        }
    }
}

/// Whether servers get the user's credential: a GSI server a proxy of it, an HTTP server the token that another one wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DelegationChoice {
    /// No.
    #[default]
    None,
    /// A limited proxy.
    Limited,
    /// A full proxy; the token as it is.
    Full,
}

/// Flags of `cp` and the remote verbs about protection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SecurityOptions {
    /// `--tls`
    pub tls: TlsUse,
    /// `--ca`: authorities that replace the system's and the grid's. A PEM file or a directory.
    pub ca: Option<PathBuf>,
    /// `--insecure`: servers are not verified.
    pub insecure: bool,
    /// `--cert`: certificate with its chain; also the key if there is no [`SecurityOptions::key`].
    pub certificate: Option<PathBuf>,
    /// `--key`
    pub key: Option<PathBuf>,
    /// `--data-protection`
    pub data_protection: DataProtectionChoice,
    /// `--delegate`
    pub delegation: DelegationChoice,
    /// `--token`: file of a bearer token.
    pub token: Option<PathBuf>,
    /// `--token-host`: hosts, besides those that its audience names, that the token of the environment is for.
    pub token_hosts: Vec<String>,
    /// `--proxy`: the proxy through which servers are reached.
    pub proxy: ProxyChoice,
    /// `--ssh`: the program for ssh: URLs and its first arguments; empty: `ssh`.
    pub ssh: Vec<String>,
    /// `--data-ports`: the ports of this machine at which hosts of ssh: URLs may reach it; `None`: any.
    pub data_ports: Option<(u16, u16)>,
    /// `--ssh-program`, `--ssh-install`, `--ssh-helper`: the program at the far end of ssh: URLs.
    pub far_end: FarEndOptions,
    /// Flags, without `--`, whose values are defaults from settings. They need not have an effect.
    pub defaults: BTreeSet<String>,
}

impl SecurityOptions {
    /// Whether the command itself has the flag.
    pub fn is_asked(&self, flag: &str) -> bool {
        !self.defaults.contains(flag)
    }

    /// Refuses combinations that contradict each other.
    ///
    /// # Errors
    /// `Usage`
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let usage = |message: &str| Err(Failure::usage(message));
        match () {
            () if self.insecure && self.ca.is_some() => {
                usage("--insecure accepts any server, so --ca has no effect: leave one of them out")
            }
            () if self.insecure && self.token.is_some() => usage(
                "a token is sent to verified servers only: leave out --insecure, and name the server's \
                 authority with --ca if it is unknown",
            ),
            () if self.key.is_some() && self.certificate.is_none() => {
                usage("--key needs --cert, the certificate that it belongs to")
            }
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;

    #[test]
    fn contradicting_options_are_refused() {
        let options = SecurityOptions::default();
        assert!(options.check().is_ok());
        let insecure = SecurityOptions {
            insecure: true,
            ..options.clone()
        };
        assert!(insecure.check().is_ok());
        for (refused, word) in [
            (
                SecurityOptions {
                    ca: Some("/ca".into()),
                    ..insecure.clone()
                },
                "--ca",
            ),
            (
                SecurityOptions {
                    token: Some("/t".into()),
                    ..insecure
                },
                "token",
            ),
            (
                SecurityOptions {
                    key: Some("/k".into()),
                    ..options
                },
                "--cert",
            ),
        ] {
            let failure = refused.check().unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage);
            assert!(failure.to_string().contains(word), "{failure}");
        }
    }
}
