//! Copies of files from one HTTP server to another, without their bytes passing through this machine: one of the servers is asked by
//! COPY (WLCG HTTP-TPC). First the destination, which then gets the file; else the source, which puts it.
//!
//! A server that is not asked may want a login. The one that is asked gets what [`super::grants`] finds for it.
//!
//! Within one server the same request is that of WebDAV (RFC 4918 section 9.8): a response without a report is a success there.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data::job::{TransferControl, TransferReport};
use proto::http::copy_report::{CopyEnd, CopyReport};
use proto::http::url::HttpUrl;
use proto::printable::printable;
use tokio::sync::watch;

use super::client::HttpClient;
use super::connections::attempt_of;
use super::grants::{FileGrant, FileRight};
use super::request::{HttpRequest, HttpRequestBody};
use super::response::HttpResponse;
use super::*;
use crate::storage::optional::DirectTransfers;
use ftp::FailureKind;

/// Least wait for the next bytes of a report. Markers come every 5 s; less than three intervals would find stalls where none are.
const MIN_REPORT_WAIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// Times of the stall limit that a server may take to end when it has moved all bytes: some compute a checksum then.
const ENDING_LIMITS: u32 = 20;
/// Most streams that a server is asked for.
const MAX_STREAMS: u32 = 16;
/// Bytes of a report that are read at a time.
const READ_BYTES: usize = 4096;
/// Longest reason of a server that is shown, bytes.
const MAX_REASON: usize = 300;

/// Which of the two servers moves the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WebCopyDirection {
    /// The destination gets it.
    Pull,
    /// The source puts it.
    Push,
}

/// A request for a copy.
struct CopyOrder {
    direction: WebCopyDirection,
    /// The file at the server that is asked.
    here: HttpUrl,
    /// The file at the other server.
    there: HttpUrl,
    grant: FileGrant,
    /// Both are the same server.
    is_within: bool,
    size: Option<u64>,
    streams: u32,
    stall: Duration,
    /// [`TransferSpec::started`].
    may_go_on: Arc<AtomicBool>,
}

/// A copy that has moved nothing. The reason.
struct DeclinedCopy {
    failure: Failure,
    /// The server has no such copies at all.
    lacks_copies: bool,
    /// It has made a new file of its own instead, under the path of the other server.
    has_strayed: bool,
    /// It was given up, and may still begin.
    may_begin: bool,
}

impl DeclinedCopy {
    fn new(failure: Failure) -> Self {
        Self {
            failure,
            lacks_copies: false,
            has_strayed: false,
            may_begin: false,
        }
    }

    /// The server has no such copies.
    fn unknown(action: &Operation) -> Self {
        Self {
            lacks_copies: true,
            ..Self::new(no_copies(action))
        }
    }

    /// It did not begin within this time.
    fn given_up(action: &Operation, waited: Duration) -> Self {
        let seconds = waited.as_secs();
        let reason = format_args!("the server moved no byte of it within {seconds} s");
        Self {
            may_begin: true,
            ..Self::new(action.failed(FailureKind::Unreachable, reason))
        }
    }
}

impl WebCopyDirection {
    /// The operation that the server that is asked cannot do with the file of the other one.
    fn operation(self, there: &HttpUrl) -> Operation {
        match self {
            Self::Pull => Operation::on("fetch", there),
            Self::Push => Operation::on("write", there),
        }
    }

    /// The use that that server makes of the file of the other one.
    fn right(self) -> FileRight {
        match self {
            Self::Pull => FileRight::Read,
            Self::Push => FileRight::Write,
        }
    }
}

#[async_trait]
impl DirectTransfers for HttpStorage {
    async fn transfer_to(
        &mut self,
        path: &[u8],
        to: &mut dyn Storage,
        to_path: &[u8],
        spec: &TransferSpec,
        _control: &Arc<TransferControl>,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<TransferAttempt, Failure> {
        let to: &mut dyn std::any::Any = to;
        let Some(to) = to.downcast_mut::<Self>() else {
            return Err(apart("the destination is not an HTTP server"));
        };
        let is_whole = spec.part.is_none() && spec.completed_ranges.is_empty();
        if !is_whole || spec.destination_offset.is_some_and(|offset| offset > 0) {
            return Err(apart("HTTP servers copy whole files only between them"));
        }
        let is_within = self
            .connections
            .origin
            .root_url
            .is_same_origin(&to.connections.origin.root_url);
        let directions = match is_within {
            true => &[WebCopyDirection::Push][..],
            false => &[WebCopyDirection::Pull, WebCopyDirection::Push],
        };
        self.next.drop_begun();
        let mut reason: Option<DeclinedCopy> = None;
        for direction in directions.iter().copied() {
            let (asked, other, here, there) = match direction {
                WebCopyDirection::Pull => (&mut *to, &mut *self, to_path, path),
                WebCopyDirection::Push => (&mut *self, &mut *to, path, to_path),
            };
            match copy_by(direction, [asked, other], [here, there], spec, progress).await? {
                Ok(bytes) => {
                    to.forget();
                    to.remember_stored(to_path);
                    return Ok(attempt_of(report_of(spec.size.unwrap_or(bytes)), spec));
                }
                // The other server must not write the same file meanwhile.
                Err(declined) if declined.may_begin => {
                    reason = Some(declined);
                    break;
                }
                // That of the server which could have done it says more.
                Err(declined) => {
                    reason = match reason {
                        Some(first) if !first.lacks_copies || declined.lacks_copies => Some(first),
                        _ => Some(declined),
                    }
                }
            }
        }
        Err(match reason {
            Some(declined) => declined.failure.of_kind(FailureKind::Apart).retried(true),
            None => apart("neither of them was asked"),
        })
    }
}

/// The failure of a copy that is made in another way.
fn apart(reason: &str) -> Failure {
    Failure::transient(FailureKind::Apart, reason)
}

fn report_of(bytes: u64) -> TransferReport {
    TransferReport {
        evidence: tune::Evidence {
            bytes,
            streams: 1,
            ..tune::Evidence::default()
        },
        ..TransferReport::default()
    }
}

/// Asks the first of two servers for a copy, from or to the other one. Returns the bytes that it has moved, or why it moves none.
///
/// # Errors
/// A copy that failed, or may still go on.
async fn copy_by(
    direction: WebCopyDirection,
    [asked, other]: [&mut HttpStorage; 2],
    [here, there]: [&[u8]; 2],
    spec: &TransferSpec,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Result<u64, DeclinedCopy>, Failure> {
    if asked.lacks_copies {
        let action = direction.operation(&other.url_for(there));
        return Ok(Err(DeclinedCopy::unknown(&action)));
    }
    let grant = other
        .grant(there, direction.right(), &asked.connections.origin)
        .await?;
    let grant = match grant {
        Ok(grant) => grant,
        Err(reason) => {
            let failure = direction
                .operation(&other.url_for(there))
                .failed(FailureKind::Refused, reason);
            return Ok(Err(DeclinedCopy::new(failure)));
        }
    };
    let order = CopyOrder {
        direction,
        is_within: asked
            .connections
            .origin
            .root_url
            .is_same_origin(&other.connections.origin.root_url),
        here: asked.url_for(here),
        there: other.url_for(there),
        grant,
        size: spec.size,
        streams: spec.streams.clamp(1, MAX_STREAMS),
        stall: spec.options.stall.max(MIN_REPORT_WAIT),
        may_go_on: Arc::clone(&spec.started),
    };
    let (report, mut moved) = watch::channel(0);
    let copied = {
        let copying = asked
            .connections
            .blocking_patiently(MIN_REPORT_WAIT, move |client| {
                order_copy(client, &order, &report)
            });
        tokio::pin!(copying);
        loop {
            tokio::select! {
                biased;
                copied = &mut copying => break copied,
                Ok(()) = moved.changed() => progress(*moved.borrow_and_update()),
            }
        }
    }?;
    if let Err(declined) = &copied {
        asked.lacks_copies = declined.lacks_copies;
        if declined.has_strayed {
            // There was nothing of that name before, so this is of the request.
            asked.remember_stored(there);
            asked.remove_entry(there, RemovedKind::File).await?;
        }
    }
    Ok(copied)
}

impl CopyOrder {
    /// The result when the server was lost before it had moved a byte: one that said nothing for the whole time is not asked again.
    fn without_bytes(
        &self,
        action: &Operation,
        lost: Failure,
        since: Instant,
    ) -> Result<Result<u64, DeclinedCopy>, Failure> {
        match lost.kind() {
            FailureKind::Unreachable if since.elapsed() >= self.stall => {
                Ok(Err(DeclinedCopy::given_up(action, self.stall)))
            }
            _ => Err(lost),
        }
    }
}

/// Sends the request, and reads the report to its end.
fn order_copy(
    client: &mut HttpClient,
    order: &CopyOrder,
    moved: &watch::Sender<u64>,
) -> Result<Result<u64, DeclinedCopy>, Failure> {
    let action = order.direction.operation(&order.there);
    let other = match order.direction {
        WebCopyDirection::Pull => "Source",
        WebCopyDirection::Push => "Destination",
    };
    // Some servers compare these names by their case.
    let mut headers = vec![
        (other, order.there.uri()),
        // No proxy certificate is delegated.
        ("Credential", "none".to_owned()),
    ];
    if order.direction == WebCopyDirection::Push {
        // A copy over a collection would destroy what is in it. And some servers take any destination for one of their own.
        headers.push(("Overwrite", "F".to_owned()));
        headers.push(("Depth", "0".to_owned()));
    }
    if order.direction == WebCopyDirection::Pull && order.streams > 1 {
        headers.push(("X-Number-Of-Streams", order.streams.to_string()));
    }
    if let Some(login) = order.grant.authorization() {
        headers.push(("TransferHeaderAuthorization", login));
    }
    let request = HttpRequest {
        method: "COPY",
        url: &order.here,
        headers: &headers,
        action: &action,
    };
    let sent_at = Instant::now();
    let response = match client.send(&request, HttpRequestBody::Empty) {
        Ok(response) => response,
        Err(lost) => {
            // Without a connection, nothing was asked for.
            let was_asked = lost.kind() != FailureKind::Away;
            order.may_go_on.store(was_asked, Ordering::Relaxed);
            return order.without_bytes(&action, lost, sent_at);
        }
    };
    match response.status() {
        200..=202 => follow(client, order, response, moved),
        204 if order.is_within => follow(client, order, response, moved),
        status => {
            let failure = status_failure(&action, &response);
            response.discard_body();
            match status {
                // It may come again, or has no room: the other ways lead there, too.
                408 | 425 | 429 | 503 | 504 | 507 => Err(failure),
                _ => Ok(Err(DeclinedCopy {
                    // 400: a server that copies within itself only, and misses the header Destination.
                    lacks_copies: matches!(status, 405 | 501) || status == 400 && !order.is_within,
                    ..DeclinedCopy::new(failure)
                })),
            }
        }
    }
}

/// The failure for a status of COPY.
fn status_failure(action: &Operation, response: &HttpResponse) -> Failure {
    match response.status() {
        400 | 405 | 501 => no_copies(action),
        _ => errors::status_failure(action, response),
    }
}

fn no_copies(action: &Operation) -> Failure {
    action.failed(
        FailureKind::Protocol,
        "the server copies nothing from or to other servers (COPY)",
    )
}

/// Reads the report of a copy.
fn follow(
    client: &HttpClient,
    order: &CopyOrder,
    response: HttpResponse,
    moved: &watch::Sender<u64>,
) -> Result<Result<u64, DeclinedCopy>, Failure> {
    let action = order.direction.operation(&order.there);
    let has_created = response.status() == 201;
    order.may_go_on.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let mut body = response.into_body();
    let mut report = CopyReport::default();
    let mut watch = ProgressWatch::new(order);
    let mut piece = [0; READ_BYTES];
    let is_whole = loop {
        match body.read(&mut piece) {
            Ok(0) => break true,
            Ok(read) => {
                let taken = report.receive(piece.get(..read).unwrap_or_default());
                taken.map_err(|error| {
                    let reason = format_args!("the server's report on it is none: {error}");
                    action.failed(FailureKind::Protocol, reason)
                })?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                let known = client.dialer.take_failure();
                let lost = ureq::Error::Io(error);
                let lost = errors::request_failure(&action, &lost, known.as_ref());
                // It may have said all before.
                tracing::debug!(%lost, "the report of a copy was cut off");
                if lost.kind() == FailureKind::Interrupted {
                    return Err(lost);
                }
                if report.bytes().unwrap_or(0) == 0 && began.elapsed() >= order.stall {
                    return order.without_bytes(&action, lost, began);
                }
                break false;
            }
        }
        if let Some(bytes) = report.bytes() {
            moved.send_replace(bytes.min(order.size.unwrap_or(u64::MAX)));
        }
        let moved = report.bytes().unwrap_or(0);
        if let Err(stalled) = watch.check(&action, moved, Instant::now()) {
            return match moved {
                0 => Ok(Err(DeclinedCopy::given_up(&action, order.stall))),
                _ => Err(stalled),
            };
        }
    };
    let bytes = report.bytes();
    let (has_begun, has_markers) = (bytes.is_some_and(|bytes| bytes > 0), bytes.is_some());
    let end = report.finish(is_whole);
    let is_over = end.is_some() || is_whole && !has_markers;
    order.may_go_on.store(!is_over, Ordering::Relaxed);
    match end {
        Some(CopyEnd::Success) => Ok(Ok(bytes.unwrap_or(0))),
        Some(CopyEnd::Failure(reason)) => {
            let reason = reason.get(..MAX_REASON).unwrap_or(&reason);
            let failed = action.failed(
                FailureKind::Unreachable,
                format_args!("the server says: {}", printable(reason)),
            );
            match has_begun {
                true => Err(failed.retried(true)),
                false => Ok(Err(DeclinedCopy::new(failed))),
            }
        }
        None if is_whole && !has_markers && order.is_within => Ok(Ok(order.size.unwrap_or(0))),
        // A page of a server that does not know such copies: nothing goes on there.
        None if is_whole && !has_markers => Ok(Err(DeclinedCopy {
            has_strayed: has_created && order.direction == WebCopyDirection::Push,
            ..DeclinedCopy::unknown(&action)
        })),
        None => Err(action
            .failed(
                FailureKind::Unreachable,
                "the server's report on it ended before it said whether the copy is whole",
            )
            .retried(true)),
    }
}

/// Finds copies that do not go on, although the server reports.
struct ProgressWatch {
    size: Option<u64>,
    stall: Duration,
    most: u64,
    since: Option<Instant>,
}

impl ProgressWatch {
    fn new(order: &CopyOrder) -> Self {
        Self {
            size: order.size,
            stall: order.stall,
            most: 0,
            since: None,
        }
    }

    /// Takes the number of bytes at a time.
    fn check(&mut self, action: &Operation, bytes: u64, now: Instant) -> Result<(), Failure> {
        let since = *self.since.get_or_insert(now);
        if bytes > self.most {
            self.most = bytes;
            self.since = Some(now);
            return Ok(());
        }
        // After the last byte a checksum is computed.
        let is_ending = bytes > 0 && self.size.is_some_and(|size| bytes >= size);
        let limit = match is_ending {
            true => self.stall * ENDING_LIMITS,
            false => self.stall,
        };
        if now.saturating_duration_since(since) < limit {
            return Ok(());
        }
        let seconds = limit.as_secs();
        let reason = format_args!("the server reported no progress for {seconds} s");
        Err(action
            .failed(FailureKind::Unreachable, reason)
            .retried(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(size: Option<u64>) -> ProgressWatch {
        ProgressWatch {
            size,
            stall: Duration::from_secs(30),
            most: 0,
            since: None,
        }
    }

    /// Whether a copy has stalled after these bytes, reported 20 s apart.
    fn stalls(size: Option<u64>, reported: &[u64]) -> bool {
        let (mut watch, mut now) = (watch(size), Instant::now());
        let action = Operation::on("fetch", "f");
        reported.iter().any(|bytes| {
            now += Duration::from_secs(20);
            watch.check(&action, *bytes, now).is_err()
        })
    }

    #[test]
    fn a_copy_that_stops_in_its_middle_has_stalled() {
        assert!(stalls(Some(9), &[1, 2, 2, 2]));
        assert!(stalls(None, &[1, 2, 2, 2]));
        assert!(!stalls(Some(9), &[1, 2, 2, 3, 3, 4]));
    }

    #[test]
    fn a_copy_may_take_its_time_to_end_and_not_to_begin() {
        assert!(!stalls(Some(9), &[0, 0, 5, 9, 9, 9, 9]));
        assert!(stalls(Some(9), &[0; 3]));
        assert!(stalls(Some(9), &[9; 40]));
    }
}
