//! The interface of a transfer: its [`TransferSettings`], the [`TransferControl`] and the
//! [`ReaderContext`] while it runs, and its [`TransferReport`].

use std::sync::Arc;

use proto::ranges::RangeSet;
use tune::Evidence;

use crate::os::wake::WakeEvent;

pub use crate::control::TransferControl;
pub use crate::settings::TransferSettings;

/// The transfer that a reader of ranges, or a dialer, works for while it runs.
#[derive(Debug, Clone, Copy)]
pub struct ReaderContext<'d> {
    /// Settings for its connections.
    pub settings: &'d TransferSettings,
    /// The handle that shows its connections.
    pub control: &'d Arc<TransferControl>,
    /// Set when its waits must end.
    pub stop: &'d Arc<WakeEvent>,
}

/// The result of a finished transfer.
#[derive(Debug, Clone, Default)]
pub struct TransferReport {
    /// Everything that the transfer's [`TransferControl`] recorded as stored, wire offsets
    /// (receiving; in TYPE A the count of bytes on the wire).
    pub stored: RangeSet,
    /// Checksum in lower-case hex of the bytes that passed, if `checksum` was set. Requires all
    /// bytes from 0 on without gaps; algorithms whose checksums combine cover the bytes in
    /// ascending offset order.
    pub checksum: Option<String>,
    /// The store shares the blocks of the source, so no bytes were moved
    /// ([`crate::pull::clone_file`]).
    pub shares_blocks: bool,
    /// This end stopped receiving at the end that [`TransferControl::end_at`] set, and closed the data
    /// connections although the sender had more.
    pub ended_early: bool,
    /// Evidence about the path from this end: bytes, time, streams, the kernel's counters.
    pub evidence: Evidence,
    /// A limit of this host that held the transfer back: which setting to raise, and the expected
    /// gain.
    pub remark: Option<String>,
    /// Which settings the transfer began with by prior knowledge of the path
    /// ([`TransferSettings::prior`]), and why it dropped them, if it did, in plain words (sending).
    /// `None`: no setting was known.
    pub prior_use: Option<String>,
}
