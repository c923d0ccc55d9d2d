//! The threads of a MODE E sender: one per stream, and the caller's, which opens further streams on
//! demand.

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
use crate::tls_handshake::complete_handshake;

/// Runs the streams of one transfer.
pub(super) struct SenderThreads<'c> {
    channel: &'c SessionDataChannel,
    task: &'c SendTask<'c>,
    /// Set when everything was handed out: a connection that is not established yet is no longer
    /// needed.
    all_handed_out: WakeEvent,
}

/// A stream that is ready to start, by the state of its connection.
pub(super) enum StreamStart<'c> {
    /// Established.
    Connected(ActiveStream<'c>, Arc<DataStream>),
    /// Being established.
    Connecting(PendingStream<'c>, ConnectAttempt),
    /// To be opened.
    ToOpen(PendingStream<'c>, SocketAddr, StreamPermit),
}

impl<'c> SenderThreads<'c> {
    pub(super) fn new(
        channel: &'c SessionDataChannel,
        task: &'c SendTask<'c>,
    ) -> Result<Self, DataError> {
        let all_handed_out =
            WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
        Ok(Self {
            channel,
            task,
            all_handed_out,
        })
    }

    /// Runs `first` and the streams that are added later, until all have ended. A single stream
    /// whose number cannot change runs in the caller's thread.
    pub(super) fn run(&self, mut first: Vec<StreamStart<'c>>) -> Result<(), DataError> {
        // A tuned transfer may add streams at any time, so its caller's thread must be free.
        let alone = first.len() <= 1 && self.stream_set().wanted() <= 1 && !self.task.adapts();
        if alone {
            return first.pop().map_or(Ok(()), |start| self.run_stream(start));
        }
        std::thread::scope(|scope| {
            let mut threads = RunningSenders {
                sender: self,
                scope,
                running: Vec::new(),
                started: 0,
            };
            for start in first {
                if let Err(error) = threads.start(start) {
                    self.task.transfer.fail(error);
                }
            }
            threads.open_on_demand();
            // Threads are joined here to notice panics.
            threads.join_all();
        });
        self.task.transfer.check()
    }

    fn stream_set(&self) -> &'c StreamSet {
        self.task.transfer.stream_set()
    }

    /// Runs one stream from its connection to its end-of-data mark.
    fn run_stream(&self, start: StreamStart<'c>) -> Result<(), DataError> {
        let (active, stream) = match start {
            StreamStart::Connected(active, stream) => {
                // Before the stream is sampled: bytes of a handshake say nothing about the path.
                complete_handshake(self.task.transfer, &stream, None)?;
                (active, stream)
            }
            StreamStart::Connecting(pending, attempt) => {
                match self.wait_for_connection(pending, Ok(attempt))? {
                    Some(joined) => joined,
                    None => return Ok(()),
                }
            }
            StreamStart::ToOpen(pending, to, permit) => {
                let settings = self.task.settings;
                let until = Instant::now() + settings.connect_timeout;
                let attempt = self.channel.dial(settings, to, until, permit);
                match self.wait_for_connection(pending, attempt)? {
                    Some(joined) => joined,
                    None => return Ok(()),
                }
            }
        };
        self.send(active, StreamIo::new(self.task.transfer, stream))
    }

    /// Waits for a connection; `None` if it is no longer needed, or failed. A stream that cannot
    /// join does not fail the transfer.
    fn wait_for_connection(
        &self,
        pending: PendingStream<'c>,
        attempt: Result<ConnectAttempt, DataError>,
    ) -> Result<Option<(ActiveStream<'c>, Arc<DataStream>)>, DataError> {
        let task = self.task;
        // The handshake is part of the attempt, so that the tuner judges the stream by its data.
        let result = attempt
            .and_then(|a| a.wait_connected(task.transfer, task.settings, &self.all_handed_out))
            .and_then(|stream| self.complete_handshake(stream));
        match result {
            Ok(Some(stream)) => {
                let stream = Arc::new(stream);
                Ok(Some((pending.connected(&stream), stream)))
            }
            Ok(None) => Ok(None),
            // Another stream failed or the user cancelled; this stream did not fail.
            Err(DataError::Aborted) => Err(DataError::Aborted),
            Err(error) => {
                tracing::warn!(%error, "data connection failed");
                self.refuse(pending);
                Ok(None)
            }
        }
    }

    /// Completes the handshake of a new connection; `None` if it is no longer needed.
    fn complete_handshake(
        &self,
        stream: Option<DataStream>,
    ) -> Result<Option<DataStream>, DataError> {
        let Some(stream) = stream else {
            return Ok(None);
        };
        let unless = Some(&self.all_handed_out);
        let complete = complete_handshake(self.task.transfer, &stream, unless)?;
        Ok(complete.then_some(stream))
    }

    /// Records that no connection was made, and wakes the tuner.
    fn refuse(&self, pending: PendingStream<'c>) {
        pending.fail();
        self.task.transfer.control().notices().wake();
    }

    /// Sends blocks while there are some and the stream is wanted, and ends the stream.
    fn send(&self, mut active: ActiveStream<'c>, io: StreamIo<'c>) -> Result<(), DataError> {
        // A surplus stream leaves between two blocks. If it has become the last at its target, it
        // continues.
        let mut sender = StreamSender::new(io, self.task);
        while !sender.send_from_cursor(true, active.leave_flag())? {
            if active.try_retire() {
                sender
                    .io()
                    .send_all(&BlockHeader::eod(true).encode(), &[], false)?;
                // The peer's kernel must have every byte before the stream counts as ended.
                return sender.io().finish_sending();
            }
        }
        // The first stream that finds nothing to send ends the addition of streams.
        if let Some(streams) = self.stream_set().stop_opening() {
            self.task.transfer.note_streams(streams);
        }
        // Connections that other streams wait for are no longer needed.
        self.all_handed_out.wake();
        let close = self.task.settings.close_after;
        let peer = sender.io().stream().peer();
        let end = match active.finish() {
            Some(eods) => {
                // A receiver that has named one address for several stripes waits for an EOF of each.
                let stripes = self.channel.targets().iter().filter(|to| **to == peer);
                for _ in stripes.skip(1) {
                    sender
                        .io()
                        .send_all(&BlockHeader::eof_of_nothing().encode(), &[], true)?;
                }
                BlockHeader::eof(eods, close)
            }
            None => BlockHeader::eod(close),
        };
        sender.io().send_all(&end.encode(), &[], false)?;
        if close {
            sender.io().finish_sending()?;
        }
        Ok(())
    }
}

/// The running threads.
struct RunningSenders<'scope, 'env, 'c> {
    sender: &'scope SenderThreads<'c>,
    scope: &'scope Scope<'scope, 'env>,
    running: Vec<ScopedJoinHandle<'scope, ()>>,
    started: usize,
}

impl<'scope, 'c: 'scope> RunningSenders<'scope, '_, 'c> {
    fn start(&mut self, start: StreamStart<'c>) -> Result<(), DataError> {
        let sender = self.sender;
        let thread = std::thread::Builder::new()
            .name(format!("send-{}", self.started))
            .spawn_scoped(self.scope, move || {
                let transfer = sender.task.transfer;
                sender
                    .run_stream(start)
                    .unwrap_or_else(|error| transfer.fail(error));
            })
            .map_err(|e| DataError::setup("a stream thread", e))?;
        self.started += 1;
        self.running.push(thread);
        Ok(())
    }

    /// Opens streams on demand until the last has ended.
    fn open_on_demand(&mut self) {
        let stream_set = self.sender.stream_set();
        while let Some(pending_streams) = stream_set.wait_for_openings() {
            // Pending streams must still be resolved, or the last stream would wait for them.
            if self.sender.task.transfer.check().is_err() {
                stream_set.stop_opening();
                continue;
            }
            self.join_finished();
            for pending in pending_streams {
                self.open(pending);
            }
        }
    }

    fn open(&mut self, pending: PendingStream<'c>) {
        let sender = self.sender;
        let Some((permit, to)) = sender
            .channel
            .further_permit()
            .ok()
            .zip(sender.stream_set().target_address(pending.target()))
        else {
            // No permit, or the channel is passive.
            return sender.refuse(pending);
        };
        if let Err(error) = self.start(StreamStart::ToOpen(pending, to, permit)) {
            tracing::warn!(%error, "cannot start a stream thread");
            sender.stream_set().accept_current_count();
            sender.task.transfer.control().notices().wake();
        }
    }

    /// Joins threads that have ended. Their stacks would stay allocated otherwise.
    fn join_finished(&mut self) {
        let running = std::mem::take(&mut self.running);
        let (ended, running) = running.into_iter().partition(ScopedJoinHandle::is_finished);
        self.running = ended;
        self.join_all();
        self.running = running;
    }

    fn join_all(&mut self) {
        for thread in self.running.drain(..) {
            // The panic message is already printed; the transfer is not complete.
            if thread.join().is_err() {
                self.sender.task.transfer.fail(DataError::Aborted);
            }
        }
    }
}
