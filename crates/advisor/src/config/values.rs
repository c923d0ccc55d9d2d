//! Quantities in the settings file: text with a unit, or a bare number where its meaning is plain.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use smallfile::settings::SettingText;

/// A time; a bare number is seconds.
pub(super) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = SettingText::deserialize(from)?.0;
    units::seconds(&text).map_err(serde::de::Error::custom)
}

/// As [`time`], for a setting that may be missing.
pub(super) fn optional_time<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

/// A size; a bare number is bytes.
pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = SettingText::deserialize(from)?.0;
    units::size(&text).map_err(serde::de::Error::custom)
}

/// As [`size`], for a setting that may be missing.
pub(super) fn optional_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

/// A rate in bits per second; it needs a unit below 1000.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = SettingText::deserialize(from)?.0;
    let rate = units::rate(&text).map_err(serde::de::Error::custom)?;
    Ok(rate.as_bits_per_second())
}

/// Place of the database.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum StoreUrl {
    /// A file of SQLite: `sqlite:///var/lib/longhaul/advisor.sqlite`.
    Sqlite(PathBuf),
    /// A database of PostgreSQL: `postgres://USER:PASSWORD@HOST/DATABASE`. Several servers may share it.
    Postgres(String),
}

impl TryFrom<String> for StoreUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite://") {
            // A parameter would change how the file is opened, and a relative path depends on where the
            // service was started.
            if path.starts_with('/') && !path.contains(['?', '#', '%']) {
                return Ok(Self::Sqlite(path.into()));
            }
            return Err(format!(
                "'{text}' needs an absolute path without ? # %, like sqlite:///var/lib/longhaul/advisor.sqlite"
            ));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text));
        }
        Err(
            "a store is written sqlite:///PATH or postgres://USER:PASSWORD@HOST/DATABASE"
                .to_owned(),
        )
    }
}

impl fmt::Display for StoreUrl {
    /// The place without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(url) => {
                // A parameter may hold a password too.
                let url = url.split('?').next().unwrap_or_default();
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                write!(f, "postgres://{place}")
            }
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_its_password() {
        let url = "postgres://enable:se@cret@db.example/paths?password=secret".to_owned();
        let shown = format!("{:?}", StoreUrl::try_from(url).unwrap());
        assert_eq!(shown, "postgres://db.example/paths");
        let sqlite = StoreUrl::try_from("sqlite:///var/a.sqlite".to_owned()).unwrap();
        assert_eq!(sqlite, StoreUrl::Sqlite("/var/a.sqlite".into()));
    }

    #[test]
    fn a_relative_path_and_another_database_are_refused() {
        for text in [
            "sqlite://a.sqlite",
            "sqlite:///a?mode=ro",
            "mysql://h/d",
            "",
        ] {
            assert!(StoreUrl::try_from(text.to_owned()).is_err(), "{text}");
        }
        let error = StoreUrl::try_from("pg://u:secret@h/d".to_owned()).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
