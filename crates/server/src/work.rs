//! Work that a session waits for: one piece at a time, outside of the async reactor.

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

/// The current work of a session. Large variants are boxed, because most sessions are idle.
pub(crate) enum SessionWork {
    /// None: the session waits for a command line.
    None,
    /// An outcome that is known already.
    Immediate(DriverEvent),
    /// A login is being checked.
    Login(PendingResult<Result<Login, LoginRefusal>>),
    /// A data listener is being opened.
    Listen(PendingResult<Result<SessionDataChannel, FileError>>),
    /// A listener for the DRS channel is being opened.
    ListenDrs(PendingResult<Result<drs::DrsEndpoint, FileError>>),
    /// A file request.
    File(Box<FileWork>),
    /// A transfer that waits for its permit.
    Admission(Box<QueuedTransfer>),
    /// A running transfer.
    Transfer(Box<TransferHandle>),
}

/// A result that is still to come.
pub(crate) type PendingResult<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Events of a session's work. Each but a progress report ends the work.
pub(crate) enum WorkEvent {
    /// See [`SessionWork::Immediate`].
    Immediate(DriverEvent),
    /// The result of the login.
    Login(Result<Login, LoginRefusal>),
    /// The data listener.
    Listen(Result<SessionDataChannel, FileError>),
    /// The listener of the DRS channel.
    ListenDrs(Result<drs::DrsEndpoint, FileError>),
    /// Bytes of the file that a checksum has read so far.
    ChecksumProgress(u64),
    /// The answer to a file request, and the memory reserved for it until it is sent.
    File(Result<FileResponse, FileError>, Option<ListingMemoryShare>),
    /// The transfer has its permit, or is refused one.
    Admitted(Box<AdmissionResult>),
    /// An update of the transfer; the work ends with [`WorkerEvent::Ended`](crate::transfer::WorkerEvent).
    Transfer(TransferUpdate),
}

impl SessionWork {
    /// Starts to open a data listener for `client`. It runs on a blocking thread, because it may try a
    /// whole range of busy ports.
    pub(crate) fn listen(
        options: ListenOptions,
        client: IpAddr,
        shared: &Arc<ServerState>,
    ) -> Self {
        let shared = Arc::clone(shared);
        Self::Listen(Box::pin(async move {
            let permit = shared
                .listener_queue
                .acquire(client)
                .await
                .map_err(busy_error)?;
            let made =
                run_blocking_with_permit(permit, move || SessionDataChannel::listen(&options))
                    .await?;
            let mut channel = made.map_err(|error| file_error(&error))?;
            channel.set_budget(shared.client_stream_budget(client));
            Ok(channel)
        }))
    }

    /// Starts to open a listener for the DRS channel on `ip` and the configured data ports, as
    /// [`Self::listen`] does.
    pub(crate) fn listen_drs(ip: IpAddr, shared: &Arc<ServerState>, peer: IpAddr) -> Self {
        let shared = Arc::clone(shared);
        Self::ListenDrs(Box::pin(async move {
            let permit = shared
                .listener_queue
                .acquire(peer)
                .await
                .map_err(busy_error)?;
            let ports = shared.config.data_ports.map(|(low, high)| low..=high);
            let made =
                run_blocking_with_permit(permit, move || drs::DrsEndpoint::listen(ip, ports))
                    .await?;
            made.map_err(|error| file_error(&error))
        }))
    }

    /// Whether the session waits for a command line.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Waits for the next event; waits for ever if there is no work. Cancel-safe.
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
        let meter_of_work = Arc::clone(&meter);
        let answer = Box::pin(async move {
            let is_tree_walk = matches!(request, FileRequest::List(_) | FileRequest::RemoveTree(_));
            // Requests that read whole directory trees need a permit; all others are quick.
            let max_wait = shared.config.queue_timeout;
            match request {
                FileRequest::Checksum { .. } => {
                    let permit = shared.checksum_queue.acquire_within(peer, max_wait);
                    (
                        compute_checksum(permit, files, request, meter_of_work).await,
                        None,
                    )
                }
                _ if is_tree_walk => match meter_of_work
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
        self.meter.stop.notify_one();
    }

    async fn next_event(&mut self) -> WorkEvent {
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
        let _place = permit;
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
    meter_of_work: Arc<ChecksumMeter>,
) -> Result<FileResponse, FileError> {
    let permit = meter_of_work.wait_for_permit(permit).await?;
    let begun = run_blocking(move || (open_checksum(&files, &request), permit)).await?;
    let (mut summing, mut permit) = (begun.0?, begun.1);
    loop {
        let meter = Arc::clone(&meter_of_work);
        let slice = move || {
            let until = Instant::now() + SLICE;
            let mut go_on = |bytes_read| meter.update(bytes_read) && Instant::now() < until;
            let result = summing.advance(&mut go_on);
            (summing, result, permit)
        };
        let (next, result, held) = run_blocking(slice).await?;
        if let Some(digest) = result? {
            return Ok(FileResponse::Checksum(digest));
        }
        if meter_of_work.stopped.load(Ordering::Relaxed) {
            return Err(aborted_error());
        }
        summing = next;
        permit = meter_of_work.wait_for_permit(held.requeue()).await?;
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

/// Runs `work` on a blocking thread and holds the permit until the work ends, even if nobody waits
/// for its result any more: a blocking thread cannot be cancelled.
async fn run_blocking_with_permit<T: Send + 'static>(
    permit: QueuePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FileError> {
    run_blocking(move || {
        let _place = permit;
        work()
    })
    .await
}

/// The error of a request that got no permit.
fn busy_error(error: impl Display) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text: error.to_string(),
    }
}

/// The timer of progress markers; the first marker is due one period from now.
fn marker_interval(seconds: u32) -> Option<Interval> {
    (seconds > 0).then(|| {
        let mut tick = interval(Duration::from_secs(seconds.into()));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        tick
    })
}

/// The error after a panic on a blocking thread. The panic hook has logged the defect; the session
/// goes on.
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

    /// What a session needs to run file requests, with its own settings.
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

    /// Takes all permits, each for another client.
    async fn take_all_permits(queue: &Arc<FairQueue>, permits: usize) -> Vec<QueuePermit> {
        let mut all = Vec::new();
        for host in 0..permits {
            let other = IpAddr::from([198, 51, 100, u8::try_from(host).unwrap()]);
            all.push(queue.acquire(other).await.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn quick_requests_run_while_all_listing_permits_are_taken() {
        let session = WorkFixture::with(ServerConfig::default());
        let shared = &session.shared;
        let all = take_all_permits(&shared.listing_queue, shared.config.max_listings).await;
        let mut listing_request = session.start(listing());
        assert!(
            timeout(MOMENT, listing_request.next_event()).await.is_err(),
            "no permit is free"
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
        assert!(matches!(
            listing_request.next_event().await,
            WorkEvent::File(Ok(_), _)
        ));
    }

    #[tokio::test]
    async fn requests_without_a_permit_are_refused_after_the_queue_timeout() {
        let session = WorkFixture::with(ServerConfig {
            queue_timeout: MOMENT,
            max_checksums: Some(2),
            ..ServerConfig::default()
        });
        let shared = &session.shared;
        let _walks = take_all_permits(&shared.listing_queue, shared.config.max_listings).await;
        let _sums = take_all_permits(&shared.checksum_queue, 2).await;
        let checksum = FileRequest::Checksum {
            algorithm: proto::checksum::ChecksumAlgorithm::Md5,
            path: VPath::root(),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        for request in [listing(), FileRequest::RemoveTree(VPath::root()), checksum] {
            let mut work = session.start(request);
            let step = timeout(Duration::from_secs(30), work.next_event()).await;
            let Ok(WorkEvent::File(Err(error), _)) = step else {
                panic!("not refused");
            };
            assert_eq!(error.kind, FileErrorKind::Busy);
        }
    }

    /// Starts to open a listener, and drops the work before the listener is open.
    fn abandon_a_listener(start: impl FnOnce(&Arc<ServerState>) -> SessionWork) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let session = WorkFixture::with(ServerConfig::default());
        let listens = &session.shared.listener_queue;
        // The only blocking thread is busy, so the listener is not open yet.
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let blocked = runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(async {
            let mut work = start(&session.shared);
            assert!(timeout(MOMENT, work.next_event()).await.is_err());
        });
        assert_eq!(listens.permits_in_use(), 1, "until it is open");
        drop(free);
        runtime.block_on(blocked).unwrap().unwrap_err();
        let begun = Instant::now();
        while listens.permits_in_use() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_abandoned_listener_keeps_its_permit_until_it_is_open() {
        let ip = std::net::Ipv4Addr::LOCALHOST.into();
        abandon_a_listener(|shared| SessionWork::listen_drs(ip, shared, PEER));
        abandon_a_listener(|shared| {
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
