//! Flags of `longhaul user`, which edits the server's password file.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Manage the server's password file
#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: UserVerb,
}

/// The verbs of `longhaul user`.
#[derive(Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Add or replace a user; asks for the password
    Add {
        /// The password file; created with mode 600 if it does not exist
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
        /// The user's root directory [default: the server's root]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// Allow the user to read only
        #[arg(long)]
        read_only: bool,
        /// Do not allow third-party transfers (data to or from hosts other than the client's)
        #[arg(long)]
        no_third_party: bool,
        /// Initial directory of sessions, inside the root
        #[arg(long, value_name = "PATH", default_value = "/")]
        home: String,
        /// Give the file to this account, the server's run-as, so that it notices changes; needs root [default: the owner stays]
        #[arg(long, value_name = "ACCOUNT")]
        run_as: Option<String>,
        /// Read the password from the first line of standard input
        #[arg(long)]
        password_stdin: bool,
        /// Name of the user
        name: String,
    },
    /// List the users
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
        /// Name of the user
        name: String,
    },
}
