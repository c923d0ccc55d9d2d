//! The settings of the service, read from a TOML file.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use enable::advice::DEFAULT_PORT;
use serde::Deserialize;
use smallfile::settings::{self, SettingsFileError};

use crate::log_reader::format::TransferLogFormat;
use crate::path_test::Weight;

mod validate;
mod values;

pub use values::{MailAddress, StoreUrl};

/// One hour.
const HOUR: Duration = Duration::from_secs(3600);
/// One day.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Settings of the service. A key that is missing keeps its default; an unknown key is an error.
///
/// Times take `ms`, `s`, `min`, `h` and `d` (a bare number is seconds), sizes and rates `k M G` and `Ki Mi Gi`;
/// rates are bits per second.
///
/// ```toml
/// listen = "127.0.0.1:2812"
/// clients = ["192.0.2.7", "client.example"]
/// bytes-per-hour = "120MB"
///
/// [[log]]
/// path = "/var/log/longhaul/transfers.log"
/// format = "longhaul"
///
/// [tests.ping]
/// interval = "1h"
///
/// [tests.disk]
/// command = ["/usr/local/bin/path-check", "{client}"]
/// interval = "4h"
///
/// [aggregation]
/// policy = "bottleneck"
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct AdvisorConfig {
    /// `listen`: address and port of the HTTP server; port 0 picks one. Default: 127.0.0.1:2812.
    pub listen: SocketAddr,
    /// `server-name`: name of this server in a shared database. Default: the host's name.
    pub server_name: String,
    /// `store`: `sqlite:///PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`. Default: the file
    /// `advisor.sqlite` in the state directory ([`state_directory`]).
    pub store: StoreUrl,
    /// `clients`: clients that are always monitored, by address or name.
    pub clients: Vec<String>,
    /// `max-clients`: most clients that are known at one time, 1 to 1 000 000. The one that was not seen for
    /// the longest time makes room for a new one. Default: 100 000.
    pub max_clients: usize,
    /// `purge-after`: a client that is not in the file and was not seen for this time is forgotten; at least
    /// 1 h. Default: 720h, 30 days.
    #[serde(deserialize_with = "values::time")]
    pub purge_after: Duration,
    /// `[[log]]`: logs of data servers in which clients are found.
    pub log: Vec<LogSource>,
    /// `workers`: tests that run at one time, 1 to 256. Default: 8, as in the paper.
    pub workers: usize,
    /// `bytes-per-hour`: most bytes that all tests together put on the network in one hour. Half of
    /// them may go at once. Default: 120 MB, of which 133 kbit/s flow in over a long time; the paper used 130.
    #[serde(deserialize_with = "values::size")]
    pub bytes_per_hour: u64,
    /// `values`: measurements of a quantity that count (N in the paper), 4 to 100. Default: 10.
    pub values: usize,
    /// `[tests.NAME]`: the tests, by name.
    pub tests: BTreeMap<String, TestConfig>,
    /// `[aggregation]`: how measurements are shared between clients.
    pub aggregation: AggregationConfig,
    /// `[history]`: how long measurements are kept in the database.
    pub history: HistoryConfig,
    /// `[notify]`: who is told of anomalies, besides the log.
    pub notify: NotifyConfig,
    /// `token-file`: a file whose first line is the token that writes need. Without one, nothing can be
    /// written over the network.
    pub token_file: Option<PathBuf>,
    /// `metrics`: whether `/metrics` is served. Default: true.
    pub metrics: bool,
}

/// A log of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LogSource {
    /// `path`: the file that grows. It may be rotated.
    pub path: PathBuf,
    /// `format`: its format.
    pub format: TransferLogFormat,
}

/// Settings of one test.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct TestConfig {
    /// `enabled`: whether it runs periodically. Default: light tests and external ones do, heavy ones do not.
    pub enabled: Option<bool>,
    /// `interval`: time between two tests of one client, at least 1 s. Default: the test's own.
    #[serde(deserialize_with = "values::optional_time")]
    pub interval: Option<Duration>,
    /// `concurrency`: most tests of this kind at one time, 1 to 256. Default: the test's own.
    pub concurrency: Option<usize>,
    /// `command`: program and arguments of an external test; `{client}` stands for the client's address. A
    /// test of this name must not be built in.
    pub command: Option<Vec<String>>,
    /// `weight` of an external test: `light` or `heavy`. Default: `light`.
    pub weight: Option<WeightName>,
    /// `most-bytes` of an external test: what one run puts on the network. Default: 100 kB.
    #[serde(deserialize_with = "values::optional_size")]
    pub most_bytes: Option<u64>,
    /// `timeout` of an external test. Default: 60 s.
    #[serde(deserialize_with = "values::optional_time")]
    pub timeout: Option<Duration>,
}

/// Name of a [`Weight`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightName {
    /// Some packets.
    Light,
    /// Fills the path for a time.
    Heavy,
}

impl From<WeightName> for Weight {
    fn from(name: WeightName) -> Self {
        match name {
            WeightName::Light => Self::Light,
            WeightName::Heavy => Self::Heavy,
        }
    }
}

/// Sharing of measurements between clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct AggregationConfig {
    /// `policy`. Default: `pairwise`.
    pub policy: AggregationName,
    /// `slow-below`: a bottleneck below this rate is slow (policy `slow-bottleneck`). Default: 1.544 Mbit/s, a
    /// T1 line, as in the paper.
    #[serde(deserialize_with = "values::rate")]
    pub slow_below: u64,
    /// `prefix-table`: a file with one prefix a line, `192.0.2.0/24`, of which the longest that matches counts
    /// (policy `prefix`). Clients outside all prefixes are grouped by length.
    pub prefix_table: Option<PathBuf>,
    /// `prefix-v4`: length of the prefix of IPv4 clients, 0 to 32 (policy `prefix`). Default: 24.
    pub prefix_v4: u8,
    /// `prefix-v6`: length of the prefix of IPv6 clients, 0 to 128 (policy `prefix`). Default: 64.
    pub prefix_v6: u8,
}

/// A policy of aggregation (section 6.1 of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregationName {
    /// `pairwise`: each client is measured by itself.
    Pairwise,
    /// `bottleneck`: each client is measured once; then those behind one bottleneck router share.
    Bottleneck,
    /// `slow-bottleneck`: clients behind a router that is known as a slow bottleneck share, unmeasured.
    SlowBottleneck,
    /// `prefix`: clients of one address prefix share, unmeasured.
    Prefix,
}

/// Ages at which measurements in the database are averaged and deleted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct HistoryConfig {
    /// `single`: older measurements are averaged to hours. Default: 168h, 7 days.
    #[serde(deserialize_with = "values::time")]
    pub single: Duration,
    /// `hours`: older averages of hours are averaged to days. Default: 2160h, 90 days.
    #[serde(deserialize_with = "values::time")]
    pub hours: Duration,
    /// `days`: older averages of days are deleted. Default: 17520h, 2 years.
    #[serde(deserialize_with = "values::time")]
    pub days: Duration,
}

/// Ways to tell people of anomalies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct NotifyConfig {
    /// `webhook`: URL that each anomaly is posted to as JSON.
    pub webhook: Option<String>,
    /// `[notify.mail]`: mail.
    pub mail: Option<MailConfig>,
    /// `[notify.smtp]`: refused, with the settings that take its place.
    #[serde(deserialize_with = "values::no_smtp")]
    pub smtp: Option<Infallible>,
}

/// Mail about anomalies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MailConfig {
    /// `to`: the readers: addresses, or accounts of this host.
    pub to: Vec<MailAddress>,
    /// `from`: address of the sender. Default: the program's.
    pub from: Option<MailAddress>,
    /// `program`: what sends the mail, with the options of sendmail(8): its path, or a name that is looked for in the
    /// directories of `PATH`. Default: `sendmail`.
    #[serde(default = "values::sendmail")]
    pub program: String,
}

impl Default for AdvisorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT),
            server_name: host_name(),
            store: StoreUrl::Sqlite(state_directory().join("advisor.sqlite")),
            clients: Vec::new(),
            max_clients: 100_000,
            purge_after: 30 * DAY,
            log: Vec::new(),
            workers: 8,
            bytes_per_hour: 120_000_000,
            values: 10,
            tests: BTreeMap::new(),
            aggregation: AggregationConfig::default(),
            history: HistoryConfig::default(),
            notify: NotifyConfig::default(),
            token_file: None,
            metrics: true,
        }
    }
}

impl Default for AggregationConfig {
    fn default() -> Self {
        Self {
            policy: AggregationName::Pairwise,
            slow_below: 1_544_000,
            prefix_table: None,
            prefix_v4: 24,
            prefix_v6: 64,
        }
    }
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            single: 7 * DAY,
            hours: 90 * DAY,
            days: 730 * DAY,
        }
    }
}

/// The reason why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdvisorConfigError {
    /// The file cannot be read, or holds something that is not a setting.
    #[error(transparent)]
    File(#[from] SettingsFileError),
    /// A setting is out of its range, or two do not fit each other.
    #[error("{key}: {reason}")]
    Value {
        /// The setting's name, with its tables.
        key: String,
        /// The mistake.
        reason: String,
    },
}

impl AdvisorConfig {
    /// Reads and checks a settings file.
    ///
    /// # Errors
    /// The file cannot be read or is not a regular one, holds an unknown key (the nearest known one is named),
    /// or a value out of range.
    pub fn load(path: &Path) -> Result<Self, AdvisorConfigError> {
        let config: Self = settings::load(path)?;
        config.check()?;
        Ok(config)
    }
}

/// Directory of the service's own files: `$STATE_DIRECTORY` (systemd.exec(5)), else /var/lib/longhaul for root,
/// else `$XDG_STATE_HOME/longhaul` or `~/.local/state/longhaul`.
pub fn state_directory() -> PathBuf {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    // systemd separates several directories with colons.
    let by_systemd = std::env::var("STATE_DIRECTORY").ok();
    let by_systemd = by_systemd.and_then(|all| all.split(':').next().map(PathBuf::from));
    if let Some(directory) = by_systemd.filter(|path| path.is_absolute()) {
        return directory;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/longhaul");
    }
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("longhaul")
}

fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().into_owned();
    if validate::is_server_name(&name) {
        name
    } else {
        "localhost".to_owned()
    }
}

#[cfg(test)]
mod tests;
