//! Work that a session waits for: one piece at a time, outside of the async reactor.

use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use data::channel::{ListenOptions, SessionDataChannel};
use data::drs;
use proto::security::SecurityToken;
use proto::server::{DriverEvent, FileError, FileErrorKind, FileResponse};
use proto::stripes::StripeAddresses;
use security::gsi::{GsiAcceptor, GsiError, GsiStep};

use crate::files::ListingMemoryShare;
use crate::limits::QueuePermit;
use crate::login::{Login, LoginRefusal};
use crate::state::ServerState;
use crate::stripes::{NodeAccess, StripeSet};
use crate::transfer::{
    AdmissionResult, QueuedTransfer, StopCause, TransferHandle, TransferUpdate, file_error,
};

mod file_work;

pub(crate) use file_work::FileWork;

/// The current work of a session. Large variants are boxed, because most sessions are idle.
pub(crate) enum SessionWork {
    /// None: the session waits for a command line.
    None,
    /// An outcome that is known already.
    Immediate(DriverEvent),
    /// A TLS handshake is to be made on the control connection. The session makes it itself, because
    /// the handshake needs the connection.
    Handshake,
    /// A step of a GSI exchange is being computed.
    Exchange(PendingResult<Result<ExchangeStep, String>>),
    /// A login is being checked.
    Login(PendingResult<Result<Login, LoginRefusal>>),
    /// A data listener is being opened.
    Listen(PendingResult<Result<OpenedListener, FileError>>),
    /// A listener for the DRS channel is being opened.
    ListenDrs(PendingResult<Result<drs::DrsEndpoint, FileError>>),
    /// A file request.
    File(Box<FileWork>),
    /// A transfer that waits for its permit.
    Admission(Box<QueuedTransfer>),
    /// A running transfer.
    Transfer(Box<TransferHandle>),
}

/// The listener of a session, or those of its data nodes.
#[derive(Debug)]
pub(crate) enum OpenedListener {
    /// This process listens.
    Own(SessionDataChannel),
    /// The data nodes listen, on these addresses.
    Striped(StripeSet, StripeAddresses),
}

/// A computed step of a GSI exchange, and the acceptor for the next one.
pub(crate) struct ExchangeStep {
    /// The acceptor.
    pub(crate) acceptor: Box<GsiAcceptor>,
    /// Its answer to the client's token.
    pub(crate) result: Result<GsiStep, GsiError>,
}

/// A result that is still to come.
pub(crate) type PendingResult<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Events of a session's work. Each but a progress report ends the work.
pub(crate) enum WorkEvent {
    /// The outcome of [`SessionWork::Immediate`].
    Immediate(DriverEvent),
    /// The result of a step of a GSI exchange; the text of a failure is for the log.
    Exchange(Result<ExchangeStep, String>),
    /// The result of the login.
    Login(Result<Login, LoginRefusal>),
    /// The data listener.
    Listen(Result<OpenedListener, FileError>),
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
    /// Starts to open a data listener for `client`, or one at each of these data nodes. This process's own is opened on a blocking
    /// thread, because it may try a whole range of busy ports.
    pub(crate) fn listen(
        options: ListenOptions,
        nodes: Option<NodeAccess>,
        client: IpAddr,
        shared: &Arc<ServerState>,
    ) -> Self {
        let shared = Arc::clone(shared);
        Self::Listen(Box::pin(async move {
            if let Some(access) = nodes {
                match StripeSet::listening(&access, &options).await {
                    Ok((stripes, addresses)) => {
                        return Ok(OpenedListener::Striped(stripes, addresses));
                    }
                    // One stripe is better than none.
                    Err(error) => tracing::warn!(%error, "the front end itself listens"),
                }
            }
            let permit = shared
                .listener_queue
                .acquire(client)
                .await
                .map_err(busy_error)?;
            let opened =
                run_blocking_with_permit(permit, move || SessionDataChannel::listen(&options))
                    .await?;
            let mut channel = opened.map_err(|error| file_error(&error))?;
            // Connections are counted when they are accepted, against the budget of the control
            // connection's client, whoever connects.
            channel.set_budget(shared.client_stream_budget(client));
            Ok(OpenedListener::Own(channel))
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
            // The same ports as for data connections, because a firewall opens only these.
            let ports = shared.config.data_ports.map(|(low, high)| low..=high);
            let opened =
                run_blocking_with_permit(permit, move || drs::DrsEndpoint::listen(ip, ports))
                    .await?;
            opened.map_err(|error| file_error(&error))
        }))
    }

    /// Starts a step of the GSI exchange of the client at `peer`. It runs on a blocking thread, because it
    /// verifies signatures and may make a key. Without an acceptor the token is the first one.
    pub(crate) fn exchange(
        acceptor: Option<Box<GsiAcceptor>>,
        token: SecurityToken,
        shared: &Arc<ServerState>,
        peer: IpAddr,
    ) -> Self {
        let queue = Arc::clone(&shared.exchange_queue);
        let material = Arc::clone(&shared.material);
        Self::Exchange(Box::pin(async move {
            let permit = queue.acquire(peer).await.map_err(|e| e.to_string())?;
            let step = run_blocking_with_permit(permit, move || {
                let mut acceptor = match acceptor {
                    Some(acceptor) => acceptor,
                    None => Box::new(material.gsi_acceptor()?),
                };
                let result = acceptor.step(token.as_bytes());
                Ok::<_, GsiError>(ExchangeStep { acceptor, result })
            });
            let step = step.await.map_err(|error| error.text)?;
            step.map_err(|error| error.to_string())
        }))
    }

    /// Whether the session waits for a command line.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Stops work that may take long. A login or the opening of a listener ends soon by itself.
    pub(crate) fn stop(&mut self, cause: StopCause) {
        match self {
            Self::Transfer(running) => running.stop(cause),
            Self::Admission(waiting) => waiting.stop(cause),
            Self::File(work) => work.stop(),
            _ => {}
        }
    }

    /// Waits for the next event; waits for ever if there is no work. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> WorkEvent {
        match self {
            // Never ready: the session's `select!` then waits for its other events only.
            Self::None | Self::Handshake => std::future::pending().await,
            Self::Immediate(outcome) => WorkEvent::Immediate(outcome.clone()),
            Self::Exchange(answer) => WorkEvent::Exchange(answer.await),
            Self::Login(answer) => WorkEvent::Login(answer.await),
            Self::Listen(answer) => WorkEvent::Listen(answer.await),
            Self::ListenDrs(answer) => WorkEvent::ListenDrs(answer.await),
            Self::File(work) => work.next_event().await,
            Self::Admission(waiting) => WorkEvent::Admitted(Box::new(waiting.wait().await)),
            Self::Transfer(running) => WorkEvent::Transfer(running.next_update().await),
        }
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
        let _permit = permit;
        work()
    })
    .await
}

/// The error of a request that got no permit.
fn busy_error(error: impl Display) -> FileError {
    FileError::new(FileErrorKind::Busy, error.to_string())
}

/// The error after a panic on a blocking thread. The panic hook has logged the defect; the session
/// goes on.
fn internal_error() -> FileError {
    FileError::new(FileErrorKind::Other, "internal error")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use data::store::root::Root;
    use proto::path::VPath;
    use proto::server::{AccountRights, FileRequest, ListFormat, ListRequest};
    use tokio::time::timeout;

    use super::*;
    use crate::config::ServerConfig;
    use crate::files::DirectoryFiles;
    use crate::limits::FairQueue;
    use crate::login::Authenticator;
    use crate::session_files::SessionFiles;
    use crate::transfer_log::TransferLog;

    const MOMENT: Duration = Duration::from_millis(50);

    fn listing() -> FileRequest {
        FileRequest::List(ListRequest {
            path: VPath::root(),
            pattern: None,
            prefix: Vec::new(),
            format: ListFormat::Names,
            recursive: false,
            deflate: false,
        })
    }

    /// Handles and settings with which a session runs file requests.
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
            let memory = crate::files::ListingMemory::default();
            Self {
                shared: Arc::new(ServerState::new(config, Arc::default(), logins, log)),
                files: DirectoryFiles::new(root, rights, Arc::default(), Arc::default(), memory)
                    .into(),
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
        let start = Instant::now();
        while listens.permits_in_use() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "for ever");
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
            SessionWork::listen(options, None, PEER, shared)
        });
    }
}
