//! Flags that say what a copy reports while it runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::values;

/// Reports of a copy.
#[derive(Debug, Args)]
#[command(next_help_heading = super::headings::OUTPUT)]
pub(crate) struct ReportingArgs {
    /// Say on standard error what the tuning decides, and why, and name each file that is done. `-vv`: also
    /// the commands and replies of control connections, without passwords and other secrets
    #[arg(short = 'v', long, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Add all messages with their times to FILE, also those that -q and --json leave out. A new FILE is readable
    /// for its owner alone
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Print one plain line about the progress every TIME (`30s`, `5min`), with a terminal and without. With
    /// --json: a progress event every TIME
    #[arg(long, value_name = "TIME", value_parser = values::parse_timeout)]
    pub(crate) stats: Option<Duration>,
}

impl ReportingArgs {
    /// Decisions are reported.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Commands and replies are reported.
    pub(crate) fn shows_dialogue(&self) -> bool {
        self.verbose > 1
    }
}
