//! Work that a session's machine waits for: one piece at a time, off the reactor.

use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use data::channel::{Channel, ListenOptions};
use data::drs;
use proto::server::{FileAnswer, FileError, FileErrorKind, FileRequest, Outcome};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::files::{Files, Share, Summing, aborted};
use crate::limits::{NoPlace, Place};
use crate::login::{Login, Refusal};
use crate::shared::Shared;
use crate::transfer::{Admission, Admitted, Running, Seen, file_error};

/// A piece of work under way. Boxed where it is large: most sessions are idle.
pub(crate) enum Work {
    /// The machine waits for a line.
    None,
    /// An outcome known at once.
    Known(Outcome),
    /// A login is checked.
    Login(Pending<Result<Login, Refusal>>),
    /// A listener is made.
    Listen(Pending<Result<Channel, FileError>>),
    /// A listener for the DRS channel is made.
    ListenDrs(Pending<Result<drs::Endpoint, FileError>>),
    /// Work on files.
    File(Box<FileWork>),
    /// A transfer that waits for its place.
    Admission(Box<Admission>),
    /// A transfer.
    Transfer(Box<Running>),
}

/// An answer to come.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Results of a piece of work. Everything but progress ends it.
pub(crate) enum Step {
    /// See [`Work::Known`].
    Known(Outcome),
    /// The login's answer.
    Login(Result<Login, Refusal>),
    /// The listener.
    Listen(Result<Channel, FileError>),
    /// The DRS channel's listener.
    ListenDrs(Result<drs::Endpoint, FileError>),
    /// Bytes of a checksum summed so far.
    Summed(u64),
    /// The answer of the files, and the memory that it takes until it is sent.
    File(Result<FileAnswer, FileError>, Option<Share>),
    /// The transfer has its place, or will not get one.
    Admitted(Box<Admitted>),
    /// Of the transfer: it ends the work when it says so.
    Transfer(Seen),
}

impl Work {
    /// Starts to make a listener for `client`. On a blocking thread: a range of taken ports is tried through.
    pub(crate) fn listen(options: ListenOptions, client: IpAddr, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self::Listen(Box::pin(async move {
            let place = shared.listens.place(client).await.map_err(busy)?;
            let made = holding(place, move || Channel::listen(&options)).await?;
            let mut channel = made.map_err(|error| file_error(&error))?;
            channel.set_budget(shared.streams_of(client));
            Ok(channel)
        }))
    }

    /// Starts to make a listener for the DRS channel on `ip` and the configured data ports;
    /// likewise.
    pub(crate) fn listen_drs(ip: IpAddr, shared: &Arc<Shared>, peer: IpAddr) -> Self {
        let shared = Arc::clone(shared);
        Self::ListenDrs(Box::pin(async move {
            let place = shared.listens.place(peer).await.map_err(busy)?;
            let ports = shared.config.data_ports.map(|(low, high)| low..=high);
            let made = holding(place, move || drs::Endpoint::listen(ip, ports)).await?;
            made.map_err(|error| file_error(&error))
        }))
    }

    /// Whether the machine waits for a line.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The next result; pends for ever when there is no work. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Step {
        match self {
            Self::None => std::future::pending().await,
            Self::Known(outcome) => Step::Known(outcome.clone()),
            Self::Login(answer) => Step::Login(answer.await),
            Self::Listen(answer) => Step::Listen(answer.await),
            Self::ListenDrs(answer) => Step::ListenDrs(answer.await),
            Self::File(work) => work.next().await,
            Self::Admission(waiting) => Step::Admitted(Box::new(waiting.next().await)),
            Self::Transfer(running) => Step::Transfer(running.next().await),
        }
    }
}

/// Work on files, with a look at its progress when a checksum is long.
pub(crate) struct FileWork {
    answer: Pending<(Result<FileAnswer, FileError>, Option<Share>)>,
    meter: Arc<Meter>,
    tick: Option<Interval>,
}

/// Between a checksum's thread and its session.
#[derive(Debug, Default)]
struct Meter {
    summed: AtomicU64,
    stopped: AtomicBool,
    /// Rung when `stopped` is set, for a checksum that waits its turn.
    stop: Notify,
}

impl FileWork {
    /// Starts it, for a client at `peer`.
    pub(crate) fn start(
        shared: Arc<Shared>,
        peer: IpAddr,
        files: Files,
        request: FileRequest,
    ) -> Self {
        let meter = Arc::new(Meter::default());
        let tick = match &request {
            FileRequest::Checksum { marker_seconds, .. } => ticker(*marker_seconds),
            _ => None,
        };
        let gauge = Arc::clone(&meter);
        let answer = Box::pin(async move {
            let walks = matches!(request, FileRequest::List(_) | FileRequest::RemoveTree(_));
            let patience = shared.config.queue_timeout;
            match request {
                FileRequest::Checksum { .. } => {
                    let place = shared.sums.place_within(peer, patience);
                    (sum(place, files, request, gauge).await, None)
                }
                _ if walks => match gauge.wait(shared.walks.place_within(peer, patience)).await {
                    Ok(place) => carry_out(files, request, Some(place)).await,
                    Err(error) => (Err(error), None),
                },
                _ => carry_out(files, request, None).await,
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

    async fn next(&mut self) -> Step {
        let Some(tick) = &mut self.tick else {
            let (answer, share) = (&mut self.answer).await;
            return Step::File(answer, share);
        };
        tokio::select! {
            biased;
            (answer, share) = &mut self.answer => Step::File(answer, share),
            _ = tick.tick() => Step::Summed(self.meter.summed.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for FileWork {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Meter {
    /// `false`: the session wants it no more.
    fn advance(&self, summed: u64) -> bool {
        self.summed.store(summed, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for a place, unless the session wants it no more.
    async fn wait<E: Display>(
        &self,
        place: impl Future<Output = Result<Place, E>>,
    ) -> Result<Place, FileError> {
        tokio::select! {
            biased;
            () = self.stop.notified() => Err(aborted()),
            place = place => place.map_err(busy),
        }
    }
}

/// Longest time for which a checksum keeps its place while others may wait.
const SLICE: Duration = Duration::from_millis(250);

/// Work on files on a blocking thread.
async fn carry_out(
    files: Files,
    request: FileRequest,
    place: Option<Place>,
) -> (Result<FileAnswer, FileError>, Option<Share>) {
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
async fn sum(
    place: impl Future<Output = Result<Place, NoPlace>>,
    files: Files,
    request: FileRequest,
    gauge: Arc<Meter>,
) -> Result<FileAnswer, FileError> {
    let place = gauge.wait(place).await?;
    let begun = blocking(move || (begin(&files, &request), place)).await?;
    let (mut summing, mut place) = (begun.0?, begun.1);
    loop {
        let meter = Arc::clone(&gauge);
        let slice = move || {
            let until = Instant::now() + SLICE;
            let mut go_on = |summed| meter.advance(summed) && Instant::now() < until;
            let result = summing.advance(&mut go_on);
            (summing, result, place)
        };
        let (next, result, held) = blocking(slice).await?;
        if let Some(digest) = result? {
            return Ok(FileAnswer::Digest(digest));
        }
        if gauge.stopped.load(Ordering::Relaxed) {
            return Err(aborted());
        }
        summing = next;
        place = gauge.wait(held.again()).await?;
    }
}

fn begin(files: &Files, request: &FileRequest) -> Result<Box<Summing>, FileError> {
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| internal_error())
}

/// The place is held for as long as the work goes on, also when nobody waits for it any more.
async fn holding<T: Send + 'static>(
    place: Place,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FileError> {
    blocking(move || {
        let _place = place;
        work()
    })
    .await
}

/// A refusal for want of a place.
fn busy(error: impl Display) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text: error.to_string(),
    }
}

/// A marker's clock; the first one is due a whole period from now.
fn ticker(seconds: u32) -> Option<Interval> {
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
    use proto::server::{ListForm, ListRequest, Rights};
    use tokio::time::timeout;

    use super::*;
    use crate::config::ServerConfig;
    use crate::limits::FairQueue;
    use crate::login::Logins;
    use crate::transfer_log::TransferLog;

    const MOMENT: Duration = Duration::from_millis(50);

    fn listing() -> FileRequest {
        FileRequest::List(ListRequest {
            path: VPath::root(),
            pattern: None,
            form: ListForm::Names,
            recursive: false,
        })
    }

    /// A session of a server with these settings.
    struct Session {
        shared: Arc<Shared>,
        files: Files,
        _dir: tempfile::TempDir,
    }

    impl Session {
        fn with(config: ServerConfig) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Arc::new(Root::open(dir.path()).unwrap());
            let logins = Logins::new(&config, Arc::clone(&root), None);
            let log = TransferLog::open(None, None).unwrap();
            let rights = Rights {
                write: true,
                third_party: false,
            };
            let room = crate::files::Room::default();
            Self {
                shared: Arc::new(Shared::new(config, Arc::default(), logins, log)),
                files: Files::new(root, rights, Arc::default(), Arc::default(), room),
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
    async fn all_places(queue: &Arc<FairQueue>, places: usize) -> Vec<Place> {
        let mut all = Vec::new();
        for host in 0..places {
            let other = IpAddr::from([198, 51, 100, u8::try_from(host).unwrap()]);
            all.push(queue.place(other).await.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn long_walks_leave_threads_to_quick_requests() {
        let session = Session::with(ServerConfig::default());
        let shared = &session.shared;
        let all = all_places(&shared.walks, shared.config.max_listings).await;
        let mut walk = session.start(listing());
        assert!(timeout(MOMENT, walk.next()).await.is_err(), "it waits");
        let mut quick = session.start(FileRequest::Stat(VPath::root()));
        assert!(matches!(quick.next().await, Step::File(Ok(_), _)));
        let mut given_up = session.start(listing());
        given_up.stop();
        assert!(matches!(given_up.next().await, Step::File(Err(_), _)));
        drop(all);
        assert!(matches!(walk.next().await, Step::File(Ok(_), _)));
    }

    #[tokio::test]
    async fn whatever_waits_for_a_place_is_refused_in_the_end() {
        let session = Session::with(ServerConfig {
            queue_timeout: MOMENT,
            max_checksums: Some(2),
            ..ServerConfig::default()
        });
        let shared = &session.shared;
        let _walks = all_places(&shared.walks, shared.config.max_listings).await;
        let _sums = all_places(&shared.sums, 2).await;
        let sum = FileRequest::Checksum {
            algorithm: proto::checksum::Algorithm::Md5,
            path: VPath::root(),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        for request in [listing(), FileRequest::RemoveTree(VPath::root()), sum] {
            let mut work = session.start(request);
            let step = timeout(Duration::from_secs(30), work.next()).await;
            let Ok(Step::File(Err(error), _)) = step else {
                panic!("not refused");
            };
            assert_eq!(error.kind, FileErrorKind::Busy);
        }
    }

    /// Begins to make a listener, and no more waits for it before it is made.
    fn give_up_a_listener(start: impl FnOnce(&Arc<Shared>) -> Work) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let session = Session::with(ServerConfig::default());
        let listens = &session.shared.listens;
        // The one blocking thread is busy, so that the listener is not made yet.
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let blocked = runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(async {
            let mut work = start(&session.shared);
            assert!(timeout(MOMENT, work.next()).await.is_err());
        });
        assert_eq!(listens.taken(), 1, "until it is made");
        drop(free);
        runtime.block_on(blocked).unwrap().unwrap_err();
        let begun = Instant::now();
        while listens.taken() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_listener_that_nobody_waits_for_keeps_its_place_until_it_is_made() {
        let ip = std::net::Ipv4Addr::LOCALHOST.into();
        give_up_a_listener(|shared| Work::listen_drs(ip, shared, PEER));
        give_up_a_listener(|shared| {
            let options = ListenOptions {
                ip,
                ports: None,
                accept: data::channel::Accept::Any,
                buffers: proto::sizing::Buffers::default(),
            };
            Work::listen(options, PEER, shared)
        });
    }
}
