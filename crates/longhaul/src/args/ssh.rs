//! Flags of `longhaul ssh`, about what longhaul leaves at the far ends of ssh: URLs.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::place::place;
use super::security::SshArgs;
use super::settings::SettingsArgs;
use super::values;

/// Remove what longhaul has put to hosts of ssh: URLs
#[derive(Debug, Args)]
#[command(subcommand_required = true)]
#[command(mut_arg("ssh", |flag| flag.global(true)))]
#[command(mut_arg("timeout", |flag| flag.global(true)))]
#[command(mut_arg("config", |flag| flag.global(true)))]
pub(crate) struct SshVerbArgs {
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
    /// Give up after this time without an answer: `90s`, `5m`; a number is seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::parse_timeout)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: SshVerb,
}

/// The verbs of `longhaul ssh`.
#[derive(Debug, Subcommand)]
pub(crate) enum SshVerb {
    /// Remove the programs that --ssh-install has put into ~/.cache/longhaul at a host
    ///
    /// Prints each directory that is removed. Links, and directories with other files in them, stay, and are named
    /// on standard error. Programs that run meanwhile run on.
    Clean {
        /// The host: HOST, USER@HOST, ssh://USER@HOST:PORT, or a named remote of the configuration (`NAME:`)
        #[arg(value_parser = place())]
        host: String,
    },
}

impl SshVerbArgs {
    /// The servers with names.
    pub(crate) fn remotes(&self) -> std::sync::Arc<ftp::Remotes> {
        std::sync::Arc::clone(&self.settings.loaded.remotes)
    }
}
