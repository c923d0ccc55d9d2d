//! `longhaul serve`: its flags over the configuration file over the defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use data::options::{CongestionChoice, IoMethod};
use data::store::durability::SyncPolicy;
use proto::sizing::BufferSizing;
use server::config::{Anonymous, FileConfig, ServerConfig, ThirdPartyPolicy};

use tune::sizing::drs::DrsInterval;

use super::values;

/// Run a GridFTP and FTP server in the foreground.
///
/// When it is ready it prints one line to standard output, `listening on HOST:PORT`. SIGTERM lets
/// running transfers finish (at most --drain seconds), a second one ends at once. SIGHUP reads the
/// settings file and the users file again. Nobody can log in unless --anonymous or --users says so.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Address and port of the control channel; port 0 picks a free one [default: 127.0.0.1:2811]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<SocketAddr>,
    /// Directory that anonymous sessions, and users without a root of their own, are confined to
    /// [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Let anybody in without a password: `ro` to read, `rw` to read and write
    #[arg(long, value_name = "ro|rw")]
    anonymous: Option<AnonymousArg>,
    /// Password file, made by `longhaul user add`
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Ports for data connections [default: any]
    #[arg(long, value_name = "LO-HI", value_parser = values::port_range)]
    data_ports: Option<(u16, u16)>,
    /// IPv4 address told to clients for data connections, when the server is behind NAT
    #[arg(long, value_name = "IP")]
    public_address: Option<IpAddr>,
    /// Who may move data to and from hosts other than the client's own: `users` (logged in with a password)
    /// or `none` [default: users]
    #[arg(long, value_name = "users|none")]
    third_party: Option<ThirdPartyArg>,
    /// Let those who may move data to and from other hosts do so without naming the host first: any
    /// host may connect to their data ports. Third-party copies by clients other than longhaul need it
    #[arg(long)]
    foreign_data_addresses: bool,
    /// Settings file (TOML); flags win over it
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Append one JSON object a transfer to FILE
    #[arg(long, value_name = "FILE")]
    transfer_log: Option<PathBuf>,
    /// Append one classic GridFTP FTP_INFO line a transfer to FILE
    #[arg(long, value_name = "FILE")]
    ftp_info_log: Option<PathBuf>,
    /// Sessions in all
    #[arg(long, value_name = "N")]
    max_sessions: Option<usize>,
    /// Sessions from one address
    #[arg(long, value_name = "N")]
    max_sessions_per_address: Option<usize>,
    /// Sessions of one user
    #[arg(long, value_name = "N")]
    max_sessions_per_user: Option<usize>,
    /// Data connections in all; one client address has at most half of what the others leave
    #[arg(long, value_name = "N")]
    max_streams: Option<usize>,
    /// Data connections of one transfer, whoever opens them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_streams_per_transfer: Option<u32>,
    /// End a session that is idle for this long
    #[arg(long, value_name = "SECONDS", value_parser = values::wait)]
    idle_timeout: Option<Duration>,
    /// End a session that has not logged in for this long
    #[arg(long, value_name = "SECONDS", value_parser = values::wait)]
    login_timeout: Option<Duration>,
    /// End a transfer, or a session that does not read its replies, after this long without a byte
    #[arg(long, value_name = "SECONDS", value_parser = values::wait)]
    stall_timeout: Option<Duration>,
    /// How long SIGTERM lets running transfers go on
    #[arg(long, value_name = "SECONDS", value_parser = values::wait)]
    drain: Option<Duration>,
    /// Size of a block in extended block mode when sending
    #[arg(long, value_name = "SIZE", value_parser = super::cp::block)]
    block: Option<usize>,
    /// How bytes get between file and socket: auto, copy, sendfile, splice, zerocopy
    #[arg(long, value_name = "METHOD", value_parser = super::cp::io_method)]
    io: Option<IoMethod>,
    /// Force each stored file to disk before the client hears that it is stored (`file`: data and name),
    /// or leave that to the kernel (`none`: a power cut may take back what was acknowledged)
    /// [default: file]
    #[arg(long, value_name = "file|none", value_parser = super::cp::sync_policy)]
    sync_policy: Option<SyncPolicy>,
    /// Socket buffers of data connections while data moves, where the client does not say: `auto`
    /// (watch the kernel's autotuning, take over where it is too small) or `kernel` (leave them to
    /// it) [default: auto]
    #[arg(long, value_name = "auto|kernel", value_parser = buffer)]
    buffer: Option<BufferSizing>,
    /// How often a transfer that this server receives with `drs` computes the bandwidth:
    /// `adaptive` (follows the round trip) or a time such as 100ms [default: adaptive]
    #[arg(long, value_name = "adaptive|TIME", value_parser = super::cp::interval)]
    drs_interval: Option<DrsInterval>,
    /// Congestion control of what the server sends, where a client does not ask for another one:
    /// `auto` (what the path asks for), `system`, or a name such as cubic [default: auto]
    #[arg(long, value_name = "auto|system|NAME", value_parser = super::cp::congestion)]
    cc: Option<CongestionChoice>,
    /// Account to become after the port is bound, when started as root
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Form of the messages on standard error
    #[arg(long, value_name = "text|json", default_value = "text")]
    pub(crate) log: LogFormat,
}

/// `--anonymous`
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AnonymousArg {
    /// Read only.
    Ro,
    /// Read and write.
    Rw,
}

/// `--third-party`
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ThirdPartyArg {
    /// Users that logged in with a password.
    Users,
    /// Nobody.
    None,
}

/// `--log`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl ServeArgs {
    /// Defaults, then the file, then the flags.
    ///
    /// # Errors
    /// The file cannot be used, or nobody could log in; one line.
    pub(crate) fn config(&self) -> Result<ServerConfig, String> {
        let mut config = ServerConfig::default();
        if let Some(path) = &self.config {
            FileConfig::load(path)
                .map_err(|error| error.to_string())?
                .apply(&mut config);
        }
        self.clone().apply(&mut config);
        if config.anonymous.is_none() && config.users.is_none() {
            return Err(
                "nobody could log in; give --anonymous ro, --anonymous rw, or --users FILE (made \
                 by `longhaul user add`)"
                    .to_owned(),
            );
        }
        Ok(config)
    }

    fn apply(self, config: &mut ServerConfig) {
        set(&mut config.listen, self.listen);
        set(&mut config.root, self.root);
        set(&mut config.max_sessions, self.max_sessions);
        set(
            &mut config.max_sessions_per_address,
            self.max_sessions_per_address,
        );
        set(
            &mut config.max_sessions_per_user,
            self.max_sessions_per_user,
        );
        set(&mut config.max_streams, self.max_streams);
        set(
            &mut config.max_streams_per_transfer,
            self.max_streams_per_transfer,
        );
        set(&mut config.idle_timeout, self.idle_timeout);
        set(&mut config.login_timeout, self.login_timeout);
        set(&mut config.transfer.stall, self.stall_timeout);
        set(&mut config.drain, self.drain);
        set(&mut config.transfer.block, self.block);
        set(&mut config.transfer.io, self.io);
        set(&mut config.sync_policy, self.sync_policy);
        set(&mut config.transfer.buffers.sizing, self.buffer);
        set(&mut config.transfer.drs_interval, self.drs_interval);
        set(&mut config.transfer.congestion, self.cc);
        set(
            &mut config.third_party,
            self.third_party.map(|choice| match choice {
                ThirdPartyArg::Users => ThirdPartyPolicy::Users,
                ThirdPartyArg::None => ThirdPartyPolicy::None,
            }),
        );
        config.foreign_data_addresses |= self.foreign_data_addresses;
        let anonymous = self.anonymous.map(|choice| match choice {
            AnonymousArg::Ro => Anonymous::Ro,
            AnonymousArg::Rw => Anonymous::Rw,
        });
        config.anonymous = anonymous.or(config.anonymous);
        config.users = self.users.or(config.users.take());
        config.data_ports = self.data_ports.or(config.data_ports);
        config.public_address = self.public_address.or(config.public_address);
        config.transfer_log = self.transfer_log.or(config.transfer_log.take());
        config.ftp_info_log = self.ftp_info_log.or(config.ftp_info_log.take());
        config.run_as = self.run_as.or(config.run_as.take());
    }
}

/// Right-sizing by the papers is a client's to ask for.
fn buffer(text: &str) -> Result<BufferSizing, String> {
    match BufferSizing::parse(text) {
        Some(sizing) if !sizing.needs_peer_support() => Ok(sizing),
        _ => Err(format!("'{text}' is neither `auto` nor `kernel`")),
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}
