//! Quantities in the settings file: text with a unit, or a bare number where its meaning is plain.

use std::convert::Infallible;
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

/// Refuses the settings of a mail server.
pub(super) fn no_smtp<'de, D: Deserializer<'de>>(_: D) -> Result<Option<Infallible>, D::Error> {
    Err(serde::de::Error::custom(
        "mail is sent by a program like sendmail(8), which knows the mail server: write [notify.mail] with `to`, and \
         `from` or `program` where the defaults do not fit",
    ))
}

/// The program that sends mail on most systems.
pub(super) fn sendmail() -> String {
    "sendmail".to_owned()
}

/// A mail address, or the name of an account on this host. It is one word of a header field, and no option of a program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct MailAddress(String);

impl TryFrom<String> for MailAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // A path is at most 256 bytes long (RFC 5321 section 4.5.3.1.3); the other signs begin another word, address,
        // comment or field (RFC 5322 section 3.2.3).
        let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"()<>,;:\\\"".contains(c);
        if (1..=256).contains(&text.len()) && !text.starts_with('-') && text.chars().all(plain) {
            return Ok(Self(text));
        }
        Err(format!("{text:?} is no mail address"))
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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
    fn what_ends_a_header_field_or_looks_like_an_option_is_no_mail_address() {
        for text in [
            "",
            "-oQ/tmp",
            "a@example.org\nBcc: x@example.org",
            "a@example.org, x@example.org",
            "A <a@example.org>",
        ] {
            assert!(MailAddress::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in ["root", "noc+dtn1@example.org"] {
            let address = MailAddress::try_from(text.to_owned()).unwrap();
            assert_eq!(address.to_string(), text);
        }
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
