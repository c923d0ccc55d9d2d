//! One connection of a MODE E transfer: headers and blocks until its end-of-data mark.

use proto::eblock::{BlockError, BlockEvent, HEADER_LEN};

use super::ReceiveTask;
use super::extended_receive::{ExtendedReceive, StreamPast};
use super::stream_receiver::StreamReceiver;
use crate::error::DataError;
use crate::stream_io::{InputResult, StreamIo};

/// Bytes after which a reader gives up its turn if another connection waits for one; less when nothing is there to read.
const TURN_BYTES: u64 = 1 << 20;

/// How a connection finished its part of a transfer, or a turn, without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// EOD arrived.
    Eod {
        /// The sender will close the connection.
        close: bool,
    },
    /// The peer closed it before it carried anything.
    ClosedUnused,
    /// The rest of what it carries lies beyond the early end of the transfer.
    BeyondEnd,
    /// The transfer was completed by other connections.
    Idle,
    /// Another connection has its turn.
    Turn,
}

/// Reads one connection.
pub(super) struct BlockReader<'t> {
    receiver: StreamReceiver<'t>,
    task: &'t ReceiveTask<'t>,
    receive: &'t ExtendedReceive,
    header: [u8; HEADER_LEN],
    past: StreamPast,
    /// Bytes read in this turn.
    turn_bytes: u64,
    /// The last read took all that was there.
    is_drained: bool,
}

impl<'t> BlockReader<'t> {
    pub(super) fn new(
        io: StreamIo<'t>,
        task: &'t ReceiveTask<'t>,
        receive: &'t ExtendedReceive,
        past: StreamPast,
    ) -> Self {
        Self {
            receiver: StreamReceiver::new(io, task, &receive.checksum),
            task,
            receive,
            header: [0; HEADER_LEN],
            past,
            turn_bytes: 0,
            is_drained: false,
        }
    }

    /// Reads until the connection has finished its part of the transfer. An error on a connection
    /// that has carried nothing (a port scan, a wrong peer) does not fail the transfer.
    pub(super) fn run(mut self) -> Result<(StreamEnd, StreamPast), DataError> {
        let end = match self.read() {
            Err(error) if !self.past.has_carried => Self::end_unused(error, self.receive),
            result => result,
        };
        end.map(|end| (end, self.past))
    }

    /// The end of a connection that failed before it carried anything.
    pub(super) fn end_unused(
        error: DataError,
        receive: &ExtendedReceive,
    ) -> Result<StreamEnd, DataError> {
        match error {
            DataError::Wire { .. } | DataError::Security { .. } | DataError::Block { .. } => {
                tracing::warn!(%error, "data connection failed and was closed");
                receive.note_bad_start(error);
                Ok(StreamEnd::ClosedUnused)
            }
            error => Err(error),
        }
    }

    fn read(&mut self) -> Result<StreamEnd, DataError> {
        loop {
            while self.past.decoder.payload_left() > 0 {
                if self.is_beyond_early_end() {
                    self.receiver.report();
                    self.task.end_early_if_complete();
                    return Ok(StreamEnd::BeyondEnd);
                }
                if self.gives_up_turn_in_block()? {
                    self.receiver.report();
                    return Ok(StreamEnd::Turn);
                }
                self.move_payload()?;
            }
            // Stored ranges are reported before a wait for the next header, which may last.
            self.receiver.report();
            self.task.end_early_if_complete();
            // The decoder returns an EOD once the data of its header has passed.
            let end = match self.decode(&[])? {
                None => self.read_header()?,
                Some(event) => self.on_event(event)?,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    fn is_beyond_early_end(&self) -> bool {
        self.past.decoder.is_payload_data()
            && self
                .task
                .is_beyond_early_end(self.past.decoder.payload_offset())
    }

    /// Moves a piece of the current block.
    fn move_payload(&mut self) -> Result<(), DataError> {
        let left = self.past.decoder.payload_left();
        let n = if self.past.decoder.is_payload_data() {
            let offset = self.past.decoder.payload_offset();
            self.move_data(offset, self.task.before_early_end(offset, left))?
        } else {
            self.receiver.skip(left)?
        };
        if n == 0 {
            return Err(self.block_error(BlockError::Truncated));
        }
        if !self.past.decoder.is_payload_data() {
            self.receiver.io.check_clock()?;
        }
        self.past.decoder.skip_payload(n);
        self.turn_bytes += n;
        self.is_drained = n < left;
        Ok(())
    }

    /// Moves up to `left` bytes of file data: to the store, or to the comparison with bytes stored
    /// before.
    fn move_data(&mut self, offset: u64, left: u64) -> Result<u64, DataError> {
        let Some(range) = self.past.repeated.iter().find(|r| r.end > offset) else {
            return self.receiver.receive_step(offset, left);
        };
        if range.start > offset {
            return self
                .receiver
                .receive_step(offset, left.min(range.start - offset));
        }
        let same = self
            .receiver
            .compare(offset, left.min(range.end - offset))?;
        same.map_err(|source| self.block_error(source))
    }

    /// Reads one header and no byte more: bytes after an end mark belong to the next transfer.
    fn read_header(&mut self) -> Result<Option<StreamEnd>, DataError> {
        let mut received = 0;
        let mut is_idle = false;
        while received < HEADER_LEN {
            // Only between blocks: a block that has begun must be completed.
            if received == 0 {
                if self.receive.is_complete() {
                    return Ok(Some(StreamEnd::Idle));
                }
                if (is_idle || self.has_had_its_turn()) && self.receive.takes_turn() {
                    return Ok(Some(StreamEnd::Turn));
                }
            }
            let rest = &mut self.header[received..];
            let input = if received == 0 {
                self.receiver
                    .io
                    .recv_or_wake(rest, [&self.receive.completed, &self.receive.turn_wake])?
            } else {
                InputResult::Bytes(self.receiver.io.recv_no_progress(rest)?)
            };
            match input {
                InputResult::Interrupted => is_idle = true,
                // A connection that carried nothing may close; one with data must end with EOD
                // (GFD.20 §3.4.2).
                InputResult::Bytes(0) if !self.past.has_carried => {
                    return Ok(Some(StreamEnd::ClosedUnused));
                }
                InputResult::Bytes(0) => return Err(self.block_error(BlockError::Truncated)),
                InputResult::Bytes(n) => received += n,
            }
        }
        self.on_header()
    }

    /// Whether no layer holds bytes that the socket does not show.
    fn is_bare(&self) -> bool {
        let transport = self.receiver.io.stream().transport();
        transport.kernel_socket().is_ok()
    }

    /// Whether this reader may stop although bytes may be there.
    fn has_had_its_turn(&self) -> bool {
        self.turn_bytes >= TURN_BYTES && self.is_bare()
    }

    /// Waits for the next bytes of a block; true if another connection wants the turn before they come.
    fn gives_up_turn_in_block(&mut self) -> Result<bool, DataError> {
        if self.has_had_its_turn() && self.receive.takes_turn() {
            return Ok(true);
        }
        while self.is_drained && self.is_bare() {
            let turn_wake = &self.receive.turn_wake;
            if self.receiver.io.wait_for_input(turn_wake)? {
                break;
            }
            if self.receive.takes_turn() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn on_header(&mut self) -> Result<Option<StreamEnd>, DataError> {
        let bytes = self.header;
        let event = self.decode(&bytes)?;
        if self.past.decoder.is_payload_data() {
            let (offset, count) = (
                self.past.decoder.payload_offset(),
                self.past.decoder.payload_left(),
            );
            self.task.check_limit(offset, count)?;
            // Announced before it is stored, so that two connections cannot store the same range
            // unnoticed.
            self.past.repeated = self.receive.announce_block(offset, offset + count)?;
        }
        if self.past.decoder.payload_left() == 0 {
            // A peer may send any number of empty headers, so they are no progress. An end mark
            // counts when it is processed.
            self.receiver.io.check_clock()?;
        }
        self.past.has_carried = true;
        self.receive.note_valid_header();
        event.map_or(Ok(None), |event| self.on_event(event))
    }

    fn on_event(&mut self, event: BlockEvent) -> Result<Option<StreamEnd>, DataError> {
        match event {
            BlockEvent::Eod { close } => {
                self.receiver.report();
                // The stored ranges must be reported before the last EOD completes the transfer.
                self.receive.on_eod().map_err(|e| self.block_error(e))?;
                self.task.transfer.clock().note_progress();
                Ok(Some(StreamEnd::Eod { close }))
            }
            BlockEvent::Eof { streams } => {
                let first = self
                    .receive
                    .on_eof(streams)
                    .map_err(|e| self.block_error(e))?;
                if first {
                    self.task.transfer.clock().note_progress();
                }
                Ok(None)
            }
            // The decoder was given headers only.
            BlockEvent::Data { .. } | BlockEvent::Skip { .. } => Ok(None),
        }
    }

    fn decode(&mut self, input: &[u8]) -> Result<Option<BlockEvent>, DataError> {
        let (_, event) = self
            .past
            .decoder
            .decode(input)
            .map_err(|e| self.block_error(e))?;
        Ok(event)
    }

    fn block_error(&self, source: BlockError) -> DataError {
        DataError::Block {
            peer: self.receiver.io.stream().peer().to_string(),
            source,
        }
    }
}
