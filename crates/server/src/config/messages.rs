//! Texts for people: the greeting, a message after the login, and messages of directories.

use std::io;
use std::path::{Path, PathBuf};

/// Largest file with a greeting or a message, bytes: every client gets it with one reply.
const MAX_FILE: u64 = 16 * 1024;

/// The texts that clients get; `None`: the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageConfig {
    /// The greeting in one line, instead of the name and version of the server.
    pub banner: Option<String>,
    /// A file whose lines come before the greeting.
    pub banner_file: Option<PathBuf>,
    /// A file whose lines follow the login.
    pub welcome_file: Option<PathBuf>,
    /// Name of a file in a directory whose lines a client gets when it enters that directory.
    pub directory_message: Option<String>,
}

/// A file with a message cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the message in {}: {source}", path.display())]
pub struct MessageFileError {
    path: PathBuf,
    source: io::Error,
}

/// The texts of message files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MessageTexts {
    /// Lines before the greeting.
    pub(crate) banner: Vec<String>,
    /// Lines after the login.
    pub(crate) welcome: Vec<String>,
}

impl MessageConfig {
    /// Reads the files.
    ///
    /// # Errors
    /// A file is missing, is no text, or has more than 16 KiB.
    pub(crate) fn load(&self) -> Result<MessageTexts, MessageFileError> {
        Ok(MessageTexts {
            banner: lines_of(self.banner_file.as_deref())?,
            welcome: lines_of(self.welcome_file.as_deref())?,
        })
    }
}

fn lines_of(path: Option<&Path>) -> Result<Vec<String>, MessageFileError> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    match smallfile::regular_file::read_to_string(path, MAX_FILE) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(source) => Err(MessageFileError {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_files_are_read_and_a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let banner = dir.path().join("banner");
        std::fs::write(&banner, "one\r\ntwo\n").unwrap();
        let mut config = MessageConfig {
            banner_file: Some(banner),
            ..MessageConfig::default()
        };
        assert_eq!(config.load().unwrap().banner, ["one", "two"]);
        config.welcome_file = Some(dir.path().join("missing"));
        let error = config.load().unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
