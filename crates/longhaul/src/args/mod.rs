//! All verbs and flags. Help, man pages and completions are generated from these definitions.

mod batch;
mod contradictions;
mod cp;
mod data_values;
mod doctor;
mod keep;
mod known_ports;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
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
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod serve_security;
#[cfg(target_os = "linux")]
mod serve_site;
mod settings;
mod ssh;
mod sync;
#[cfg(target_os = "linux")]
mod user;

use clap::{Parser, Subcommand};

use command_line::EXIT_CODES;
use command_line::flags::advisor::AdvisorArgs;
use command_line::flags::lab::LabArgs;
use command_line::flags::queue::{QueueArgs, WorkerArgs};
use command_line::flags::{headings, values};
pub(crate) use cp::{CopyFlags, CpArgs};
pub(crate) use doctor::DoctorArgs;
pub(crate) use keep::KeepArgs;
#[cfg(target_os = "linux")]
pub(crate) use linux::{DemoArgs, KeyHolderArgs, LinuxVerb, PamArgs, ServerFilesArgs};
#[cfg(target_os = "macos")]
pub(crate) use macos::{LinuxVerb, ServerFilesArgs};
pub(crate) use parsing::CommandLineAnswer;
pub(crate) use proxy::{ProxyArgs, ProxyVerb};
pub(crate) use remote::{
    CksumArgs, LsArgs, MkdirArgs, MvArgs, RemoteCommonArgs, RmArgs, StatArgs, VerifyArgs,
};
use security::SecurityArgs;
#[cfg(target_os = "linux")]
pub(crate) use serve::ServeArgs;
pub(crate) use settings::{ConfigArgs, ConfigVerb, LoadedSettings};
pub(crate) use ssh::{SshVerb, SshVerbArgs};
pub(crate) use sync::SyncArgs;
#[cfg(target_os = "linux")]
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
    #[command(flatten)]
    Linux(LinuxVerb),
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
    Proxy(ProxyArgs),
    Ssh(SshVerbArgs),
    /// Move files for `longhaul cp --nodes`, which starts this itself
    #[command(hide = true)]
    Node,
    Advisor(Box<AdvisorArgs>),
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
