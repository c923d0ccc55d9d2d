//! A transfer before it begins: it waits for its place.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::server::{FileError, FileErrorKind, TransferError, TransferRequest};
use tokio::sync::Notify;

use super::Stop;
use crate::limits::{FairQueue, Place};

/// A transfer that waits for its place among those that the server runs at once. Dropping it gives
/// it up.
pub(crate) struct Admission {
    request: Option<TransferRequest>,
    place: Pin<Box<dyn Future<Output = Result<Place, FileError>> + Send>>,
    stopped: Option<Stop>,
    stop: Notify,
}

/// How the wait ended.
pub(crate) enum Admitted {
    /// It may begin.
    Begin(Box<TransferRequest>, Place),
    /// It may not.
    Refused(TransferError),
}

impl Admission {
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
                let place = queue.place_within(peer, patience).await;
                place.map_err(|none| busy(none.to_string()))
            }),
            stopped: None,
            stop: Notify::new(),
        }
    }

    /// Gives it up. The first cause counts.
    pub(crate) fn stop(&mut self, cause: Stop) {
        self.stopped.get_or_insert(cause);
        self.stop.notify_one();
    }

    /// Waits for the place. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Admitted {
        let place = tokio::select! {
            biased;
            () = self.stop.notified() => return Admitted::Refused(self.cause()),
            place = &mut self.place => place,
        };
        match (place, self.request.take()) {
            (Ok(place), Some(request)) => Admitted::Begin(Box::new(request), place),
            (Err(error), _) => Admitted::Refused(TransferError::File(error)),
            (Ok(_), None) => Admitted::Refused(self.cause()),
        }
    }

    fn cause(&self) -> TransferError {
        match self.stopped {
            Some(Stop::Shutdown) => TransferError::Broken("server is shutting down".to_owned()),
            Some(Stop::ClientGone) => TransferError::Broken("client is gone".to_owned()),
            Some(Stop::Abort) | None => TransferError::Aborted,
        }
    }
}

/// A refusal for want of something that comes back.
fn busy(text: String) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text,
    }
}
