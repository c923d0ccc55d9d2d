//! A transfer as those see it who order it: its [`TransferSettings`], the [`TransferControl`] while it runs, its [`TransferReport`].

use proto::ranges::RangeSet;
use tune::Evidence;

pub use crate::control::{StreamSample, TransferControl};
pub use crate::settings::TransferSettings;

/// A finished transfer.
#[derive(Debug, Clone, Default)]
pub struct TransferReport {
    /// All that the transfer's [`TransferControl`] has recorded as stored, wire offsets (receiving; in
    /// TYPE A the count of bytes from the wire).
    pub stored: RangeSet,
    /// Lower-case hex digest of what passed, if `sum` was set and everything from 0 on without
    /// gaps passed (or, for algorithms that combine, the bytes in ascending offset order).
    pub checksum: Option<String>,
    /// The store shares the source's blocks: nothing was moved that could differ ([`crate::pull::share`]).
    pub shares_blocks: bool,
    /// Evidence of the path from this end: bytes, time, streams, the kernel's accounts.
    pub evidence: Evidence,
    /// A limit of this host that held the transfer back: which setting to raise, and for what gain.
    pub remark: Option<String>,
}
