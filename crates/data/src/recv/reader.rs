//! One connection of a MODE E transfer: headers and blocks until its end mark.

use proto::eblock::{BlockError, BlockEvent, Decoder, HEADER_LEN};
use proto::ranges::RangeSet;

use super::ReceiveTask;
use super::gathering::Gathering;
use super::inlet::Inlet;
use crate::error::DataError;
use crate::wire::{Input, Wire};

/// How a connection's part in a transfer ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// EOD came.
    Eod {
        /// The sender will close the connection.
        close: bool,
    },
    /// The peer closed it before it carried anything.
    Vanished,
    /// The transfer was complete without it.
    Idle {
        /// It is known to be the sender's: it carried something.
        carried: bool,
    },
}

/// Reads one connection.
pub(super) struct Reader<'t> {
    inlet: Inlet<'t>,
    task: &'t ReceiveTask<'t>,
    gathering: &'t Gathering,
    decoder: Decoder,
    header: [u8; HEADER_LEN],
    /// A header of this transfer was accepted on this connection.
    carried: bool,
    /// Part of the block under way that had been announced before.
    again: RangeSet,
}

impl<'t> Reader<'t> {
    pub(super) fn new(wire: Wire<'t>, task: &'t ReceiveTask<'t>, gathering: &'t Gathering) -> Self {
        Self {
            inlet: Inlet::new(wire, task, &gathering.sum),
            task,
            gathering,
            decoder: Decoder::new(),
            header: [0; HEADER_LEN],
            carried: false,
            again: RangeSet::new(),
        }
    }

    /// Reads until the connection's part in the transfer is over. Trouble on a connection that
    /// has carried nothing (a port scan, a wrong peer) is its own: the transfer goes on.
    pub(super) fn run(mut self) -> Result<End, DataError> {
        match self.read() {
            Err(error) if !self.carried => Self::without_a_part(error, self.gathering),
            result => result,
        }
    }

    /// How a connection ends that failed before it carried anything.
    pub(super) fn without_a_part(
        error: DataError,
        gathering: &Gathering,
    ) -> Result<End, DataError> {
        match error {
            DataError::Wire { .. } | DataError::Block { .. } => {
                tracing::warn!(%error, "data connection dropped");
                gathering.note_bad(error);
                Ok(End::Vanished)
            }
            error => Err(error),
        }
    }

    fn read(&mut self) -> Result<End, DataError> {
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
        let n = if self.decoder.payload_is_data() {
            self.data(self.decoder.payload_offset(), left)?
        } else {
            self.inlet.skip(left)?
        };
        if n == 0 {
            return Err(self.bad(BlockError::Truncated));
        }
        if !self.decoder.payload_is_data() {
            self.inlet.wire.check_clock()?;
        }
        self.decoder.advance(n);
        Ok(())
    }

    /// Moves up to `left` bytes of file data: to the store, or against what is there already.
    fn data(&mut self, offset: u64, left: u64) -> Result<u64, DataError> {
        let Some(range) = self.again.iter().find(|r| r.end > offset) else {
            return self.inlet.step(offset, left);
        };
        if range.start > offset {
            return self.inlet.step(offset, left.min(range.start - offset));
        }
        let same = self.inlet.compare(offset, left.min(range.end - offset))?;
        same.map_err(|source| self.bad(source))
    }

    /// Reads one header; never a byte more, for what follows an end mark belongs to the next
    /// transfer.
    fn header(&mut self) -> Result<Option<End>, DataError> {
        let mut have = 0;
        while have < HEADER_LEN {
            if have == 0 && self.gathering.complete() {
                let carried = self.carried;
                return Ok(Some(End::Idle { carried }));
            }
            let rest = &mut self.header[have..];
            let input = if have == 0 {
                self.inlet.wire.recv_unless(rest, &self.gathering.over)?
            } else {
                Input::Bytes(self.inlet.wire.recv_idly(rest)?)
            };
            match input {
                Input::Interrupted => {}
                Input::Bytes(0) if !self.carried => return Ok(Some(End::Vanished)),
                Input::Bytes(0) => return Err(self.bad(BlockError::Truncated)),
                Input::Bytes(n) => have += n,
            }
        }
        self.on_header()
    }

    fn on_header(&mut self) -> Result<Option<End>, DataError> {
        let bytes = self.header;
        let event = self.decode(&bytes)?;
        if self.decoder.payload_is_data() {
            let (offset, count) = (self.decoder.payload_offset(), self.decoder.payload_left());
            self.task.check_limit(offset, count)?;
            self.again = self.gathering.announce_block(offset, offset + count)?;
        }
        if self.decoder.payload_left() == 0 {
            // Of these there may be any number; an end mark is counted when it is taken.
            self.inlet.wire.check_clock()?;
        }
        self.carried = true;
        self.gathering.note_productive();
        event.map_or(Ok(None), |event| self.on_event(event))
    }

    fn on_event(&mut self, event: BlockEvent) -> Result<Option<End>, DataError> {
        match event {
            BlockEvent::Eod { close } => {
                self.inlet.report();
                self.gathering.on_eod().map_err(|e| self.bad(e))?;
                self.task.transfer.clock().touch();
                Ok(Some(End::Eod { close }))
            }
            BlockEvent::Eof { streams } => {
                let first = self.gathering.on_eof(streams).map_err(|e| self.bad(e))?;
                if first {
                    self.task.transfer.clock().touch();
                }
                Ok(None)
            }
            // No payload was offered to the decoder.
            BlockEvent::Data { .. } | BlockEvent::Skip { .. } => Ok(None),
        }
    }

    fn decode(&mut self, input: &[u8]) -> Result<Option<BlockEvent>, DataError> {
        let (_, event) = self.decoder.decode(input).map_err(|e| self.bad(e))?;
        Ok(event)
    }

    fn bad(&self, source: BlockError) -> DataError {
        DataError::Block {
            peer: self.inlet.wire.stream().peer().to_string(),
            source,
        }
    }
}
