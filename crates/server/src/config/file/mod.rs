//! The settings file in TOML.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use data::options::{CongestionChoice, IoMethod};
use data::store::durability::SyncPolicy;
use history::HistoryLocation;
use proto::sizing::BufferSizing;
use security::tls::ClientCertificates;
use serde::Deserialize;
use smallfile::settings::{self, SettingText, SettingsFileError};
use tune::sizing::drs::{DrsInterval, DrsIntervalError};

use super::{
    Anonymous, ClientCertificatesName, ClientNetwork, DataNode, DirectoryBits, FileBits,
    MessageFormat, PamConfig, RateText, RequiredProtection, SandboxMode, SecurityConfig,
    ServerConfig, SessionReuse, SizeText, ThirdPartyPolicy, TlsPolicy, TokenIssuerConfig,
    UnlistedRights, UserShares,
};

/// The bound keeps deadlines computed as now + timeout within the range of `Instant`.
const MAX_TIME: Duration = Duration::from_secs(366 * 24 * 3600);

/// The settings in a file; a setting that is missing keeps its value. Times take `ms`, `s`, `min` (or `m`), `h` and `d`; a
/// number is seconds. Sizes are bytes. An unknown key is an error.
///
/// ```toml
/// listen = "0.0.0.0:2811"
/// root = "/srv/data"
/// anonymous = "ro"
/// data-ports = "50000-51000"
/// idle-timeout = "10m"
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "each is the field of its name in ServerConfig or SecurityConfig"
)]
pub struct FileConfig {
    pub listen: Option<SocketAddr>,
    pub root: Option<PathBuf>,
    pub anonymous: Option<Anonymous>,
    pub users: Option<PathBuf>,
    pub data_ports: Option<PortRange>,
    pub public_address: Option<IpAddr>,
    pub transfer_log: Option<PathBuf>,
    pub ftp_info_log: Option<PathBuf>,
    pub history: Option<String>,
    pub third_party: Option<ThirdPartyPolicy>,
    pub foreign_data_addresses: Option<bool>,
    pub proxy_protocol_from: Option<Vec<ClientNetwork>>,
    pub sandbox: Option<SandboxMode>,
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
    pub queue_timeout: Option<SettingTime>,
    pub idle_timeout: Option<SettingTime>,
    pub login_timeout: Option<SettingTime>,
    pub stall_timeout: Option<SettingTime>,
    pub drain: Option<SettingTime>,
    pub perf_marker_seconds: Option<WholeSeconds>,
    pub range_marker_seconds: Option<WholeSeconds>,
    pub block: Option<BlockSize>,
    pub io: Option<IoMethodName>,
    pub sync_policy: Option<SyncPolicyName>,
    pub buffer: Option<BufferSizingName>,
    pub drs_interval: Option<DrsIntervalText>,
    pub congestion: Option<CongestionName>,
    pub client_congestion: Option<bool>,
    pub run_as: Option<String>,
    pub advisor: Option<AdvisorTable>,
    pub metrics: Option<SocketAddr>,
    pub log: Option<MessageFormat>,
    #[serde(default, deserialize_with = "permitted_list")]
    pub allow_from: Option<Vec<ClientNetwork>>,
    pub deny_from: Option<Vec<ClientNetwork>>,
    #[serde(default, deserialize_with = "permitted_list")]
    pub allow_users: Option<Vec<String>>,
    pub deny_users: Option<Vec<String>>,
    pub umask: Option<FileBits>,
    pub file_mode: Option<FileBits>,
    pub directory_mode: Option<DirectoryBits>,
    pub upload_owner: Option<String>,
    pub limit_rate: Option<RateText>,
    pub limit_rate_per_address: Option<RateText>,
    pub limit_rate_per_user: Option<RateText>,
    pub quota: Option<SizeText>,
    pub quota_files: Option<u64>,
    pub user: Option<BTreeMap<String, UserShares>>,
    pub banner: Option<String>,
    pub banner_file: Option<PathBuf>,
    pub welcome_file: Option<PathBuf>,
    pub directory_message: Option<String>,
    pub tls: Option<TlsPolicy>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub implicit_tls: Option<SocketAddr>,
    pub client_certs: Option<ClientCertificatesName>,
    pub client_ca: Option<PathBuf>,
    pub node_ca: Option<PathBuf>,
    pub tls_session_reuse: Option<SessionReuse>,
    pub allow_ccc: Option<bool>,
    pub require_protection: Option<RequiredProtection>,
    pub clear_passwords: Option<bool>,
    pub gridmap: Option<PathBuf>,
    pub gridmap_rights: Option<UnlistedRights>,
    pub ca_dir: Option<PathBuf>,
    pub pam: Option<String>,
    pub pam_rights: Option<UnlistedRights>,
    pub pam_min_uid: Option<u32>,
    pub token_issuer: Option<Vec<TokenIssuerConfig>>,
    pub data_node: Option<Vec<DataNode>>,
    pub front_end: Option<Vec<String>>,
}

/// The table `[advisor]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AdvisorTable {
    /// `config`: settings file of the network-advice service.
    config: PathBuf,
}

/// A range of ports, written `LOW-HIGH`; both are above 0.
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

/// A list of those who are permitted. An empty one could mean nobody or, as a missing one, everybody.
fn permitted_list<'de, T, D>(list: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    let list = Vec::deserialize(list)?;
    if list.is_empty() {
        let reason = "the list is empty; name somebody, or leave the key out to permit all";
        return Err(serde::de::Error::custom(reason));
    }
    Ok(Some(list))
}

/// Size of a block in bytes, 64 KiB to 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
pub struct BlockSize(usize);

impl TryFrom<usize> for BlockSize {
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

/// Name of an [`IoMethod`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum IoMethodName {
    Auto,
    Copy,
    Sendfile,
    Splice,
    Zerocopy,
}

impl From<IoMethodName> for IoMethod {
    fn from(name: IoMethodName) -> Self {
        match name {
            IoMethodName::Auto => Self::Auto,
            IoMethodName::Copy => Self::Copy,
            IoMethodName::Sendfile => Self::Sendfile,
            IoMethodName::Splice => Self::Splice,
            IoMethodName::Zerocopy => Self::Zerocopy,
        }
    }
}

/// Name of a [`SyncPolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the policy of its name")]
pub enum SyncPolicyName {
    None,
    File,
}

impl From<SyncPolicyName> for SyncPolicy {
    fn from(name: SyncPolicyName) -> Self {
        match name {
            SyncPolicyName::None => Self::None,
            SyncPolicyName::File => Self::File,
        }
    }
}

/// The [`BufferSizing`] that a server may use by default. Only a client can ask for the right-sizing
/// of the papers (`drs`, `drs1`, `drs2004`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the sizing of its name")]
pub enum BufferSizingName {
    Auto,
    Kernel,
}

impl From<BufferSizingName> for BufferSizing {
    fn from(name: BufferSizingName) -> Self {
        match name {
            BufferSizingName::Auto => Self::Auto,
            BufferSizingName::Kernel => Self::Kernel,
        }
    }
}

/// A [`DrsInterval`] as text: `adaptive`, or a time such as `100ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct DrsIntervalText(DrsInterval);

impl TryFrom<String> for DrsIntervalText {
    type Error = DrsIntervalError;

    fn try_from(text: String) -> Result<Self, DrsIntervalError> {
        text.parse().map(Self)
    }
}

/// Name of a [`CongestionChoice`]. The server checks at its start whether the system permits it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct CongestionName(CongestionChoice);

impl From<String> for CongestionName {
    fn from(text: String) -> Self {
        Self(CongestionChoice::parse(&text))
    }
}

impl FileConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`SettingsFileError`].
    pub fn load(path: &Path) -> Result<Self, SettingsFileError> {
        settings::load(path)
    }

    /// The keys of the file at its top level.
    pub fn keys() -> &'static [&'static str] {
        settings::keys_of::<Self>()
    }

    /// Applies the file's settings to `config`.
    pub fn apply(mut self, config: &mut ServerConfig) {
        self.apply_queue_bounds(config);
        self.apply_security(&mut config.security);
        self.apply_pam(&mut config.pam);
        self.apply_site(config);
        set_if_given(
            &mut config.proxy_protocol_from,
            self.proxy_protocol_from.take(),
        );
        set_if_given(&mut config.sandbox, self.sandbox);
        set_if_given(&mut config.listen, self.listen);
        set_if_given(&mut config.root, self.root);
        set_if_given(&mut config.third_party, self.third_party);
        set_if_given(
            &mut config.foreign_data_addresses,
            self.foreign_data_addresses,
        );
        set_if_given(&mut config.max_sessions, self.max_sessions);
        set_if_given(
            &mut config.max_sessions_per_address,
            self.max_sessions_per_address,
        );
        set_if_given(
            &mut config.max_sessions_per_user,
            self.max_sessions_per_user,
        );
        set_if_given(&mut config.max_streams, self.max_streams);
        set_if_given(
            &mut config.max_streams_per_transfer,
            self.max_streams_per_transfer,
        );
        set_if_given(&mut config.idle_timeout, self.idle_timeout.map(|s| s.0));
        set_if_given(&mut config.login_timeout, self.login_timeout.map(|s| s.0));
        set_if_given(&mut config.transfer.stall, self.stall_timeout.map(|s| s.0));
        set_if_given(&mut config.drain, self.drain.map(|s| s.0));
        let history = self.history.as_deref().map(HistoryLocation::parse);
        set_if_given(&mut config.history, history);
        set_if_given(
            &mut config.perf_marker_seconds,
            self.perf_marker_seconds.map(|s| s.0),
        );
        set_if_given(
            &mut config.range_marker_seconds,
            self.range_marker_seconds.map(|s| s.0),
        );
        set_if_given(&mut config.transfer.block, self.block.map(|b| b.0));
        set_if_given(&mut config.transfer.io, self.io.map(IoMethod::from));
        set_if_given(
            &mut config.sync_policy,
            self.sync_policy.map(SyncPolicy::from),
        );
        set_if_given(
            &mut config.transfer.buffers.sizing,
            self.buffer.map(BufferSizing::from),
        );
        set_if_given(
            &mut config.transfer.drs_interval,
            self.drs_interval.map(|i| i.0),
        );
        set_if_given(
            &mut config.transfer.congestion,
            self.congestion.map(|c| c.0),
        );
        set_if_given(&mut config.client_congestion, self.client_congestion);
        // Optional settings: a file without the key keeps the value, so it cannot reset one to `None`.
        config.anonymous = self.anonymous.or(config.anonymous);
        config.users = self.users.or(config.users.take());
        config.data_ports = self.data_ports.map(|r| (r.0, r.1)).or(config.data_ports);
        config.public_address = self.public_address.or(config.public_address);
        config.transfer_log = self.transfer_log.or(config.transfer_log.take());
        config.ftp_info_log = self.ftp_info_log.or(config.ftp_info_log.take());
        config.run_as = self.run_as.or(config.run_as.take());
        set_if_given(&mut config.data_nodes, self.data_node);
        set_if_given(&mut config.front_ends, self.front_end);
        let advisor = self.advisor.map(|table| table.config);
        config.metrics = self.metrics.or(config.metrics);
        config.advisor = advisor.or(config.advisor.take());
    }

    /// Applies the bounds of the queues.
    fn apply_queue_bounds(&self, config: &mut ServerConfig) {
        set_if_given(&mut config.max_listings, self.max_listings);
        set_if_given(
            &mut config.max_waiting_per_address,
            self.max_waiting_per_address,
        );
        set_if_given(&mut config.queue_timeout, self.queue_timeout.map(|s| s.0));
        config.max_transfers_per_address = self
            .max_transfers_per_address
            .or(config.max_transfers_per_address);
        config.max_checksums = self.max_checksums.or(config.max_checksums);
        config.max_password_checks = self.max_password_checks.or(config.max_password_checks);
    }

    /// Applies the security settings; takes those that are not copied.
    fn apply_security(&mut self, config: &mut SecurityConfig) {
        config.tls = self.tls.or(config.tls);
        config.certificate = self.cert.take().or(config.certificate.take());
        config.key = self.key.take().or(config.key.take());
        config.implicit_tls = self.implicit_tls.or(config.implicit_tls);
        config.client_authorities = self.client_ca.take().or(config.client_authorities.take());
        config.node_authorities = self.node_ca.take().or(config.node_authorities.take());
        config.gridmap = self.gridmap.take().or(config.gridmap.take());
        config.grid_authorities = self.ca_dir.take().or(config.grid_authorities.take());
        set_if_given(
            &mut config.client_certificates,
            self.client_certs.map(ClientCertificates::from),
        );
        set_if_given(&mut config.session_reuse, self.tls_session_reuse);
        set_if_given(&mut config.clear_commands, self.allow_ccc);
        set_if_given(&mut config.require_protection, self.require_protection);
        set_if_given(&mut config.clear_passwords, self.clear_passwords);
        set_if_given(&mut config.gridmap_rights, self.gridmap_rights);
        set_if_given(&mut config.token_issuers, self.token_issuer.take());
    }

    /// Applies the settings of PAM.
    fn apply_pam(&mut self, config: &mut PamConfig) {
        config.service = self.pam.take().or(config.service.take());
        set_if_given(&mut config.rights, self.pam_rights);
        set_if_given(&mut config.min_uid, self.pam_min_uid);
    }

    /// Applies these settings; takes those that are not copied.
    fn apply_site(&mut self, config: &mut ServerConfig) {
        set_if_given(&mut config.log, self.log);
        let access = &mut config.access;
        set_if_given(&mut access.allow_from, self.allow_from.take());
        set_if_given(&mut access.deny_from, self.deny_from.take());
        set_if_given(&mut access.allow_users, self.allow_users.take());
        set_if_given(&mut access.deny_users, self.deny_users.take());
        let creation = &mut config.creation;
        creation.umask = self.umask.or(creation.umask);
        creation.file_mode = self.file_mode.or(creation.file_mode);
        creation.directory_mode = self.directory_mode.or(creation.directory_mode);
        creation.upload_owner = self.upload_owner.take().or(creation.upload_owner.take());
        let shares = &mut config.shares;
        let rate =
            |given: Option<RateText>, before| given.map(RateText::bytes_per_second).or(before);
        shares.rate = rate(self.limit_rate, shares.rate);
        shares.rate_per_address = rate(self.limit_rate_per_address, shares.rate_per_address);
        shares.rate_per_user = rate(self.limit_rate_per_user, shares.rate_per_user);
        shares.quota.bytes = self.quota.map(SizeText::bytes).or(shares.quota.bytes);
        shares.quota.files = self.quota_files.or(shares.quota.files);
        set_if_given(&mut shares.users, self.user.take());
        let messages = &mut config.messages;
        messages.banner = self.banner.take().or(messages.banner.take());
        messages.banner_file = self.banner_file.take().or(messages.banner_file.take());
        messages.welcome_file = self.welcome_file.take().or(messages.welcome_file.take());
        let name = self.directory_message.take();
        messages.directory_message = name.or(messages.directory_message.take());
    }
}

fn set_if_given<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}

/// A time of at most a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SettingText")]
pub struct SettingTime(Duration);

impl TryFrom<SettingText> for SettingTime {
    type Error = String;

    fn try_from(written: SettingText) -> Result<Self, String> {
        let time = units::seconds(&written.0).map_err(|error| error.to_string())?;
        if time > MAX_TIME {
            return Err(format!("'{}' is more than a year", written.0));
        }
        Ok(Self(time))
    }
}

/// A time of whole seconds, at most a year: the unit of the intervals in replies (GFD.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SettingText")]
pub struct WholeSeconds(u32);

impl TryFrom<SettingText> for WholeSeconds {
    type Error = String;

    fn try_from(written: SettingText) -> Result<Self, String> {
        let text = written.0.clone();
        let SettingTime(time) = SettingTime::try_from(written)?;
        let whole = u32::try_from(time.as_secs()).ok();
        let whole = whole.filter(|_| time.subsec_nanos() == 0);
        whole
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not a number of whole seconds"))
    }
}

#[cfg(test)]
mod tests;
