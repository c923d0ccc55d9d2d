//! What a session's machine waits for: one piece of work at a time, off the reactor.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use data::channel::{Channel, ListenOptions};
use data::drs;
use proto::server::{FileAnswer, FileError, FileErrorKind, FileRequest, Outcome};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::files::{Files, Share, aborted};
use crate::login::{Login, Refusal};
use crate::shared::Shared;
use crate::transfer::{Running, Seen, file_error};

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
    /// A transfer.
    Transfer(Box<Running>),
}

/// An answer to come.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What comes of a piece of work. Everything but progress ends it.
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
    /// Of the transfer: it ends the work when it says so.
    Transfer(Seen),
}

impl Work {
    /// Starts to make a listener for `client`. On a blocking thread: a range of taken ports is tried through.
    pub(crate) fn listen(options: ListenOptions, client: IpAddr, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self::Listen(Box::pin(async move {
            let _place = shared.listens.acquire().await;
            let mut channel = tokio::task::spawn_blocking(move || Channel::listen(&options))
                .await
                .map_err(|_| internal_error())?
                .map_err(|error| file_error(&error))?;
            channel.set_budget(shared.streams_of(client));
            Ok(channel)
        }))
    }

    /// Starts to make a listener for the DRS channel on `ip` and the configured data ports;
    /// likewise.
    pub(crate) fn listen_drs(ip: IpAddr, shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self::ListenDrs(Box::pin(async move {
            let _place = shared.listens.acquire().await;
            let ports = shared.config.data_ports.map(|(low, high)| low..=high);
            tokio::task::spawn_blocking(move || drs::Endpoint::listen(ip, ports))
                .await
                .map_err(|_| internal_error())?
                .map_err(|error| file_error(&error))
        }))
    }

    /// Whether the machine waits for a line.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// What comes next; pends for ever when there is no work. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Step {
        match self {
            Self::None => std::future::pending().await,
            Self::Known(outcome) => Step::Known(outcome.clone()),
            Self::Login(answer) => Step::Login(answer.await),
            Self::Listen(answer) => Step::Listen(answer.await),
            Self::ListenDrs(answer) => Step::ListenDrs(answer.await),
            Self::File(work) => work.next().await,
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
    /// Starts it.
    pub(crate) fn start(shared: Arc<Shared>, files: Files, request: FileRequest) -> Self {
        let meter = Arc::new(Meter::default());
        let tick = match &request {
            FileRequest::Checksum { marker_seconds, .. } => ticker(*marker_seconds),
            _ => None,
        };
        let gauge = Arc::clone(&meter);
        let answer = Box::pin(async move {
            let places = match &request {
                FileRequest::Checksum { .. } => Some(&shared.sums),
                FileRequest::List(_) | FileRequest::RemoveTree(_) => Some(&shared.walks),
                _ => None,
            };
            let place = match places {
                Some(places) => tokio::select! {
                    place = Arc::clone(places).acquire_owned() => place.ok(),
                    () = gauge.stop.notified() => return (Err(aborted()), None),
                },
                None => None,
            };
            tokio::task::spawn_blocking(move || {
                let _place = place;
                match &request {
                    FileRequest::List(list) => match files.list(list) {
                        Ok((answer, share)) => (Ok(answer), Some(share)),
                        Err(error) => (Err(error), None),
                    },
                    _ => (
                        files.run(&request, &mut |summed| gauge.advance(summed)),
                        None,
                    ),
                }
            })
            .await
            .unwrap_or_else(|_| (Err(internal_error()), None))
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

    #[tokio::test]
    async fn long_walks_leave_threads_to_quick_requests() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let config = ServerConfig::default();
        let logins = Logins::new(&config, Arc::clone(&root), None);
        let log = TransferLog::open(None, None).unwrap();
        let shared = Arc::new(Shared::new(config, Arc::default(), logins, log));
        let rights = Rights {
            write: true,
            third_party: false,
        };
        let room = crate::files::Room::default();
        let files = Files::new(root, rights, Arc::default(), Arc::default(), room);
        let start = |request| FileWork::start(Arc::clone(&shared), files.clone(), request);

        let places = u32::try_from(shared.walks.available_permits()).unwrap();
        let all = shared.walks.acquire_many(places).await.unwrap();
        let mut walk = start(listing());
        assert!(timeout(MOMENT, walk.next()).await.is_err(), "it waits");
        let mut quick = start(FileRequest::Stat(VPath::root()));
        assert!(matches!(quick.next().await, Step::File(Ok(_), _)));
        let mut given_up = start(listing());
        given_up.stop();
        assert!(matches!(given_up.next().await, Step::File(Err(_), _)));
        drop(all);
        assert!(matches!(walk.next().await, Step::File(Ok(_), _)));
    }
}
