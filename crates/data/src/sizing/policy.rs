//! A sizing policy as the thread that drives it sees it, and the one that leaves all to the kernel.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tune::look::{Look, StreamId};

use crate::board::Board;
use crate::control::Control;
use crate::stream::Stream;

/// Between the looks of a policy that decides nothing by them; they are for what the memory costs.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// A transfer's live streams at one moment.
pub(super) struct Scene<'t> {
    /// Since the transfer began.
    pub(super) at: Duration,
    pub(super) seen: Vec<Seen>,
    pub(super) board: &'t Board,
}

/// One of them.
pub(super) struct Seen {
    pub(super) stream: Arc<Stream>,
    pub(super) look: Look,
}

impl Scene<'_> {
    /// Whether a stream is still there.
    pub(super) fn has(&self, id: StreamId) -> bool {
        self.seen.iter().any(|seen| seen.look.stream == id)
    }

    pub(super) fn streams(&self) -> Vec<Arc<Stream>> {
        self.seen
            .iter()
            .map(|seen| Arc::clone(&seen.stream))
            .collect()
    }
}

/// News from elsewhere than the streams.
pub(super) struct News<'t> {
    /// Since the transfer began.
    pub(super) at: Duration,
    pub(super) control: &'t Control,
}

impl News<'_> {
    pub(super) fn board(&self) -> &Board {
        self.control.board()
    }

    pub(super) fn streams(&self) -> Vec<Arc<Stream>> {
        self.control.live()
    }

    pub(super) fn peers(&self) -> Vec<IpAddr> {
        self.control.peers()
    }
}

/// One end of one transfer under a sizing policy.
pub(super) trait Policy: Send {
    /// Looks at all live streams, at least one, and does what is to be done.
    fn on_look(&mut self, scene: &Scene<'_>);

    /// When the next look is due, after the last.
    fn due(&self) -> Duration;

    /// Further descriptors to wait for.
    fn watch(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    /// Hears what came since the last call, if anything.
    fn on_news(&mut self, _news: &News<'_>) {}

    /// The transfer is over: takes back what should not outlive it, and returns what the user should
    /// know.
    fn end(&mut self) -> Option<String> {
        None
    }
}

/// Policy of the kernel's autotuning, and of buffers that were pinned: it decides nothing. Streams are looked
/// at for what their memory costs, as under every other policy, so that the figures compare.
pub(super) struct KernelPolicy;

impl Policy for KernelPolicy {
    fn on_look(&mut self, _scene: &Scene<'_>) {}

    fn due(&self) -> Duration {
        LOOK
    }
}
