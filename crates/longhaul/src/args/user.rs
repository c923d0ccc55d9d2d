//! Flags of `longhaul user`, which edits the server's password file.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

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
    /// Add a user; asks for the password
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
    /// Change a user's password, root or rights: only what flags name, all else stays
    #[command(group(ArgGroup::new("change").required(true).multiple(true)))]
    Change {
        /// The password file
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
        /// Ask for a new password
        #[arg(long, group = "change")]
        password: bool,
        /// Read a new password from the first line of standard input
        #[arg(long, group = "change", conflicts_with = "password")]
        password_stdin: bool,
        /// The user's root directory
        #[arg(long, value_name = "DIR", group = "change")]
        root: Option<PathBuf>,
        /// Let the user have the server's root
        #[arg(long, group = "change", conflicts_with = "root")]
        server_root: bool,
        /// Allow the user to read only
        #[arg(long, group = "change")]
        read_only: bool,
        /// Allow the user to write, too
        #[arg(long, group = "change", conflicts_with = "read_only")]
        read_write: bool,
        /// Do not allow third-party transfers (data to or from hosts other than the client's)
        #[arg(long, group = "change")]
        no_third_party: bool,
        /// Allow third-party transfers
        #[arg(long, group = "change", conflicts_with = "no_third_party")]
        third_party: bool,
        /// Initial directory of sessions, inside the root
        #[arg(long, value_name = "PATH", group = "change")]
        home: Option<String>,
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
