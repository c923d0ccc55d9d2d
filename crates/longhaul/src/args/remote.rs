//! Flags of the remote file verbs: `ls`, `stat`, `rm`, `mkdir`, `mv`, `cksum`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use copy::{Failure, RemoteOptions};
use proto::checksum::ChecksumAlgorithm;

use super::known_ports::user_history;
use super::place::place;
use super::security::SecurityArgs;
use super::values;
use crate::output::print_to_stderr;

/// Flags that all remote file verbs have.
#[derive(Debug, Args)]
pub(crate) struct RemoteCommonArgs {
    /// Give up after this time without a reply: `90s`, `5m`; a number is seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::parse_timeout)]
    timeout: Duration,
    #[command(flatten)]
    pub(super) security: SecurityArgs,
}

impl RemoteCommonArgs {
    /// The flags as [`RemoteOptions`]. Warnings go to standard error.
    ///
    /// # Errors
    /// `Usage` for flags that contradict each other; `Refused` for a file of a flag that cannot be
    /// used.
    pub(crate) fn options(&self) -> Result<RemoteOptions, Failure> {
        let warn = |text: &str| print_to_stderr(&format!("longhaul: warning: {text}"));
        let history = user_history();
        let security = &self.security;
        Ok(RemoteOptions {
            timeout: self.timeout,
            security: security.connection_security(None, history.as_ref(), Arc::new(warn))?,
        })
    }
}

/// List a remote directory, one name per line
///
/// The last component of the URL may contain the wildcards `*`, `?` and `[]`, and alternatives `{a,b}`.
/// A pattern lists what matches it, a directory by its name.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// Also show type, permissions, owner, size and modification time (in the time zone of this machine)
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// With -l: sizes with units (`1.23 MB`) instead of bytes
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// List directories and everything in them, each with its path. Symbolic links are not followed
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Print help
    #[arg(long = "help", id = "help", action = clap::ArgAction::HelpLong)]
    _help: Option<bool>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// URL of the directory or pattern, such as ftp://host/dir or 'ftp://host/dir/*.dat'
    #[arg(value_parser = place())]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Show type, size and modification time of a remote file or directory
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct StatArgs {
    /// The size with a unit (`1.23 MB`) instead of bytes
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long = "help", id = "help", action = clap::ArgAction::HelpLong)]
    _help: Option<bool>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// URL of the file or directory
    #[arg(value_parser = place())]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Delete remote files without asking for confirmation
///
/// The last component of a URL may contain the wildcards `*`, `?` and `[]`, and alternatives `{a,b}`; write it in
/// quotes. A file of exactly that name comes first. What cannot be deleted is named, and the others are deleted. The root,
/// `.` and `..` are refused. Exit code 1: some of several were not deleted.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RmArgs {
    /// Delete directories and everything in them. Symbolic links are deleted, not followed
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// Only print what would be deleted: one path per line, a directory before its content
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// With --dry-run: print one JSON object per line
    #[arg(long, requires = "dry_run")]
    pub(crate) json: bool,
    /// Of buckets: delete unfinished uploads, of the URL's object and of all below it, to which nothing was added for AGE [default AGE: 24h].
    /// Objects stay
    #[arg(
        long, value_name = "AGE", value_parser = values::parse_age, num_args = 0..=1, require_equals = true,
        default_missing_value = "24h", conflicts_with = "recursive"
    )]
    pub(crate) unfinished: Option<Duration>,
    /// URLs of the files, or patterns such as 'ftp://host/dir/*.tmp'
    #[arg(required = true, value_name = "URL", value_parser = place())]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Create a remote directory
#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// Also create missing parent directories; an existing directory is not an error
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// URL of the directory
    #[arg(value_parser = place())]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Rename a file or directory on a server
#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// URL of the file or directory
    #[arg(value_name = "FROM_URL", value_parser = place())]
    pub(crate) from: String,
    /// New URL, on the same server
    #[arg(value_name = "TO_URL", value_parser = place())]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Compare files with the receipt of their copy
///
/// Reads the files that RECEIPT names (`cp --receipt`), where the copy has put them, or below another directory or URL, and
/// compares their digests. A receipt that is not whole, or whose signature is wrong, is refused. Exit code 6: a file or the
/// signature is not that of the copy; 4: a file is missing.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The receipt
    #[arg(value_name = "RECEIPT")]
    pub(crate) receipt: PathBuf,
    /// Where the files are now [default: where the copy has put them]
    #[arg(value_name = "URL", value_parser = place())]
    pub(crate) base: Option<String>,
    /// Whose signature counts: lines of `NAME KEY`, as ssh-keygen(1) has them (ALLOWED SIGNERS). Without a signature by one of
    /// them in RECEIPT.sig the receipt is refused
    #[arg(long, value_name = "FILE")]
    pub(crate) allowed_signers: Option<PathBuf>,
    /// Print each file, not only those that fail
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Print or check checksums of remote or local files
///
/// Prints `HEX  NAME` for each file. With --check, compares the files below a directory or URL with the
/// checksums in FILE, as sha256sum(1) writes and checks them. A server computes them itself if it can;
/// otherwise the files are read. Exit code 6: a file has another checksum; 4: a file is missing.
#[derive(Debug, Args)]
pub(crate) struct CksumArgs {
    /// Algorithm: crc32c crc32 crc64nvme adler32 blake3 sha256 sha1 md5 sha512 [default: sha256; with --check, the
    /// one in the name of FILE, such as MD5SUMS, or that of checksums of this length]
    #[arg(short = 'a', long, value_name = "ALG", value_parser = super::data_values::parse_algorithm)]
    pub(crate) algorithm: Option<ChecksumAlgorithm>,
    /// Check the files that FILE names (`-`: standard input), below the URL or path [default: .]
    #[arg(short = 'c', long, value_name = "FILE", conflicts_with_all = ["offset", "length"])]
    pub(crate) check: Option<PathBuf>,
    /// With --check: do not fail for missing files, and do not print them
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,
    /// With --check: print only files that fail
    #[arg(short = 'q', long, requires = "check")]
    pub(crate) quiet: bool,
    /// Offset of the first byte
    #[arg(long, value_name = "N", default_value = "0", value_parser = units::size)]
    pub(crate) offset: u64,
    /// Number of bytes [default: to the end of the file]
    #[arg(long, value_name = "N", value_parser = units::size)]
    pub(crate) length: Option<u64>,
    /// URLs or local paths
    #[arg(required_unless_present = "check", value_name = "URL", value_parser = place())]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}
