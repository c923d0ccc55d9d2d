//! A transfer that waits for its permit.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::server::{FileError, FileErrorKind, TransferError, TransferRequest};
use tokio::sync::Notify;

use super::StopCause;
use crate::limits::{FairQueue, QueuePermit};

/// A transfer that waits for one of the permits of concurrent transfers. Dropping it withdraws the
/// request.
pub(crate) struct QueuedTransfer {
    request: Option<TransferRequest>,
    permit: Pin<Box<dyn Future<Output = Result<QueuePermit, FileError>> + Send>>,
    stopped: Option<StopCause>,
    stop: Notify,
}

/// The result of the wait.
pub(crate) enum AdmissionResult {
    /// The transfer may begin.
    Granted(Box<TransferRequest>, QueuePermit),
    /// The transfer is refused.
    Refused(TransferError),
}

impl QueuedTransfer {
    /// Queues a transfer of the client at `peer` for at most `max_wait`.
    pub(crate) fn new(
        request: TransferRequest,
        queue: &Arc<FairQueue>,
        peer: IpAddr,
        max_wait: Duration,
    ) -> Self {
        let queue = Arc::clone(queue);
        Self {
            request: Some(request),
            permit: Box::pin(async move {
                let permit = queue.acquire_within(peer, max_wait).await;
                permit.map_err(|none| busy_error(none.to_string()))
            }),
            stopped: None,
            stop: Notify::new(),
        }
    }

    /// Withdraws the request. The first cause counts.
    pub(crate) fn stop(&mut self, cause: StopCause) {
        // An ABOR before the shutdown must still be answered as an ABOR.
        self.stopped.get_or_insert(cause);
        self.stop.notify_one();
    }

    /// Waits for the permit. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> AdmissionResult {
        let permit = tokio::select! {
            // A stop comes before the permit: an aborted transfer must not begin.
            biased;
            () = self.stop.notified() => return AdmissionResult::Refused(self.cause()),
            permit = &mut self.permit => permit,
        };
        match (permit, self.request.take()) {
            (Ok(permit), Some(request)) => AdmissionResult::Granted(Box::new(request), permit),
            (Err(error), _) => AdmissionResult::Refused(TransferError::File(error)),
            (Ok(_), None) => AdmissionResult::Refused(self.cause()),
        }
    }

    fn cause(&self) -> TransferError {
        match self.stopped {
            Some(StopCause::Shutdown) => {
                TransferError::Broken("server is shutting down".to_owned())
            }
            Some(StopCause::ClientGone) => {
                TransferError::Broken("the client has disconnected".to_owned())
            }
            Some(StopCause::Abort) | None => TransferError::Aborted,
        }
    }
}

/// The error of a transfer that got no permit.
fn busy_error(text: String) -> FileError {
    FileError::new(FileErrorKind::Busy, text)
}
