//! The settings file.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use data::options::{Congestion, IoMethod};
use data::store::durability::SyncPolicy;
use proto::sizing::Sizing;
use serde::Deserialize;
use tune::sizing::drs::{Interval, IntervalError};

use super::{Anonymous, ServerConfig, ThirdParty};

mod spelling;

/// Largest settings file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The settings that a file gives; the others keep their value. Times are whole seconds, sizes
/// bytes. A name that is not one of these is an error.
///
/// ```toml
/// listen = "0.0.0.0:2811"
/// root = "/srv/data"
/// anonymous = "ro"
/// data-ports = "50000-51000"
/// idle-timeout = 600
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs, reason = "each is the field of its name in ServerConfig")]
pub struct FileConfig {
    pub listen: Option<SocketAddr>,
    pub root: Option<PathBuf>,
    pub anonymous: Option<Anonymous>,
    pub users: Option<PathBuf>,
    pub data_ports: Option<PortRange>,
    pub public_address: Option<IpAddr>,
    pub transfer_log: Option<PathBuf>,
    pub ftp_info_log: Option<PathBuf>,
    pub third_party: Option<ThirdParty>,
    pub foreign_data_addresses: Option<bool>,
    pub max_sessions: Option<usize>,
    pub max_sessions_per_address: Option<usize>,
    pub max_sessions_per_user: Option<usize>,
    pub max_streams: Option<usize>,
    pub max_streams_per_transfer: Option<u32>,
    pub max_transfers_per_address: Option<usize>,
    pub max_checksums: Option<usize>,
    pub max_listings: Option<usize>,
    pub max_password_checks: Option<usize>,
    pub max_waiting_per_address: Option<usize>,
    pub queue_timeout: Option<Seconds>,
    pub idle_timeout: Option<Seconds>,
    pub login_timeout: Option<Seconds>,
    pub stall_timeout: Option<Seconds>,
    pub drain: Option<Seconds>,
    pub perf_marker_seconds: Option<u32>,
    pub range_marker_seconds: Option<u32>,
    pub block: Option<Block>,
    pub io: Option<IoName>,
    pub sync_policy: Option<SyncName>,
    pub buffer: Option<BufferName>,
    pub drs_interval: Option<IntervalText>,
    pub congestion: Option<CongestionName>,
    pub client_congestion: Option<bool>,
    pub run_as: Option<String>,
}

/// `LOW-HIGH`, neither 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PortRange(u16, u16);

impl TryFrom<String> for PortRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let ports = text
            .split_once('-')
            .and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
        match ports {
            Some((low, high)) if 0 < low && low <= high => Ok(Self(low, high)),
            _ => Err(format!(
                "\"{text}\" is not a range of ports such as \"50000-51000\""
            )),
        }
    }
}

/// Whole seconds, up to a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub struct Seconds(Duration);

impl TryFrom<u64> for Seconds {
    type Error = String;

    fn try_from(seconds: u64) -> Result<Self, String> {
        const YEAR: u64 = 366 * 24 * 3600;
        if seconds > YEAR {
            return Err(format!("{seconds} seconds are more than a year"));
        }
        Ok(Self(Duration::from_secs(seconds)))
    }
}

/// Bytes, 64 KiB to 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
pub struct Block(usize);

impl TryFrom<usize> for Block {
    type Error = String;

    fn try_from(bytes: usize) -> Result<Self, String> {
        if !(64 << 10..=64 << 20).contains(&bytes) {
            return Err(format!(
                "a block of {bytes} bytes is not between 65536 and 67108864"
            ));
        }
        Ok(Self(bytes))
    }
}

/// [`IoMethod`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum IoName {
    Auto,
    Copy,
    Sendfile,
    Splice,
    Zerocopy,
}

impl From<IoName> for IoMethod {
    fn from(name: IoName) -> Self {
        match name {
            IoName::Auto => Self::Auto,
            IoName::Copy => Self::Copy,
            IoName::Sendfile => Self::Sendfile,
            IoName::Splice => Self::Splice,
            IoName::Zerocopy => Self::Zerocopy,
        }
    }
}

/// [`SyncPolicy`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the policy of its name")]
pub enum SyncName {
    None,
    File,
}

impl From<SyncName> for SyncPolicy {
    fn from(name: SyncName) -> Self {
        match name {
            SyncName::None => Self::None,
            SyncName::File => Self::File,
        }
    }
}

/// Names of the [`Sizing`] that a server may begin with: right-sizing by the papers is a client's to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the sizing of its name")]
pub enum BufferName {
    Auto,
    Kernel,
}

impl From<BufferName> for Sizing {
    fn from(name: BufferName) -> Self {
        match name {
            BufferName::Auto => Self::Auto,
            BufferName::Kernel => Self::Kernel,
        }
    }
}

/// [`Interval`] as the flag has it: `adaptive`, or a time such as `100ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct IntervalText(Interval);

impl TryFrom<String> for IntervalText {
    type Error = IntervalError;

    fn try_from(text: String) -> Result<Self, IntervalError> {
        text.parse().map(Self)
    }
}

/// [`Congestion`] by name. Whether the system has it, the start of the server shows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct CongestionName(Congestion);

impl From<String> for CongestionName {
    fn from(text: String) -> Self {
        Self(Congestion::parse(&text))
    }
}

/// Why a settings file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read settings from {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// System's reason.
        cause: io::Error,
    },
    /// It says something that is not a setting; the text names the line.
    #[error("settings file {}, line {line}: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// The fault, in one line.
        reason: String,
    },
}

impl FileConfig {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text))
            .map_err(|cause| ConfigError::Read {
                path: path.to_owned(),
                cause,
            })?;
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            ConfigError::Parse {
                path: path.to_owned(),
                line: 1 + before.map_or(0, |before| before.matches('\n').count()),
                reason: spelling::reason(error.message()),
            }
        })
    }

    /// Puts what the file gives into `config`.
    pub fn apply(self, config: &mut ServerConfig) {
        self.queues(config);
        replace(&mut config.listen, self.listen);
        replace(&mut config.root, self.root);
        replace(&mut config.third_party, self.third_party);
        replace(
            &mut config.foreign_data_addresses,
            self.foreign_data_addresses,
        );
        replace(&mut config.max_sessions, self.max_sessions);
        replace(
            &mut config.max_sessions_per_address,
            self.max_sessions_per_address,
        );
        replace(
            &mut config.max_sessions_per_user,
            self.max_sessions_per_user,
        );
        replace(&mut config.max_streams, self.max_streams);
        replace(
            &mut config.max_streams_per_transfer,
            self.max_streams_per_transfer,
        );
        replace(&mut config.idle_timeout, self.idle_timeout.map(|s| s.0));
        replace(&mut config.login_timeout, self.login_timeout.map(|s| s.0));
        replace(&mut config.transfer.stall, self.stall_timeout.map(|s| s.0));
        replace(&mut config.drain, self.drain.map(|s| s.0));
        replace(&mut config.perf_marker_seconds, self.perf_marker_seconds);
        replace(&mut config.range_marker_seconds, self.range_marker_seconds);
        replace(&mut config.transfer.block, self.block.map(|b| b.0));
        replace(&mut config.transfer.io, self.io.map(IoMethod::from));
        replace(
            &mut config.sync_policy,
            self.sync_policy.map(SyncPolicy::from),
        );
        replace(
            &mut config.transfer.buffers.sizing,
            self.buffer.map(Sizing::from),
        );
        replace(
            &mut config.transfer.drs_interval,
            self.drs_interval.map(|i| i.0),
        );
        replace(
            &mut config.transfer.congestion,
            self.congestion.map(|c| c.0),
        );
        replace(&mut config.client_congestion, self.client_congestion);
        config.anonymous = self.anonymous.or(config.anonymous);
        config.users = self.users.or(config.users.take());
        config.data_ports = self.data_ports.map(|r| (r.0, r.1)).or(config.data_ports);
        config.public_address = self.public_address.or(config.public_address);
        config.transfer_log = self.transfer_log.or(config.transfer_log.take());
        config.ftp_info_log = self.ftp_info_log.or(config.ftp_info_log.take());
        config.run_as = self.run_as.or(config.run_as.take());
    }

    /// The bounds of what waits its turn.
    fn queues(&self, config: &mut ServerConfig) {
        replace(&mut config.max_listings, self.max_listings);
        replace(
            &mut config.max_waiting_per_address,
            self.max_waiting_per_address,
        );
        replace(&mut config.queue_timeout, self.queue_timeout.map(|s| s.0));
        config.max_transfers_per_address = self
            .max_transfers_per_address
            .or(config.max_transfers_per_address);
        config.max_checksums = self.max_checksums.or(config.max_checksums);
        config.max_password_checks = self.max_password_checks.or(config.max_password_checks);
    }
}

fn replace<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use data::options::TransferOptions;
    use proto::sizing::Buffers;

    use super::*;

    fn load(text: &str) -> Result<ServerConfig, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("longhaul.toml");
        std::fs::write(&path, text).unwrap();
        let mut config = ServerConfig::default();
        FileConfig::load(&path)?.apply(&mut config);
        Ok(config)
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        let (config, default) = (load("").unwrap(), ServerConfig::default());
        assert_eq!(format!("{config:?}"), format!("{default:?}"));
    }

    #[test]
    fn every_setting_is_taken() {
        let config = load(concat!(
            "listen = \"[::]:3000\"\nroot = \"/srv\"\nanonymous = \"rw\"\nusers = \"/etc/u\"\n",
            "data-ports = \"50000-50010\"\npublic-address = \"192.0.2.1\"\n",
            "transfer-log = \"/t\"\nftp-info-log = \"/f\"\nthird-party = \"none\"\n",
            "foreign-data-addresses = true\n",
            "max-sessions = 1\nmax-sessions-per-address = 2\nmax-sessions-per-user = 3\n",
            "max-streams = 4\nmax-streams-per-transfer = 5\nidle-timeout = 6\n",
            "login-timeout = 7\nstall-timeout = 8\ndrain = 9\nperf-marker-seconds = 10\n",
            "range-marker-seconds = 11\nblock = 65536\nio = \"copy\"\nsync-policy = \"none\"\nbuffer = \"kernel\"\n",
            "drs-interval = \"20ms\"\nrun-as = \"ftp\"\n",
            "congestion = \"cubic\"\nclient-congestion = false\n",
            "max-transfers-per-address = 12\nmax-checksums = 13\nmax-listings = 14\n",
            "max-password-checks = 15\nmax-waiting-per-address = 16\nqueue-timeout = 17\n",
        ))
        .unwrap();
        let expected = ServerConfig {
            listen: "[::]:3000".parse().unwrap(),
            root: "/srv".into(),
            anonymous: Some(Anonymous::Rw),
            users: Some("/etc/u".into()),
            data_ports: Some((50_000, 50_010)),
            public_address: Some("192.0.2.1".parse().unwrap()),
            transfer_log: Some("/t".into()),
            ftp_info_log: Some("/f".into()),
            third_party: ThirdParty::None,
            foreign_data_addresses: true,
            max_sessions: 1,
            max_sessions_per_address: 2,
            max_sessions_per_user: 3,
            max_streams: 4,
            max_streams_per_transfer: 5,
            max_transfers_per_address: Some(12),
            max_checksums: Some(13),
            max_listings: 14,
            max_password_checks: Some(15),
            max_waiting_per_address: 16,
            queue_timeout: Duration::from_secs(17),
            idle_timeout: Duration::from_secs(6),
            login_timeout: Duration::from_secs(7),
            drain: Duration::from_secs(9),
            perf_marker_seconds: 10,
            range_marker_seconds: 11,
            transfer: TransferOptions {
                buffers: Buffers::sized(Sizing::Kernel),
                drs_interval: Interval::Fixed(Duration::from_millis(20)),
                congestion: Congestion::Named("cubic".into()),
                io: IoMethod::Copy,
                block: 65_536,
                rate: None,
                stall: Duration::from_secs(8),
            },
            sync_policy: SyncPolicy::None,
            client_congestion: false,
            run_as: Some("ftp".into()),
        };
        assert_eq!(format!("{config:?}"), format!("{expected:?}"));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, what) in [
            ("root = \"/\"\nrooot = \"/srv\"\n", "rooot"),
            ("\nidle-timeout = \"soon\"\n", "soon"),
            ("\ndata-ports = \"9-1\"\n", "9-1"),
            ("\nblock = 12\n", "12"),
            ("\nbuffer = \"drs\"\n", "drs"),
            ("\ndrs-interval = 20\n", "20"),
            ("\ndrs-interval = \"60s\"\n", "60s"),
            ("\nanonymous = \"yes\"\n", "yes"),
            ("\nclient-congestion = \"no\"\n", "no"),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(what), "{error}");
        }
    }
}
