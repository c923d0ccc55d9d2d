//! Errors of the emulator, and of whatever runs in it.

/// Errors of the lab. Each message is one line that names the problem and, if possible, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The request is invalid: a rate of 0, an unknown key, a trace whose time goes backwards.
    #[error("{0}")]
    Usage(String),
    /// The system does not allow this user to build a network. The message names the missing privilege
    /// or device, and how to get it.
    #[error("{0}")]
    Refused(String),
    /// A file or program does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Another lab is running. Two labs on one machine would disturb each other's timing.
    #[error("{0}")]
    Busy(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The operation that failed, and its object.
        doing: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A program under test or its server failed.
    #[error("{0}")]
    Program(String),
}

impl LabError {
    /// Makes the error of a failed system call; `doing` names the operation and its object.
    pub fn system(doing: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System {
            doing: doing.into(),
            source: source.into(),
        }
    }
}
