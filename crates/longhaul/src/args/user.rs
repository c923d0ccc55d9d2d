//! `longhaul user`: the server's password file.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Manage the server's password file.
#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: UserVerb,
}

/// The verbs of `longhaul user`.
#[derive(Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Add a user, or replace one with the same name; asks for the password
    Add {
        /// The password file; made (mode 600) if it is not there
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
        /// The user's own root directory; the server's root if left out
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// May only read
        #[arg(long)]
        read_only: bool,
        /// May not move data to and from hosts other than his own
        #[arg(long)]
        no_third_party: bool,
        /// Directory inside the root where sessions begin
        #[arg(long, value_name = "PATH", default_value = "/")]
        home: String,
        /// Read the password from standard input, up to the end of the line
        #[arg(long)]
        password_stdin: bool,
        /// The user's name
        name: String,
    },
    /// Show the users
    List {
        /// The password file
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Remove a user
    Remove {
        /// The password file
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
        /// The user's name
        name: String,
    },
}
