//! Flags for what survives: earlier runs, lost connections, other copies, power cuts.

use std::time::Duration;

use clap::Args;
use copy::VerifyMode;
use data::store::durability::SyncPolicy;

use super::data_values::{parse_algorithm, parse_sync_policy};
use super::{headings, values};

/// Retries after a lost connection.
const DEFAULT_RETRIES: u32 = 5;
/// Time for which a server may be away: that of a restart of its machine.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(600);

/// Flags of the verbs that copy.
#[derive(Debug, Args)]
#[command(next_help_heading = headings::RELIABILITY)]
pub(crate) struct ReliabilityArgs {
    /// Continue an earlier run of this command with all that it left. A copy does so without this flag where it can prove
    /// that the source is the same; with it, equal size and time are enough where a server tells no more, a tree that was
    /// listed is not listed again, and files that are there already are compared, not copied
    #[arg(long, overrides_with = "restart")]
    pub(super) resume: bool,
    /// Begin anew: use nothing that an earlier run left
    #[arg(long, overrides_with = "resume")]
    pub(crate) restart: bool,
    /// Checksum to verify each file with: `auto` (the cheapest that both ends support), `none` (not
    /// verified: only the sizes are compared), or one of crc32c crc32 crc64nvme adler32 blake3 sha256 sha1 md5 sha512
    #[arg(long, value_name = "auto|none|ALG", default_value = "auto", value_parser = parse_verify)]
    pub(super) verify: VerifyMode,
    /// Treat a connection as lost after this time without data or a reply (see --retries): `90s`, `5m`; a number
    /// is seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::parse_timeout)]
    pub(super) timeout: Duration,
    /// Number of retries after a lost connection; each continues from the data that is safe [default: 5, and a server that
    /// can no longer be reached is waited for as long as a restart takes, up to 10 minutes]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// If another copy is writing the destination, wait until it ends. Without --wait, such a file
    /// fails with exit code 7
    #[arg(long)]
    pub(super) wait: bool,
    /// When a file copied to this machine counts as done: `file` after fsync of its data and its name,
    /// `none` without fsync, so that a power cut may lose it. Servers have their own policy for files
    /// copied to them
    #[arg(long, value_name = "file|none", default_value = "file", value_parser = parse_sync_policy)]
    pub(super) sync_policy: SyncPolicy,
}

impl ReliabilityArgs {
    /// Retries after a lost connection.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.unwrap_or(DEFAULT_RETRIES)
    }

    /// Time for which a server that was reached before may be away.
    pub(crate) fn patience(&self) -> Duration {
        match self.retries {
            Some(_) => Duration::ZERO,
            None => DEFAULT_PATIENCE,
        }
    }
}

fn parse_verify(text: &str) -> Result<VerifyMode, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(VerifyMode::Auto),
        "none" => Ok(VerifyMode::None),
        name => parse_algorithm(name).map(VerifyMode::With),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_flags;

    #[test]
    fn a_number_of_retries_is_also_that_of_a_server_that_is_away() {
        let limits = |flags: &[&str]| {
            let args: ReliabilityArgs = parse_flags(flags).unwrap();
            (args.retries(), args.patience())
        };
        assert_eq!(limits(&[]), (5, Duration::from_secs(600)));
        assert_eq!(limits(&["--retries", "5"]), (5, Duration::ZERO));
    }

    #[test]
    fn the_later_one_of_resume_and_restart_wins() {
        let both = |flags: &[&str]| {
            let args: ReliabilityArgs = parse_flags(flags).unwrap();
            (args.resume, args.restart)
        };
        assert_eq!(both(&[]), (false, false));
        assert_eq!(both(&["--restart", "--resume"]), (true, false));
        assert_eq!(both(&["--resume", "--restart"]), (false, true));
    }
}
