//! All verbs and flags. Help, man pages and completions are generated from these definitions.

mod batch;
mod contradictions;
mod cp;
mod data_values;
mod doctor;
mod keep;
mod known_ports;
mod network_proxy;
mod parsing;
mod place;
mod proxy;
mod rate_setting;
mod reliability;
mod remote;
mod reporting;
mod research;
mod security;
mod selection;
mod serve;
mod serve_security;
mod serve_site;
mod settings;
mod ssh;
mod sync;
mod user;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use command_line::EXIT_CODES;
use command_line::flags::advisor::AdvisorArgs;
use command_line::flags::lab::LabArgs;
use command_line::flags::queue::{QueueArgs, WorkerArgs};
use command_line::flags::{headings, values};
pub(crate) use cp::{CopyFlags, CpArgs};
pub(crate) use doctor::DoctorArgs;
pub(crate) use keep::KeepArgs;
pub(crate) use parsing::CommandLineAnswer;
pub(crate) use proxy::{ProxyArgs, ProxyVerb};
pub(crate) use remote::{
    CksumArgs, LsArgs, MkdirArgs, MvArgs, RemoteCommonArgs, RmArgs, StatArgs, VerifyArgs,
};
use security::SecurityArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use settings::{ConfigArgs, ConfigVerb, LoadedSettings};
pub(crate) use ssh::{SshVerb, SshVerbArgs};
pub(crate) use sync::SyncArgs;
pub(crate) use user::{UserArgs, UserVerb};

/// Move large files over long-distance networks at full speed, without manual tuning
#[derive(Debug, Parser)]
#[command(
    name = "longhaul",
    version,
    disable_help_subcommand = true,
    after_help = EXIT_CODES,
    after_long_help = EXIT_CODES,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Demo(DemoArgs),
    Serve(Box<ServeArgs>),
    #[command(
        override_usage = "longhaul cp [OPTIONS] SRC... DST",
        after_help = EXIT_CODES,
        after_long_help = EXIT_CODES
    )]
    Cp(Box<CpArgs>),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Sync(Box<SyncArgs>),
    Ls(LsArgs),
    Stat(StatArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Mv(MvArgs),
    Cksum(CksumArgs),
    Verify(VerifyArgs),
    User(UserArgs),
    Proxy(ProxyArgs),
    Ssh(SshVerbArgs),
    /// Hold a private key for `longhaul serve`, which starts this itself
    #[command(hide = true)]
    KeyHolder(KeyHolderArgs),
    /// Ask PAM for `longhaul serve`, which starts this itself
    #[command(hide = true)]
    PamChecker(PamArgs),
    /// Ask PAM about one login, for the process that asks PAM
    #[command(hide = true)]
    PamAttempt(PamArgs),
    /// Move files for `longhaul cp --nodes`, which starts this itself
    #[command(hide = true)]
    Node,
    Advisor(Box<AdvisorArgs>),
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
    Config(ConfigArgs),
    Doctor(Box<DoctorArgs>),
    Lab(Box<LabArgs>),
    Queue(Box<QueueArgs>),
    Worker(Box<WorkerArgs>),
    Help(HelpArgs),
    Man(ManArgs),
    /// Print a completion script for a shell
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
}

impl Verb {
    /// The place for the part of the configuration that no flag has; `None`: the verb is not one of the client.
    pub(crate) fn loaded_mut(&mut self) -> Option<&mut LoadedSettings> {
        match self {
            Self::Doctor(args) => Some(&mut args.settings.loaded),
            Self::Ssh(args) => Some(&mut args.settings.loaded),
            verb => verb.security_mut().map(SecurityArgs::loaded_mut),
        }
    }

    fn security_mut(&mut self) -> Option<&mut SecurityArgs> {
        match self {
            Self::Cp(args) => Some(&mut args.flags.security),
            Self::Sync(args) => Some(&mut args.flags.security),
            Self::Ls(args) => Some(&mut args.common.security),
            Self::Stat(args) => Some(&mut args.common.security),
            Self::Rm(args) => Some(&mut args.common.security),
            Self::Mkdir(args) => Some(&mut args.common.security),
            Self::Mv(args) => Some(&mut args.common.security),
            Self::Cksum(args) => Some(&mut args.common.security),
            Self::Verify(args) => Some(&mut args.common.security),
            _ => None,
        }
    }
}

/// Parses the flags of one group as a verb with them does.
#[cfg(test)]
fn parse_flags<A: clap::Args>(words: &[&str]) -> Result<A, String> {
    let command = A::augment_args(clap::Command::new("verb"));
    let words = ["verb"].iter().chain(words);
    command
        .try_get_matches_from(words)
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| error.to_string())
}

/// The files of the key that a process holds.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyHolderArgs {
    /// Certificate and chain (PEM)
    pub(crate) cert: std::path::PathBuf,
    /// Private key (PEM)
    pub(crate) key: std::path::PathBuf,
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
    pub(crate) dir: Option<std::path::PathBuf>,
    /// Folder of the demo; set for the part that runs inside the emulated network
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) inside: Option<std::path::PathBuf>,
    /// Process ID of the one that starts this process, which ends with it
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
    /// Folder of the demo; set for the process that shows it
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) folder: Option<std::path::PathBuf>,
    /// Arguments of the program, for a part of the demo
    #[arg(last = true, hide = true)]
    pub(crate) command: Vec<OsString>,
}

/// Print the man page of the program, or of one verb
///
///   longhaul man cp | man -l -
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ManArgs {
    /// The verb (`cp`, `lab net`) [default: the page of the program]
    pub(crate) verb: Vec<String>,
}

/// Print the manual of one verb, or of all
#[derive(Debug, clap::Args)]
pub(crate) struct HelpArgs {
    /// The verb (`cp`, `lab net`) [default: all]
    pub(crate) verb: Vec<String>,
}
