//! The threads of a MODE E sender: one a lane, and the caller's, which opens further lanes when they
//! are asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use proto::eblock::Header;

use super::SendTask;
use super::outlet::Outlet;
use crate::budget::Permit;
use crate::channel::Channel;
use crate::connect::Attempt;
use crate::error::DataError;
use crate::lanes::{Lanes, Seat, Ticket};
use crate::os::wake::Wake;
use crate::stream::Stream;
use crate::wire::Wire;

/// Equipment of a transfer's lanes.
pub(super) struct Crew<'c> {
    channel: &'c Channel,
    task: &'c SendTask<'c>,
    /// Rung when everything was handed out: a connection that is not there yet is not needed.
    over: Wake,
}

/// A lane that is ready to begin, by its connection.
pub(super) enum Post<'c> {
    /// Is there.
    Seated(Seat<'c>, Arc<Stream>),
    /// Is being opened.
    Awaited(Ticket<'c>, Attempt),
    /// Is to be opened.
    Wanted(Ticket<'c>, SocketAddr, Permit),
}

impl<'c> Crew<'c> {
    pub(super) fn new(channel: &'c Channel, task: &'c SendTask<'c>) -> Result<Self, DataError> {
        let over = Wake::new().map_err(|e| DataError::setup("an event descriptor", e))?;
        Ok(Self {
            channel,
            task,
            over,
        })
    }

    /// Runs `first` and whatever lanes are asked for later, until all have ended. One lane that stays
    /// alone needs no thread of its own.
    pub(super) fn run(&self, mut first: Vec<Post<'c>>) -> Result<(), DataError> {
        let alone = first.len() <= 1 && self.lanes().aimed() <= 1 && !self.task.adapts();
        if alone {
            return first.pop().map_or(Ok(()), |lane| self.work(lane));
        }
        std::thread::scope(|scope| {
            let mut threads = Threads {
                crew: self,
                scope,
                running: Vec::new(),
                started: 0,
            };
            for lane in first {
                if let Err(error) = threads.start(lane) {
                    self.task.transfer.fail(error);
                }
            }
            threads.supervise();
            threads.await_all();
        });
        self.task.transfer.check()
    }

    fn lanes(&self) -> &'c Lanes {
        self.task.transfer.lanes()
    }

    /// One lane, from its connection to its end mark.
    fn work(&self, lane: Post<'c>) -> Result<(), DataError> {
        let (seat, stream) = match lane {
            Post::Seated(seat, stream) => (seat, stream),
            Post::Awaited(ticket, attempt) => match self.arrive(ticket, Ok(attempt))? {
                Some(seated) => seated,
                None => return Ok(()),
            },
            Post::Wanted(ticket, to, permit) => {
                let settings = self.task.settings;
                let until = Instant::now() + settings.connect;
                let attempt = self.channel.dial(settings, to, until, permit);
                match self.arrive(ticket, attempt)? {
                    Some(seated) => seated,
                    None => return Ok(()),
                }
            }
        };
        self.send(seat, Wire::new(self.task.transfer, stream))
    }

    /// Waits for a connection; `None` if it is not needed any more, or refused. A lane that cannot
    /// join is not the transfer's failure.
    fn arrive(
        &self,
        ticket: Ticket<'c>,
        attempt: Result<Attempt, DataError>,
    ) -> Result<Option<(Seat<'c>, Arc<Stream>)>, DataError> {
        let task = self.task;
        let settled = attempt.and_then(|a| a.settle(task.transfer, task.settings, &self.over));
        match settled {
            Ok(Some(stream)) => {
                let stream = Arc::new(stream);
                Ok(Some((ticket.join(&stream), stream)))
            }
            Ok(None) => Ok(None),
            Err(DataError::Aborted) => Err(DataError::Aborted),
            Err(error) => {
                tracing::warn!(%error, "data connection not made");
                self.refuse(ticket);
                Ok(None)
            }
        }
    }

    /// No connection for this ticket; whoever asked for it hears that.
    fn refuse(&self, ticket: Ticket<'c>) {
        ticket.refuse();
        self.task.transfer.control().board().ring();
    }

    /// Sends blocks for as long as there are some and the lane is wanted, and ends the lane.
    fn send(&self, mut seat: Seat<'c>, wire: Wire<'c>) -> Result<(), DataError> {
        let mut outlet = Outlet::new(wire, self.task)?;
        while !outlet.send_supply(true, seat.surplus())? {
            if seat.retire() {
                outlet
                    .wire()
                    .send_all(&Header::eod(true).encode(), &[], false)?;
                return outlet.wire().finish_sending();
            }
        }
        if let Some(streams) = self.lanes().close() {
            self.task.transfer.note_streams(streams);
        }
        self.over.ring();
        let close = self.task.settings.close_after;
        let end = match seat.end() {
            Some(eods) => Header::eof(eods, close),
            None => Header::eod(close),
        };
        outlet.wire().send_all(&end.encode(), &[], false)?;
        if close {
            outlet.wire().finish_sending()?;
        }
        Ok(())
    }
}

/// The threads of a crew.
struct Threads<'scope, 'env, 'c> {
    crew: &'scope Crew<'c>,
    scope: &'scope Scope<'scope, 'env>,
    running: Vec<ScopedJoinHandle<'scope, ()>>,
    started: usize,
}

impl<'scope, 'c: 'scope> Threads<'scope, '_, 'c> {
    fn start(&mut self, lane: Post<'c>) -> Result<(), DataError> {
        let crew = self.crew;
        let thread = std::thread::Builder::new()
            .name(format!("send-{}", self.started))
            .spawn_scoped(self.scope, move || {
                let transfer = crew.task.transfer;
                crew.work(lane).unwrap_or_else(|error| transfer.fail(error));
            })
            .map_err(|e| DataError::setup("a stream thread", e))?;
        self.started += 1;
        self.running.push(thread);
        Ok(())
    }

    /// Opens lanes as they are asked for, until the last has ended.
    fn supervise(&mut self) {
        let lanes = self.crew.lanes();
        while let Some(tickets) = lanes.next_openings() {
            if self.crew.task.transfer.check().is_err() {
                lanes.close();
                continue;
            }
            self.reap();
            for ticket in tickets {
                self.open(ticket);
            }
        }
    }

    fn open(&mut self, ticket: Ticket<'c>) {
        let crew = self.crew;
        let Some((permit, to)) = crew
            .channel
            .permit()
            .ok()
            .zip(crew.lanes().address(ticket.target()))
        else {
            return crew.refuse(ticket);
        };
        if let Err(error) = self.start(Post::Wanted(ticket, to, permit)) {
            tracing::warn!(%error, "stream not added");
            crew.lanes().make_do();
            crew.task.transfer.control().board().ring();
        }
    }

    /// Lets go of threads that have ended; their stacks would stay otherwise.
    fn reap(&mut self) {
        let running = std::mem::take(&mut self.running);
        let (ended, running) = running.into_iter().partition(ScopedJoinHandle::is_finished);
        self.running = ended;
        self.await_all();
        self.running = running;
    }

    fn await_all(&mut self) {
        for thread in self.running.drain(..) {
            // One that panicked has said so; its transfer is not whole.
            if thread.join().is_err() {
                self.crew.task.transfer.fail(DataError::Aborted);
            }
        }
    }
}

#[cfg(test)]
mod tests;
