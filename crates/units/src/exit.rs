//! The exit codes of the programs.

/// Result class of a process, with the exit codes that scripts rely on. A program need not have all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done; of a copy: everything arrived and was verified as requested.
    Done = 0,
    /// Some files of several failed.
    Partial = 1,
    /// The request or the settings are invalid. clap ends a process with the same code.
    Usage = 2,
    /// Login or permission refused.
    Refused = 3,
    /// No such file, or nothing else of this name.
    NotFound = 4,
    /// The peer cannot be reached, or was lost after all retries.
    Unreachable = 5,
    /// Checksum or size mismatch.
    Integrity = 6,
    /// Disk, file or system error on this machine, a full disk or quota at the destination, or another process
    /// that holds what is needed.
    Local = 7,
    /// The peer broke the protocol or refused for another reason.
    Protocol = 8,
    /// The machine was the limit: the emulator could not keep up, or others were busy. The run of a lab is invalid.
    InvalidRun = 9,
    /// Interrupted by a signal.
    Interrupted = 130,
}
