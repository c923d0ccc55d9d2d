//! Work and time of a copy that has not begun: the content of [`CopyEvent::Forecast`](crate::events::CopyEvent::Forecast).

use tune::forecast::{ExpectedRate, Forecast};

/// The work and the time of a copy that has not begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyForecast {
    /// Files to copy.
    pub files: u64,
    /// Bytes of those whose size is known.
    pub bytes: u64,
    /// How long it would take. `None`: unknown for one of the paths.
    pub time: Option<Forecast>,
    /// The paths, one after the other.
    pub paths: Vec<PathForecast>,
}

/// The part of a copy between two storages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathForecast {
    /// Where the files are, as shown to people.
    pub source: String,
    /// Where they go.
    pub destination: String,
    /// Files.
    pub files: u64,
    /// Bytes of those whose size is known.
    pub bytes: u64,
    /// Files of unknown size.
    pub unsized_files: u64,
    /// The settings that the first file begins with, in words. `None`: nothing goes over a network, or the servers decide.
    pub settings: Option<String>,
    /// The rate to expect. `None`: unknown.
    pub rate: Option<ExpectedRate>,
    /// By what the rate is known, or why it is not.
    pub known_by: ForecastSource,
    /// How long it would take. `None`: unknown.
    pub time: Option<Forecast>,
}

/// By what the rate of a path is known before a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForecastSource {
    /// Earlier transfers over this path.
    History,
    /// The service and its advice, in words.
    Advice(String),
    /// Neither.
    Nothing,
    /// Both ends are on this machine, of which nothing is remembered.
    ThisMachine,
    /// The bytes go from one server to the other, which alone know the path.
    BetweenServers,
}
