//! The flag about configuration files, and the verb that shows settings.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use ftp::Remotes;

/// The flag of all verbs of the client.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Configuration file (TOML): defaults of flags, of hosts, and named remotes (docs/configuration.md); `off`:
    /// none [default: LONGHAUL_CONFIG, or ~/.config/longhaul/config.toml and /etc/longhaul/config.toml]
    #[arg(long, value_name = "FILE|off", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    #[arg(skip)]
    pub(super) loaded: LoadedSettings,
}

/// The part of the configuration that no flag has.
#[derive(Debug, Default)]
pub(crate) struct LoadedSettings {
    /// The servers with names.
    pub(crate) remotes: Arc<Remotes>,
    /// Names of the flags whose values are settings.
    pub(crate) defaults: BTreeSet<String>,
}

/// Show settings and where each value comes from
///
/// Values come from the flags of a command, else from environment variables (LONGHAUL_ and the name of the flag:
/// LONGHAUL_LIMIT_RATE), else from the section of the remote or host in the configuration file, else from the file, else
/// they are defaults. docs/configuration.md explains the file. Passwords are never shown.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Option<ConfigVerb>,
}

/// The verbs of `longhaul config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Show the values for a command, such as `cp -p 8 cern:data .` [default: cp]
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// The command, without `longhaul`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "COMMAND"
        )]
        command: Vec<OsString>,
    },
    /// Check the configuration files and the environment; exit code 2: something is wrong
    Check,
}
