//! The modes of an experiment, and values of its file that differ between them.

use serde::Deserialize;

/// How much of an experiment to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A few cells, small files: minutes.
    Quick,
    /// The paper's sweep, file sizes and repetitions.
    Full,
}

impl Mode {
    /// The mode's name in results and in their file names: `quick` or `full`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// A value for each [`Mode`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByMode<T> {
    pub(crate) full: T,
    pub(crate) quick: T,
}

impl<T> ByMode<T> {
    /// Returns the value for `mode`.
    pub(crate) fn for_mode(&self, mode: Mode) -> &T {
        match mode {
            Mode::Full => &self.full,
            Mode::Quick => &self.quick,
        }
    }
}
