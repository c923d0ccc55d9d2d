//! Flags of large batches.

use std::path::PathBuf;

use clap::Args;
use copy::{BatchJournalLocation, PairSource};

/// Batches that survive.
#[derive(Debug, Args)]
#[command(next_help_heading = "Large batches")]
pub(crate) struct BatchArgs {
    /// Copy the pairs of FILE, one a line: source and destination, with double quotes around names with
    /// spaces; lines that begin with # say nothing (the format of globus-url-copy -f). `-`: standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "paths")]
    from: Option<PathBuf>,
    /// When the copy ends, write what was not copied to FILE, in the format of --from
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    /// Keep the journal of the batch in FILE. Otherwise it is in ~/.local/state/longhaul/batches, and removed
    /// when everything is copied; LONGHAUL_BATCHES=off keeps none, LONGHAUL_BATCHES=DIR names another directory
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

impl BatchArgs {
    /// Where the pairs to copy are.
    pub(crate) fn pairs(&self) -> Option<PairSource> {
        self.from.as_deref().map(PairSource::of_argument)
    }

    /// The list of what was not copied.
    pub(crate) fn failed_list(&self) -> Option<PathBuf> {
        self.failed.clone()
    }

    /// Where the journal is.
    pub(crate) fn journal(&self) -> BatchJournalLocation {
        match &self.journal {
            Some(path) => BatchJournalLocation::File(path.clone()),
            None => BatchJournalLocation::of_user(),
        }
    }
}
