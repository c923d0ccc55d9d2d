//! The single-file verbs: `ls`, `stat`, `rm`, `mkdir`, `mv`, `cksum`.

use std::time::Duration;

use clap::Args;
use client::RemoteOptions;
use proto::checksum::ChecksumAlgorithm;

use super::values;

/// What they all take.
#[derive(Debug, Args)]
pub(crate) struct RemoteCommonArgs {
    /// Give up on a server that is silent for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = values::wait)]
    timeout: Duration,
}

impl RemoteCommonArgs {
    /// As the client takes it.
    pub(crate) fn options(&self) -> RemoteOptions {
        RemoteOptions {
            timeout: self.timeout,
        }
    }
}

/// List a remote directory, one name a line.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// With type, size and modification time (UTC)
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Where: ftp://host/dir or gsiftp://host/dir
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Show what a server knows of one path.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Which path
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Delete remote files; there is no question asked.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Directories with all that is in them; symbolic links are removed, never followed
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// Which files
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Make a remote directory.
#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// Also those above it; existing ones are fine
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Which directory
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Rename a file or directory on one server.
#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// What
    #[arg(value_name = "FROM_URL")]
    pub(crate) from: String,
    /// Its new name, on the same server
    #[arg(value_name = "TO_URL")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}

/// Checksum of a remote or local file, as `HEX  NAME`.
#[derive(Debug, Args)]
pub(crate) struct CksumArgs {
    /// crc32c crc32 adler32 blake3 sha256 sha1 md5 sha512
    #[arg(short = 'a', long, value_name = "ALG", default_value = "sha256", value_parser = super::cp::algorithm)]
    pub(crate) algorithm: ChecksumAlgorithm,
    /// First byte
    #[arg(long, value_name = "N", default_value = "0", value_parser = units::size)]
    pub(crate) offset: u64,
    /// Bytes; to the end if left out
    #[arg(long, value_name = "N", value_parser = units::size)]
    pub(crate) length: Option<u64>,
    /// URLs or local paths
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) common: RemoteCommonArgs,
}
