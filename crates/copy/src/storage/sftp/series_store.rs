//! Stores a series: the bytes of its files are sent in their order. A file that fails has no name, and is removed.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::checksum::ChecksumHasher;
use data::dialer::Dialer;
use data::error::DataError;
use data::job::{TransferControl, TransferReport};
use data::send::body::{self, BodyRange, RequestBody};
use data::store::bundle::BundleSource;
use ftp::Failure;
use proto::sftp::{OpenFlags, SftpReply, SftpRequest};

use super::changes;
use super::connection::MAX_AHEAD;
use super::errors::{self, SftpFailed};
use super::series::SeriesJob;
use super::series_requests::{
    SentRequest, SeriesRequests, SeriesStep, checksum, handle, mismatch, reason,
};
use super::store::{SendFailed, own_error};

/// Most bytes without a reply: twice what a channel of OpenSSH has in flight, so that it never waits for them.
const WINDOW: u64 = 4 << 20;

/// Moves the files from their source. Returns the requests.
pub(super) fn run(
    job: &SeriesJob,
    source: &Arc<BundleSource>,
    requests: SeriesRequests,
    control: &Arc<TransferControl>,
) -> (Option<SeriesRequests>, Result<TransferReport, Failure>) {
    let mut store = SeriesStore {
        files: job
            .files
            .iter()
            .map(|_| SftpStoredFile::default())
            .collect(),
        job,
        source,
        control,
        requests,
        opening: 0,
        sending: 0,
        in_flight: 0,
        position: 0,
        not_renamed: Vec::new(),
    };
    // From here on the server may have bytes.
    job.spec.started.store(true, Ordering::Relaxed);
    let range = BodyRange {
        offset: 0,
        length: Some(source.total()),
    };
    let sent = Dialer::new(&job.settings)
        .map_err(SendFailed::from)
        .and_then(|dialer| {
            body::run(&**source, range, &job.settings, control, &dialer, |bytes| {
                store.run(bytes)
            })
        });
    let failure =
        |failed: SendFailed| failed.failure(&job.server, &job.operation(), &job.spec.confirmation);
    (Some(store.requests), sent.map_err(failure))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum StoredStage {
    /// Its bytes are sent.
    #[default]
    Bytes,
    /// All is sent that proves them.
    Proof,
    /// It gets its name.
    Name,
    /// It has its name, or failed.
    Done,
}

#[derive(Default)]
struct SftpStoredFile {
    stage: StoredStage,
    handle: Option<Vec<u8>>,
    sent: u64,
    /// Requests without a reply.
    waiting: u32,
    has_failed: bool,
    /// Its partial file may have been another copy's, which was removed.
    is_cleared: bool,
    /// There may be a partial file.
    is_made: bool,
    hasher: Option<ChecksumHasher>,
}

/// A series that is stored.
struct SeriesStore<'j> {
    job: &'j SeriesJob,
    source: &'j BundleSource,
    control: &'j TransferControl,
    requests: SeriesRequests,
    files: Vec<SftpStoredFile>,
    /// The first files that are not opened, and not sent.
    opening: usize,
    sending: usize,
    /// Bytes without a reply.
    in_flight: u64,
    /// Of the source.
    position: u64,
    /// Complete files whose name may be taken: the server has no rename that replaces.
    not_renamed: Vec<usize>,
}

impl SeriesStore<'_> {
    fn run(&mut self, bytes: &mut RequestBody<'_>) -> Result<(), SendFailed> {
        while self.sending < self.files.len() || self.requests.is_waiting() {
            self.open();
            while self.sending < self.opening && self.send_bytes(self.sending, bytes)? {
                self.sending += 1;
            }
            self.receive(true)?;
        }
        self.replace()?;
        self.remove_stale()?;
        Ok(())
    }

    fn open(&mut self) {
        while self.opening < self.files.len() && self.requests.may_open() {
            let file = &self.job.files[self.opening];
            self.requests.outcome.begun.push(file.index);
            self.requests.open += 1;
            self.files[self.opening].hasher = self.job.spec.checksum.map(ChecksumHasher::new);
            self.begin(self.opening);
            self.opening += 1;
        }
    }

    /// Opens a partial file that nobody else writes.
    fn begin(&mut self, position: usize) {
        let job = self.job;
        let request = SftpRequest::Open(&job.files[position].partial, OpenFlags::New);
        self.send(position, SeriesStep::Open, &request);
    }

    /// Sends the bytes of a file, and what proves them; `false`: not all of it can be sent now.
    fn send_bytes(
        &mut self,
        position: usize,
        bytes: &mut RequestBody<'_>,
    ) -> Result<bool, SendFailed> {
        let job = self.job;
        let planned = &job.files[position];
        let Some(handle) = self.files[position].handle.take() else {
            return Ok(self.files[position].has_failed);
        };
        while !self.files[position].has_failed && self.files[position].sent < planned.size {
            if self.in_flight >= WINDOW {
                self.files[position].handle = Some(handle);
                return Ok(false);
            }
            self.send_block(position, &handle, bytes)?;
            self.receive(false)?;
        }
        self.prove(position, &handle);
        Ok(true)
    }

    fn send_block(
        &mut self,
        position: usize,
        handle: &[u8],
        bytes: &mut RequestBody<'_>,
    ) -> Result<(), SendFailed> {
        let planned = &self.job.files[position];
        let file = &mut self.files[position];
        let at = planned.start + file.sent;
        bytes.skip(at - self.position);
        let connection = &mut self.requests.connection;
        let most = u64::from(connection.limits.write).min(planned.size - file.sent);
        let hasher = &mut file.hasher;
        let fill = |out: &mut Vec<u8>| {
            let before = out.len();
            // In one piece: the source looks at a file once that it reads at once.
            out.resize(before + usize::try_from(most).unwrap_or(usize::MAX), 0);
            bytes
                .read_exact(&mut out[before..])
                .map_err(|_| own_error())?;
            if let Some(hasher) = hasher {
                hasher.update(&out[before..]);
            }
            Ok::<(), SendFailed>(())
        };
        // The source has all bytes, or zeros for them.
        let sent = connection.send_write(handle, file.sent, fill)?;
        let (id, length) = sent.ok_or_else(own_error)?;
        file.sent += u64::from(length);
        file.waiting += 1;
        self.position = at + u64::from(length);
        self.in_flight += u64::from(length);
        self.requests.note(id, position, SeriesStep::Write(length));
        Ok(())
    }

    /// Closes a file, and asks for what shows that its bytes have arrived.
    fn prove(&mut self, position: usize, handle: &[u8]) {
        let job = self.job;
        let planned = &job.files[position];
        let has_failed = self.files[position].has_failed;
        if job.syncs && self.requests.connection.extensions.fsync && !has_failed {
            self.send(position, SeriesStep::Sync, &SftpRequest::Fsync(handle));
        }
        self.send(position, SeriesStep::Close, &SftpRequest::Close(handle));
        // After all that a server writes when it closes a file.
        match job.spec.checksum.filter(|_| planned.size > 0) {
            _ if has_failed => {}
            Some(algorithm) => {
                let request = SftpRequest::CheckFile {
                    path: &planned.partial,
                    algorithm: &algorithm.name().to_ascii_lowercase(),
                    offset: 0,
                    length: 0,
                };
                self.send(position, SeriesStep::Checksum, &request);
            }
            None => {
                let request = SftpRequest::Stat(&planned.partial);
                self.send(position, SeriesStep::Attributes, &request);
            }
        }
        self.files[position].stage = StoredStage::Proof;
    }

    fn send(&mut self, position: usize, step: SeriesStep, request: &SftpRequest<'_>) {
        self.files[position].waiting += 1;
        self.requests.send(position, step, request);
    }

    /// Takes the replies that have come.
    fn receive(&mut self, waits: bool) -> Result<(), SendFailed> {
        if self.control.is_cancelled() {
            return Err(DataError::Aborted.into());
        }
        for (sent, reply) in self.requests.replies(waits)? {
            let SentRequest { position, step } = sent;
            self.files[position].waiting -= 1;
            let accepted = self.take(position, step, reply);
            let path = &self.job.files[position].path;
            let reason = |failed| reason(failed, &self.job.server, path).map(Some);
            if let Some(why) = accepted.or_else(reason)? {
                self.fail(position, why);
            }
            self.go_on(position);
        }
        Ok(())
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
            SeriesStep::Open => match handle(reply) {
                Ok(handle) => {
                    file.handle = Some(handle);
                    file.is_made = true;
                }
                // That of an earlier copy, or one that still writes it from elsewhere.
                Err(refused) if refused.is_plain_refusal() && !file.is_cleared => {
                    file.is_cleared = true;
                    let job = self.job;
                    let request = SftpRequest::Remove(&job.files[position].partial);
                    self.send(position, SeriesStep::Remove, &request);
                    self.begin(position);
                }
                Err(failed) => {
                    self.requests.open -= 1;
                    file.stage = StoredStage::Done;
                    return Err(failed);
                }
            },
            SeriesStep::Write(length) => {
                self.in_flight -= u64::from(length);
                errors::done(reply)?;
            }
            SeriesStep::Checksum => {
                let own = file.hasher.take().map(ChecksumHasher::finish);
                let algorithm = self.job.spec.checksum;
                let found = algorithm.map(|algorithm| checksum(reply, algorithm));
                if found.transpose()?.flatten() != own {
                    return Ok(Some("its checksum is another one".to_owned()));
                }
            }
            SeriesStep::Attributes => return mismatch(reply, &self.job.files[position], false),
            // A file without its time is still complete.
            SeriesStep::SetTime | SeriesStep::Remove => {}
            SeriesStep::Rename => match errors::done(reply) {
                Err(refused)
                    if refused.is_plain_refusal()
                        && !self.requests.connection.extensions.posix_rename =>
                {
                    self.not_renamed.push(position);
                    file.stage = StoredStage::Done;
                }
                done => done?,
            },
            SeriesStep::Sync | SeriesStep::Close | SeriesStep::Read(..) => errors::done(reply)?,
        }
        Ok(None)
    }

    /// Goes on with a file to which all replies have come.
    fn go_on(&mut self, position: usize) {
        let file = &mut self.files[position];
        if file.waiting > 0 {
            return;
        }
        let planned = &self.job.files[position];
        match file.stage {
            StoredStage::Bytes | StoredStage::Done => {}
            StoredStage::Proof | StoredStage::Name if file.has_failed => {
                file.stage = StoredStage::Done;
                self.remove(position);
            }
            StoredStage::Proof => match self.source.fault(planned.index) {
                Some(why) => {
                    self.fail(position, why);
                    self.go_on(position);
                }
                None => self.name(position),
            },
            StoredStage::Name => {
                file.stage = StoredStage::Done;
                self.requests.outcome.moved.push(planned.index);
            }
        }
    }

    /// Gives a complete file its time and its name.
    fn name(&mut self, position: usize) {
        self.files[position].stage = StoredStage::Name;
        let job = self.job;
        let (from, to) = (&job.files[position].partial, &job.files[position].path);
        if let Some(time) = job.files[position].modified.and_then(changes::seconds) {
            let request = SftpRequest::SetTime(from, time);
            self.send(position, SeriesStep::SetTime, &request);
        }
        let request = match self.requests.connection.extensions.posix_rename {
            true => SftpRequest::PosixRename(from, to),
            false => SftpRequest::Rename(from, to),
        };
        self.send(position, SeriesStep::Rename, &request);
    }

    fn fail(&mut self, position: usize, why: String) {
        if !std::mem::replace(&mut self.files[position].has_failed, true) {
            self.requests.fail(&self.job.files[position], why);
        }
    }

    /// Removes the partial file of one that has failed.
    fn remove(&mut self, position: usize) {
        if self.files[position].is_made {
            let job = self.job;
            let request = SftpRequest::Remove(&job.files[position].partial);
            self.send(position, SeriesStep::Remove, &request);
        }
    }

    /// Gives files their names that may be taken. Nothing else waits for replies.
    fn replace(&mut self) -> Result<(), SendFailed> {
        for position in std::mem::take(&mut self.not_renamed) {
            let job = self.job;
            let planned = &job.files[position];
            let (from, to) = (&planned.partial, &planned.path);
            let connection = &mut self.requests.connection;
            match changes::rename(connection, &job.server, from, to, None) {
                Ok(()) => self.requests.outcome.moved.push(planned.index),
                Err(refused) if !connection.is_usable() => {
                    return Err(SftpFailed::Other(refused.failure).into());
                }
                Err(refused) => {
                    self.fail(position, refused.failure.to_string());
                    self.remove(position);
                    while self.requests.is_waiting() {
                        self.receive(true)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes what earlier attempts have left.
    fn remove_stale(&mut self) -> Result<(), SftpFailed> {
        let stale = self.job.stale.iter();
        let requests: Vec<_> = stale.map(|path| SftpRequest::Remove(path)).collect();
        let connection = &mut self.requests.connection;
        let patience = connection.timeout();
        // One that is gone need not be removed.
        requests.chunks(MAX_AHEAD).try_for_each(|some| {
            let replies = connection.call_all(some, patience);
            replies.map(drop)
        })
    }
}
