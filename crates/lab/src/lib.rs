//! The WAN lab: an emulator, experiments and their report.
//!
//! [`topology`] says what network to build, [`net`] builds it from network namespaces, TUN devices
//! and a user-space emulator and runs a command in it. [`experiment`] runs programs over such
//! networks as a user would and keeps the results; [`report`] draws them.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod net;
mod quoting;
pub mod report;
pub mod simulate;
pub mod topology;

/// Why the lab refused or stopped: what went wrong, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The request makes no sense: a rate of nothing, an unknown key, a trace that runs backwards.
    #[error("{0}")]
    Usage(String),
    /// The system does not let this user build a network (which privilege or device is missing, and
    /// how to get it).
    #[error("{0}")]
    Refused(String),
    /// A file or program that was named does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Another lab is running: two on one machine would disturb each other's clocks.
    #[error("{0}")]
    Busy(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The attempt, and its object.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A program under test or its server did not do its work.
    #[error("{0}")]
    Program(String),
}

impl LabError {
    /// A failed system call, and what it was for.
    pub fn system(doing: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System {
            doing: doing.into(),
            source: source.into(),
        }
    }
}
