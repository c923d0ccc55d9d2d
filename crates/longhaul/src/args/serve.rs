//! Flags of `longhaul serve`. They override the settings file, which overrides the defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use command_line::log::LogFormat;
use data::options::{CongestionChoice, IoMethod};
use data::store::durability::SyncPolicy;
use history::HistoryLocation;
use proto::sizing::BufferSizing;
use server::config::{
    Anonymous, DataNode, FileConfig, ForeignServer, MessageFormat, SandboxMode, ServerConfig,
    ThirdPartyPolicy,
};

use tune::sizing::drs::DrsInterval;

use super::serve_security::ServeSecurityArgs;
use super::serve_site::{ServeAccessArgs, ServeFileArgs, ServeShareArgs};
use super::{headings, values};

/// Run a GridFTP and FTP server in the foreground
///
/// When the server is ready, it prints the line `listening on HOST:PORT` on standard output. After
/// SIGTERM it finishes running transfers (for at most the time of --drain) and exits; after a second
/// SIGTERM it exits immediately. SIGHUP reloads the settings file, the password file, certificates and
/// the gridmap. Give --anonymous, --users, --pam or --gridmap; without any nobody could log in, and the server
/// refuses to start.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 selects a free port [default: 127.0.0.1:2811]
    #[arg(long, value_name = "HOST:PORT", help_heading = headings::NETWORK)]
    listen: Option<SocketAddr>,
    /// Serve one session on standard input and output, with the rights of this account, and end with it: what `ssh HOST longhaul
    /// serve --stdio` does at the far end of an ssh: URL. Its root is `/`, unless --root names another directory
    #[arg(long, conflicts_with_all = ["listen", "run_as", "advisor", "metrics", "check", "anonymous", "users", "sandbox"], help_heading = headings::NETWORK)]
    pub(crate) stdio: bool,
    /// Serve one session like --stdio to a client of sshftp: URLs, such as globus-url-copy. Its data connections are clear, and
    /// only the client's own address may open them, unless --foreign-data-addresses is given
    #[arg(long, conflicts_with_all = ["stdio", "listen", "run_as", "advisor", "metrics", "check", "anonymous", "users", "sandbox"], help_heading = headings::NETWORK)]
    pub(crate) sshftp: bool,
    /// Print the script `~/.globus/sshftp`, with which globus-url-copy finds longhaul at this host (sshftp: URLs), and exit. It
    /// serves with the other flags that are given, such as --data-ports
    #[arg(long, conflicts_with_all = ["sshftp", "stdio", "listen", "run_as", "advisor", "metrics", "check", "anonymous", "users", "sandbox"], help_heading = headings::NETWORK)]
    pub(crate) sshftp_script: bool,
    /// Root directory of anonymous sessions and of users without their own root. Sessions cannot
    /// leave it [default: the current directory]. Or a bucket, whose objects are the files: `s3://BUCKET/PREFIX`, with the
    /// credentials of this environment
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", help_heading = headings::ACCESS)]
    root: Option<PathBuf>,
    /// Allow anonymous login: `ro` to read, `rw` to read and write [default: not allowed]
    #[arg(long, value_name = "ro|rw", help_heading = headings::ACCESS)]
    anonymous: Option<AnonymousArg>,
    /// Password file, created by `longhaul user add`
    #[arg(long, value_name = "FILE", help_heading = headings::ACCESS)]
    users: Option<PathBuf>,
    /// Ports for data connections [default: any]
    #[arg(long, value_name = "LO-HI", value_parser = values::parse_port_range, help_heading = headings::NETWORK)]
    data_ports: Option<(u16, u16)>,
    /// IPv4 address to announce to clients for data connections if the server is behind NAT
    #[arg(long, value_name = "IP", help_heading = headings::NETWORK)]
    public_address: Option<IpAddr>,
    /// Who may transfer data to or from hosts other than the client's own: `users` (logged in with a
    /// password) or `none` [default: users]
    #[arg(long, value_name = "users|none", help_heading = headings::NETWORK)]
    third_party: Option<ThirdPartyArg>,
    /// Accept data connections from any host for sessions that may do third-party transfers. By
    /// default the client must name the other host first, as longhaul does. Other clients need this
    /// flag for third-party transfers
    #[arg(long, help_heading = headings::NETWORK)]
    foreign_data_addresses: bool,
    /// Divide large transfers among this data node, too: another longhaul that serves the same file system with --front-end.
    /// May be repeated; needs --cert, --key and --node-ca
    #[arg(long, value_name = "HOST:PORT", help_heading = headings::NETWORK)]
    data_node: Vec<String>,
    /// Serve as a data node, and only the front end whose certificate has this subject (`/CN=front.example.org`). May be repeated;
    /// needs --cert, --key and --node-ca
    #[arg(long, value_name = "SUBJECT", help_heading = headings::NETWORK)]
    front_end: Vec<String>,
    /// Settings file (TOML); flags override it
    #[arg(long, value_name = "FILE.toml", help_heading = headings::PROCESS)]
    config: Option<PathBuf>,
    /// Check the settings and the files that they name, print what is wrong, and exit: 0 if the server could
    /// start, otherwise 2. Nothing is started or changed
    #[arg(long, help_heading = headings::PROCESS)]
    pub(crate) check: bool,
    /// Print the settings of another server, vsftpd.conf, proftpd.conf, pure-ftpd.conf or gridftp.conf, as a settings file with
    /// what could not be translated as comments, and exit. A directory has one file per directive (/etc/pure-ftpd/conf)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sshftp_script", "sshftp", "stdio", "check", "config"], help_heading = headings::PROCESS)]
    pub(crate) import: Option<PathBuf>,
    /// The server of --import: auto finds it by the directives
    #[arg(long, value_name = "auto|vsftpd|proftpd|pure-ftpd|globus", requires = "import", default_value = "auto", hide_possible_values = true, help_heading = headings::PROCESS)]
    pub(crate) import_format: ImportFormatArg,
    /// Append one JSON object per transfer to FILE
    #[arg(long, value_name = "FILE", help_heading = headings::MONITORING)]
    transfer_log: Option<PathBuf>,
    /// Append one GridFTP FTP_INFO line per transfer to FILE
    #[arg(long, value_name = "FILE", help_heading = headings::MONITORING)]
    ftp_info_log: Option<PathBuf>,
    /// Run a network-advice service beside the server, with this settings file (`longhaul help advisor
    /// serve`). It learns from the transfer log, and FEAT announces its port
    #[arg(long, value_name = "FILE.toml", help_heading = headings::MONITORING)]
    advisor: Option<PathBuf>,
    /// Address and port for monitoring over HTTP: /metrics for Prometheus, and /health. It needs no login, so use an
    /// address that only monitors reach, such as 127.0.0.1:9464 [default: none]
    #[arg(long, value_name = "HOST:PORT", help_heading = headings::MONITORING)]
    metrics: Option<SocketAddr>,
    /// File in which the server remembers what transfers taught about the paths to its clients, so that later
    /// ones begin with the right settings, or `off`. It holds address prefixes only, and may be deleted
    /// at any time [default: longhaul/serve/paths.json in the state directory; `off` with --run-as]
    #[arg(long, value_name = "FILE|off", value_parser = parse_history, help_heading = headings::SPEED)]
    history: Option<HistoryLocation>,
    /// Maximum number of sessions
    #[arg(long, value_name = "N", help_heading = headings::LIMITS)]
    max_sessions: Option<usize>,
    /// Maximum number of sessions per client address
    #[arg(long, value_name = "N", help_heading = headings::LIMITS)]
    max_sessions_per_address: Option<usize>,
    /// Maximum number of sessions per user
    #[arg(long, value_name = "N", help_heading = headings::LIMITS)]
    max_sessions_per_user: Option<usize>,
    /// Maximum number of data connections. One client address gets at most half of those that the
    /// others leave free
    #[arg(long, value_name = "N", help_heading = headings::LIMITS)]
    max_streams: Option<usize>,
    /// Maximum number of data connections per transfer, whichever side opens them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = headings::LIMITS)]
    max_streams_per_transfer: Option<u32>,
    /// Close a session after this idle time: `90s`, `10m`; a number is seconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_timeout, help_heading = headings::LIMITS)]
    idle_timeout: Option<Duration>,
    /// Close a session that has not logged in after this time; a number is seconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_timeout, help_heading = headings::LIMITS)]
    login_timeout: Option<Duration>,
    /// Abort a transfer after this time without data, and close a session that has not read its
    /// replies for this time; a number is seconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_timeout, help_heading = headings::LIMITS)]
    stall_timeout: Option<Duration>,
    /// Maximum time for running transfers to finish after SIGTERM; a number is seconds
    #[arg(long, value_name = "TIME", value_parser = values::parse_timeout, help_heading = headings::PROCESS)]
    drain: Option<Duration>,
    /// Block size of extended block mode (MODE E) when the server sends
    #[arg(long, value_name = "SIZE", value_parser = super::data_values::parse_block_size, help_heading = headings::SPEED)]
    block: Option<usize>,
    /// Method to move bytes between file and socket: auto, copy, sendfile, splice, zerocopy
    #[arg(long, value_name = "METHOD", value_parser = super::data_values::parse_io_method, help_heading = headings::SPEED)]
    io: Option<IoMethod>,
    /// When to acknowledge a stored file: `file` after fsync of its data and its name, `none` without
    /// fsync, so that a power cut may lose it [default: file]
    #[arg(long, value_name = "file|none", value_parser = super::data_values::parse_sync_policy, help_heading = headings::ACCESS)]
    sync_policy: Option<SyncPolicy>,
    /// Socket buffer sizes of data connections if the client does not request any. `auto` lets the
    /// kernel tune them and sets larger ones where the kernel's limit is too small for the path;
    /// `kernel` leaves them to the kernel [default: auto]
    #[arg(long, value_name = "auto|kernel", value_parser = parse_buffer, help_heading = headings::SPEED)]
    buffer: Option<BufferSizing>,
    /// TCP congestion control of data that the server sends, unless the client requests another one:
    /// `auto` (loss-tolerant if the path needs it), `system` (the system default), or a name such as
    /// cubic [default: auto]
    #[arg(long, visible_alias = "cc", value_name = "auto|system|NAME", value_parser = super::cp::parse_congestion, help_heading = headings::SPEED)]
    congestion: Option<CongestionChoice>,
    /// Account to switch to after binding the port; requires root
    #[arg(long, value_name = "USER", help_heading = headings::PROCESS)]
    run_as: Option<String>,
    /// Confine the server to the files and system calls that it needs: as far as the kernel can, not at
    /// all, or completely [default: auto]
    #[arg(long, value_name = "auto|off|required", help_heading = headings::PROCESS)]
    sandbox: Option<SandboxArg>,
    /// Form of the messages on standard error; in systemd's journal `text` is an entry with its level [default: text]
    #[arg(long, value_name = "text|json", help_heading = headings::MONITORING)]
    log: Option<LogFormat>,
    #[command(flatten)]
    access: ServeAccessArgs,
    #[command(flatten)]
    shares: ServeShareArgs,
    #[command(flatten)]
    files: ServeFileArgs,
    #[command(flatten)]
    security: ServeSecurityArgs,
    /// How often the server estimates the bandwidth when it receives with `drs`: `adaptive` (in
    /// proportion to the round-trip time) or a time such as 100ms [default: adaptive]
    #[arg(long, value_name = "adaptive|TIME", value_parser = super::research::parse_drs_interval, help_heading = headings::RESEARCH)]
    drs_interval: Option<DrsInterval>,
}

/// Values of `--anonymous`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AnonymousArg {
    /// Read only.
    Ro,
    /// Read and write.
    Rw,
}

/// Values of `--import-format`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ImportFormatArg {
    /// By the directives.
    Auto,
    /// vsftpd.
    Vsftpd,
    /// ProFTPD.
    Proftpd,
    /// Pure-FTPd.
    PureFtpd,
    /// globus-gridftp-server.
    Globus,
}

impl ImportFormatArg {
    /// The server; `None`: the directives tell.
    pub(crate) fn server(self) -> Option<ForeignServer> {
        match self {
            Self::Auto => None,
            Self::Vsftpd => Some(ForeignServer::Vsftpd),
            Self::Proftpd => Some(ForeignServer::Proftpd),
            Self::PureFtpd => Some(ForeignServer::PureFtpd),
            Self::Globus => Some(ForeignServer::Globus),
        }
    }
}

/// Values of `--third-party`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ThirdPartyArg {
    /// Users who logged in with a password.
    Users,
    /// Nobody.
    None,
}

/// Values of `--sandbox`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SandboxArg {
    /// As far as possible.
    Auto,
    /// No.
    Off,
    /// Or do not start.
    Required,
}

impl ServeArgs {
    /// The server's configuration: defaults, overridden by the settings file, overridden by the flags.
    ///
    /// # Errors
    /// One line: the settings file is unusable, or nobody could log in.
    pub(crate) fn config(&self) -> Result<ServerConfig, String> {
        let mut config = ServerConfig {
            history: HistoryLocation::of_server(),
            ..ServerConfig::default()
        };
        let usual_history = config.history.clone();
        if let Some(path) = &self.config {
            FileConfig::load(path)
                .map_err(|error| error.to_string())?
                .apply(&mut config);
        }
        // `self` is kept for the next SIGHUP, which combines file and flags again.
        self.clone().apply(&mut config);
        // The account that serves could not write to the state directory of root.
        if config.run_as.is_some() && config.history == usual_history {
            config.history = HistoryLocation::Off;
        }
        // Refused at the start: otherwise the administrator would learn it from the first failed
        // login.
        if !config.has_clients() {
            return Err(
                "nobody could log in; give --anonymous ro, --anonymous rw, --users FILE (created by \
                 `longhaul user add`), --pam SERVICE, or --gridmap FILE"
                    .to_owned(),
            );
        }
        config.security.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    /// Whether a program that has logged the client in starts this one, or will.
    pub(crate) fn is_carried(&self) -> bool {
        self.stdio || self.sshftp || self.sshftp_script
    }

    /// The configuration of a carried session.
    ///
    /// # Errors
    /// One line: the settings file is unusable.
    pub(crate) fn carried_config(&self) -> Result<ServerConfig, String> {
        let mut config = ServerConfig {
            root: PathBuf::from("/"),
            ..ServerConfig::default()
        };
        if let Some(path) = &self.config {
            FileConfig::load(path)
                .map_err(|error| error.to_string())?
                .apply(&mut config);
        }
        self.clone().apply(&mut config);
        Ok(config)
    }

    /// The settings file.
    pub(crate) fn settings_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    fn apply(self, config: &mut ServerConfig) {
        let sandbox = self.sandbox.map(|choice| match choice {
            SandboxArg::Auto => SandboxMode::Auto,
            SandboxArg::Off => SandboxMode::Off,
            SandboxArg::Required => SandboxMode::Required,
        });
        set(&mut config.sandbox, sandbox);
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
        set(&mut config.history, self.history);
        set(&mut config.transfer.block, self.block);
        set(&mut config.transfer.io, self.io);
        set(&mut config.sync_policy, self.sync_policy);
        set(&mut config.transfer.buffers.sizing, self.buffer);
        set(&mut config.transfer.drs_interval, self.drs_interval);
        set(&mut config.transfer.congestion, self.congestion);
        set(
            &mut config.third_party,
            self.third_party.map(|choice| match choice {
                ThirdPartyArg::Users => ThirdPartyPolicy::Users,
                ThirdPartyArg::None => ThirdPartyPolicy::None,
            }),
        );
        // The flag has no value, so it can only switch the setting on.
        config.foreign_data_addresses |= self.foreign_data_addresses;
        if !self.data_node.is_empty() {
            let nodes = self.data_node.into_iter().map(DataNode::of_all);
            config.data_nodes = nodes.collect();
        }
        if !self.front_end.is_empty() {
            config.front_ends = self.front_end;
        }
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
        config.metrics = self.metrics.or(config.metrics);
        config.advisor = self.advisor.or(config.advisor.take());
        let log = self.log.map(|choice| match choice {
            LogFormat::Text => MessageFormat::Text,
            LogFormat::Json => MessageFormat::Json,
        });
        set(&mut config.log, log);
        self.access.apply(config);
        self.shares.apply(config);
        self.files.apply(config);
        self.security.apply_pam(&mut config.pam);
        self.security.apply(&mut config.security);
    }
}

/// Parses `--buffer` of a server. The client selects `drs`, `drs1` and `drs2004`, which need both ends.
fn parse_buffer(text: &str) -> Result<BufferSizing, String> {
    match BufferSizing::parse(text) {
        Some(sizing) if !sizing.needs_peer_support() => Ok(sizing),
        _ => Err(format!("'{text}' is neither `auto` nor `kernel`")),
    }
}

/// Parses `--history`.
fn parse_history(text: &str) -> Result<HistoryLocation, String> {
    match text {
        "" => Err("use the name of a file, or off".to_owned()),
        text => Ok(HistoryLocation::parse(text)),
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    //! Flags and keys of the settings file are the same, and mean the same.

    use std::collections::BTreeSet;

    use clap::{Args as _, Command, Parser};

    use super::*;

    /// Flags that are about the command and not about the server.
    const FLAGS_ONLY: [&str; 7] = [
        "check",
        "config",
        "import",
        "import-format",
        "sshftp",
        "sshftp-script",
        "stdio",
    ];

    /// Tables, whose many values no flag can name.
    const TABLES_ONLY: [&str; 2] = ["token-issuer", "user"];

    /// Each key with a value as the file has it, and as its flag has it; `None`: the flag has no value.
    const SAMPLES: &[(&str, &str, Option<&str>)] = &[
        ("advisor", "{ config = \"/a.toml\" }", Some("/a.toml")),
        ("allow-ccc", "true", None),
        (
            "allow-from",
            "[\"192.0.2.0/24\", \"::1\"]",
            Some("192.0.2.0/24,::1"),
        ),
        ("allow-users", "[\"ann\", \"bob\"]", Some("ann,bob")),
        ("anonymous", "\"rw\"", Some("rw")),
        ("banner", "\"hello there\"", Some("hello there")),
        ("banner-file", "\"/b\"", Some("/b")),
        ("block", "131072", Some("128Ki")),
        ("buffer", "\"kernel\"", Some("kernel")),
        ("ca-dir", "\"/ca\"", Some("/ca")),
        ("cert", "\"/c.pem\"", Some("/c.pem")),
        ("clear-passwords", "true", None),
        ("client-ca", "\"/ca.pem\"", Some("/ca.pem")),
        ("client-certs", "\"required\"", Some("required")),
        ("client-congestion", "false", Some("false")),
        ("congestion", "\"cubic\"", Some("cubic")),
        ("data-ports", "\"50000-50999\"", Some("50000-50999")),
        (
            "deny-from",
            "[\"198.51.100.0/24\"]",
            Some("198.51.100.0/24"),
        ),
        ("deny-users", "[\"eve\"]", Some("eve")),
        ("directory-message", "\".message\"", Some(".message")),
        ("directory-mode", "\"2770\"", Some("2770")),
        ("drain", "7", Some("7")),
        ("drs-interval", "\"20ms\"", Some("20ms")),
        ("file-mode", "\"640\"", Some("640")),
        ("foreign-data-addresses", "true", None),
        ("ftp-info-log", "\"/f\"", Some("/f")),
        ("gridmap", "\"/g\"", Some("/g")),
        ("gridmap-rights", "\"ro\"", Some("ro")),
        ("history", "\"/h\"", Some("/h")),
        ("idle-timeout", "8", Some("8")),
        ("implicit-tls", "\"[::]:990\"", Some("[::]:990")),
        ("data-node", "[{ address = \"n:1\" }]", Some("n:1")),
        ("front-end", "[\"/CN=f\"]", Some("/CN=f")),
        ("node-ca", "\"/na\"", Some("/na")),
        ("io", "\"copy\"", Some("copy")),
        ("key", "\"/k.pem\"", Some("/k.pem")),
        ("limit-rate", "\"10G\"", Some("10G")),
        ("limit-rate-per-address", "\"1G\"", Some("1G")),
        ("limit-rate-per-user", "\"2Gbit/s\"", Some("2Gbit/s")),
        ("listen", "\"[::]:3000\"", Some("[::]:3000")),
        ("log", "\"json\"", Some("json")),
        ("login-timeout", "9", Some("9")),
        ("max-checksums", "10", Some("10")),
        ("max-listings", "11", Some("11")),
        ("max-password-checks", "12", Some("12")),
        ("max-sessions", "13", Some("13")),
        ("max-sessions-per-address", "14", Some("14")),
        ("max-sessions-per-user", "15", Some("15")),
        ("max-streams", "16", Some("16")),
        ("max-streams-per-transfer", "17", Some("17")),
        ("max-transfers-per-address", "18", Some("18")),
        ("max-waiting-per-address", "19", Some("19")),
        ("metrics", "\"127.0.0.1:9464\"", Some("127.0.0.1:9464")),
        ("pam", "\"lab\"", Some("lab")),
        ("pam-min-uid", "500", Some("500")),
        ("pam-rights", "\"ro\"", Some("ro")),
        ("perf-marker-seconds", "20", Some("20")),
        (
            "proxy-protocol-from",
            "[\"192.0.2.0/24\"]",
            Some("192.0.2.0/24"),
        ),
        ("public-address", "\"192.0.2.1\"", Some("192.0.2.1")),
        ("queue-timeout", "21", Some("21")),
        ("quota", "\"500G\"", Some("500G")),
        ("quota-files", "22", Some("22")),
        ("range-marker-seconds", "23", Some("23")),
        ("require-protection", "\"data\"", Some("data")),
        ("root", "\"/srv\"", Some("/srv")),
        ("run-as", "\"ftp\"", Some("ftp")),
        ("sandbox", "\"required\"", Some("required")),
        ("stall-timeout", "24", Some("24")),
        ("sync-policy", "\"none\"", Some("none")),
        ("third-party", "\"none\"", Some("none")),
        ("tls", "\"required\"", Some("required")),
        ("tls-session-reuse", "\"required\"", Some("required")),
        ("transfer-log", "\"/t\"", Some("/t")),
        ("umask", "\"027\"", Some("027")),
        ("upload-owner", "\"ftp:lab\"", Some("ftp:lab")),
        ("users", "\"/u\"", Some("/u")),
        ("welcome-file", "\"/w\"", Some("/w")),
    ];

    #[derive(Debug, Parser)]
    struct ParsedServe {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn without<'n>(
        names: impl IntoIterator<Item = &'n str>,
        exceptions: &[&'n str],
    ) -> BTreeSet<&'n str> {
        let mut names: BTreeSet<&str> = names.into_iter().collect();
        for exception in exceptions {
            assert!(names.remove(exception), "{exception} does not exist");
        }
        names
    }

    #[test]
    fn every_flag_is_a_key_and_every_key_is_a_flag() {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        let flags = without(flags, &FLAGS_ONLY);
        let keys = without(FileConfig::keys().iter().copied(), &TABLES_ONLY);
        assert_eq!(flags, keys);
    }

    #[test]
    fn a_flag_and_its_key_mean_the_same() {
        let sampled: BTreeSet<&str> = SAMPLES.iter().map(|(key, ..)| *key).collect();
        let keys = without(FileConfig::keys().iter().copied(), &TABLES_ONLY);
        assert_eq!(sampled, keys, "each key needs a sample");
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("settings.toml");
        let default = format!("{:?}", ServerConfig::default());
        for (key, in_file, on_command_line) in SAMPLES {
            std::fs::write(&path, format!("{key} = {in_file}\n")).unwrap();
            let mut by_file = ServerConfig::default();
            FileConfig::load(&path).unwrap().apply(&mut by_file);
            let flag = format!("--{key}");
            let mut line = vec!["serve", flag.as_str()];
            line.extend(on_command_line);
            let mut by_flag = ServerConfig::default();
            ParsedServe::try_parse_from(line)
                .unwrap()
                .serve
                .apply(&mut by_flag);
            let (by_file, by_flag) = (format!("{by_file:?}"), format!("{by_flag:?}"));
            assert_eq!(by_file, by_flag, "{key}");
            assert_ne!(by_file, default, "the sample of {key} is the default");
        }
    }
}
