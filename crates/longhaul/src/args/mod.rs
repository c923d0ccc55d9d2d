//! Every verb and flag, defined once; help, man pages and completions follow from here.

mod cp;
mod remote;
mod serve;
mod user;

use clap::{Parser, Subcommand};

pub(crate) use cp::CpArgs;
pub(crate) use remote::{CksumArgs, LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use user::{UserArgs, UserVerb};

/// Exit codes, as scripts may rely on them; shown at the end of every help text.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    all done, every byte arrived and was verified as asked
  1    some files of several failed
  2    usage: the request makes no sense
  3    login or permission refused
  4    no such file
  5    cannot reach the peer, or lost it after all retries
  6    integrity mismatch: what arrived is not what was sent
  7    local disk or file error
  8    protocol error: the peer refused for another reason
  130  interrupted";

/// Move big data across long networks at the speed of the wire. Nobody tunes anything.
#[derive(Debug, Parser)]
#[command(
    name = "longhaul",
    version,
    about,
    disable_help_subcommand = true,
    after_help = EXIT_CODES,
    after_long_help = EXIT_CODES,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What to do.
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
    Ls(LsArgs),
    Stat(StatArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Mv(MvArgs),
    Cksum(CksumArgs),
    User(UserArgs),
    Help(HelpArgs),
    /// Print a man page (roff) on standard output
    #[command(hide = true)]
    Man(HelpArgs),
    /// Print a completion script on standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Show it working: a server, a client and a real file on this machine, over one stream and
/// several, and between two servers.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Size of the file that is moved
    #[arg(long, default_value = "1G", value_parser = crate::units::positive_size)]
    pub(crate) size: u64,
    /// Directory for the demo's files (about twice --size); removed afterwards
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<std::path::PathBuf>,
}

/// The manual of one verb, or of all.
#[derive(Debug, clap::Args)]
pub(crate) struct HelpArgs {
    /// The verb; all of them if left out
    pub(crate) verb: Option<String>,
}
