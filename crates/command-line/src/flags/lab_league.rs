//! Flags of `longhaul lab league`.

use std::path::PathBuf;

use clap::Args;

use super::headings;

/// Compare the tuner `auto` with fixed settings over sampled paths
///
/// It draws paths at random, sends a file over each in a fast simulator, once with `auto` and once with
/// every fixed setting (1, 2, 4 ... 128 streams, each congestion control of the system), and prints the
/// ratios of the completion times: that of the best fixed setting divided by that of `auto`. The same
/// seed gives the same report.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct LeagueArgs {
    /// Number of paths
    #[arg(long, value_name = "N", default_value_t = 500, help_heading = headings::MEASUREMENT)]
    pub paths: u32,
    /// Seed of the paths
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1_000_000_000_000), help_heading = headings::MEASUREMENT)]
    pub seed: u64,
    /// Run only the path with this seed, as printed by a league, and show what `auto` decided and why
    #[arg(long, value_name = "PATHSEED", conflicts_with_all = ["paths", "seed", "json"], help_heading = headings::MEASUREMENT)]
    pub only: Option<u64>,
    /// Let `auto` begin with what an earlier transfer over the same path learned
    #[arg(long, help_heading = headings::MEASUREMENT)]
    pub history: bool,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE", help_heading = headings::MEASUREMENT)]
    pub json: Option<PathBuf>,
}
