//! Shares of users and addresses: bandwidth and space.

use std::collections::BTreeMap;
use std::str::FromStr;

/// A rate above 0 in text, such as `100M` or `1Gbit/s`; kept as bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct RateText(u64);

impl RateText {
    /// Bytes per second, at least 1.
    pub fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for RateText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match units::rate(text) {
            Ok(rate) if rate.as_bits_per_second() == 0 => Err("must be more than 0".to_owned()),
            // Below 8 bit/s nothing would ever end.
            Ok(rate) => Ok(Self((rate.as_bits_per_second() / 8).max(1))),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl TryFrom<String> for RateText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A size in text, such as `500G` or `10TiB`; kept as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct SizeText(u64);

impl SizeText {
    /// Bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for SizeText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = units::size(text).map_err(|error| error.to_string())?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for SizeText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Bounds on what a root may hold; `None`: no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaBounds {
    /// Bytes of all files.
    pub bytes: Option<u64>,
    /// Files, directories and links.
    pub files: Option<u64>,
}

/// Shares of one user instead of those of everybody: a table `[user.NAME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct UserShares {
    /// Instead of `max-sessions-per-user`.
    pub max_sessions: Option<usize>,
    /// Instead of `limit-rate-per-user`.
    pub limit_rate: Option<RateText>,
    /// Instead of `quota`.
    pub quota: Option<SizeText>,
    /// Instead of `quota-files`.
    pub quota_files: Option<u64>,
}

/// Shares of users and addresses; `None`: no bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareConfig {
    /// Bytes per second of all transfers together.
    pub rate: Option<u64>,
    /// Bytes per second of all transfers of one address together.
    pub rate_per_address: Option<u64>,
    /// Bytes per second of all transfers of one user together.
    pub rate_per_user: Option<u64>,
    /// Bounds on the root of a session.
    pub quota: QuotaBounds,
    /// Users with other shares.
    pub users: BTreeMap<String, UserShares>,
}

impl ShareConfig {
    /// Bytes per second of a user.
    pub(crate) fn rate_of(&self, user: &str) -> Option<u64> {
        self.own_rate_of(user).or(self.rate_per_user)
    }

    /// Bytes per second that the user's table says.
    pub(crate) fn own_rate_of(&self, user: &str) -> Option<u64> {
        let own = self.users.get(user).and_then(|shares| shares.limit_rate);
        own.map(RateText::bytes_per_second)
    }

    /// Bounds on the root of a user.
    pub(crate) fn quota_of(&self, user: &str) -> QuotaBounds {
        let own = self.users.get(user).copied().unwrap_or_default();
        QuotaBounds {
            bytes: own.quota.map(SizeText::bytes).or(self.quota.bytes),
            files: own.quota_files.or(self.quota.files),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_own_share_replaces_that_of_everybody() {
        let ann = UserShares {
            limit_rate: Some("80M".parse().unwrap()),
            quota: Some("2G".parse().unwrap()),
            ..UserShares::default()
        };
        let shares = ShareConfig {
            rate_per_user: Some(5),
            quota: QuotaBounds {
                bytes: Some(6),
                files: Some(7),
            },
            users: BTreeMap::from([("ann".to_owned(), ann)]),
            ..ShareConfig::default()
        };
        assert_eq!(shares.rate_of("ann"), Some(10_000_000));
        assert_eq!(shares.rate_of("bob"), Some(5));
        assert_eq!(shares.quota_of("ann").bytes, Some(2_000_000_000));
        assert_eq!(shares.quota_of("ann").files, Some(7));
        assert_eq!(shares.quota_of("bob"), shares.quota);
    }
}
