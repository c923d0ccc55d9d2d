//! Fetches a series: its files are read as one row of bytes. A file that fails passes as zeros, and is named at the end.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use data::checksum::ChecksumHasher;
use data::job::{TransferControl, TransferReport};
use data::pull::{self, PullPlan, RangeOrigin, RangeReader};
use data::store::Sink;
use ftp::Failure;
use ftp::transfer::outcome::pull_failure;
use ftp::transfer::series::files::SeriesFile;
use parking_lot::Mutex;
use proto::ranges::RangeSet;
use proto::sftp::{OpenFlags, SftpReply, SftpRequest};

use super::errors::{self, SftpFailed};
use super::series::SeriesJob;
use super::series_requests::{
    SentRequest, SeriesRequests, SeriesStep, checksum, handle, mismatch, reason,
};

/// Most bytes that are asked for or kept: several times what a channel of OpenSSH has in flight, so that one file that is late does
/// not hold up the others at once.
const WINDOW: u64 = 8 << 20;

/// Moves the files into the sink. Returns the requests, unless it is lost.
pub(super) fn run(
    job: &SeriesJob,
    sink: &Arc<dyn Sink>,
    requests: SeriesRequests,
    control: &Arc<TransferControl>,
) -> (Option<SeriesRequests>, Result<TransferReport, Failure>) {
    let mut missing = RangeSet::new();
    for file in &job.files {
        missing.insert(file.start, file.start.saturating_add(file.size));
    }
    let plan = PullPlan {
        origin: 0,
        missing: Some(missing),
        piece: u64::MAX,
        view: None,
    };
    let origin = SeriesOrigin {
        job,
        fetch: Mutex::new(Some(SeriesFetch::new(job, requests))),
    };
    let pulled = pull::run(&origin, sink, &plan, &job.settings, control);
    let operation = job.operation();
    let Some(mut fetch) = origin.fetch.into_inner() else {
        return (
            None,
            pulled.map_err(|error| {
                pull_failure(&job.server, &operation, &error, &job.spec.confirmation)
            }),
        );
    };
    let result = match pulled {
        Err(error) => Err(pull_failure(
            &job.server,
            &operation,
            &error,
            &job.spec.confirmation,
        )),
        // Empty files, and the last replies.
        Ok(report) => match fetch.finish(control) {
            Ok(()) => Ok(report),
            Err(failed) => Err(failed.failure(&job.server, &operation)),
        },
    };
    let mut requests = fetch.requests;
    if result.is_err() {
        // The last bytes may not have come to the sink.
        let stored = control.stored();
        let is_stored = |index: &usize| {
            let file = job.files.iter().find(|file| file.index == *index);
            file.is_some_and(|file| stored.contains(file.start, file.start + file.size))
        };
        requests.outcome.moved.retain(is_stored);
    }
    (Some(requests), result)
}

/// The files as one row of bytes.
struct SeriesOrigin<'j> {
    job: &'j SeriesJob,
    /// `None` while the reader has it.
    fetch: Mutex<Option<SeriesFetch<'j>>>,
}

impl RangeOrigin for SeriesOrigin<'_> {
    fn name(&self) -> String {
        self.job.operation().to_string()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        // There is one reader at a time.
        let fetch = self.fetch.lock().take();
        Ok(Box::new(SeriesReader {
            origin: self,
            fetch: Some(fetch.ok_or(io::ErrorKind::ResourceBusy)?),
        }))
    }

    fn is_networked(&self) -> bool {
        true
    }
}

struct SeriesReader<'o, 'j> {
    origin: &'o SeriesOrigin<'j>,
    /// `None` after the end of the work.
    fetch: Option<SeriesFetch<'j>>,
}

impl RangeReader for SeriesReader<'_, '_> {
    fn leave_transfer(&mut self) -> tune::Evidence {
        *self.origin.fetch.lock() = self.fetch.take();
        tune::Evidence::default()
    }

    fn request(&mut self, start: u64, _end: Option<u64>) -> io::Result<()> {
        let fetch = self.fetch.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        match fetch.begin_at(start) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let fetch = self.fetch.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let job = self.origin.job;
        let failure =
            |failed: SftpFailed| io::Error::other(failed.failure(&job.server, &job.operation()));
        loop {
            if let Some(passed) = fetch.pass(buf) {
                // Replies that have come make room for requests.
                fetch.advance(false).map_err(failure)?;
                return Ok(passed);
            }
            // A moment in which nothing comes is counted by the caller.
            if !fetch.advance(true).map_err(failure)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

/// A block that is asked for, or has come.
struct FetchedBlock {
    offset: u64,
    length: u32,
    /// `None`: not yet.
    bytes: Option<Vec<u8>>,
    /// Bytes that were passed on.
    passed: usize,
}

#[derive(Default)]
struct FetchedFile {
    handle: Vec<u8>,
    is_open: bool,
    /// Offset of the next byte to ask for, and of the next one to pass on.
    asked: u64,
    passed: u64,
    blocks: VecDeque<FetchedBlock>,
    /// Requests without a reply.
    waiting: u32,
    /// Nothing further is asked for.
    is_asked: bool,
    has_failed: bool,
    is_done: bool,
    hasher: Option<ChecksumHasher>,
    /// The checksum that the server has computed.
    checksum: Option<String>,
}

/// A series that is fetched.
struct SeriesFetch<'j> {
    job: &'j SeriesJob,
    requests: SeriesRequests,
    files: Vec<FetchedFile>,
    /// The first files that are not opened, not asked for, and not passed on.
    opening: usize,
    asking: usize,
    passing: usize,
    /// Bytes that are asked for or kept.
    kept: u64,
}

impl<'j> SeriesFetch<'j> {
    fn new(job: &'j SeriesJob, requests: SeriesRequests) -> Self {
        let file = |_: &SeriesFile| FetchedFile {
            hasher: job.spec.checksum.map(ChecksumHasher::new),
            ..FetchedFile::default()
        };
        Self {
            files: job.files.iter().map(file).collect(),
            job,
            requests,
            opening: 0,
            asking: 0,
            passing: 0,
            kept: 0,
        }
    }

    /// Whether the next byte is that at `start`.
    fn begin_at(&mut self, start: u64) -> bool {
        self.skip_passed();
        let next = self.job.files.get(self.passing);
        next.is_some_and(|file| file.start + self.files[self.passing].passed == start)
    }

    fn skip_passed(&mut self) {
        let sizes = self.job.files.iter().map(|file| file.size);
        let passed = self.files.iter().map(|file| file.passed);
        let left = sizes.zip(passed).skip(self.passing);
        self.passing += left.take_while(|(size, passed)| size == passed).count();
    }

    /// Passes on what is next, if it has come.
    fn pass(&mut self, buf: &mut [u8]) -> Option<usize> {
        self.skip_passed();
        let (file, size) = (
            self.files.get_mut(self.passing)?,
            self.job.files.get(self.passing)?.size,
        );
        let left = usize::try_from(size - file.passed).unwrap_or(usize::MAX);
        let count = if file.has_failed {
            let count = left.min(buf.len());
            buf[..count].fill(0);
            count
        } else {
            let front = file.blocks.front_mut()?;
            let bytes = &front.bytes.as_ref()?[front.passed..];
            let count = bytes.len().min(buf.len());
            buf[..count].copy_from_slice(&bytes[..count]);
            front.passed += count;
            if count == bytes.len() {
                self.kept -= u64::from(front.length);
                file.blocks.pop_front();
            }
            count
        };
        if let Some(hasher) = &mut file.hasher {
            hasher.update(&buf[..count]);
        }
        file.passed += count as u64;
        self.conclude(self.passing);
        Some(count)
    }

    /// Sends what may be sent, and takes what has come. Returns whether something has.
    fn advance(&mut self, waits: bool) -> Result<bool, SftpFailed> {
        self.ask();
        let replies = self.requests.replies(waits)?;
        let has_come = !replies.is_empty();
        for (sent, reply) in replies {
            self.accept(sent, reply)?;
        }
        // A file that has failed is passed on without waiting.
        let passes = self.files.get(self.passing).is_some_and(|f| f.has_failed);
        Ok(has_come || passes)
    }

    /// Takes all replies that are still to come.
    fn finish(&mut self, control: &TransferControl) -> Result<(), SftpFailed> {
        while self.asking < self.files.len() || self.requests.is_waiting() {
            if control.is_cancelled() {
                return Err(SftpFailed::Other(Failure::new(
                    ftp::FailureKind::Interrupted,
                    "interrupted",
                )));
            }
            self.advance(true)?;
        }
        Ok(())
    }

    fn ask(&mut self) {
        while self.opening < self.files.len() && self.requests.may_open() {
            let file = &self.job.files[self.opening];
            self.requests.outcome.begun.push(file.index);
            self.requests.open += 1;
            let request = SftpRequest::Open(&file.path, OpenFlags::Read);
            self.send(self.opening, SeriesStep::Open, &request);
            self.opening += 1;
        }
        while self.asking < self.opening && self.ask_for(self.asking) {
            self.asking += 1;
        }
    }

    /// Asks for the bytes of a file, and for what proves them; `false`: not all of it can be asked for now.
    fn ask_for(&mut self, position: usize) -> bool {
        let planned = &self.job.files[position];
        let file = &mut self.files[position];
        if !file.is_open {
            return file.has_failed;
        }
        let handle = std::mem::take(&mut file.handle);
        while !self.files[position].has_failed && self.files[position].asked < planned.size {
            let offset = self.files[position].asked;
            let left = u32::try_from(planned.size - offset).unwrap_or(u32::MAX);
            let length = self.requests.connection.limits.read.min(left);
            if self.kept > 0 && self.kept + u64::from(length) > WINDOW {
                self.files[position].handle = handle;
                return false;
            }
            self.kept += u64::from(length);
            let file = &mut self.files[position];
            file.asked += u64::from(length);
            file.blocks.push_back(FetchedBlock {
                offset,
                length,
                bytes: None,
                passed: 0,
            });
            let request = SftpRequest::Read {
                handle: &handle,
                offset,
                length,
            };
            self.send(position, SeriesStep::Read(offset, length), &request);
        }
        let has_failed = self.files[position].has_failed;
        if !has_failed {
            let request = SftpRequest::HandleStat(&handle);
            self.send(position, SeriesStep::Attributes, &request);
        }
        // Of no bytes there may be no checksum (proftpd).
        let algorithm = self.job.spec.checksum;
        if let Some(algorithm) = algorithm.filter(|_| planned.size > 0 && !has_failed) {
            let request = SftpRequest::CheckFile {
                path: &planned.path,
                algorithm: &algorithm.name().to_ascii_lowercase(),
                offset: 0,
                length: 0,
            };
            self.send(position, SeriesStep::Checksum, &request);
        }
        self.send(position, SeriesStep::Close, &SftpRequest::Close(&handle));
        self.files[position].is_asked = true;
        true
    }

    fn send(&mut self, position: usize, step: SeriesStep, request: &SftpRequest<'_>) {
        self.files[position].waiting += 1;
        self.requests.send(position, step, request);
    }

    fn accept(&mut self, sent: SentRequest, reply: SftpReply) -> Result<(), SftpFailed> {
        let SentRequest { position, step } = sent;
        self.files[position].waiting -= 1;
        let accepted = self.take(position, step, reply);
        if let Some(why) = accepted.or_else(|failed| self.reason(failed, position).map(Some))? {
            self.fail(position, why);
        }
        self.conclude(position);
        Ok(())
    }

    fn reason(&self, failed: SftpFailed, position: usize) -> Result<String, SftpFailed> {
        reason(failed, &self.job.server, &self.job.files[position].path)
    }

    /// Takes a reply. Returns why the file fails by it.
    fn take(
        &mut self,
        position: usize,
        step: SeriesStep,
        reply: SftpReply,
    ) -> Result<Option<String>, SftpFailed> {
        let file = &mut self.files[position];
        match step {
            SeriesStep::Open => {
                let opened = handle(reply);
                file.is_open = opened.is_ok();
                if !file.is_open {
                    self.requests.open -= 1;
                }
                file.handle = opened?;
            }
            SeriesStep::Read(offset, length) => {
                return self.take_block(position, offset, length, reply);
            }
            SeriesStep::Attributes => return mismatch(reply, &self.job.files[position], true),
            SeriesStep::Checksum => {
                if let Some(algorithm) = self.job.spec.checksum {
                    file.checksum = checksum(reply, algorithm)?;
                }
            }
            // Bytes that were read stay read.
            _ => {}
        }
        Ok(None)
    }

    fn take_block(
        &mut self,
        position: usize,
        offset: u64,
        length: u32,
        reply: SftpReply,
    ) -> Result<Option<String>, SftpFailed> {
        let file = &mut self.files[position];
        if file.has_failed {
            self.kept -= u64::from(length);
            return Ok(None);
        }
        let at = file.blocks.binary_search_by_key(&offset, |b| b.offset);
        let at = at.map_err(|_| SftpFailed::Unasked)?;
        match reply {
            SftpReply::Data(bytes) if bytes.len() == length as usize => {
                file.blocks[at].bytes = Some(bytes);
                return Ok(None);
            }
            _ => self.kept -= u64::from(length),
        }
        match reply {
            SftpReply::Data(bytes) => Ok(Some(format!("{} of {length} bytes came", bytes.len()))),
            other => Err(errors::unexpected(other)),
        }
    }

    fn fail(&mut self, position: usize, why: String) {
        let file = &mut self.files[position];
        if std::mem::replace(&mut file.has_failed, true) {
            return;
        }
        // Blocks that are still to come are counted until then; that of this reply has come.
        for block in file.blocks.drain(..) {
            if block.bytes.is_some() {
                self.kept -= u64::from(block.length);
            }
        }
        self.requests.fail(&self.job.files[position], why);
    }

    /// Notes a file of which everything has come and was passed on.
    fn conclude(&mut self, position: usize) {
        let (file, planned) = (&mut self.files[position], &self.job.files[position]);
        let is_complete = file.is_asked && file.waiting == 0 && file.passed == planned.size;
        if !is_complete || file.is_done || file.has_failed {
            return;
        }
        file.is_done = true;
        let own = file.hasher.take().map(ChecksumHasher::finish);
        let is_proved = planned.size == 0
            || own.is_none()
            || own.is_some_and(|own| file.checksum.as_ref() == Some(&own));
        match is_proved {
            true => self.requests.outcome.moved.push(planned.index),
            false => self.fail(position, "its checksum is another one".to_owned()),
        }
    }
}
