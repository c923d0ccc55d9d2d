//! An object that is being stored by a session, alone or with other servers of the bucket.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use data::checksum::ChecksumHasher;
use data::job::{ReaderContext, TransferControl};
use data::os::wake::WakeEvent;
use data::served::{JoinedSink, ServedBytes, ServedClient, ServedSink};
use data::store::Sink;
use ftp::Failure;
use ftp::failure::Operation;
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::ByteRange;
use proto::s3::parts::{MAX_PARTS, PartPlan};
use proto::server::{FileError, FileErrorKind};

use super::super::parts::NextPart;
use super::super::record::{BegunUpload, UploadRecord};
use super::super::unfinished;
use super::super::upload::UploadTarget;
use super::access::{ATTEMPTS, BucketAccess, CurrentAccess, pause};
use super::arriving::{ArrivingParts, CompletePart, LastBytes};
use super::failures::{file_error, io_error};
use super::memory::{TransferMemoryBudget, TransferMemoryShare};
use super::shared_parts::{self, UploadOfServers, WrittenPart};
use crate::storage::http::client::HttpClient;

/// Threads that send parts of one object, each over a connection of its own.
const SENDERS: usize = 4;
/// How often the end of an upload looks whether its transfer was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);
/// Longest time until another server has stopped sending parts after it was told to.
const LAST_PARTS: Duration = Duration::from_secs(2);

/// An upload.
#[derive(Debug)]
pub(super) struct BucketUpload {
    name: String,
    /// The transfer that writes.
    control: Arc<TransferControl>,
    sending: Arc<Sending>,
    state: Mutex<UploadState>,
}

#[derive(Debug, Default)]
struct UploadState {
    /// The threads that send parts, if there are several parts.
    senders: Vec<JoinHandle<()>>,
    /// Other servers write its parts.
    is_shared: bool,
    has_ended: bool,
}

/// Parts of an object that another server has begun.
#[derive(Debug)]
pub(super) struct JoinedUpload(BucketUpload);

/// The state that the threads share which send parts.
#[derive(Debug)]
struct Sending {
    path: Vec<u8>,
    action: Operation,
    access: Arc<BucketAccess>,
    /// Bytes of a part.
    part: u64,
    parts: ArrivingParts,
    /// Another server has begun the upload, and ends it.
    is_joined: bool,
    /// Of the checksum that parts get besides CRC-32C.
    also: Option<ChecksumAlgorithm>,
    /// The upload in parts; begun by the first of the threads.
    begun: Mutex<Option<BegunUpload>>,
    sent: Mutex<Vec<WrittenPart>>,
    /// Of the connections with the bucket.
    control: Arc<TransferControl>,
    /// Ends the waits on them.
    stop: Arc<WakeEvent>,
}

impl BucketUpload {
    /// The upload of an object at a path of the bucket, as soon as there is memory for it. `announced`: its length, if that is
    /// known.
    pub(super) fn begin(
        path: Vec<u8>,
        action: Operation,
        announced: Option<u64>,
        access: &Arc<BucketAccess>,
        memory: &Arc<TransferMemoryBudget>,
        by: &ServedClient,
    ) -> Result<Self, FileError> {
        let part = PartPlan::part_of_arriving(announced);
        let own = match by.bytes {
            ServedBytes::None => 0,
            ServedBytes::All | ServedBytes::Some => announced.map_or(part, |size| size.min(part)),
        };
        let memory = memory.begin(own, by)?;
        Self::with_parts(path, action, part, None, access, memory, by)
    }

    /// The same with parts of `part` bytes; `joined`: the upload that another server has begun.
    fn with_parts(
        path: Vec<u8>,
        action: Operation,
        part: u64,
        joined: Option<UploadOfServers>,
        access: &Arc<BucketAccess>,
        memory: TransferMemoryShare,
        by: &ServedClient,
    ) -> Result<Self, FileError> {
        let patience: Duration = access.transfer.options.stall.max(Duration::from_secs(30)) * 2;
        let stop = WakeEvent::new().map_err(|error| FileError {
            kind: FileErrorKind::Busy,
            errno: error.raw_os_error(),
            text: error.to_string(),
        })?;
        Ok(Self {
            name: action.to_string(),
            control: Arc::clone(&by.control),
            sending: Arc::new(Sending {
                path,
                action,
                access: Arc::clone(access),
                part,
                parts: ArrivingParts::new(part, patience, memory, joined.is_none()),
                is_joined: joined.is_some(),
                also: joined.as_ref().and_then(UploadOfServers::algorithm),
                begun: Mutex::new(joined.map(|shared| shared.begun)),
                sent: Mutex::default(),
                control: Arc::default(),
                stop: Arc::new(stop),
            }),
            state: Mutex::default(),
        })
    }

    /// Starts the threads that send parts, when the first one is complete.
    fn start_senders(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.has_ended || !state.senders.is_empty() {
            return Ok(());
        }
        for n in 0..SENDERS {
            let sending = Arc::clone(&self.sending);
            let started = std::thread::Builder::new()
                .name(format!("bucket-{n}"))
                .spawn(move || sending.run());
            match started {
                Ok(sender) => state.senders.push(sender),
                // The others send its parts.
                Err(_) if n > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the threads that send have ended.
    fn has_sent(&self) -> bool {
        self.state
            .lock()
            .senders
            .iter()
            .all(JoinHandle::is_finished)
    }

    /// Ends the threads that send. Returns whether there were any.
    fn join(&self) -> bool {
        let senders = std::mem::take(&mut self.state.lock().senders);
        let is_in_parts = !senders.is_empty();
        for sender in senders {
            // After a panic, which is logged, the parts are not complete.
            let _ = sender.join();
        }
        is_in_parts
    }

    /// Completes an object whose parts others have written.
    fn complete_shared(&self, length: Option<u64>) -> Result<Option<String>, FileError> {
        let sending = &self.sending;
        let parts = std::mem::take(&mut *sending.sent.lock());
        let parts = shared_parts::in_order(parts, sending.part, length);
        let parts = parts.map_err(|error| self.error(&error.into()))?;
        if parts.is_empty() {
            sending.abort();
            let put = sending.put_whole(&[]);
            return put.map_err(|failure| file_error(&failure));
        }
        let length = parts.iter().map(|part| part.bytes).sum();
        *sending.sent.lock() = parts;
        self.complete_parts(length)
    }

    fn complete_parts(&self, length: u64) -> Result<Option<String>, FileError> {
        let completed = self.sending.complete(length);
        let etag = completed.map_err(|failure| file_error(&failure))?;
        *self.sending.begun.lock() = None;
        Ok(Some(etag).filter(|etag| !etag.is_empty()))
    }

    fn complete(&self, length: Option<u64>) -> Result<Option<String>, FileError> {
        if self.state.lock().is_shared {
            return self.complete_shared(length);
        }
        let is_in_parts = !self.state.lock().senders.is_empty();
        let finished = self.sending.parts.finish(length, is_in_parts);
        let last = finished.map_err(|error| self.error(&error))?;
        let length = match last {
            LastBytes::Whole(bytes) => {
                let put = self.sending.put_whole(&bytes);
                return put.map_err(|failure| file_error(&failure));
            }
            LastBytes::Part(length) => length,
        };
        self.join();
        // A failure of a part ends the upload.
        self.sending
            .parts
            .check()
            .map_err(|error| self.error(&error))?;
        self.complete_parts(length)
    }

    fn error(&self, error: &io::Error) -> FileError {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => FileErrorKind::Denied,
            io::ErrorKind::StorageFull => FileErrorKind::NoSpace,
            io::ErrorKind::ConnectionAborted => FileErrorKind::Aborted,
            io::ErrorKind::InvalidInput => FileErrorKind::Unsupported,
            _ => FileErrorKind::Other,
        };
        FileError::new(kind, format!("cannot {}: {error}", self.name))
    }
}

impl Sink for BucketUpload {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let is_cancelled = || self.control.is_cancelled();
        match self.sending.parts.write(offset, buf, &is_cancelled)? {
            true => self.start_senders(),
            false => Ok(()),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }
}

impl ServedSink for BucketUpload {
    fn finish(&self, length: Option<u64>) -> Result<Option<String>, FileError> {
        let completed = self.complete(length);
        match &completed {
            Ok(_) => self.state.lock().has_ended = true,
            Err(_) => self.abandon(),
        }
        completed
    }

    fn abandon(&self) {
        if std::mem::replace(&mut self.state.lock().has_ended, true) {
            return;
        }
        let sending = &self.sending;
        sending.parts.fail(&io::ErrorKind::ConnectionAborted.into());
        sending.control.cancel();
        sending.stop.wake();
        self.join();
        sending.abort();
        if self.state.lock().is_shared {
            // A part that was on its way may have arrived after all.
            std::thread::sleep(LAST_PARTS);
            sending.abort();
        }
    }

    fn share(&self, algorithm: Option<ChecksumAlgorithm>) -> Result<String, FileError> {
        let begun = self.sending.begin();
        let begun = begun.map_err(|failure| file_error(&failure))?;
        self.state.lock().is_shared = true;
        let algorithm = algorithm.filter(|one| one.is_combinable());
        let algorithm = algorithm.map(|one| one.name().to_owned());
        serde_json::to_string(&UploadOfServers { begun, algorithm })
            .map_err(|error| self.error(&error.into()))
    }

    fn take_over(&self, parts: &[String]) -> Result<(), FileError> {
        let parts = parts.iter().map(|part| serde_json::from_str(part));
        let parts: Result<Vec<WrittenPart>, _> = parts.collect();
        let parts = parts.map_err(|error| self.error(&error.into()))?;
        self.sending.sent.lock().extend(parts);
        Ok(())
    }

    fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<String> {
        let parts = self.sending.sent.lock().clone();
        let parts = shared_parts::in_order(parts, self.sending.part, None).ok()?;
        let is_shared = self.state.lock().is_shared;
        let all = is_shared.then_some(parts)?;
        shared_parts::checksum_of(&all, algorithm)
    }
}

impl JoinedUpload {
    /// Parts of the object at a path of the bucket; `shared`: what [`ServedSink::share`] has told.
    pub(super) fn begin(
        path: Vec<u8>,
        action: Operation,
        shared: &str,
        access: &Arc<BucketAccess>,
        memory: &Arc<TransferMemoryBudget>,
        by: &ServedClient,
    ) -> Result<Self, FileError> {
        let refused = |text: String| FileError::new(FileErrorKind::Other, text);
        let shared: UploadOfServers = serde_json::from_str(shared)
            .map_err(|error| refused(format!("no upload of a bucket: {error}")))?;
        let part = shared.begun.part;
        if PartPlan::with_part(part, part).is_none() {
            return Err(refused(format!("a part of {part} bytes")));
        }
        let memory = memory.begin(part, by)?;
        BucketUpload::with_parts(path, action, part, Some(shared), access, memory, by).map(Self)
    }
}

impl Sink for JoinedUpload {
    fn name(&self) -> String {
        self.0.name()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, buf)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }
}

impl JoinedSink for JoinedUpload {
    fn finish(&self) -> Result<Vec<String>, FileError> {
        let sending = &self.0.sending;
        let error = |error: &io::Error| self.0.error(error);
        // They may have no complete part yet.
        self.0.start_senders().map_err(|failed| error(&failed))?;
        let finished = sending.parts.finish_joined();
        finished.map_err(|failed| error(&failed))?;
        // The front end of a cancelled transfer aborts the upload, and waits for nobody that sends parts to it.
        while !self.0.has_sent() {
            if self.0.control.is_cancelled() {
                self.0.abandon();
                return Err(error(&io::ErrorKind::ConnectionAborted.into()));
            }
            std::thread::sleep(CANCEL_CHECK);
        }
        self.0.join();
        sending.parts.check().map_err(|failed| error(&failed))?;
        let parts = std::mem::take(&mut *sending.sent.lock());
        let texts = parts.iter().map(serde_json::to_string);
        texts
            .collect::<Result<_, _>>()
            .map_err(|failed| error(&failed.into()))
    }
}

impl Drop for BucketUpload {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Sending {
    fn target(&self, current: &CurrentAccess) -> Result<UploadTarget, Failure> {
        let settings = self.access.settings();
        Ok(UploadTarget {
            key: current.bucket.key(&self.path)?,
            bucket: current.bucket.clone(),
            action: self.action.clone(),
            headers: settings.encryption_headers(),
            sends_checksums: settings.sends_checksums,
            // Nobody goes on with the upload of a client that has gone.
            record: UploadRecord::none(),
        })
    }

    /// Sends parts, each when it is complete.
    fn run(&self) {
        while let Some(part) = self.parts.next() {
            match self.send(&part) {
                Ok(()) => self.parts.note_sent(part),
                Err(failure) => {
                    self.parts.note_sent(part);
                    return self.parts.fail(&io_error(&failure));
                }
            }
        }
    }

    fn send(&self, part: &CompletePart) -> Result<(), Failure> {
        if u64::from(part.number) > MAX_PARTS {
            let reason = "it has more than the 10 000 parts that an object can have; announce its length (ALLO), so that they are \
                          larger";
            return Err(self.action.failed(ftp::FailureKind::Protocol, reason));
        }
        let upload = self.begin()?;
        let start = u64::from(part.number - 1) * self.part;
        let range = ByteRange::new(start, start + part.bytes.len() as u64);
        let range = range.ok_or_else(|| Failure::local("a part has no bytes"))?;
        let of_bytes = |algorithm: ChecksumAlgorithm| {
            let mut hasher = ChecksumHasher::new(algorithm);
            hasher.update(&part.bytes);
            (algorithm.name().to_owned(), hasher.finish())
        };
        let algorithms = [ChecksumAlgorithm::Crc32c].into_iter().chain(self.also);
        let sums: BTreeMap<String, String> = algorithms.map(of_bytes).collect();
        let sends = self.access.settings().sends_checksums;
        let crc32c = sums.get(ChecksumAlgorithm::Crc32c.name());
        let next = NextPart {
            number: part.number,
            range,
            bytes: None,
            crc32c: crc32c.filter(|_| sends).cloned(),
        };
        let etag = self.ask(|client, target| {
            target.put_part(client, &upload.id, &next, &mut part.bytes.as_slice())
        })?;
        self.sent.lock().push(WrittenPart {
            number: part.number,
            bytes: part.bytes.len() as u64,
            etag,
            sums,
        });
        Ok(())
    }

    /// The upload; the first thread begins it, and the others wait.
    fn begin(&self) -> Result<BegunUpload, Failure> {
        let mut begun = self.begun.lock();
        if let Some(begun) = &*begun {
            return Ok(begun.clone());
        }
        // Not ended with the transfer: an upload whose answer is not awaited has a name that nobody knows, and stays.
        let upload = self.access.ask(|client, current| {
            let target = self.target(current)?;
            target.begin(client, self.part)
        })?;
        *begun = Some(upload.clone());
        Ok(upload)
    }

    fn complete(&self, length: u64) -> Result<String, Failure> {
        let upload = self.begin()?;
        let mut parts = std::mem::take(&mut *self.sent.lock());
        parts.sort_unstable_by_key(|part| part.number);
        let sums = self.access.settings().sends_checksums;
        let parts = parts.into_iter().map(|part| part.completed(sums));
        let parts: Vec<_> = parts.collect();
        self.ask(|client, target| target.complete(client, &upload, &parts, length))
    }

    fn put_whole(&self, bytes: &[u8]) -> Result<Option<String>, Failure> {
        self.ask(|client, target| target.put_object(client, bytes))
    }

    /// Sends a request, which ends with the upload, and again if it may succeed then.
    fn ask<T>(
        &self,
        work: impl Fn(&mut HttpClient, &UploadTarget) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut attempt = 1;
        loop {
            let (result, wait) = self.access.send(|client, current| {
                let target = self.target(current)?;
                client.dialer.join_transfer(ReaderContext {
                    settings: &self.access.transfer,
                    control: &self.control,
                    stop: &self.stop,
                });
                let result = work(client, &target);
                let _ = client.dialer.leave_transfer();
                result
            });
            match result {
                Err(failure)
                    if failure.may_retry()
                        && attempt < ATTEMPTS
                        && !self.control.is_cancelled() =>
                {
                    tracing::debug!(%failure, "a request of an upload is sent again");
                    std::thread::sleep(pause(attempt, wait));
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// Removes the parts that were sent.
    fn abort(&self) {
        let Some(upload) = self.begun.lock().clone().filter(|_| !self.is_joined) else {
            return;
        };
        let aborted = self.access.ask(|client, current| {
            let target = self.target(current)?;
            unfinished::abort(
                client,
                &target.bucket,
                &target.key,
                &upload.id,
                &self.action,
            )
        });
        if let Err(failure) = aborted {
            tracing::warn!(
                %failure, upload = upload.id,
                "parts of an upload are left in the bucket and cost storage: longhaul rm --unfinished removes them"
            );
        }
    }
}
