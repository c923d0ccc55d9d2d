//! A transfer before it begins: it waits for its place.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::server::{FileError, FileErrorKind, TransferError, TransferRequest};
use tokio::sync::Notify;

use super::StopCause;
use crate::limits::{FairQueue, QueuePermit};

/// A transfer that waits for its place among those that the server runs at once. Dropping it gives
/// it up.
pub(crate) struct QueuedTransfer {
    request: Option<TransferRequest>,
    place: Pin<Box<dyn Future<Output = Result<QueuePermit, FileError>> + Send>>,
    stopped: Option<StopCause>,
    stop: Notify,
}

/// How the wait ended.
pub(crate) enum AdmissionResult {
    /// It may begin.
    Granted(Box<TransferRequest>, QueuePermit),
    /// It may not.
    Refused(TransferError),
}

impl QueuedTransfer {
    /// Queues a transfer of the client at `peer`, for at most `patience`.
    pub(crate) fn new(
        request: TransferRequest,
        queue: &Arc<FairQueue>,
        peer: IpAddr,
        patience: Duration,
    ) -> Self {
        let queue = Arc::clone(queue);
        Self {
            request: Some(request),
            place: Box::pin(async move {
                let place = queue.acquire_within(peer, patience).await;
                place.map_err(|none| busy_error(none.to_string()))
            }),
            stopped: None,
            stop: Notify::new(),
        }
    }

    /// Gives it up. The first cause counts.
    pub(crate) fn stop(&mut self, cause: StopCause) {
        self.stopped.get_or_insert(cause);
        self.stop.notify_one();
    }

    /// Waits for the place. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> AdmissionResult {
        let place = tokio::select! {
            biased;
            () = self.stop.notified() => return AdmissionResult::Refused(self.cause()),
            place = &mut self.place => place,
        };
        match (place, self.request.take()) {
            (Ok(place), Some(request)) => AdmissionResult::Granted(Box::new(request), place),
            (Err(error), _) => AdmissionResult::Refused(TransferError::File(error)),
            (Ok(_), None) => AdmissionResult::Refused(self.cause()),
        }
    }

    fn cause(&self) -> TransferError {
        match self.stopped {
            Some(StopCause::Shutdown) => {
                TransferError::Broken("server is shutting down".to_owned())
            }
            Some(StopCause::ClientGone) => TransferError::Broken("client is gone".to_owned()),
            Some(StopCause::Abort) | None => TransferError::Aborted,
        }
    }
}

/// A refusal for want of something that comes back.
fn busy_error(text: String) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text,
    }
}
