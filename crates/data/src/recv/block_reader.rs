//! One connection of a MODE E transfer: headers and blocks until its end mark.

use proto::eblock::{BlockDecoder, BlockError, BlockEvent, HEADER_LEN};
use proto::ranges::RangeSet;

use super::ReceiveTask;
use super::extended_receive::ExtendedReceive;
use super::stream_receiver::StreamReceiver;
use crate::error::DataError;
use crate::stream_io::{InputResult, StreamIo};

/// How a connection's part in a transfer ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// EOD came.
    Eod {
        /// The sender will close the connection.
        close: bool,
    },
    /// The peer closed it before it carried anything.
    ClosedUnused,
    /// The transfer was complete without it.
    Idle {
        /// It is known to be the sender's: it carried something.
        carried: bool,
    },
}

/// Reads one connection.
pub(super) struct BlockReader<'t> {
    inlet: StreamReceiver<'t>,
    task: &'t ReceiveTask<'t>,
    gathering: &'t ExtendedReceive,
    decoder: BlockDecoder,
    header: [u8; HEADER_LEN],
    /// A header of this transfer was accepted on this connection.
    carried: bool,
    /// Part of the block under way that had been announced before.
    again: RangeSet,
}

impl<'t> BlockReader<'t> {
    pub(super) fn new(
        wire: StreamIo<'t>,
        task: &'t ReceiveTask<'t>,
        gathering: &'t ExtendedReceive,
    ) -> Self {
        Self {
            inlet: StreamReceiver::new(wire, task, &gathering.checksum),
            task,
            gathering,
            decoder: BlockDecoder::new(),
            header: [0; HEADER_LEN],
            carried: false,
            again: RangeSet::new(),
        }
    }

    /// Reads until the connection's part in the transfer is over. Trouble on a connection that
    /// has carried nothing (a port scan, a wrong peer) is its own: the transfer goes on.
    pub(super) fn run(mut self) -> Result<StreamEnd, DataError> {
        match self.read() {
            Err(error) if !self.carried => Self::end_unused(error, self.gathering),
            result => result,
        }
    }

    /// How a connection ends that failed before it carried anything.
    pub(super) fn end_unused(
        error: DataError,
        gathering: &ExtendedReceive,
    ) -> Result<StreamEnd, DataError> {
        match error {
            DataError::Wire { .. } | DataError::Block { .. } => {
                tracing::warn!(%error, "data connection dropped");
                gathering.note_bad_start(error);
                Ok(StreamEnd::ClosedUnused)
            }
            error => Err(error),
        }
    }

    fn read(&mut self) -> Result<StreamEnd, DataError> {
        loop {
            while self.decoder.payload_left() > 0 {
                self.payload()?;
            }
            self.inlet.report();
            // An EOD is told by the header before it, once its data has passed.
            let end = match self.decode(&[])? {
                None => self.header()?,
                Some(event) => self.on_event(event)?,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Moves a piece of the block under way.
    fn payload(&mut self) -> Result<(), DataError> {
        let left = self.decoder.payload_left();
        let n = if self.decoder.is_payload_data() {
            self.data(self.decoder.payload_offset(), left)?
        } else {
            self.inlet.skip(left)?
        };
        if n == 0 {
            return Err(self.block_error(BlockError::Truncated));
        }
        if !self.decoder.is_payload_data() {
            self.inlet.wire.check_clock()?;
        }
        self.decoder.skip_payload(n);
        Ok(())
    }

    /// Moves up to `left` bytes of file data: to the store, or against what is there already.
    fn data(&mut self, offset: u64, left: u64) -> Result<u64, DataError> {
        let Some(range) = self.again.iter().find(|r| r.end > offset) else {
            return self.inlet.receive_step(offset, left);
        };
        if range.start > offset {
            return self
                .inlet
                .receive_step(offset, left.min(range.start - offset));
        }
        let same = self.inlet.compare(offset, left.min(range.end - offset))?;
        same.map_err(|source| self.block_error(source))
    }

    /// Reads one header; never a byte more, for what follows an end mark belongs to the next
    /// transfer.
    fn header(&mut self) -> Result<Option<StreamEnd>, DataError> {
        let mut have = 0;
        while have < HEADER_LEN {
            if have == 0 && self.gathering.is_complete() {
                let carried = self.carried;
                return Ok(Some(StreamEnd::Idle { carried }));
            }
            let rest = &mut self.header[have..];
            let input = if have == 0 {
                self.inlet
                    .wire
                    .recv_or_wake(rest, &self.gathering.completed)?
            } else {
                InputResult::Bytes(self.inlet.wire.recv_no_progress(rest)?)
            };
            match input {
                InputResult::Interrupted => {}
                InputResult::Bytes(0) if !self.carried => return Ok(Some(StreamEnd::ClosedUnused)),
                InputResult::Bytes(0) => return Err(self.block_error(BlockError::Truncated)),
                InputResult::Bytes(n) => have += n,
            }
        }
        self.on_header()
    }

    fn on_header(&mut self) -> Result<Option<StreamEnd>, DataError> {
        let bytes = self.header;
        let event = self.decode(&bytes)?;
        if self.decoder.is_payload_data() {
            let (offset, count) = (self.decoder.payload_offset(), self.decoder.payload_left());
            self.task.check_limit(offset, count)?;
            self.again = self.gathering.announce_block(offset, offset + count)?;
        }
        if self.decoder.payload_left() == 0 {
            // Of these there may be any number; an end mark is counted when it is taken.
            self.inlet.wire.check_clock()?;
        }
        self.carried = true;
        self.gathering.note_valid_header();
        event.map_or(Ok(None), |event| self.on_event(event))
    }

    fn on_event(&mut self, event: BlockEvent) -> Result<Option<StreamEnd>, DataError> {
        match event {
            BlockEvent::Eod { close } => {
                self.inlet.report();
                self.gathering.on_eod().map_err(|e| self.block_error(e))?;
                self.task.transfer.clock().note_progress();
                Ok(Some(StreamEnd::Eod { close }))
            }
            BlockEvent::Eof { streams } => {
                let first = self
                    .gathering
                    .on_eof(streams)
                    .map_err(|e| self.block_error(e))?;
                if first {
                    self.task.transfer.clock().note_progress();
                }
                Ok(None)
            }
            // No payload was offered to the decoder.
            BlockEvent::Data { .. } | BlockEvent::Skip { .. } => Ok(None),
        }
    }

    fn decode(&mut self, input: &[u8]) -> Result<Option<BlockEvent>, DataError> {
        let (_, event) = self
            .decoder
            .decode(input)
            .map_err(|e| self.block_error(e))?;
        Ok(event)
    }

    fn block_error(&self, source: BlockError) -> DataError {
        DataError::Block {
            peer: self.inlet.wire.stream().peer().to_string(),
            source,
        }
    }
}
