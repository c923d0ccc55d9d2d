//! A transfer as those see it who order it: its [`Settings`], the [`Control`] while it runs, its [`Report`].

use std::time::Duration;

use proto::ranges::RangeSet;
use tune::streams::auto::Verdict;

pub use crate::control::{Control, StreamSample};
pub use crate::settings::Settings;
pub use crate::statistics::WireStats;

/// A finished transfer.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Payload bytes moved.
    pub bytes: u64,
    /// All that the transfer's [`Control`] has recorded as stored, wire offsets (receiving; in
    /// TYPE A the count of bytes from the wire).
    pub stored: RangeSet,
    /// Lower-case hex digest of what passed, if `sum` was set and everything from 0 on without
    /// gaps passed (or, for algorithms that combine, the bytes in ascending offset order).
    pub digest: Option<String>,
    /// The store shares the source's blocks: nothing was moved that could differ ([`crate::pull::share`]).
    pub shared: bool,
    /// Kernel's view.
    pub wire: WireStats,
    /// From the first connection to the last byte.
    pub elapsed: Duration,
    /// A limit of this host that held the transfer back: which setting to raise, and for what gain.
    pub remark: Option<String>,
    /// Limiter of the streams that this end sent over ([`Settings::adapt`], [`crate::options::Congestion::Auto`]).
    pub verdict: Option<Verdict>,
    /// Congestion control of this end's streams, as the kernel names it; of several, that of the one
    /// that ended last.
    pub congestion: Option<String>,
}
