//! Requests about many files, and their replies.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ftp::failure::Operation;
use ftp::transfer::series::files::SeriesFile;
use proto::bundle::BundleFailure;
use proto::sftp::{FileChecksum, SftpReply, SftpRequest};

use super::connection::{LONG_WAIT, SftpConnection, wait_for};
use super::errors::{self, SftpFailed};
use super::lanes::TICK;
use super::series::SeriesOutcome;

/// Most files that are open, whatever the server allows: so many fill a path, and what fails together is copied again together.
const MAX_OPEN: u32 = 512;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesStep {
    Open,
    /// So many bytes at an offset.
    Read(u64, u32),
    /// So many bytes.
    Write(u32),
    /// Forces the file to disk.
    Sync,
    Close,
    /// Size and time of the file.
    Attributes,
    Checksum,
    SetTime,
    Rename,
    /// Of a file that gets no name.
    Remove,
}

impl SeriesStep {
    /// A server may take long to answer.
    fn is_slow(self) -> bool {
        matches!(self, Self::Sync | Self::Checksum | Self::Close)
    }
}

/// A request that was sent; the position of its file in the series.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentRequest {
    pub(super) position: usize,
    pub(super) step: SeriesStep,
}

/// The connection of a series.
pub(super) struct SeriesRequests {
    pub(super) connection: SftpConnection,
    pub(super) outcome: SeriesOutcome,
    /// Files that are open, or will be.
    pub(super) open: u32,
    pending: HashMap<u32, SentRequest>,
    /// When something came last, or was to come again.
    heard: Instant,
    stall: Duration,
}

impl SeriesRequests {
    pub(super) fn new(connection: SftpConnection, stall: Duration) -> Self {
        Self {
            connection,
            outcome: SeriesOutcome::default(),
            open: 0,
            pending: HashMap::new(),
            heard: Instant::now(),
            stall,
        }
    }

    pub(super) fn end(self) -> (SftpConnection, SeriesOutcome) {
        (self.connection, self.outcome)
    }

    /// Whether one more file may be opened.
    pub(super) fn may_open(&self) -> bool {
        self.open < self.connection.limits.handles.clamp(1, MAX_OPEN)
    }

    /// Whether requests wait for replies.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn send(&mut self, position: usize, step: SeriesStep, request: &SftpRequest<'_>) {
        let id = self.connection.send(request);
        self.note(id, position, step);
    }

    /// Notes a request that is sent.
    pub(super) fn note(&mut self, id: u32, position: usize, step: SeriesStep) {
        if self.pending.is_empty() {
            self.heard = Instant::now();
        }
        self.pending.insert(id, SentRequest { position, step });
    }

    /// Sends and receives what can be; with `waits` it waits for something, for a moment.
    ///
    /// # Errors
    /// The connection is lost or silent, or the server breaks the protocol.
    pub(super) fn replies(
        &mut self,
        waits: bool,
    ) -> Result<Vec<(SentRequest, SftpReply)>, SftpFailed> {
        let mut replies = self.come()?;
        if replies.is_empty() && waits && self.is_waiting() {
            wait_for(&[&self.connection], Instant::now() + TICK)?;
            replies = self.come()?;
        }
        let silence = self.heard.elapsed();
        if !self.is_waiting() || silence <= self.stall {
            return Ok(replies);
        }
        // Servers carry out one request after the other.
        let oldest = self.pending.iter().min_by_key(|(id, _)| **id);
        let limit = match oldest.is_some_and(|(_, sent)| sent.step.is_slow()) {
            true => LONG_WAIT,
            false => self.stall,
        };
        match silence > limit {
            true => Err(SftpFailed::Silent(limit)),
            false => Ok(replies),
        }
    }

    fn come(&mut self) -> Result<Vec<(SentRequest, SftpReply)>, SftpFailed> {
        self.connection.exchange()?;
        let mut replies = Vec::new();
        while let Some((id, reply)) = self.connection.take()? {
            let sent = self.pending.remove(&id).ok_or(SftpFailed::Unasked)?;
            self.heard = Instant::now();
            if sent.step == SeriesStep::Close {
                self.open = self.open.saturating_sub(1);
            }
            replies.push((sent, reply));
        }
        Ok(replies)
    }

    /// The file is copied by itself later.
    pub(super) fn fail(&mut self, file: &SeriesFile, reason: String) {
        self.outcome.failed.push(BundleFailure {
            index: file.index,
            reason,
        });
    }
}

/// Why a file fails by this error.
///
/// # Errors
/// It is not about the file.
pub(super) fn reason(failed: SftpFailed, server: &str, path: &[u8]) -> Result<String, SftpFailed> {
    match failed.is_loss() {
        true => Err(failed),
        false => {
            let operation = Operation::on_path("copy", path);
            Ok(failed.failure(server, &operation).to_string())
        }
    }
}

/// The handle in a reply.
pub(super) fn handle(reply: SftpReply) -> Result<Vec<u8>, SftpFailed> {
    match reply {
        SftpReply::Handle(handle) => Ok(handle),
        other => Err(errors::unexpected(other)),
    }
}

/// The checksum in a reply; `None`: it is one of another algorithm.
pub(super) fn checksum(
    reply: SftpReply,
    algorithm: proto::checksum::ChecksumAlgorithm,
) -> Result<Option<String>, SftpFailed> {
    match reply {
        SftpReply::Extended(answer) => {
            let answer = FileChecksum::parse(&answer).map_err(SftpFailed::Broken)?;
            let is_right = answer.algorithm == Some(algorithm);
            Ok(Some(answer.checksum).filter(|_| is_right))
        }
        other => Err(errors::unexpected(other)),
    }
}

/// Why the attributes are not those of the file, which has this size, and this time if one is known.
///
/// # Errors
/// The refusal.
pub(super) fn mismatch(
    reply: SftpReply,
    file: &SeriesFile,
    with_time: bool,
) -> Result<Option<String>, SftpFailed> {
    let SftpReply::Attributes(found) = reply else {
        return Err(errors::unexpected(reply));
    };
    let is_same_time = !with_time
        || found
            .modified
            .zip(file.modified)
            .is_none_or(|(found, listed)| found == listed);
    Ok(match found.size {
        Some(size) if size == file.size && is_same_time => None,
        Some(size) if size == file.size => Some("it has changed since it was listed".to_owned()),
        found => Some(format!(
            "it has {} bytes at the server instead of {}",
            found.map_or_else(
                || "an unknown number of".to_owned(),
                |size| size.to_string()
            ),
            file.size
        )),
    })
}
