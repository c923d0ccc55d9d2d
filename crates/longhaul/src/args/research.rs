//! Flags for experiments with published methods. They stand last in the help of their verbs.

use clap::Args;
use tune::sizing::drs::{DrsInterval, DrsIntervalError};
use tune::sizing::drs1::Drs1Reads;
use tune::streams::chunked::ChunkParameters;

use super::values;

/// Flags of the verbs that copy.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = super::headings::RESEARCH)]
pub(crate) struct ResearchArgs {
    /// Parameters of `-p mi`, `mi+` and `aimd`, which adjust the number of streams after each chunk of the
    /// file, from goodput and round-trip time only (Ito, Ohsaki and Imase, 2008). The defaults are those of
    /// the paper: n0=1, eta=0.8, gamma=2, alpha=2, beta=0.5, delta=10s, rho=0.1. Two more settle points that
    /// the paper leaves open. rtt=flowing measures the round-trip time while data flows, rtt=between does so
    /// between chunks, and rtt=replies takes it from the session's own commands. optimum=both uses both terms of equation 1 for `mi+`, optimum=second only the second.
    /// The first value of each is the default
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true, value_parser = parse_autopar)]
    pub(super) autopar: ChunkParameters,
    /// How often the receiver estimates the bandwidth with `--buffer drs`, dynamic right-sizing after the
    /// paper of 2004: `adaptive` (in proportion to the round-trip time) or a time such as 100ms
    #[arg(long, value_name = "adaptive|TIME", default_value = "adaptive", value_parser = parse_drs_interval)]
    pub(super) drs_interval: DrsInterval,
    /// How the receiver reads with `--buffer drs1`, dynamic right-sizing after the paper of 2003, and when it
    /// enlarges its buffer: `round-trip` when what arrives in a round trip fills it; `buffered` likewise, but
    /// through memory of twice the size of the kernel's buffer, as in the paper; `published` when one such
    /// read brings more than half of the buffer, as in the paper
    #[arg(long, value_name = "round-trip|buffered|published", default_value = "round-trip", value_parser = parse_drs1_reads)]
    pub(super) drs1_reads: Drs1Reads,
}

fn parse_autopar(text: &str) -> Result<ChunkParameters, String> {
    ChunkParameters::parse(text).map_err(|error| error.to_string())
}

fn parse_drs1_reads(text: &str) -> Result<Drs1Reads, String> {
    values::parse_name(text, &Drs1Reads::ALL)
}

/// Parses `--drs-interval`.
pub(super) fn parse_drs_interval(text: &str) -> Result<DrsInterval, String> {
    text.parse()
        .map_err(|error: DrsIntervalError| error.to_string())
}
