//! File requests, among them checksums, which run in time slices.

use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proto::server::{FileError, FileRequest, FileResponse};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{PendingResult, WorkEvent, busy_error, internal_error, run_blocking};
use crate::files::{ListingMemoryShare, RunningChecksum, aborted_error};
use crate::limits::{NoPermit, QueuePermit};
use crate::session_files::SessionFiles;
use crate::state::ServerState;

/// A file request in progress; a checksum reports its progress.
pub(crate) struct FileWork {
    answer: PendingResult<(Result<FileResponse, FileError>, Option<ListingMemoryShare>)>,
    meter: Arc<ChecksumMeter>,
    tick: Option<Interval>,
}

/// State shared by a checksum's thread and its session.
#[derive(Debug, Default)]
struct ChecksumMeter {
    bytes_read: AtomicU64,
    stopped: AtomicBool,
    /// Wakes a request that waits for its permit when `stopped` is set.
    stop: Notify,
}

impl FileWork {
    /// Starts a request of a client at `peer`.
    pub(crate) fn start(
        shared: Arc<ServerState>,
        peer: IpAddr,
        files: SessionFiles,
        request: FileRequest,
    ) -> Self {
        let meter = Arc::new(ChecksumMeter::default());
        let tick = match &request {
            FileRequest::Checksum { marker_seconds, .. } => marker_interval(*marker_seconds),
            _ => None,
        };
        let shared_meter = Arc::clone(&meter);
        let answer = Box::pin(async move {
            // Checksums, listings and removals of trees need a permit; all other requests are quick.
            let reads_directories =
                matches!(request, FileRequest::List(_) | FileRequest::RemoveTree(_));
            let max_wait = shared.config.queue_timeout;
            match request {
                FileRequest::Checksum { .. } => {
                    let permit = shared.checksum_queue.acquire_within(peer, max_wait);
                    (
                        compute_checksum(permit, files, request, shared_meter).await,
                        None,
                    )
                }
                _ if reads_directories => match shared_meter
                    .wait_for_permit(shared.listing_queue.acquire_within(peer, max_wait))
                    .await
                {
                    Ok(permit) => run_file_request(files, request, Some(permit)).await,
                    Err(error) => (Err(error), None),
                },
                _ => run_file_request(files, request, None).await,
            }
        });
        Self {
            answer,
            meter,
            tick,
        }
    }

    /// Stops a checksum, and a request that still waits for its permit. Other requests go on.
    pub(crate) fn stop(&self) {
        self.meter.stopped.store(true, Ordering::Relaxed);
        // `notify_one` stores a permit if nobody waits yet, so a stop before the wait is not lost.
        self.meter.stop.notify_one();
    }

    pub(super) async fn next_event(&mut self) -> WorkEvent {
        // Only checksums with markers report their progress.
        let Some(tick) = &mut self.tick else {
            let (answer, share) = (&mut self.answer).await;
            return WorkEvent::File(answer, share);
        };
        tokio::select! {
            // A result comes before a tick: after the result no progress is reported.
            biased;
            (answer, share) = &mut self.answer => WorkEvent::File(answer, share),
            _ = tick.tick() => WorkEvent::ChecksumProgress(self.meter.bytes_read.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for FileWork {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ChecksumMeter {
    /// Reports the bytes read; `false`: the session has stopped the checksum.
    fn update(&self, bytes_read: u64) -> bool {
        self.bytes_read.store(bytes_read, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for a permit, unless the session stops the request.
    async fn wait_for_permit<E: Display>(
        &self,
        permit: impl Future<Output = Result<QueuePermit, E>>,
    ) -> Result<QueuePermit, FileError> {
        tokio::select! {
            biased;
            () = self.stop.notified() => Err(aborted_error()),
            permit = permit => permit.map_err(busy_error),
        }
    }
}

/// Longest time for which a checksum keeps its permit before it lets others run.
const SLICE: Duration = Duration::from_millis(250);

/// Runs a file request on a blocking thread.
async fn run_file_request(
    files: SessionFiles,
    request: FileRequest,
    permit: Option<QueuePermit>,
) -> (Result<FileResponse, FileError>, Option<ListingMemoryShare>) {
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        match &request {
            FileRequest::List(list) => match files.list(list) {
                Ok((answer, share)) => (Ok(answer), Some(share)),
                Err(error) => (Err(error), None),
            },
            _ => (files.run(&request, &mut |_| true), None),
        }
    })
    .await
    .unwrap_or_else(|_| (Err(internal_error()), None))
}

/// Computes a checksum in time slices. Between two slices it queues again and holds no thread, so
/// even an endless file delays others by one slice at most.
async fn compute_checksum(
    permit: impl Future<Output = Result<QueuePermit, NoPermit>>,
    files: SessionFiles,
    request: FileRequest,
    shared_meter: Arc<ChecksumMeter>,
) -> Result<FileResponse, FileError> {
    let permit = shared_meter.wait_for_permit(permit).await?;
    let opened = run_blocking(move || (open_checksum(&files, &request), permit)).await?;
    let (mut computation, mut permit) = (opened.0?, opened.1);
    loop {
        let meter = Arc::clone(&shared_meter);
        let slice = move || {
            let slice_end = Instant::now() + SLICE;
            let mut go_on = |bytes_read| meter.update(bytes_read) && Instant::now() < slice_end;
            let result = computation.advance(&mut go_on);
            (computation, result, permit)
        };
        let (next, result, returned_permit) = run_blocking(slice).await?;
        if let Some(digest) = result? {
            return Ok(FileResponse::Checksum(digest));
        }
        // `advance` returns no checksum both when its slice ends and when it is stopped.
        if shared_meter.stopped.load(Ordering::Relaxed) {
            return Err(aborted_error());
        }
        computation = next;
        permit = shared_meter
            .wait_for_permit(returned_permit.requeue())
            .await?;
    }
}

fn open_checksum(
    files: &SessionFiles,
    request: &FileRequest,
) -> Result<Box<RunningChecksum>, FileError> {
    match request {
        FileRequest::Checksum {
            algorithm,
            path,
            offset,
            length,
            marker_seconds: _,
        } => files
            .begin_checksum(*algorithm, path, *offset, *length)
            .map(Box::new),
        _ => Err(internal_error()),
    }
}

/// The timer of progress markers; the first marker is due one period from now.
fn marker_interval(seconds: u32) -> Option<Interval> {
    (seconds > 0).then(|| {
        let mut tick = interval(Duration::from_secs(seconds.into()));
        // After a stall of the machine one marker is enough; a burst of missed ones says nothing.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        tick
    })
}
