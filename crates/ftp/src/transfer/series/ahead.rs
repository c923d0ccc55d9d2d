//! A thread that sends files over kept data connections (MODE E) before the server has answered their store commands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::{io, thread};

use data::channel::SessionDataChannel;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::exchange::LocalTransfer;
use super::super::outcome::{self, FailedTransfer};
use crate::Failure;
use crate::failure::{Operation, Sentence};
use crate::session::ClientSession;
use crate::session::control::MarkerRateLimit;

/// A file to send.
pub(super) struct AheadFile {
    pub(super) local_end: LocalTransfer,
    pub(super) settings: TransferSettings,
    pub(super) control: Arc<TransferControl>,
}

/// Sends files in order, one directly behind the other. Cancels what is not sent when it is dropped.
#[derive(Debug)]
pub(super) struct AheadSender {
    files: mpsc::Sender<AheadFile>,
    /// One result for each file, in order, up to the first error.
    results: UnboundedReceiver<Result<TransferReport, DataError>>,
    channel: oneshot::Receiver<SessionDataChannel>,
    unconfirmed: UnconfirmedFiles,
}

/// Files that are not confirmed. They are cancelled when this is dropped.
#[derive(Debug, Default)]
struct UnconfirmedFiles(VecDeque<Arc<TransferControl>>);

impl Drop for UnconfirmedFiles {
    fn drop(&mut self) {
        for control in &self.0 {
            control.cancel();
        }
    }
}

impl AheadSender {
    /// A sender over the kept connections of `channel`.
    ///
    /// # Errors
    /// The system starts no thread; the channel is closed.
    pub(super) fn start(channel: SessionDataChannel) -> io::Result<Self> {
        let (files, next_file) = mpsc::channel();
        let (result, results) = unbounded_channel();
        let (give_back, given_back) = oneshot::channel();
        // Not one of the runtime's threads: it waits for the server's replies, and the runtime has few.
        thread::Builder::new()
            .name("series".to_owned())
            .spawn(move || {
                let channel = send_files(channel, &next_file, &result);
                // Nobody wants the channel of an abandoned session.
                let _ = give_back.send(channel);
            })?;
        Ok(Self {
            files,
            results,
            channel: given_back,
            unconfirmed: UnconfirmedFiles::default(),
        })
    }

    /// Sends a file behind the others.
    pub(super) fn send(&mut self, file: AheadFile) {
        self.unconfirmed.0.push_back(Arc::clone(&file.control));
        // A sender that has failed takes no more; its error is the result of an earlier file.
        let _ = self.files.send(file);
    }

    /// Waits until the first file without confirmation is sent, and the server has confirmed its transfer.
    ///
    /// # Errors
    /// It is not sent, or refused. No other file can be confirmed then.
    pub(super) async fn confirm(
        &mut self,
        session: &mut ClientSession,
        started: &AtomicBool,
        operation: &Operation,
    ) -> Result<TransferReport, FailedTransfer> {
        let mut sent = None;
        let mut markers = MarkerRateLimit::new();
        let reply = loop {
            let reply = match sent {
                Some(_) => session.control.wait_for_reply().await?,
                // Until the bytes are sent, the data side's own limit ends the transfer.
                None => tokio::select! {
                    result = self.results.recv() => {
                        sent = Some(self.take_result(result, session.name(), operation)?);
                        continue;
                    }
                    reply = session.control.next_reply() => reply?,
                },
            };
            if !reply.is_preliminary() {
                break reply;
            }
            started.store(true, Ordering::Relaxed);
            if markers.count_marker() {
                return Err(session.control.too_many_markers_failure().into());
            }
        };
        if !reply.is_success() {
            return Err(outcome::refused_by_server(session.name(), operation, reply));
        }
        if let Some(report) = sent {
            return Ok(report);
        }
        // The reply may be faster than this end's thread.
        let limit = session.control.reply_timeout();
        match timeout(limit, self.results.recv()).await {
            Ok(result) => self.take_result(result, session.name(), operation),
            Err(_) => Err(Failure::unreachable(
                Sentence::from(format!(
                    "{} confirmed a transfer that has not ended: cannot ",
                    session.name()
                ))
                .operation(operation),
            )
            .advise("try again")
            .into()),
        }
    }

    fn take_result(
        &mut self,
        result: Option<Result<TransferReport, DataError>>,
        server: &str,
        operation: &Operation,
    ) -> Result<TransferReport, FailedTransfer> {
        self.unconfirmed.0.pop_front();
        match result {
            Some(Ok(report)) => Ok(report),
            Some(Err(error)) => Err(outcome::data_side_error(server, operation, &error)),
            None => Err(FailedTransfer::data_thread_lost(server, operation)),
        }
    }

    /// Ends the thread when everything is confirmed. Returns its connections.
    pub(super) async fn finish(self) -> Option<SessionDataChannel> {
        drop(self.files);
        self.channel.await.ok()
    }
}

/// Sends what `files` hands out, until it is closed or a file fails.
fn send_files(
    mut channel: SessionDataChannel,
    files: &mpsc::Receiver<AheadFile>,
    results: &UnboundedSender<Result<TransferReport, DataError>>,
) -> SessionDataChannel {
    while let Ok(file) = files.recv() {
        // The server would take the bytes on a new connection for those of the first file that it still waits for.
        let result = match channel.has_cached(true) {
            true => file
                .local_end
                .run(&mut channel, &file.settings, &file.control),
            false => Err(DataError::Wire {
                peer: "the server".to_owned(),
                source: io::ErrorKind::NotConnected.into(),
            }),
        };
        let has_failed = result.is_err();
        if results.send(result).is_err() || has_failed {
            break;
        }
    }
    channel
}
