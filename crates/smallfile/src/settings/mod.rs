//! Settings files in TOML. An unknown key is an error that names the line and the nearest known key.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::regular_file;

mod keys;
mod place;
mod quantity;
mod spelling;

pub use keys::keys_of;
pub use quantity::SettingText;
pub use spelling::unknown_name;

/// Largest settings file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The reason why a settings file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsFileError {
    /// The file cannot be read.
    #[error("cannot read settings from {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file holds something that is not a setting.
    #[error("settings file {}, line {line}: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The mistake, in one line.
        reason: String,
    },
}

/// Reads a settings file of at most 1 MiB whole: a part of it could be valid and mean something else.
///
/// # Errors
/// See [`SettingsFileError`].
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, SettingsFileError> {
    let text = regular_file::read_to_string(path, MAX_FILE).map_err(|cause| {
        let path = path.to_owned();
        SettingsFileError::Read { path, cause }
    })?;
    toml::from_str(&text).map_err(|error: toml::de::Error| {
        // The parser reports a byte offset; people look for a line and a key.
        let at = error.span().map_or(0, |span| span.start);
        let reason = spelling::one_line_reason(error.message());
        let key = place::key_of(&text, at).filter(|key| !reason.contains(&format!("{key:?}")));
        SettingsFileError::Parse {
            path: path.to_owned(),
            line: place::line_of(&text, at),
            reason: match key {
                Some(key) => format!("{key}: {reason}"),
                None => reason,
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        _listen: Option<u16>,
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        let comment = "#".repeat(1 << 20);
        std::fs::write(&path, &comment).unwrap();
        load::<Sample>(&path).unwrap();
        std::fs::write(&path, comment + "\n").unwrap();
        let error = load::<Sample>(&path).unwrap_err().to_string();
        assert!(error.contains("longer than 1048576 bytes"), "{error}");
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        std::fs::write(&path, "\n\n_listn = 3\n").unwrap();
        let error = load::<Sample>(&path).unwrap_err().to_string();
        let reason = "line 3: \"_listn\" is not a setting; is \"_listen\" meant?";
        assert!(error.ends_with(reason), "{error}");
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        for (text, reason) in [
            (
                "_listen = true\n",
                "line 1: _listen: invalid type: boolean `true`",
            ),
            (
                "_listen = 1\n_listen = 2\n",
                "line 2: _listen: duplicate key",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = load::<Sample>(&path).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
