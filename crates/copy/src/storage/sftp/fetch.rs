//! Fetches a file: READs ahead over its connections, and their bytes in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use data::job::{TransferControl, TransferReport, TransferSettings};
use data::pull::{self, PullPlan, RangeOrigin, RangeReader};
use data::store::Sink;
use ftp::failure::Operation;
use ftp::transfer::TransferSpec;
use ftp::transfer::outcome::pull_failure;
use ftp::{Failure, FailureKind};
use parking_lot::Mutex;
use proto::sftp::{SftpReply, SftpStatusCode};

use super::errors::{self, SftpFailed};
use super::lanes::{Block, BlockReply, LAST_REPLIES, Lanes};

/// Bytes that are asked for or kept, in bytes in flight: a slow connection must not stop the others at once.
const KEPT_WINDOWS: u64 = 2;

/// The file.
pub(super) struct SftpFile {
    /// `None` while a reader has them.
    lanes: Mutex<Option<Lanes>>,
    server: String,
    operation: Operation,
}

/// A fetch of a file.
pub(super) struct FetchJob<'j> {
    pub(super) server: &'j str,
    pub(super) operation: Operation,
    pub(super) sink: &'j Arc<dyn Sink>,
    pub(super) spec: &'j TransferSpec,
    pub(super) settings: &'j TransferSettings,
    /// `None`: everything up to the end.
    pub(super) size: Option<u64>,
}

impl FetchJob<'_> {
    /// Fetches the missing ranges. Returns the connections, too. Runs on a thread for blocking calls.
    pub(super) fn run(
        self,
        lanes: Lanes,
        control: &Arc<TransferControl>,
    ) -> (Result<TransferReport, Failure>, Option<Lanes>) {
        let (spec, sink) = (self.spec, self.sink);
        let plan = PullPlan {
            origin: spec.part.map_or(0, |(offset, _)| offset),
            missing: self.size.map(|size| spec.completed_ranges.gaps(0, size)),
            piece: u64::MAX,
            view: sink.open_reader().map(|view| (view, 0)),
        };
        let file = SftpFile {
            lanes: Mutex::new(Some(lanes)),
            server: self.server.to_owned(),
            operation: self.operation,
        };
        let report = pull::run(&file, sink, &plan, self.settings, control);
        let report = report.map_err(|error| {
            pull_failure(self.server, &file.operation, &error, &spec.confirmation)
        });
        (report, file.lanes.into_inner())
    }
}

impl RangeOrigin for SftpFile {
    fn name(&self) -> String {
        self.operation.to_string()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        // There is one reader at a time.
        let lanes = self
            .lanes
            .lock()
            .take()
            .ok_or(io::ErrorKind::ResourceBusy)?;
        Ok(Box::new(SftpReader {
            file: self,
            lanes: Some(lanes),
            blocks: VecDeque::new(),
            next: 0,
            end: None,
            failed: None,
            has_ended: false,
        }))
    }

    fn is_networked(&self) -> bool {
        true
    }
}

/// A block that is asked for, or has come.
struct ReadBlock {
    block: Block,
    /// `None`: not yet.
    bytes: Option<Vec<u8>>,
    /// Bytes that were passed on.
    passed: usize,
}

struct SftpReader<'f> {
    file: &'f SftpFile,
    /// `None` after the end of the work.
    lanes: Option<Lanes>,
    /// In the order of their offsets, without gaps.
    blocks: VecDeque<ReadBlock>,
    /// Of the next byte to ask for.
    next: u64,
    /// `None`: not known.
    end: Option<u64>,
    /// Met while bytes were passed on.
    failed: Option<SftpFailed>,
    /// The end of the file was passed on.
    has_ended: bool,
}

impl RangeReader for SftpReader<'_> {
    fn leave_transfer(&mut self) -> tune::Evidence {
        // Replies to what was asked for behind the end.
        while self.has_ended
            && let Some(lanes) = &mut self.lanes
            && lanes.is_waiting()
            && lanes.silence() < LAST_REPLIES
            && lanes.exchange(true).is_ok()
        {}
        *self.file.lanes.lock() = self.lanes.take();
        tune::Evidence::default()
    }

    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
        self.blocks.clear();
        self.next = start;
        self.end = end;
        if let Some(lanes) = &mut self.lanes {
            // Logins take their time: they begin with the transfer.
            lanes.note_moved(0, end.map(|end| end.saturating_sub(start)));
        }
        Ok(())
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(failed) = self.failed.take() {
                return Err(self.failure(failed));
            }
            if let Some(passed) = self.pass(buf) {
                return Ok(passed);
            }
            if self.blocks.is_empty() && self.end.is_some_and(|end| self.next >= end) {
                return Ok(0);
            }
            // A moment in which nothing comes is counted by the caller.
            let has_come = self.advance(true);
            match has_come.map_err(|failed| self.failure(failed))? {
                true => {}
                false => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
}

impl SftpReader<'_> {
    /// Passes on what is next, if it has come. At the end of the file that is nothing.
    fn pass(&mut self, buf: &mut [u8]) -> Option<usize> {
        let front = self.blocks.front_mut()?;
        let bytes = front.bytes.as_ref()?;
        let left = &bytes[front.passed..];
        let count = left.len().min(buf.len());
        buf[..count].copy_from_slice(&left[..count]);
        front.passed += count;
        self.has_ended = bytes.is_empty();
        if front.passed == bytes.len() && !bytes.is_empty() {
            self.blocks.pop_front();
        }
        if count > 0
            && let Some(lanes) = &mut self.lanes
        {
            let left = self.end.map(|end| end.saturating_sub(self.next));
            lanes.note_moved(count as u64, left);
            // Replies that have come make room for requests.
            self.failed = self.advance(false).err();
        }
        Some(count)
    }

    /// Asks for further blocks, and takes what has come. Returns whether something has.
    fn advance(&mut self, waits: bool) -> Result<bool, SftpFailed> {
        self.ask();
        let Some(lanes) = &mut self.lanes else {
            return Err(SftpFailed::Other(Failure::new(
                FailureKind::Interrupted,
                "interrupted",
            )));
        };
        let answers = lanes.exchange(waits)?;
        let has_come = !answers.is_empty();
        for answer in answers {
            self.accept(answer)?;
        }
        Ok(has_come)
    }

    fn ask(&mut self) {
        let Some(lanes) = &mut self.lanes else {
            return;
        };
        let begin = self.blocks.front().map_or(self.next, |b| b.block.offset);
        let end = self.end.unwrap_or(u64::MAX);
        while self.next < end && self.next - begin < lanes.window() * KEPT_WINDOWS {
            let Some(lane) = lanes.free_lane() else {
                return;
            };
            let left = u32::try_from(end - self.next).unwrap_or(u32::MAX);
            let block = Block {
                offset: self.next,
                length: lanes.block_length(lane).min(left),
            };
            lanes.read(lane, block);
            self.blocks.push_back(ReadBlock {
                block,
                bytes: None,
                passed: 0,
            });
            self.next += u64::from(block.length);
        }
    }

    /// Takes a reply. The rest of a block that came short is asked for again.
    fn accept(&mut self, answer: BlockReply) -> Result<(), SftpFailed> {
        let BlockReply { lane, block, reply } = answer;
        let at = self
            .blocks
            .binary_search_by_key(&block.offset, |b| b.block.offset)
            .map_err(|_| SftpFailed::Unasked)?;
        let bytes = match reply {
            // The end has a status of its own.
            SftpReply::Data(bytes) if bytes.is_empty() => return Err(SftpFailed::Unasked),
            SftpReply::Data(bytes) => bytes,
            SftpReply::Status(status) if status.code == SftpStatusCode::Eof => {
                // Requests behind the end find the end, too.
                self.end = Some(self.end.map_or(block.offset, |end| end.min(block.offset)));
                Vec::new()
            }
            other => return Err(errors::unexpected(other)),
        };
        let come = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if come > block.length {
            return Err(SftpFailed::Unasked);
        }
        if come > 0 && come < block.length {
            let rest = Block {
                offset: block.offset + u64::from(come),
                length: block.length - come,
            };
            if let Some(lanes) = &mut self.lanes {
                lanes.read(lane, rest);
            }
            self.blocks[at].block.length = come;
            self.blocks.insert(
                at + 1,
                ReadBlock {
                    block: rest,
                    bytes: None,
                    passed: 0,
                },
            );
        }
        self.blocks[at].bytes = Some(bytes);
        Ok(())
    }

    fn failure(&self, failed: SftpFailed) -> io::Error {
        io::Error::other(failed.failure(&self.file.server, &self.file.operation))
    }
}
