//! Values of settings that the file's and the flags' parsers accept, and with which nobody could be served as meant.

use std::time::Duration;

use super::{MessageConfig, ServerConfig};

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
        self.messages.require_usable()
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
