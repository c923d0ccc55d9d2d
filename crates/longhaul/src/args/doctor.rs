//! Flags of `longhaul doctor`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ftp::Remotes;
use units::Rate;

use super::ServerFilesArgs;
use super::network_proxy::NetworkProxyArgs;
use super::security::{AuthoritiesArgs, FarProgramArgs, SshArgs};
use super::settings::SettingsArgs;
use super::values;

/// Find what limits the rate or the security of this machine, of a server, or of a server's files
///
/// Without URL it shows the rate that this machine's network settings allow one stream, which settings
/// to change, and whether your certificate, token and certificate authorities can be used. For a path of
/// the given rate and round-trip time it computes the rate of one stream; without --rtt it does so for
/// 10, 50, 100 and 200 ms. With URL it connects to the server and shows what it offers. With
/// --serve-config, or flags of `serve`, it checks the files that a server would use. It changes nothing,
/// here and there. Exit code 3: something is insecure or cannot be used; 5: the server cannot be reached.
#[derive(Debug, Args)]
#[command(mut_arg("ca", |ca| ca.requires("url")))]
#[command(mut_arg("proxy", |proxy| proxy.requires("url")))]
pub(crate) struct DoctorArgs {
    /// The server to examine: ftp:, ftps:, gsiftp:, ssh:, sshftp:, sftp:, http:, https: or s3:, or a named remote of the configuration (`NAME:`)
    #[arg(value_parser = super::place::place())]
    pub(crate) url: Option<String>,
    /// Log in at the server, too. A URL with a user always does
    #[arg(long, requires = "url")]
    pub(crate) login: bool,
    #[command(flatten)]
    pub(crate) authorities: AuthoritiesArgs,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
    #[command(flatten)]
    pub(crate) far_end: FarProgramArgs,
    #[command(flatten)]
    pub(crate) proxy: NetworkProxyArgs,
    /// Rate of the path
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = values::parse_positive_rate)]
    pub(crate) rate: Rate,
    /// Round-trip time of the path, as shown by ping; a number is milliseconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_round_trip)]
    pub(crate) rtt: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server_files: ServerFilesArgs,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
}

impl DoctorArgs {
    /// The servers with names.
    pub(crate) fn remotes(&self) -> Arc<Remotes> {
        Arc::clone(&self.settings.loaded.remotes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_flags;

    fn parsed(words: &[&str]) -> Result<DoctorArgs, String> {
        parse_flags(words)
    }

    #[test]
    fn a_login_and_authorities_need_a_server() {
        assert!(parsed(&["--login"]).is_err());
        assert!(parsed(&["--ca", "/ca"]).is_err());
        assert!(parsed(&["--proxy", "none"]).is_err());
        let with_ca = parsed(&["--ca", "/ca", "ftp://h/"]).unwrap();
        assert_eq!(with_ca.authorities.ca, Some("/ca".into()));
        assert!(parsed(&["--login", "ftp://h/"]).unwrap().login);
    }
}
