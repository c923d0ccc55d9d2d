//! Values of settings that the file's and the flags' parsers accept, and with which nobody could be served as meant.

use std::path::PathBuf;
use std::time::Duration;

use super::{MessageConfig, QuotaBounds, ServerConfig};

/// Longest name of a file (NAME_MAX, limits.h).
const MAX_NAME: usize = 255;

/// A setting whose value cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSetting {
    /// Other servers take 0 for "no limit".
    #[error(
        "{0} is 0, and nobody would be served; 0 does not mean \"no limit\": leave it out, or give a larger one"
    )]
    Zero(&'static str),
    /// A greeting with more lines would be shown in one.
    #[error("banner has more than one line; write the lines to a file and name it in banner-file")]
    BannerLines,
    /// Front ends and data nodes would not know each other.
    #[error(
        "data-node and front-end need cert, key and node-ca: both ends of the connection show a certificate of an authority in node-ca"
    )]
    NodesWithoutCertificate,
    /// A data node has no sessions that it could divide.
    #[error(
        "data-node and front-end are for two servers: the front end names its data nodes, a data node its front ends"
    )]
    FrontEndAndNode,
    /// No host and port.
    #[error("data-node is {0:?}; give HOST:PORT")]
    NodeAddress(String),
    /// A directory of a data node is none below the root.
    #[error("data-node has the directory {0:?}; give its path below the root, beginning with /")]
    NodeDirectory(PathBuf),
    /// Objects have nothing of the kind.
    #[error(
        "{0} is for a root that is a directory, and the root is a bucket, whose files are objects without it: leave it out"
    )]
    NotForObjects(&'static str),
    /// It would never be found.
    #[error(
        "directory-message is {0:?}; give the name of a file, such as \".message\", without a directory"
    )]
    MessageName(String),
}

impl ServerConfig {
    /// Checks values that are wrong whatever the host is.
    ///
    /// # Errors
    /// The first of them.
    pub(crate) fn require_usable(&self) -> Result<(), UnusableSetting> {
        let numbers = [
            ("max-sessions", self.max_sessions),
            ("max-sessions-per-address", self.max_sessions_per_address),
            ("max-sessions-per-user", self.max_sessions_per_user),
            ("max-streams", self.max_streams),
        ];
        let times = [
            ("idle-timeout", self.idle_timeout),
            ("login-timeout", self.login_timeout),
            ("stall-timeout", self.transfer.stall),
        ];
        let numbers = numbers.iter().map(|(key, number)| (key, *number == 0));
        let times = times
            .iter()
            .map(|(key, time)| (key, *time == Duration::ZERO));
        if let Some((key, _)) = numbers.chain(times).find(|(_, is_zero)| *is_zero) {
            return Err(UnusableSetting::Zero(key));
        }
        self.require_usable_nodes()?;
        if self.served_store.is_some() {
            self.require_usable_for_objects()?;
        }
        self.messages.require_usable()
    }

    /// Refuses what would have no effect on the objects of a bucket.
    fn require_usable_for_objects(&self) -> Result<(), UnusableSetting> {
        let (creation, shares) = (&self.creation, &self.shares);
        let mut users = shares.users.values();
        let has_quota = shares.quota != QuotaBounds::default()
            || users.any(|user| user.quota.is_some() || user.quota_files.is_some());
        let settings = [
            ("quota", has_quota),
            ("umask", creation.umask.is_some()),
            ("file-mode", creation.file_mode.is_some()),
            ("directory-mode", creation.directory_mode.is_some()),
            ("upload-owner", creation.upload_owner.is_some()),
            (
                "directory-message",
                self.messages.directory_message.is_some(),
            ),
        ];
        match settings.into_iter().find(|(_, is_set)| *is_set) {
            Some((setting, _)) => Err(UnusableSetting::NotForObjects(setting)),
            None => Ok(()),
        }
    }

    fn require_usable_nodes(&self) -> Result<(), UnusableSetting> {
        let is_front_end = !self.data_nodes.is_empty();
        let is_node = !self.front_ends.is_empty();
        let security = &self.security;
        let has_certificate = security.certificate.is_some() && security.node_authorities.is_some();
        if is_front_end && is_node {
            return Err(UnusableSetting::FrontEndAndNode);
        }
        if (is_front_end || is_node) && !has_certificate {
            return Err(UnusableSetting::NodesWithoutCertificate);
        }
        for node in &self.data_nodes {
            if !node.has_port() {
                return Err(UnusableSetting::NodeAddress(node.address.clone()));
            }
            if let Some(directory) = node.misplaced_directory() {
                return Err(UnusableSetting::NodeDirectory(directory.clone()));
            }
        }
        Ok(())
    }
}

impl MessageConfig {
    fn require_usable(&self) -> Result<(), UnusableSetting> {
        let banner = self.banner.as_deref().unwrap_or_default();
        if banner.chars().any(char::is_control) {
            return Err(UnusableSetting::BannerLines);
        }
        match self.directory_message.as_deref() {
            Some(name) if !is_file_name(name) => Err(UnusableSetting::MessageName(name.to_owned())),
            _ => Ok(()),
        }
    }
}

fn is_file_name(name: &str) -> bool {
    let is_directory = matches!(name, "" | "." | "..");
    !is_directory && name.len() <= MAX_NAME && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DataNode;

    #[test]
    fn zero_is_refused_where_it_would_shut_everybody_out() {
        type Change = fn(&mut ServerConfig);
        let cases: [(&str, Change); 7] = [
            ("max-sessions", |config| config.max_sessions = 0),
            ("max-sessions-per-address", |config| {
                config.max_sessions_per_address = 0;
            }),
            ("max-sessions-per-user", |config| {
                config.max_sessions_per_user = 0;
            }),
            ("max-streams", |config| config.max_streams = 0),
            ("idle-timeout", |config| {
                config.idle_timeout = Duration::ZERO;
            }),
            ("login-timeout", |config| {
                config.login_timeout = Duration::ZERO;
            }),
            ("stall-timeout", |config| {
                config.transfer.stall = Duration::ZERO;
            }),
        ];
        for (key, change) in cases {
            let mut config = ServerConfig::default();
            config.require_usable().unwrap();
            change(&mut config);
            assert_eq!(config.require_usable(), Err(UnusableSetting::Zero(key)));
        }
    }

    #[test]
    fn nodes_and_front_ends_must_be_able_to_know_each_other() {
        let with = |change: fn(&mut ServerConfig)| {
            let mut config = ServerConfig {
                data_nodes: vec![DataNode::of_all("n1:2812")],
                ..ServerConfig::default()
            };
            config.security.certificate = Some("/c".into());
            config.security.node_authorities = Some("/a".into());
            change(&mut config);
            config.require_usable()
        };
        use UnusableSetting as U;
        assert_eq!(with(|_| {}), Ok(()));
        let without = with(|config| config.security.node_authorities = None);
        assert_eq!(without, Err(U::NodesWithoutCertificate));
        let both = with(|config| config.front_ends = vec!["/CN=f".to_owned()]);
        assert_eq!(both, Err(U::FrontEndAndNode));
        let no_port = with(|config| config.data_nodes = vec![DataNode::of_all("n1")]);
        assert_eq!(no_port, Err(U::NodeAddress("n1".to_owned())));
        let misplaced = with(|config| config.data_nodes[0].directories = vec!["run1".into()]);
        assert_eq!(misplaced, Err(U::NodeDirectory("run1".into())));
    }

    #[test]
    fn a_message_that_would_never_be_shown_as_meant_is_refused() {
        let mut config = ServerConfig::default();
        config.messages.banner = Some("one\ntwo".to_owned());
        assert_eq!(config.require_usable(), Err(UnusableSetting::BannerLines));
        config.messages.banner = Some("Grüße — data@example.org".to_owned());
        for name in ["", "..", "a/b", "/etc/motd"] {
            config.messages.directory_message = Some(name.to_owned());
            let error = config.require_usable().unwrap_err();
            assert_eq!(error, UnusableSetting::MessageName(name.to_owned()));
        }
        config.messages.directory_message = Some(".message".to_owned());
        config.require_usable().unwrap();
    }
}
