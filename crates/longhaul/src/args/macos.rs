//! The verbs and flags that need Linux, as far as this program says so.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// The verbs that need Linux.
#[derive(Debug, Subcommand)]
pub(crate) enum LinuxVerb {
    /// Compare stock FTP with longhaul over an emulated long path (on Linux alone)
    Demo(LinuxVerbArgs),
    /// Run a GridFTP and FTP server in the foreground (on Linux alone)
    Serve(LinuxVerbArgs),
    /// Manage the server's password file (on Linux alone)
    User(LinuxVerbArgs),
}

impl LinuxVerb {
    /// The word alone.
    pub(crate) fn into_word(self) -> &'static str {
        match self {
            Self::Demo(_) => "demo",
            Self::Serve(_) => "serve",
            Self::User(_) => "user",
        }
    }
}

/// Any flags: what they mean counts no more.
#[derive(Debug, Args)]
pub(crate) struct LinuxVerbArgs {
    /// The words behind the verb
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

/// The files of a server that `longhaul doctor` checks: none.
#[derive(Debug, Args)]
pub(crate) struct ServerFilesArgs {}
