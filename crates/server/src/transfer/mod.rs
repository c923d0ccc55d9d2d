//! A running transfer: its worker thread, and the session's handle to it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data::channel::SessionDataChannel;
use data::job::{TransferControl, TransferSettings};
use proto::path::VPath;
use proto::server::{CompletedTransfer, FileError, TransferError, TransferProgress};
use proto::sizing::{self, BufferSizing};
use proto::stripes::StripeAddresses;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::Instrument;
use tune::Evidence;
use units::message_rate::MessageRateLimiter;

use crate::state::{CountedTransfer, TransferOutcome};
use crate::stripes::StripeSet;
use crate::transfer_log::LoggedTransferKind;

mod admission;
mod data_address;
mod error;
mod limiter;
mod order;
mod path_memory;
mod striped;
mod worker;

pub(crate) use admission::{AdmissionResult, QueuedTransfer};
pub(crate) use data_address::{ControlAddresses, advertised_address};
pub(crate) use error::{file_error, transfer_error};
pub(crate) use limiter::LimiterSummary;
pub(crate) use order::{DataAddresses, LocalHandles, TransferOrder, TransferTerms};
pub(crate) use path_memory::TransferMemory;
use striped::StripeBytes;
pub(crate) use striped::{StripedWork, obstacle as stripe_obstacle};

/// Interval at which a session reads the progress of its transfer. Marker intervals are whole seconds,
/// so markers are late by half a second at most.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Capacity of the event channel. A worker never reports more events, so it never blocks on it.
const EVENT_CAPACITY: usize = 4;

/// Events that a worker reports.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// Delayed passive: the addresses it listens on. After an error no event follows.
    Listening(Result<StripeAddresses, FileError>),
    /// The file is open.
    Opened {
        /// Data connections of an earlier transfer are used again.
        reused: bool,
        /// The name that the server chose for STOU.
        unique_name: Option<VPath>,
        /// Number of data nodes that carry it out; 0: none.
        stripes: usize,
    },
    /// The transfer has ended. No event follows.
    Ended(Box<FinishedTransfer>),
}

/// The result of a finished transfer.
#[derive(Debug)]
pub(crate) struct FinishedTransfer {
    /// The result for the state machine.
    pub(crate) result: Result<CompletedTransfer, TransferError>,
    /// The final progress.
    pub(crate) last: TransferProgress,
    /// The data channel, to be used by the next transfer.
    pub(crate) channel: Option<SessionDataChannel>,
    /// The data nodes, likewise.
    pub(crate) stripes: Option<StripeSet>,
    /// Facts for the log.
    pub(crate) summary: TransferSummary,
}

/// Facts about a transfer for the log that the worker knows.
#[derive(Debug, Clone)]
pub(crate) struct TransferSummary {
    /// Start time.
    pub(crate) start: SystemTime,
    /// Duration.
    pub(crate) elapsed: Duration,
    /// Kind and direction of the transfer.
    pub(crate) direction: LoggedTransferKind,
    /// Path of the file inside the session's root.
    pub(crate) path: VPath,
    /// Settings of the transfer.
    pub(crate) settings: TransferSettings,
    /// Measurements of the path at this end; also after a failed transfer.
    pub(crate) evidence: Evidence,
    /// Peers of the data connections.
    pub(crate) peers: Vec<IpAddr>,
    /// Reason of the last decision about buffer sizes.
    pub(crate) decision: Option<String>,
    /// The limiter of the transfer.
    pub(crate) limiter: LimiterSummary,
    /// Checksum of the whole file, if it is known.
    pub(crate) digest: Option<String>,
    /// The check that a protected data connection failed, with its value. The client does not learn it.
    pub(crate) failed_check: Option<String>,
}

impl FinishedTransfer {
    /// The numbers that metrics count.
    fn outcome(&self) -> TransferOutcome {
        TransferOutcome {
            bytes: self.summary.evidence.bytes,
            elapsed: self.summary.elapsed,
            limiter: self.summary.limiter.name(),
            is_error: self.result.is_err() || self.summary.failed_check.is_some(),
        }
    }
}

/// The reason why a session stops its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The client sent ABOR.
    Abort,
    /// The control connection is closed.
    ClientGone,
    /// The server's drain time is over.
    Shutdown,
}

/// The session's handle to a running transfer. Dropping it stops the transfer.
#[derive(Debug)]
pub(crate) struct TransferHandle {
    control: Arc<TransferControl>,
    /// Bytes of each stripe; empty: there are none.
    stripes: StripeBytes,
    events: mpsc::Receiver<WorkerEvent>,
    /// The latest size of a receiver's buffers, bytes.
    resized: watch::Receiver<u64>,
    /// Rate limit of buffer sizes that the client sends; its clock starts at `started_at`.
    pace: MessageRateLimiter,
    started_at: Instant,
    tick: Interval,
    stopped: Option<StopCause>,
    opened: bool,
    counted: CountedTransfer,
}

/// An update about a transfer for its session.
#[derive(Debug)]
pub(crate) enum TransferUpdate {
    /// The worker reported an event.
    Event(WorkerEvent),
    /// The current progress, on every tick.
    Tick(TransferProgress),
    /// The receive buffers of this end have a new size, bytes. The sender must learn it.
    Resized(u64),
    /// The worker panicked; the panic hook has logged the defect.
    WorkerLost,
}

impl TransferHandle {
    /// Starts the worker thread, or the task that has data nodes carry out the order.
    ///
    /// # Errors
    /// The system refuses another thread; the session's data channel is lost.
    pub(crate) fn start(
        order: TransferOrder,
        mut handles: LocalHandles,
        counted: CountedTransfer,
    ) -> io::Result<Self> {
        let control = Arc::new(TransferControl::new());
        let (reports, events) = mpsc::channel(EVENT_CAPACITY);
        // A watch channel: the tuning thread must not wait for the session, and only the latest size
        // counts.
        let (size, resized) = watch::channel(0);
        if order.request.buffers.sizing == BufferSizing::Drs1 {
            control.on_resize(move |bytes| {
                size.send_replace(bytes);
            });
        }
        let shared = Arc::clone(&control);
        // The thread enters the session's span, so that its messages name the client.
        let session = tracing::Span::current();
        let stripes = StripeBytes::default();
        if let Some(work) = handles.striped.take() {
            let bytes = Arc::clone(&stripes);
            let run = striped::run(order, handles, work, shared, bytes, reports);
            tokio::spawn(run.instrument(session));
        } else {
            std::thread::Builder::new()
                .name("transfer".to_owned())
                .spawn(move || {
                    session.in_scope(|| worker::run(order, handles, &shared, &reports));
                })?;
        }
        let mut tick = interval(PROGRESS_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            control,
            stripes,
            events,
            resized,
            pace: sizing::announced_size_limiter(),
            started_at: Instant::now(),
            tick,
            stopped: None,
            opened: false,
            counted,
        })
    }

    /// Waits for the next update. Cancel-safe. The first tick comes right after
    /// [`WorkerEvent::Opened`], before any data arrives.
    pub(crate) async fn next_update(&mut self) -> TransferUpdate {
        tokio::select! {
            // Events come before ticks: after the end no progress may be reported.
            biased;
            event = self.events.recv() => match event {
                Some(event) => {
                    self.opened |= matches!(event, WorkerEvent::Opened { .. });
                    if let WorkerEvent::Ended(ended) = &event {
                        self.counted.count_end(&ended.outcome());
                    }
                    TransferUpdate::Event(self.with_stop_cause(event))
                }
                None => TransferUpdate::WorkerLost,
            },
            Ok(()) = self.resized.changed(), if self.opened => {
                TransferUpdate::Resized(*self.resized.borrow_and_update())
            }
            _ = self.tick.tick(), if self.opened => {
                self.counted.count_bytes(self.control.bytes());
                TransferUpdate::Tick(progress(&self.control, &self.stripes))
            }
        }
    }

    /// Takes a new size of the peer's receive buffers, bytes. Each one wakes the tuning thread, so the
    /// rate is limited and sizes beyond it are dropped.
    pub(crate) fn follow_buffer(&mut self, bytes: u64) {
        if self.pace.try_take(self.started_at.elapsed()) {
            self.control.follow_peer_size(bytes);
        }
    }

    /// Stops the transfer; [`WorkerEvent::Ended`] follows. The first cause counts.
    pub(crate) fn stop(&mut self, cause: StopCause) {
        self.stopped.get_or_insert(cause);
        self.control.cancel();
    }

    /// Replaces the result of a cancelled transfer according to the cause. The worker knows only that it
    /// was cancelled, and only ABOR may be answered with 426 and 226 (RFC 959 section 4.1.3).
    fn with_stop_cause(&self, mut event: WorkerEvent) -> WorkerEvent {
        if let WorkerEvent::Ended(ended) = &mut event
            && matches!(ended.result, Err(TransferError::Aborted))
        {
            match self.stopped {
                Some(StopCause::Shutdown) => {
                    ended.result = Err(TransferError::Broken("server is shutting down".to_owned()));
                }
                Some(StopCause::ClientGone) => {
                    ended.result = Err(TransferError::Broken(
                        "the client has disconnected".to_owned(),
                    ));
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

/// The time of day for markers: seconds since 1970 (UTC) with a fraction; 0 if the clock is earlier.
pub(crate) fn seconds_since_1970() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// The current progress of a transfer.
fn progress(control: &TransferControl, stripes: &StripeBytes) -> TransferProgress {
    TransferProgress {
        now: seconds_since_1970(),
        bytes: control.bytes(),
        stripes: stripes.lock().clone(),
        stored: control.safe(),
    }
}
