//! Flags of `longhaul serve` about its clients: who is served, shares, modes of files, and messages.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use server::config::{ClientNetwork, DirectoryBits, FileBits, RateText, ServerConfig, SizeText};

use super::values;

/// Who is served.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub(crate) struct ServeAccessArgs {
    /// Serve clients in these networks only [default: everywhere]
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',')]
    allow_from: Option<Vec<ClientNetwork>>,
    /// Do not serve clients in these networks, even if --allow-from names them
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',')]
    deny_from: Option<Vec<ClientNetwork>>,
    /// Let only these users log in; `anonymous` means anonymous sessions [default: all]
    #[arg(long, value_name = "USER,...", value_delimiter = ',')]
    allow_users: Option<Vec<String>>,
    /// Do not let these users log in
    #[arg(long, value_name = "USER,...", value_delimiter = ',')]
    deny_users: Option<Vec<String>>,
    /// Networks of proxies whose connections begin with a PROXY header
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',')]
    proxy_protocol_from: Option<Vec<ClientNetwork>>,
}

/// Shares and queues.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Shares and queues")]
pub(crate) struct ServeShareArgs {
    /// Bandwidth of all transfers together, such as 1G (bit/s) [default: no limit]
    #[arg(long, value_name = "RATE")]
    limit_rate: Option<RateText>,
    /// Bandwidth of all transfers of one client address together [default: no limit]
    #[arg(long, value_name = "RATE")]
    limit_rate_per_address: Option<RateText>,
    /// Bandwidth of all transfers of one user together; anonymous sessions are not counted [default: no
    /// limit]
    #[arg(long, value_name = "RATE")]
    limit_rate_per_user: Option<RateText>,
    /// Maximum number of concurrent transfers per client address; others wait [default: half of
    /// --max-streams]
    #[arg(long, value_name = "N")]
    max_transfers_per_address: Option<usize>,
    /// Maximum number of checksums computed at the same time [default: processors]
    #[arg(long, value_name = "N")]
    max_checksums: Option<usize>,
    /// Maximum number of listings in replies and removals of trees at the same time [default: 16]
    #[arg(long, value_name = "N")]
    max_listings: Option<usize>,
    /// Maximum number of passwords checked at the same time; each takes 19 MiB [default: processors]
    #[arg(long, value_name = "N")]
    max_password_checks: Option<usize>,
    /// Maximum number of waiting requests of each kind per client address [default: 256]
    #[arg(long, value_name = "N")]
    max_waiting_per_address: Option<usize>,
    /// Longest wait of a request for its turn: `30s`; a number is seconds [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = values::parse_timeout)]
    queue_timeout: Option<Duration>,
}

/// Files that sessions create, and messages for people.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Files and messages")]
pub(crate) struct ServeFileArgs {
    /// Permission bits that new files and directories do not get, such as 027 [default: those of the
    /// process]
    #[arg(long, value_name = "MODE")]
    umask: Option<FileBits>,
    /// Mode of new files, such as 640 [default: 666 less the umask]
    #[arg(long, value_name = "MODE")]
    file_mode: Option<FileBits>,
    /// Mode of new directories, such as 2770 [default: 777 less the umask]
    #[arg(long, value_name = "MODE")]
    directory_mode: Option<DirectoryBits>,
    /// Owner of new files and directories; the server must serve as root
    #[arg(long, value_name = "USER[:GROUP]")]
    upload_owner: Option<String>,
    /// Space that the root of a session may take [default: no limit]
    #[arg(long, value_name = "SIZE")]
    quota: Option<SizeText>,
    /// Number of files and directories that the root of a session may hold [default: no limit]
    #[arg(long, value_name = "N")]
    quota_files: Option<u64>,
    /// The greeting, instead of name and version
    #[arg(long, value_name = "TEXT")]
    banner: Option<String>,
    /// File whose lines come before the greeting
    #[arg(long, value_name = "FILE")]
    banner_file: Option<PathBuf>,
    /// File whose lines follow the login
    #[arg(long, value_name = "FILE")]
    welcome_file: Option<PathBuf>,
    /// Name of files whose lines clients get when they enter the directory, such as .message [default:
    /// none]
    #[arg(long, value_name = "NAME")]
    directory_message: Option<String>,
    /// Interval of performance markers (112) in whole seconds: `5s`; a number is seconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_whole_seconds)]
    perf_marker_seconds: Option<u32>,
    /// Interval of range markers (111) in whole seconds: `5s`; a number is seconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_whole_seconds)]
    range_marker_seconds: Option<u32>,
    /// Whether a client may choose another congestion control [default: true]
    #[arg(long, value_name = "true|false", action = ArgAction::Set)]
    client_congestion: Option<bool>,
}

impl ServeAccessArgs {
    /// Applies the flags that were given.
    pub(super) fn apply(self, config: &mut ServerConfig) {
        let access = &mut config.access;
        set(&mut access.allow_from, self.allow_from);
        set(&mut access.deny_from, self.deny_from);
        set(&mut access.allow_users, self.allow_users);
        set(&mut access.deny_users, self.deny_users);
        set(&mut config.proxy_protocol_from, self.proxy_protocol_from);
    }
}

impl ServeShareArgs {
    /// Applies the flags that were given.
    pub(super) fn apply(self, config: &mut ServerConfig) {
        let shares = &mut config.shares;
        set_rate(&mut shares.rate, self.limit_rate);
        set_rate(&mut shares.rate_per_address, self.limit_rate_per_address);
        set_rate(&mut shares.rate_per_user, self.limit_rate_per_user);
        let per_address = self.max_transfers_per_address;
        config.max_transfers_per_address = per_address.or(config.max_transfers_per_address);
        config.max_checksums = self.max_checksums.or(config.max_checksums);
        config.max_password_checks = self.max_password_checks.or(config.max_password_checks);
        set(&mut config.max_listings, self.max_listings);
        set(
            &mut config.max_waiting_per_address,
            self.max_waiting_per_address,
        );
        set(&mut config.queue_timeout, self.queue_timeout);
    }
}

impl ServeFileArgs {
    /// Applies the flags that were given.
    pub(super) fn apply(self, config: &mut ServerConfig) {
        let creation = &mut config.creation;
        creation.umask = self.umask.or(creation.umask);
        creation.file_mode = self.file_mode.or(creation.file_mode);
        creation.directory_mode = self.directory_mode.or(creation.directory_mode);
        creation.upload_owner = self.upload_owner.or(creation.upload_owner.take());
        let quota = &mut config.shares.quota;
        quota.bytes = self.quota.map(SizeText::bytes).or(quota.bytes);
        quota.files = self.quota_files.or(quota.files);
        let messages = &mut config.messages;
        messages.banner = self.banner.or(messages.banner.take());
        messages.banner_file = self.banner_file.or(messages.banner_file.take());
        messages.welcome_file = self.welcome_file.or(messages.welcome_file.take());
        let name = self.directory_message;
        messages.directory_message = name.or(messages.directory_message.take());
        set(&mut config.perf_marker_seconds, self.perf_marker_seconds);
        set(&mut config.range_marker_seconds, self.range_marker_seconds);
        set(&mut config.client_congestion, self.client_congestion);
    }
}

fn set_rate(setting: &mut Option<u64>, given: Option<RateText>) {
    *setting = given.map(RateText::bytes_per_second).or(*setting);
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}
