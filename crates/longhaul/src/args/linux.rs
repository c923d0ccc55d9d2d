//! The verbs that need Linux, and their flags.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use server::config::{FileConfig, SecurityConfig, ServerConfig};

use super::serve::ServeArgs;
use super::serve_security::ServeSecurityArgs;
use super::user::UserArgs;
use super::values;

/// The verbs that need Linux.
#[derive(Debug, Subcommand)]
pub(crate) enum LinuxVerb {
    Demo(DemoArgs),
    Serve(Box<ServeArgs>),
    User(UserArgs),
    /// Hold a private key for `longhaul serve`, which starts this itself
    #[command(hide = true)]
    KeyHolder(KeyHolderArgs),
    /// Ask PAM for `longhaul serve`, which starts this itself
    #[command(hide = true)]
    PamChecker(PamArgs),
    /// Ask PAM about one login, for the process that asks PAM
    #[command(hide = true)]
    PamAttempt(PamArgs),
    /// First process of the demo's network, which starts this itself
    #[command(hide = true)]
    NetworkInit {
        /// Arguments from the emulator
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a program on a host of the demo's network, for the demo
    #[command(hide = true)]
    OnHost {
        /// Name of the host
        host: String,
        /// Program and arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// The files of the key that a process holds.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyHolderArgs {
    /// Certificate and chain (PEM)
    pub(crate) cert: PathBuf,
    /// Private key (PEM)
    pub(crate) key: PathBuf,
}

/// The rules by which a process asks PAM.
#[derive(Debug, clap::Args)]
pub(crate) struct PamArgs {
    /// The service
    pub(crate) service: String,
    /// Smallest user ID of accounts
    pub(crate) min_uid: u32,
}

/// Compare stock FTP with longhaul over an emulated long path, live
///
/// Both copy the same file at the same time, each over its own path. Without root and without user
/// namespaces no network can be emulated; then the demo says what is missing and copies over loopback.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Size of the file [default: 240M, or 1G with --loopback]
    #[arg(long, value_parser = values::parse_positive_size)]
    pub(crate) size: Option<u64>,
    /// Round-trip time of the path; a number is milliseconds
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub(crate) rtt: String,
    /// Rate of the path
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    pub(crate) rate: String,
    /// Copy over loopback instead: one and four streams, download, upload and third-party
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Directory for temporary files: about twice --size, five times with --loopback. The demo
    /// removes them at the end
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Folder of the demo; set for the part that runs inside the emulated network
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) inside: Option<PathBuf>,
    /// Process ID of the one that starts this process, which ends with it
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
    /// Folder of the demo; set for the process that shows it
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Arguments of the program, for a part of the demo
    #[arg(last = true, hide = true)]
    pub(crate) command: Vec<OsString>,
}

/// The files of a server that `longhaul doctor` checks.
#[derive(Debug, Args)]
pub(crate) struct ServerFilesArgs {
    /// Check the files that this settings file of `longhaul serve` names
    #[arg(long, value_name = "FILE.toml")]
    serve_config: Option<PathBuf>,
    /// Check this password file of `longhaul serve`, and whether it has the accounts of the gridmap
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    #[command(flatten)]
    server: ServeSecurityArgs,
}

impl ServerFilesArgs {
    /// The settings of the server whose files are to be checked; `None`: none is named.
    ///
    /// # Errors
    /// The settings file cannot be used.
    pub(crate) fn config(&self) -> Result<Option<ServerConfig>, String> {
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

    fn parsed(words: &[&str]) -> Result<ServerFilesArgs, String> {
        parse_flags(words)
    }

    #[test]
    fn a_server_is_checked_if_a_flag_names_one_of_its_files() {
        assert!(parsed(&[]).unwrap().config().unwrap().is_none());
        let words = ["--cert", "/c", "--key", "/k", "--users", "/u"];
        let config = parsed(&words).unwrap().config().unwrap().unwrap();
        assert_eq!(config.users, Some("/u".into()));
        assert_eq!(config.security.certificate, Some("/c".into()));
    }

    #[test]
    fn flags_override_the_settings_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        std::fs::write(&path, "cert = \"/old\"\nkey = \"/key\"\nusers = \"/u\"\n").unwrap();
        let words = ["--serve-config", path.to_str().unwrap(), "--cert", "/new"];
        let config = parsed(&words).unwrap().config().unwrap().unwrap();
        assert_eq!(config.security.certificate, Some("/new".into()));
        assert_eq!(config.security.key, Some("/key".into()));
        assert_eq!(config.users, Some("/u".into()));
    }
}
