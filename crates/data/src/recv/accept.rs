//! The intake of a MODE E transfer: takes connections for as long as the transfer lasts, and
//! knows when nothing more can come.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::eblock::BlockError;
use rustix::event::{PollFd, PollFlags};

use super::extended::Crew;
use crate::budget::Permit;
use crate::channel::{Channel, Endpoint};
use crate::connect::accept;
use crate::error::DataError;
use crate::os::wake;
use crate::stream::Stream;

/// How long a new connection may take to appear after all others have gone.
const GRACE: Duration = Duration::from_secs(1);

/// How often to look again while no reader is at work, or at the stream bound.
const LOOK: Duration = Duration::from_millis(50);

/// Takes connections and hands them to readers.
pub(super) struct Intake<'c, 'scope, 'env> {
    channel: &'c Channel,
    crew: Crew<'scope, 'env>,
    /// For the first connection.
    permit: Option<Permit>,
    /// At the stream bound: connections wait in the backlog.
    full: bool,
    gone_since: Option<Instant>,
}

impl<'c, 'scope, 'env> Intake<'c, 'scope, 'env> {
    pub(super) fn new(channel: &'c Channel, crew: Crew<'scope, 'env>, permit: Permit) -> Self {
        Self {
            channel,
            crew,
            permit: Some(permit),
            full: false,
            gone_since: None,
        }
    }

    /// Starts readers for connections that are there already.
    pub(super) fn adopt(&mut self, streams: Vec<Arc<Stream>>) -> Result<(), DataError> {
        for stream in streams {
            let permit = self
                .permit
                .take()
                .map_or_else(|| self.channel.permit(), Ok)?;
            self.crew.start(stream, permit, true)?;
        }
        Ok(())
    }

    /// Takes connections until the transfer is complete, must stop, or cannot go on.
    pub(super) fn run(&mut self) -> Result<(), DataError> {
        loop {
            self.crew.job.transfer.check()?;
            if self.crew.gathering.complete() {
                return Ok(());
            }
            self.admit()?;
            self.check_hope()?;
            self.wait()?;
        }
    }

    /// Waits for all readers to end.
    pub(super) fn join(self) {
        self.crew.join();
    }

    /// Takes what waits in the backlog, as far as the stream bound allows.
    fn admit(&mut self) -> Result<(), DataError> {
        let Endpoint::Passive {
            listener,
            accept: policy,
            ..
        } = self.channel.endpoint()
        else {
            return Ok(());
        };
        loop {
            let permit = self.permit.take().map_or_else(|| self.channel.permit(), Ok);
            let Ok(permit) = permit else {
                self.full = true;
                return Ok(());
            };
            self.full = false;
            let job = self.crew.job;
            match accept(job.transfer, listener, *policy, job.settings)? {
                Some(stream) => self.crew.start(stream, permit, false)?,
                None => {
                    // Until a first connection is there, its right to run stays reserved.
                    let waiting = self.crew.gathering.active() == 0;
                    self.permit = waiting.then_some(permit);
                    return Ok(());
                }
            }
        }
    }

    /// Fails when no reader is at work and nothing gives hope for another.
    fn check_hope(&mut self) -> Result<(), DataError> {
        let (job, gathering) = (self.crew.job, self.crew.gathering);
        if gathering.active() > 0 || gathering.complete() {
            self.gone_since = None;
            return Ok(());
        }
        // A reader notes its failure before it ends.
        job.transfer.check()?;
        let listening = matches!(self.channel.endpoint(), Endpoint::Passive { .. });
        if !gathering.productive() {
            if listening && job.transfer.begin().elapsed() < job.settings.connect {
                return Ok(());
            }
            let seconds = job.settings.connect.as_secs();
            return Err(DataError::NoPeer { seconds });
        }
        if gathering.may_hear_more() {
            let clock = job.transfer.clock();
            let seconds = clock.limit_seconds();
            return if clock.left().is_zero() {
                Err(DataError::Stalled { seconds })
            } else {
                Ok(())
            };
        }
        let since = *self.gone_since.get_or_insert_with(Instant::now);
        if listening && since.elapsed() < GRACE {
            return Ok(());
        }
        Err(DataError::Block {
            peer: "the sender".to_owned(),
            source: BlockError::Truncated,
        })
    }

    fn wait(&mut self) -> Result<(), DataError> {
        let (job, gathering) = (self.crew.job, self.crew.gathering);
        let mut fds = vec![
            PollFd::new(job.transfer.stop_wake(), PollFlags::IN),
            PollFd::new(&gathering.nudge, PollFlags::IN),
        ];
        if let Endpoint::Passive { listener, .. } = self.channel.endpoint()
            && !self.full
        {
            fds.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        let busy = gathering.active() > 0 && !self.full;
        let timeout = if busy { GRACE } else { LOOK };
        wake::wait_any(&mut fds, timeout).map_err(|e| DataError::setup("a wait", e))?;
        gathering.nudge.quiet();
        Ok(())
    }
}
