//! `--journal`: where the plan of a batch is kept until all of it is done.

use std::path::PathBuf;

use crate::local::partial::state_path;

/// The environment variable that replaces the usual directory: `off`, or a directory.
const ENVIRONMENT_VARIABLE: &str = "LONGHAUL_BATCHES";

/// Where the journals of batches are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BatchJournalLocation {
    /// No batch is remembered after its run.
    #[default]
    Off,
    /// In this directory, under a name made of the command's sources, destination and selection.
    Directory(PathBuf),
    /// This file.
    File(PathBuf),
}

impl BatchJournalLocation {
    /// The directory of `longhaul cp`: by `LONGHAUL_BATCHES`, else `longhaul/batches` in the user's state directory.
    pub fn of_user() -> Self {
        match std::env::var_os(ENVIRONMENT_VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) if value == "off" => Self::Off,
            Some(directory) => Self::Directory(directory.into()),
            None => state_path().map_or(Self::Off, |state| Self::Directory(state.join("batches"))),
        }
    }
}
