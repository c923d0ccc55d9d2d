//! Every verb and flag, defined once; help, man pages and completions follow from here.

mod cp;
pub(crate) mod lab;
pub(crate) mod lab_sim;
mod remote;
mod serve;
mod user;
mod values;

use std::time::Duration;

use clap::{Parser, Subcommand};
use units::Rate;

pub(crate) use cp::CpArgs;
pub(crate) use remote::{CksumArgs, LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use user::{UserArgs, UserVerb};

/// Exit codes, as scripts may rely on them; shown at the end of every help text.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    all done; after cp: every byte arrived, was verified as asked, and is on disk (--sync-policy)
  1    some files of several failed
  2    usage: the request makes no sense
  3    login or permission refused
  4    no such file or directory
  5    cannot reach the peer, or lost it after all retries
  6    integrity mismatch: what arrived is not what was sent
  7    disk or file error: a local one, or the destination is full; or another copy is writing it
  8    protocol error: the peer refused for another reason
  9    lab: the emulator could not keep up; the run is invalid
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
    Doctor(DoctorArgs),
    Lab(lab::LabArgs),
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

/// See it work: one file over an emulated long path, as stock FTP moves it and self-tuned, live
///
/// Where no network can be emulated (neither root nor user namespaces), it says why and shows the
/// main job on loopback instead.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Size of the file that is moved [default: 240M, on loopback 1G]
    #[arg(long, value_parser = values::positive_size)]
    pub(crate) size: Option<u64>,
    /// Round trip of the path
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub(crate) rtt: String,
    /// Rate of the path
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    pub(crate) rate: String,
    /// No emulated path: one stream and several, both ways and between two servers, on loopback
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Directory for the demo's files (about twice --size, on loopback five times); removed
    /// afterwards
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<std::path::PathBuf>,
    /// The part that runs inside the emulated network
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) inside: Option<std::path::PathBuf>,
}

/// Say what this machine's network settings allow, and which of them to change for what gain
///
/// Without --rate and --rtt it tells what one stream reaches over a range of paths of 1 Gbit/s. Nothing
/// is sent anywhere and nothing is changed.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Rate of the path that matters
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = values::positive_rate)]
    pub(crate) rate: Rate,
    /// Its round trip, as ping shows it
    #[arg(long, value_name = "TIME", value_parser = values::round_trip)]
    pub(crate) rtt: Option<Duration>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// The manual of one verb, or of all.
#[derive(Debug, clap::Args)]
pub(crate) struct HelpArgs {
    /// The verb (`cp`, `lab net`); all of them if left out
    pub(crate) verb: Vec<String>,
}
