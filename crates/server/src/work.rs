//! Work that a session's machine waits for: one piece at a time, off the reactor.

use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use data::channel::{ListenOptions, SessionDataChannel};
use data::drs;
use proto::server::{DriverEvent, FileError, FileErrorKind, FileRequest, FileResponse};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::files::{ListingMemoryShare, RunningChecksum, SessionFiles, aborted_error};
use crate::limits::{NoPermit, QueuePermit};
use crate::login::{Login, LoginRefusal};
use crate::shared::ServerState;
use crate::transfer::{
    AdmissionResult, QueuedTransfer, TransferHandle, TransferUpdate, file_error,
};

/// A piece of work under way. Boxed where it is large: most sessions are idle.
pub(crate) enum SessionWork {
    /// The machine waits for a line.
    None,
    /// An outcome known at once.
    Immediate(DriverEvent),
    /// A login is checked.
    Login(PendingResult<Result<Login, LoginRefusal>>),
    /// A listener is made.
    Listen(PendingResult<Result<SessionDataChannel, FileError>>),
    /// A listener for the DRS channel is made.
    ListenDrs(PendingResult<Result<drs::DrsEndpoint, FileError>>),
    /// Work on files.
    File(Box<FileWork>),
    /// A transfer that waits for its place.
    Admission(Box<QueuedTransfer>),
    /// A transfer.
    Transfer(Box<TransferHandle>),
}

/// An answer to come.
pub(crate) type PendingResult<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Results of a piece of work. Everything but progress ends it.
pub(crate) enum WorkEvent {
    /// See [`SessionWork::Immediate`].
    Immediate(DriverEvent),
    /// The login's answer.
    Login(Result<Login, LoginRefusal>),
    /// The listener.
    Listen(Result<SessionDataChannel, FileError>),
    /// The DRS channel's listener.
    ListenDrs(Result<drs::DrsEndpoint, FileError>),
    /// Bytes of a checksum summed so far.
    ChecksumProgress(u64),
    /// The answer of the files, and the memory that it takes until it is sent.
    File(Result<FileResponse, FileError>, Option<ListingMemoryShare>),
    /// The transfer has its place, or will not get one.
    Admitted(Box<AdmissionResult>),
    /// Of the transfer: it ends the work when it says so.
    Transfer(TransferUpdate),
}

impl SessionWork {
    /// Starts to make a listener for `client`. On a blocking thread: a range of taken ports is tried through.
    pub(crate) fn listen(
        options: ListenOptions,
        client: IpAddr,
        shared: &Arc<ServerState>,
    ) -> Self {
        let shared = Arc::clone(shared);
        Self::Listen(Box::pin(async move {
            let place = shared
                .listener_queue
                .acquire(client)
                .await
                .map_err(busy_error)?;
            let made =
                run_blocking_with_permit(place, move || SessionDataChannel::listen(&options))
                    .await?;
            let mut channel = made.map_err(|error| file_error(&error))?;
            channel.set_budget(shared.client_stream_budget(client));
            Ok(channel)
        }))
    }

    /// Starts to make a listener for the DRS channel on `ip` and the configured data ports;
    /// likewise.
    pub(crate) fn listen_drs(ip: IpAddr, shared: &Arc<ServerState>, peer: IpAddr) -> Self {
        let shared = Arc::clone(shared);
        Self::ListenDrs(Box::pin(async move {
            let place = shared
                .listener_queue
                .acquire(peer)
                .await
                .map_err(busy_error)?;
            let ports = shared.config.data_ports.map(|(low, high)| low..=high);
            let made = run_blocking_with_permit(place, move || drs::DrsEndpoint::listen(ip, ports))
                .await?;
            made.map_err(|error| file_error(&error))
        }))
    }

    /// Whether the machine waits for a line.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The next result; pends for ever when there is no work. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> WorkEvent {
        match self {
            Self::None => std::future::pending().await,
            Self::Immediate(outcome) => WorkEvent::Immediate(outcome.clone()),
            Self::Login(answer) => WorkEvent::Login(answer.await),
            Self::Listen(answer) => WorkEvent::Listen(answer.await),
            Self::ListenDrs(answer) => WorkEvent::ListenDrs(answer.await),
            Self::File(work) => work.next_event().await,
            Self::Admission(waiting) => WorkEvent::Admitted(Box::new(waiting.wait().await)),
            Self::Transfer(running) => WorkEvent::Transfer(running.next_update().await),
        }
    }
}

/// Work on files, with a look at its progress when a checksum is long.
pub(crate) struct FileWork {
    answer: PendingResult<(Result<FileResponse, FileError>, Option<ListingMemoryShare>)>,
    meter: Arc<ChecksumMeter>,
    tick: Option<Interval>,
}

/// Between a checksum's thread and its session.
#[derive(Debug, Default)]
struct ChecksumMeter {
    summed: AtomicU64,
    stopped: AtomicBool,
    /// Rung when `stopped` is set, for a checksum that waits its turn.
    stop: Notify,
}

impl FileWork {
    /// Starts it, for a client at `peer`.
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
        let gauge = Arc::clone(&meter);
        let answer = Box::pin(async move {
            let walks = matches!(request, FileRequest::List(_) | FileRequest::RemoveTree(_));
            let patience = shared.config.queue_timeout;
            match request {
                FileRequest::Checksum { .. } => {
                    let place = shared.checksum_queue.acquire_within(peer, patience);
                    (compute_checksum(place, files, request, gauge).await, None)
                }
                _ if walks => match gauge
                    .wait_for_permit(shared.listing_queue.acquire_within(peer, patience))
                    .await
                {
                    Ok(place) => run_file_request(files, request, Some(place)).await,
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

    /// Ends a checksum early, and what still waits for its turn; other work goes on.
    pub(crate) fn stop(&self) {
        self.meter.stopped.store(true, Ordering::Relaxed);
        self.meter.stop.notify_one();
    }

    async fn next_event(&mut self) -> WorkEvent {
        let Some(tick) = &mut self.tick else {
            let (answer, share) = (&mut self.answer).await;
            return WorkEvent::File(answer, share);
        };
        tokio::select! {
            biased;
            (answer, share) = &mut self.answer => WorkEvent::File(answer, share),
            _ = tick.tick() => WorkEvent::ChecksumProgress(self.meter.summed.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for FileWork {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ChecksumMeter {
    /// `false`: the session wants it no more.
    fn update(&self, summed: u64) -> bool {
        self.summed.store(summed, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for a place, unless the session wants it no more.
    async fn wait_for_permit<E: Display>(
        &self,
        place: impl Future<Output = Result<QueuePermit, E>>,
    ) -> Result<QueuePermit, FileError> {
        tokio::select! {
            biased;
            () = self.stop.notified() => Err(aborted_error()),
            place = place => place.map_err(busy_error),
        }
    }
}

/// Longest time for which a checksum keeps its place while others may wait.
const SLICE: Duration = Duration::from_millis(250);

/// Work on files on a blocking thread.
async fn run_file_request(
    files: SessionFiles,
    request: FileRequest,
    place: Option<QueuePermit>,
) -> (Result<FileResponse, FileError>, Option<ListingMemoryShare>) {
    tokio::task::spawn_blocking(move || {
        let _place = place;
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

/// A checksum, slice by slice. Between two of them it queues again and holds no thread, so that a
/// file without end delays others by a slice at most.
async fn compute_checksum(
    place: impl Future<Output = Result<QueuePermit, NoPermit>>,
    files: SessionFiles,
    request: FileRequest,
    gauge: Arc<ChecksumMeter>,
) -> Result<FileResponse, FileError> {
    let place = gauge.wait_for_permit(place).await?;
    let begun = run_blocking(move || (open_checksum(&files, &request), place)).await?;
    let (mut summing, mut place) = (begun.0?, begun.1);
    loop {
        let meter = Arc::clone(&gauge);
        let slice = move || {
            let until = Instant::now() + SLICE;
            let mut go_on = |summed| meter.update(summed) && Instant::now() < until;
            let result = summing.advance(&mut go_on);
            (summing, result, place)
        };
        let (next, result, held) = run_blocking(slice).await?;
        if let Some(digest) = result? {
            return Ok(FileResponse::Checksum(digest));
        }
        if gauge.stopped.load(Ordering::Relaxed) {
            return Err(aborted_error());
        }
        summing = next;
        place = gauge.wait_for_permit(held.requeue()).await?;
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

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| internal_error())
}

/// The place is held for as long as the work goes on, also when nobody waits for it any more.
async fn run_blocking_with_permit<T: Send + 'static>(
    place: QueuePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FileError> {
    run_blocking(move || {
        let _place = place;
        work()
    })
    .await
}

/// A refusal for want of a place.
fn busy_error(error: impl Display) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text: error.to_string(),
    }
}

/// A marker's clock; the first one is due a whole period from now.
fn marker_interval(seconds: u32) -> Option<Interval> {
    (seconds > 0).then(|| {
        let mut tick = interval(Duration::from_secs(seconds.into()));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        tick
    })
}

/// A blocking thread died (a defect; the panic hook logged it). The session goes on.
fn internal_error() -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        errno: None,
        text: "internal error".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use data::store::root::Root;
    use proto::path::VPath;
    use proto::server::{AccountRights, ListFormat, ListRequest};
    use tokio::time::timeout;

    use super::*;
    use crate::config::ServerConfig;
    use crate::limits::FairQueue;
    use crate::login::Authenticator;
    use crate::transfer_log::TransferLog;

    const MOMENT: Duration = Duration::from_millis(50);

    fn listing() -> FileRequest {
        FileRequest::List(ListRequest {
            path: VPath::root(),
            pattern: None,
            format: ListFormat::Names,
            recursive: false,
        })
    }

    /// A session of a server with these settings.
    struct WorkFixture {
        shared: Arc<ServerState>,
        files: SessionFiles,
        _dir: tempfile::TempDir,
    }

    impl WorkFixture {
        fn with(config: ServerConfig) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Arc::new(Root::open(dir.path()).unwrap());
            let logins = Authenticator::new(&config, Arc::clone(&root), None);
            let log = TransferLog::open(None, None).unwrap();
            let rights = AccountRights {
                write: true,
                third_party: false,
            };
            let room = crate::files::ListingMemory::default();
            Self {
                shared: Arc::new(ServerState::new(config, Arc::default(), logins, log)),
                files: SessionFiles::new(root, rights, Arc::default(), Arc::default(), room),
                _dir: dir,
            }
        }

        fn start(&self, request: FileRequest) -> FileWork {
            let shared = Arc::clone(&self.shared);
            FileWork::start(shared, PEER, self.files.clone(), request)
        }
    }

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// All places, each taken by another client.
    async fn all_places(queue: &Arc<FairQueue>, places: usize) -> Vec<QueuePermit> {
        let mut all = Vec::new();
        for host in 0..places {
            let other = IpAddr::from([198, 51, 100, u8::try_from(host).unwrap()]);
            all.push(queue.acquire(other).await.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn long_walks_leave_threads_to_quick_requests() {
        let session = WorkFixture::with(ServerConfig::default());
        let shared = &session.shared;
        let all = all_places(&shared.listing_queue, shared.config.max_listings).await;
        let mut walk = session.start(listing());
        assert!(
            timeout(MOMENT, walk.next_event()).await.is_err(),
            "it waits"
        );
        let mut quick = session.start(FileRequest::Stat(VPath::root()));
        assert!(matches!(
            quick.next_event().await,
            WorkEvent::File(Ok(_), _)
        ));
        let mut given_up = session.start(listing());
        given_up.stop();
        assert!(matches!(
            given_up.next_event().await,
            WorkEvent::File(Err(_), _)
        ));
        drop(all);
        assert!(matches!(walk.next_event().await, WorkEvent::File(Ok(_), _)));
    }

    #[tokio::test]
    async fn whatever_waits_for_a_place_is_refused_in_the_end() {
        let session = WorkFixture::with(ServerConfig {
            queue_timeout: MOMENT,
            max_checksums: Some(2),
            ..ServerConfig::default()
        });
        let shared = &session.shared;
        let _walks = all_places(&shared.listing_queue, shared.config.max_listings).await;
        let _sums = all_places(&shared.checksum_queue, 2).await;
        let sum = FileRequest::Checksum {
            algorithm: proto::checksum::ChecksumAlgorithm::Md5,
            path: VPath::root(),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        for request in [listing(), FileRequest::RemoveTree(VPath::root()), sum] {
            let mut work = session.start(request);
            let step = timeout(Duration::from_secs(30), work.next_event()).await;
            let Ok(WorkEvent::File(Err(error), _)) = step else {
                panic!("not refused");
            };
            assert_eq!(error.kind, FileErrorKind::Busy);
        }
    }

    /// Begins to make a listener, and no more waits for it before it is made.
    fn give_up_a_listener(start: impl FnOnce(&Arc<ServerState>) -> SessionWork) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let session = WorkFixture::with(ServerConfig::default());
        let listens = &session.shared.listener_queue;
        // The one blocking thread is busy, so that the listener is not made yet.
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let blocked = runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(async {
            let mut work = start(&session.shared);
            assert!(timeout(MOMENT, work.next_event()).await.is_err());
        });
        assert_eq!(listens.permits_in_use(), 1, "until it is made");
        drop(free);
        runtime.block_on(blocked).unwrap().unwrap_err();
        let begun = Instant::now();
        while listens.permits_in_use() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_listener_that_nobody_waits_for_keeps_its_place_until_it_is_made() {
        let ip = std::net::Ipv4Addr::LOCALHOST.into();
        give_up_a_listener(|shared| SessionWork::listen_drs(ip, shared, PEER));
        give_up_a_listener(|shared| {
            let options = ListenOptions {
                ip,
                ports: None,
                accept: data::channel::AllowedPeers::Any,
                buffers: proto::sizing::SocketBuffers::default(),
            };
            SessionWork::listen(options, PEER, shared)
        });
    }
}
