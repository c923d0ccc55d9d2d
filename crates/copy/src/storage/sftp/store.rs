//! Stores a file: WRITEs ahead over its connections.
//!
//! A reply to WRITE says that the server's kernel has the bytes. They are stored ranges when the server has forced them to disk
//! meanwhile. A server that cannot be asked for that keeps them as long as it lives: then replies to WRITE count, until the
//! connection is lost.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::dialer::Dialer;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::send::body::{self, BodyRange, RequestBody};
use data::store::Source;
use ftp::failure::Operation;
use ftp::transfer::control_messages::add_stored_ranges;
use ftp::transfer::outcome::pull_failure;
use ftp::transfer::{TransferConfirmation, TransferSpec};
use ftp::{Failure, FailureKind};
use proto::ranges::{ByteRange, RangeSet};

use super::connection::LONG_WAIT;
use super::errors::{self, SftpFailed};
use super::lanes::Lanes;

/// A failure of this machine's store, or of the server.
pub(super) enum SendFailed {
    Data(DataError),
    Server(SftpFailed),
}

impl SendFailed {
    /// The failure for people.
    pub(super) fn failure(
        self,
        server: &str,
        operation: &Operation,
        confirmation: &TransferConfirmation,
    ) -> Failure {
        match self {
            Self::Data(error) => pull_failure(server, operation, &error, confirmation),
            Self::Server(failed) => failed.failure(server, operation),
        }
    }
}

impl From<DataError> for SendFailed {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

impl From<SftpFailed> for SendFailed {
    fn from(failed: SftpFailed) -> Self {
        Self::Server(failed)
    }
}

/// A store of a file.
pub(super) struct StoreJob<'j> {
    pub(super) server: &'j str,
    pub(super) operation: &'j Operation,
    pub(super) source: &'j dyn Source,
    pub(super) spec: &'j TransferSpec,
    pub(super) settings: &'j TransferSettings,
    /// `None`: all that comes.
    pub(super) size: Option<u64>,
}

impl StoreJob<'_> {
    /// Stores the missing ranges. Runs on a thread for blocking calls.
    ///
    /// # Errors
    /// The refusal by its class. `Local` for errors of the source.
    pub(super) fn run(
        &self,
        lanes: &mut Lanes,
        control: &Arc<TransferControl>,
    ) -> Result<TransferReport, Failure> {
        let Self {
            server,
            operation,
            source,
            spec,
            settings,
            size,
        } = *self;
        let failure = |error: SendFailed| error.failure(server, operation, &spec.confirmation);
        let before = spec.stored_ranges.lock().clone();
        // From here on the server may have bytes.
        spec.started.store(true, Ordering::Relaxed);
        let missing = size.map(|size| spec.completed_ranges.gaps(0, size));
        let begin = match &missing {
            Some(missing) => missing.iter().next().map_or(size.unwrap_or(0), |r| r.start),
            None => spec.completed_ranges.prefix_len(),
        };
        let range = BodyRange {
            offset: spec
                .part
                .map_or(0, |(offset, _)| offset)
                .saturating_add(begin),
            length: size.map(|size| size - begin),
        };
        let dialer = Dialer::new(settings).map_err(|error| failure(error.into()))?;
        let sent = body::run(source, range, settings, control, &dialer, |bytes| {
            let mut sender = BlockSender {
                lanes: &mut *lanes,
                source,
                spec,
                control,
                settings,
                missing: missing.as_ref(),
                position: begin,
                size,
            };
            sender.run(bytes)
        });
        if let Err(SendFailed::Server(failed)) = &sent
            && failed.is_loss()
            && lanes.doubts_after_loss()
            && !control.is_cancelled()
        {
            // Later, checksums may prove them.
            *spec.stored_ranges.lock() = before;
        }
        sent.map_err(|error| match error {
            SendFailed::Server(failed) if !control.is_cancelled() => {
                failure(SendFailed::Server(lanes.explained(failed)))
            }
            error => failure(error),
        })
    }
}

/// Size of the destination, bytes: as specified, else the rest of the source; `None` for pipes.
pub(super) fn destination_size(
    source: &dyn Source,
    spec: &TransferSpec,
) -> Result<Option<u64>, Failure> {
    let length = source.len().map_err(|error| {
        let operation = Operation::on("read the size of", source.name());
        operation.failed(FailureKind::Local, error)
    })?;
    let (offset, most) = spec.part.unwrap_or((0, u64::MAX));
    Ok(length.map(|length| {
        let rest = length.saturating_sub(offset).min(most);
        spec.size.unwrap_or(rest)
    }))
}

struct BlockSender<'s> {
    lanes: &'s mut Lanes,
    source: &'s dyn Source,
    spec: &'s TransferSpec,
    control: &'s TransferControl,
    settings: &'s TransferSettings,
    /// `None`: everything.
    missing: Option<&'s RangeSet>,
    /// Of the next byte of the source, as offset in the destination's part.
    position: u64,
    size: Option<u64>,
}

impl BlockSender<'_> {
    fn run(&mut self, bytes: &mut RequestBody<'_>) -> Result<(), SendFailed> {
        let mut is_read = self.size == Some(self.position);
        while !is_read || self.lanes.is_waiting() || self.lanes.has_returned() {
            while self.lanes.has_returned()
                && let Some(lane) = self.lanes.free_lane()
            {
                self.send_again(lane)?;
                self.receive(false)?;
            }
            while !is_read && let Some(lane) = self.lanes.free_lane() {
                is_read = !self.send_next(lane, bytes)?;
                self.receive(false)?;
            }
            self.receive(true)?;
        }
        Ok(())
    }

    /// Sends the next block that is missing; `false`: there is none.
    fn send_next(&mut self, lane: usize, bytes: &mut RequestBody<'_>) -> Result<bool, SendFailed> {
        let Some(range) = self.next_range() else {
            return Ok(false);
        };
        bytes.skip(range.start - self.position);
        let most = u64::from(self.lanes.block_length(lane)).min(range.len());
        let offset = self.destination().saturating_add(range.start);
        let read = |out: &mut Vec<u8>| match (&mut *bytes).take(most).read_to_end(out) {
            Ok(_) => Ok(()),
            Err(_) => Err(own_error()),
        };
        if !self.lanes.is_waiting() {
            self.lanes.end_silence();
        }
        let sent = self.lanes.write(lane, offset, read)?;
        self.position = range.start + u64::from(sent);
        Ok(sent > 0)
    }

    /// Sends a part once more that another connection has lost.
    fn send_again(&mut self, lane: usize) -> Result<(), SendFailed> {
        let Some(block) = self.lanes.take_returned(self.lanes.block_length(lane)) else {
            return Ok(());
        };
        let at = block.offset.saturating_sub(self.destination());
        let at = at.saturating_add(self.spec.part.map_or(0, |(offset, _)| offset));
        let source = self.source;
        let read = |out: &mut Vec<u8>| {
            let begin = out.len();
            out.resize(begin + block.length as usize, 0);
            let mut filled = begin;
            while filled < out.len() {
                let offset = at.saturating_add((filled - begin) as u64);
                match source.read_at(offset, &mut out[filled..]) {
                    Ok(count @ 1..) => filled += count,
                    // A pipe has its bytes once.
                    Ok(0) | Err(_) => return Err(SftpFailed::Lost(ErrorKind::NotConnected.into())),
                }
            }
            Ok(())
        };
        self.lanes.write(lane, block.offset, read)?;
        Ok(())
    }

    /// Offset of the part's first byte in the destination.
    fn destination(&self) -> u64 {
        self.spec.destination_offset.unwrap_or(0)
    }

    fn next_range(&self) -> Option<ByteRange> {
        match self.missing {
            None => Some(ByteRange {
                start: self.position,
                end: u64::MAX,
            }),
            Some(missing) => missing.iter().find_map(|range| {
                let start = range.start.max(self.position);
                (start < range.end).then_some(ByteRange {
                    start,
                    end: range.end,
                })
            }),
        }
    }

    /// Takes the replies that have come.
    fn receive(&mut self, waits: bool) -> Result<(), SendFailed> {
        if self.control.is_cancelled() {
            return Err(DataError::Aborted.into());
        }
        let (mut moved, mut refused) = (0, None);
        for answer in self.lanes.exchange(waits && self.lanes.is_waiting())? {
            // Blocks that were taken count, also beside one that was not.
            match errors::done(answer.reply) {
                Ok(()) => {
                    self.lanes.note_taken(answer.lane, answer.block);
                    moved += u64::from(answer.block.length);
                }
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        let part = self.destination();
        let mut stored = RangeSet::new();
        for range in self.lanes.take_stored().iter() {
            let (start, end) = (
                range.start.saturating_sub(part),
                range.end.saturating_sub(part),
            );
            stored.insert(start, end);
        }
        if !stored.is_empty() {
            add_stored_ranges(&self.spec.stored_ranges, &stored);
        }
        if let Some(refusal) = refused {
            return Err(refusal.into());
        }
        let left = self.size.map(|size| size.saturating_sub(self.position));
        self.lanes.note_moved(moved, left);
        let limit = match self.lanes.is_syncing() {
            true => LONG_WAIT,
            false => self.settings.options.stall,
        };
        match self.lanes.is_waiting() && self.lanes.silence() > limit {
            true => Err(SftpFailed::Silent(limit).into()),
            false => Ok(()),
        }
    }
}

/// Stands for the error of the source, which the caller knows.
pub(super) fn own_error() -> SendFailed {
    let reason = Failure::new(FailureKind::Local, "the source cannot be read");
    SftpFailed::Other(reason).into()
}
