//! Values of an experiment's file that differ between its modes.

use serde::Deserialize;

use super::Mode;

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
