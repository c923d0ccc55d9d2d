//! The threads of a MODE E sender: one a lane, and the caller's, which opens further lanes when they
//! are asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use proto::eblock::BlockHeader;

use super::SendTask;
use super::stream_sender::StreamSender;
use crate::budget::StreamPermit;
use crate::channel::SessionDataChannel;
use crate::connect::ConnectAttempt;
use crate::error::DataError;
use crate::os::wake::WakeEvent;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;
use crate::stream_set::{ActiveStream, PendingStream, StreamSet};

/// Equipment of a transfer's lanes.
pub(super) struct SenderThreads<'c> {
    channel: &'c SessionDataChannel,
    task: &'c SendTask<'c>,
    /// Rung when everything was handed out: a connection that is not there yet is not needed.
    over: WakeEvent,
}

/// A lane that is ready to begin, by its connection.
pub(super) enum StreamStart<'c> {
    /// Is there.
    Connected(ActiveStream<'c>, Arc<DataStream>),
    /// Is being opened.
    Connecting(PendingStream<'c>, ConnectAttempt),
    /// Is to be opened.
    ToOpen(PendingStream<'c>, SocketAddr, StreamPermit),
}

impl<'c> SenderThreads<'c> {
    pub(super) fn new(
        channel: &'c SessionDataChannel,
        task: &'c SendTask<'c>,
    ) -> Result<Self, DataError> {
        let over = WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
        Ok(Self {
            channel,
            task,
            over,
        })
    }

    /// Runs `first` and whatever lanes are asked for later, until all have ended. One lane that stays
    /// alone needs no thread of its own.
    pub(super) fn run(&self, mut first: Vec<StreamStart<'c>>) -> Result<(), DataError> {
        let alone = first.len() <= 1 && self.lanes().wanted() <= 1 && !self.task.adapts();
        if alone {
            return first.pop().map_or(Ok(()), |lane| self.run_stream(lane));
        }
        std::thread::scope(|scope| {
            let mut threads = RunningSenders {
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
            threads.open_on_demand();
            threads.await_all();
        });
        self.task.transfer.check()
    }

    fn lanes(&self) -> &'c StreamSet {
        self.task.transfer.stream_set()
    }

    /// One lane, from its connection to its end mark.
    fn run_stream(&self, lane: StreamStart<'c>) -> Result<(), DataError> {
        let (seat, stream) = match lane {
            StreamStart::Connected(seat, stream) => (seat, stream),
            StreamStart::Connecting(ticket, attempt) => {
                match self.wait_for_connection(ticket, Ok(attempt))? {
                    Some(seated) => seated,
                    None => return Ok(()),
                }
            }
            StreamStart::ToOpen(ticket, to, permit) => {
                let settings = self.task.settings;
                let until = Instant::now() + settings.connect_timeout;
                let attempt = self.channel.dial(settings, to, until, permit);
                match self.wait_for_connection(ticket, attempt)? {
                    Some(seated) => seated,
                    None => return Ok(()),
                }
            }
        };
        self.send(seat, StreamIo::new(self.task.transfer, stream))
    }

    /// Waits for a connection; `None` if it is not needed any more, or refused. A lane that cannot
    /// join is not the transfer's failure.
    fn wait_for_connection(
        &self,
        ticket: PendingStream<'c>,
        attempt: Result<ConnectAttempt, DataError>,
    ) -> Result<Option<(ActiveStream<'c>, Arc<DataStream>)>, DataError> {
        let task = self.task;
        let settled =
            attempt.and_then(|a| a.wait_connected(task.transfer, task.settings, &self.over));
        match settled {
            Ok(Some(stream)) => {
                let stream = Arc::new(stream);
                Ok(Some((ticket.connected(&stream), stream)))
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
    fn refuse(&self, ticket: PendingStream<'c>) {
        ticket.fail();
        self.task.transfer.control().notices().wake();
    }

    /// Sends blocks for as long as there are some and the lane is wanted, and ends the lane.
    fn send(&self, mut seat: ActiveStream<'c>, wire: StreamIo<'c>) -> Result<(), DataError> {
        let mut outlet = StreamSender::new(wire, self.task)?;
        while !outlet.send_supply(true, seat.leave_flag())? {
            if seat.try_retire() {
                outlet
                    .wire()
                    .send_all(&BlockHeader::eod(true).encode(), &[], false)?;
                return outlet.wire().finish_sending();
            }
        }
        if let Some(streams) = self.lanes().stop_opening() {
            self.task.transfer.note_streams(streams);
        }
        self.over.wake();
        let close = self.task.settings.close_after;
        let end = match seat.finish() {
            Some(eods) => BlockHeader::eof(eods, close),
            None => BlockHeader::eod(close),
        };
        outlet.wire().send_all(&end.encode(), &[], false)?;
        if close {
            outlet.wire().finish_sending()?;
        }
        Ok(())
    }
}

/// The threads of a crew.
struct RunningSenders<'scope, 'env, 'c> {
    crew: &'scope SenderThreads<'c>,
    scope: &'scope Scope<'scope, 'env>,
    running: Vec<ScopedJoinHandle<'scope, ()>>,
    started: usize,
}

impl<'scope, 'c: 'scope> RunningSenders<'scope, '_, 'c> {
    fn start(&mut self, lane: StreamStart<'c>) -> Result<(), DataError> {
        let crew = self.crew;
        let thread = std::thread::Builder::new()
            .name(format!("send-{}", self.started))
            .spawn_scoped(self.scope, move || {
                let transfer = crew.task.transfer;
                crew.run_stream(lane)
                    .unwrap_or_else(|error| transfer.fail(error));
            })
            .map_err(|e| DataError::setup("a stream thread", e))?;
        self.started += 1;
        self.running.push(thread);
        Ok(())
    }

    /// Opens lanes as they are asked for, until the last has ended.
    fn open_on_demand(&mut self) {
        let lanes = self.crew.lanes();
        while let Some(tickets) = lanes.wait_for_openings() {
            if self.crew.task.transfer.check().is_err() {
                lanes.stop_opening();
                continue;
            }
            self.reap();
            for ticket in tickets {
                self.open(ticket);
            }
        }
    }

    fn open(&mut self, ticket: PendingStream<'c>) {
        let crew = self.crew;
        let Some((permit, to)) = crew
            .channel
            .permit()
            .ok()
            .zip(crew.lanes().target_address(ticket.target()))
        else {
            return crew.refuse(ticket);
        };
        if let Err(error) = self.start(StreamStart::ToOpen(ticket, to, permit)) {
            tracing::warn!(%error, "stream not added");
            crew.lanes().accept_current_count();
            crew.task.transfer.control().notices().wake();
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
