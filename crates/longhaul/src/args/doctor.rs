//! Flags of `longhaul doctor`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ftp::Remotes;
use server::config::{FileConfig, SecurityConfig, ServerConfig};
use units::Rate;

use super::network_proxy::NetworkProxyArgs;
use super::security::{AuthoritiesArgs, FarProgramArgs, SshArgs};
use super::serve_security::ServeSecurityArgs;
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
    /// Check the files that this settings file of `longhaul serve` names
    #[arg(long, value_name = "FILE.toml")]
    serve_config: Option<PathBuf>,
    /// Check this password file of `longhaul serve`, and whether it has the accounts of the gridmap
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    #[command(flatten)]
    server: ServeSecurityArgs,
}

impl DoctorArgs {
    /// The servers with names.
    pub(crate) fn remotes(&self) -> Arc<Remotes> {
        Arc::clone(&self.settings.loaded.remotes)
    }

    /// The settings of the server whose files are to be checked; `None`: none is named.
    ///
    /// # Errors
    /// The settings file cannot be used.
    pub(crate) fn server_config(&self) -> Result<Option<ServerConfig>, String> {
        let mut config = ServerConfig::default();
        if let Some(path) = &self.serve_config {
            let file = FileConfig::load(path).map_err(|error| error.to_string())?;
            file.apply(&mut config);
        }
        self.server.clone().apply(&mut config.security);
        config.users = self.users.clone().or(config.users.take());
        let is_named = self.serve_config.is_some()
            || config.users.is_some()
            || config.security != SecurityConfig::default();
        Ok(is_named.then_some(config))
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
    fn a_server_is_checked_if_a_flag_names_one_of_its_files() {
        assert!(parsed(&[]).unwrap().server_config().unwrap().is_none());
        let words = ["--cert", "/c", "--key", "/k", "--users", "/u"];
        let config = parsed(&words).unwrap().server_config().unwrap().unwrap();
        assert_eq!(config.users, Some("/u".into()));
        assert_eq!(config.security.certificate, Some("/c".into()));
    }

    #[test]
    fn flags_override_the_settings_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        std::fs::write(&path, "cert = \"/old\"\nkey = \"/key\"\nusers = \"/u\"\n").unwrap();
        let words = ["--serve-config", path.to_str().unwrap(), "--cert", "/new"];
        let config = parsed(&words).unwrap().server_config().unwrap().unwrap();
        assert_eq!(config.security.certificate, Some("/new".into()));
        assert_eq!(config.security.key, Some("/key".into()));
        assert_eq!(config.users, Some("/u".into()));
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
