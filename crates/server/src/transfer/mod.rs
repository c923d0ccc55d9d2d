//! A running transfer: the thread that carries it out and the session's hold on it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data::channel::SessionDataChannel;
use data::job::{TransferControl, TransferSettings};
use proto::message_rate::MessageRateLimiter;
use proto::path::VPath;
use proto::server::{CompletedTransfer, FileError, TransferError, TransferProgress};
use proto::sizing::{self, BufferSizing};
use proto::stripes::StripeAddresses;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tune::Evidence;

use crate::transfer_log::LoggedTransferKind;

mod admission;
mod error;
mod limiter;
mod order;
mod worker;

pub(crate) use admission::{AdmissionResult, QueuedTransfer};
pub(crate) use error::file_error;
pub(crate) use limiter::LimiterSummary;
pub(crate) use order::{DataAddresses, LocalHandles, TransferOrder, TransferTerms};

/// How often a session looks at what its transfer has moved. Markers are due in whole seconds.
const TICK: Duration = Duration::from_millis(500);

/// Events that a worker may report without being waited for: it never reports more.
const EVENTS: usize = 4;

/// Reports of a worker.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// Delayed passive: where it listens. After an error nothing follows.
    Listening(Result<StripeAddresses, FileError>),
    /// The file is open.
    Opened {
        /// Cached connections are used.
        reused: bool,
        /// STOU's name.
        unique_name: Option<VPath>,
    },
    /// The end. Nothing follows.
    Ended(Box<FinishedTransfer>),
}

/// A transfer that ended, and what it leaves.
#[derive(Debug)]
pub(crate) struct FinishedTransfer {
    /// For the state machine.
    pub(crate) result: Result<CompletedTransfer, TransferError>,
    /// Progress by then.
    pub(crate) last: TransferProgress,
    /// The data channel, for the next transfer.
    pub(crate) channel: Option<SessionDataChannel>,
    /// For the log.
    pub(crate) summary: TransferSummary,
}

/// Facts about a transfer for the log, as far as the worker knows them.
#[derive(Debug, Clone)]
pub(crate) struct TransferSummary {
    /// When it began.
    pub(crate) start: SystemTime,
    /// How long it took.
    pub(crate) elapsed: Duration,
    /// Which way.
    pub(crate) direction: LoggedTransferKind,
    /// The file inside the session's root.
    pub(crate) path: VPath,
    /// As requested.
    pub(crate) settings: TransferSettings,
    /// Evidence of the path from this end, also of a transfer that failed.
    pub(crate) evidence: Evidence,
    /// Hosts at the other ends of the data connections.
    pub(crate) peers: Vec<IpAddr>,
    /// Why buffers were last sized as they were, or left alone on purpose.
    pub(crate) decision: Option<String>,
    /// Limits of the transfer.
    pub(crate) limiter: LimiterSummary,
    /// Checksum of the whole file, if known.
    pub(crate) digest: Option<String>,
}

/// Why a session stops its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// ABOR.
    Abort,
    /// The control connection is gone.
    ClientGone,
    /// The server's drain time is over.
    Shutdown,
}

/// The session's hold on a running transfer. Dropping it stops the transfer.
#[derive(Debug)]
pub(crate) struct TransferHandle {
    control: Arc<TransferControl>,
    events: mpsc::Receiver<WorkerEvent>,
    /// The newest size of a receiver's buffers, bytes.
    resized: watch::Receiver<u64>,
    /// Of sizes that the client tells; time counts from `begun`.
    pace: MessageRateLimiter,
    begun: Instant,
    tick: Interval,
    stopped: Option<StopCause>,
    opened: bool,
}

/// The next thing that a session sees of its transfer.
#[derive(Debug)]
pub(crate) enum TransferUpdate {
    /// The worker reports.
    Event(WorkerEvent),
    /// It is time to look at the progress.
    Tick(TransferProgress),
    /// This end, receiving, has buffers of this size now, bytes: the sender must be told.
    Resized(u64),
    /// The worker died without a report (a defect; it was logged by the panic hook).
    WorkerLost,
}

impl TransferHandle {
    /// Starts the worker.
    ///
    /// # Errors
    /// The system refuses another thread; the session's channel is lost.
    pub(crate) fn start(order: TransferOrder, handles: LocalHandles) -> io::Result<Self> {
        let control = Arc::new(TransferControl::new());
        let (reports, events) = mpsc::channel(EVENTS);
        // Whoever sizes buffers is not to wait for the session, and only the newest size counts.
        let (size, resized) = watch::channel(0);
        if order.request.buffers.sizing == BufferSizing::Drs1 {
            control.on_resize(move |bytes| {
                size.send_replace(bytes);
            });
        }
        let shared = Arc::clone(&control);
        let session = tracing::Span::current();
        std::thread::Builder::new()
            .name("transfer".to_owned())
            .spawn(move || session.in_scope(|| worker::run(order, handles, &shared, &reports)))?;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            control,
            events,
            resized,
            pace: sizing::announced_size_limiter(),
            begun: Instant::now(),
            tick,
            stopped: None,
            opened: false,
        })
    }

    /// Waits for the next event or tick. Cancel-safe. The first tick comes right after
    /// [`WorkerEvent::OpenedTransfer`], before any data is awaited.
    pub(crate) async fn next_update(&mut self) -> TransferUpdate {
        tokio::select! {
            biased;
            event = self.events.recv() => match event {
                Some(event) => {
                    self.opened |= matches!(event, WorkerEvent::Opened { .. });
                    TransferUpdate::Event(self.with_stop_cause(event))
                }
                None => TransferUpdate::WorkerLost,
            },
            Ok(()) = self.resized.changed(), if self.opened => {
                TransferUpdate::Resized(*self.resized.borrow_and_update())
            }
            _ = self.tick.tick(), if self.opened => TransferUpdate::Tick(progress(&self.control)),
        }
    }

    /// The peer's receiver has buffers of this size now, bytes. Each wakes the thread that sizes
    /// buffers, so that those of a flood are dropped.
    pub(crate) fn follow_buffer(&mut self, bytes: u64) {
        if self.pace.try_take(self.begun.elapsed()) {
            self.control.follow_peer_size(bytes);
        }
    }

    /// Stops the transfer; [`WorkerEvent::FinishedTransfer`] follows soon. The first cause counts.
    pub(crate) fn stop(&mut self, cause: StopCause) {
        self.stopped.get_or_insert(cause);
        self.control.cancel();
    }

    /// The worker knows only that it was cancelled; 226 for ABOR must follow only an ABOR.
    fn with_stop_cause(&self, mut event: WorkerEvent) -> WorkerEvent {
        if let WorkerEvent::Ended(ended) = &mut event
            && matches!(ended.result, Err(TransferError::Aborted))
        {
            match self.stopped {
                Some(StopCause::Shutdown) => {
                    ended.result = Err(TransferError::Broken("server is shutting down".to_owned()));
                }
                Some(StopCause::ClientGone) => {
                    ended.result = Err(TransferError::Broken("client is gone".to_owned()));
                }
                Some(StopCause::Abort) | None => {}
            }
        }
        event
    }
}

impl Drop for TransferHandle {
    fn drop(&mut self) {
        self.control.cancel();
    }
}

/// Time of day that markers carry: seconds since 1970 (UTC), with a fraction; 0 before.
pub(crate) fn seconds_since_1970() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// Progress of a transfer by now.
fn progress(control: &TransferControl) -> TransferProgress {
    TransferProgress {
        now: seconds_since_1970(),
        bytes: control.bytes(),
        stored: control.safe(),
    }
}
