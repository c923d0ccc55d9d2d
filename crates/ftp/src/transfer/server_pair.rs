//! The end of a third-party transfer: reads the replies of both servers concurrently.

use std::time::Duration;

use parking_lot::Mutex;
use proto::marker::{PerformanceMarker, StripeProgress, parse_range_marker};
use proto::ranges::RangeSet;
use proto::reply::Reply;
use tokio::time::{Instant, sleep_until};

use super::control_messages::add_stored_ranges;
use super::{HostRemark, TransferConfirmation};
use crate::failure::{Operation, Sentence};
use crate::session::ClientSession;
use crate::session::control::MarkerRateLimit;
use crate::session::replies::{RefusalCause, refusal_cause, refusal_failure};
use crate::{Failure, FailureKind};

/// How long the second server may take to notice that the first one failed.
const SECOND_FAILURE_TIMEOUT: Duration = Duration::from_secs(5);
/// Least timeout while markers arrive. They arrive every 5 s; less than three intervals would
/// report stalls where none are.
const MIN_MARKER_TIMEOUT: Duration = Duration::from_secs(15);

type FinalReplyResult = Result<Reply, Failure>;

/// Progress by the destination's markers.
pub(super) struct MarkerProgress<'a> {
    stripes: StripeProgress,
    /// The most bytes that 112 markers have reported so far.
    max_reported: u64,
    expected: ExpectedBytes,
    stored_ranges: &'a Mutex<RangeSet>,
    on_progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// Upper bounds for the bytes that a destination may report.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedBytes {
    /// Size of the file.
    pub(super) size: Option<u64>,
    /// Bytes to transfer.
    pub(super) missing: Option<u64>,
}

impl<'a> MarkerProgress<'a> {
    pub(super) fn new(
        expected: ExpectedBytes,
        stored_ranges: &'a Mutex<RangeSet>,
        on_progress: &'a (dyn Fn(u64) + Send + Sync),
    ) -> Self {
        Self {
            stripes: StripeProgress::default(),
            max_reported: 0,
            expected,
            stored_ranges,
            on_progress,
        }
    }

    /// Sum over all stripes; `None` before the first 112.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.stripes.bytes()
    }

    /// Takes a preliminary reply of the destination. Returns whether it reports more bytes than any
    /// before.
    fn take_marker(&mut self, reply: &Reply) -> bool {
        if let Some(mut ranges) = parse_range_marker(reply) {
            ranges.remove(self.expected.size.unwrap_or(u64::MAX), u64::MAX);
            return add_stored_ranges(self.stored_ranges, &ranges);
        }
        let Some(marker) = PerformanceMarker::from_reply(reply) else {
            return false;
        };
        self.stripes.take(marker);
        // A server may report more than there is; the caller's progress stays within the file.
        let limit = self.expected.missing.unwrap_or(u64::MAX);
        let now = self.bytes().unwrap_or(0).min(limit);
        (self.on_progress)(now);
        let moved = now > self.max_reported;
        self.max_reported = self.max_reported.max(now);
        moved
    }
}

/// The two servers of a third-party transfer.
pub(super) struct ServerPair<'a> {
    pub(super) source: &'a mut ClientSession,
    pub(super) sending: &'a Operation,
    pub(super) destination: &'a mut ClientSession,
    pub(super) receiving: &'a Operation,
    pub(super) stall_timeout: Duration,
    /// Records refusals.
    pub(super) confirmation: &'a TransferConfirmation,
}

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceOrDestination {
    Source,
    Destination,
}

impl ServerPair<'_> {
    /// Waits for both final replies and returns the servers' remarks about limits. When one server
    /// fails, the other one's session is abandoned unless it replies in time.
    pub(super) async fn wait_for_replies(
        mut self,
        progress: &mut MarkerProgress<'_>,
    ) -> Result<Vec<HostRemark>, Failure> {
        let mut source_reply: Option<FinalReplyResult> = None;
        let mut destination_reply: Option<FinalReplyResult> = None;
        let mut first_failure: Option<SourceOrDestination> = None;
        let mut deadline: Option<Instant> = None;
        let mut marker_rate = MarkerRateLimit::new();
        while source_reply.is_none() || destination_reply.is_none() {
            let (server, mut reply) = tokio::select! {
                reply = self.source.control.next_reply(), if source_reply.is_none() => {
                    (SourceOrDestination::Source, reply)
                }
                reply = self.destination.control.next_reply(), if destination_reply.is_none() => {
                    (SourceOrDestination::Destination, reply)
                }
                () = sleep_until_deadline(deadline) => break,
            };
            if let Ok(marker) = &reply
                && marker.is_preliminary()
            {
                let moved =
                    server == SourceOrDestination::Destination && progress.take_marker(marker);
                // Progress extends the deadline only while neither side has failed.
                if moved && first_failure.is_none() {
                    deadline = Some(Instant::now() + self.stall_timeout.max(MIN_MARKER_TIMEOUT));
                }
                let one_is_done = source_reply.is_some() || destination_reply.is_some();
                if !one_is_done || !marker_rate.count_marker() {
                    // Markers are limited only after one side is done: before that they show progress.
                    continue;
                }
                reply = Err(self.session(server).control.too_many_markers_failure());
            }
            let succeeded = matches!(&reply, Ok(reply) if reply.is_success());
            let timeout = if succeeded {
                self.stall_timeout
            } else {
                SECOND_FAILURE_TIMEOUT
            };
            deadline = Some(Instant::now() + timeout);
            if !succeeded && first_failure.is_none() {
                first_failure = Some(server);
            }
            match server {
                SourceOrDestination::Source => source_reply = Some(reply),
                SourceOrDestination::Destination => destination_reply = Some(reply),
            }
        }
        let has_moved = progress.bytes().is_some_and(|bytes| bytes > 0);
        let replies = [&source_reply, &destination_reply];
        let is_apart = !has_moved && has_no_connection(replies);
        let concluded = self.conclude(first_failure, source_reply, destination_reply);
        concluded.map_err(|failure| match is_apart {
            true => failure.of_kind(FailureKind::Apart),
            false => failure,
        })
    }

    fn session(&mut self, server: SourceOrDestination) -> &mut ClientSession {
        match server {
            SourceOrDestination::Source => self.source,
            SourceOrDestination::Destination => self.destination,
        }
    }

    fn conclude(
        self,
        first_failure: Option<SourceOrDestination>,
        source_reply: Option<FinalReplyResult>,
        destination_reply: Option<FinalReplyResult>,
    ) -> Result<Vec<HostRemark>, Failure> {
        // A session without a final reply would take that reply for the answer to its next command.
        if !matches!(source_reply, Some(Ok(_))) {
            self.source.control.abandon();
        }
        if !matches!(destination_reply, Some(Ok(_))) {
            self.destination.control.abandon();
        }
        let (source, destination) = (self.source.name(), self.destination.name());
        let Some(first_failure) = first_failure else {
            let reason = match (&source_reply, &destination_reply) {
                (Some(source_reply), Some(destination_reply)) => {
                    let remark = |session: &ClientSession, reply: &FinalReplyResult| {
                        reply.as_ref().ok().and_then(|r| session.remark_of_reply(r))
                    };
                    let from_source = remark(self.source, source_reply);
                    let from_destination = remark(self.destination, destination_reply);
                    return Ok(from_source.into_iter().chain(from_destination).collect());
                }
                (None, Some(_)) => {
                    Sentence::from(format!("{source} did not finish to ")).operation(self.sending)
                }
                (Some(_), None) => Sentence::from(format!("{destination} did not finish to "))
                    .operation(self.receiving),
                (None, None) => {
                    Sentence::from(format!("nothing moved from {source} to {destination} (to "))
                        .operation(self.receiving)
                        .words(")")
                }
            };
            let within = format!(" within {} s", self.stall_timeout.as_secs());
            return Err(Failure::unreachable(reason.words(within)).advise("try again"));
        };
        if is_disputed(source_reply.as_ref(), destination_reply.as_ref()) {
            self.confirmation.mark_refused();
        }
        let first_failure = failed_server(
            first_failure,
            source_reply.as_ref(),
            destination_reply.as_ref(),
        );
        let (name, operation, reply, other_name, other) = match first_failure {
            SourceOrDestination::Source => (
                source,
                self.sending,
                source_reply,
                destination,
                destination_reply,
            ),
            SourceOrDestination::Destination => (
                destination,
                self.receiving,
                destination_reply,
                source,
                source_reply,
            ),
        };
        let Some(reply) = reply else {
            return Err(Failure::unreachable(format!("lost {name}; try again")));
        };
        let other = match &other {
            Some(Ok(reply)) if !reply.is_success() => Some((other_name, reply)),
            _ => None,
        };
        Err(failure_of_server(name, operation, reply, other))
    }
}

/// The server to blame: the first to fail, unless it only reports a broken data connection and the
/// other one gives the reason.
fn failed_server(
    first_failure: SourceOrDestination,
    source_reply: Option<&FinalReplyResult>,
    destination_reply: Option<&FinalReplyResult>,
) -> SourceOrDestination {
    let (mine, others, other) = match first_failure {
        SourceOrDestination::Source => (
            source_reply,
            destination_reply,
            SourceOrDestination::Destination,
        ),
        SourceOrDestination::Destination => {
            (destination_reply, source_reply, SourceOrDestination::Source)
        }
    };
    let names_reason = |reply: Option<&FinalReplyResult>| matches!(reply, Some(Ok(r)) if !r.is_success() && refusal_cause(r) != RefusalCause::Lost);
    if !names_reason(mine) && names_reason(others) {
        other
    } else {
        first_failure
    }
}

/// Whether a server refused the bytes that were moved. If both only lost the data connection, the
/// bytes are not in doubt; if one reports success and the other does not, they are.
fn is_disputed(
    source_reply: Option<&FinalReplyResult>,
    destination_reply: Option<&FinalReplyResult>,
) -> bool {
    let replies = || {
        [source_reply, destination_reply]
            .into_iter()
            .flatten()
            .flatten()
    };
    let refusals = || replies().filter(|reply| !reply.is_success());
    let refused = refusals().any(|reply| refusal_cause(reply) != RefusalCause::Lost);
    refused || (refusals().count() > 0 && replies().any(Reply::is_success))
}

/// Whether a server says that there is no data connection (425, RFC 959 §4.2.1), neither that it has moved the bytes, and neither is
/// lost.
fn has_no_connection(replies: [&Option<FinalReplyResult>; 2]) -> bool {
    let known = || replies.into_iter().flatten();
    let is_refusal = |reply: &Reply| refusal_cause(reply) == RefusalCause::Lost;
    known().flatten().any(|reply| reply.code == 425)
        && known().all(|reply| reply.as_ref().is_ok_and(is_refusal))
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The failure of one of the two servers, with the reply of the other.
fn failure_of_server(
    server: &str,
    operation: &Operation,
    reply: Result<Reply, Failure>,
    other: Option<(&str, &Reply)>,
) -> Failure {
    let failure = match reply {
        Ok(reply) => refusal_failure(server, operation, &reply),
        Err(lost) => lost,
    };
    match other {
        Some((name, reply)) => {
            failure.remark(Sentence::from(format!("then {name} replied: ")).reply(reply))
        }
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn performance_marker(bytes: u64) -> Reply {
        let lines = [
            " Timestamp:  1.0".to_owned(),
            " Stripe Index: 0".to_owned(),
            format!(" Stripe Bytes Transferred: {bytes}"),
            " Total Stripe Count: 1".to_owned(),
        ];
        let lines = lines.map(String::into_bytes).to_vec();
        Reply::with_inner_lines(112, "Perf Marker", lines, "End.")
    }

    const UNKNOWN: ExpectedBytes = ExpectedBytes {
        size: None,
        missing: None,
    };

    #[test]
    fn markers_beyond_the_file_size_are_clamped() {
        let (marked, reported) = (Mutex::default(), Mutex::new(Vec::new()));
        let expected = ExpectedBytes {
            size: Some(10),
            missing: Some(8),
        };
        let on_progress = |bytes| reported.lock().push(bytes);
        let mut progress = MarkerProgress::new(expected, &marked, &on_progress);
        let range = |text: &str| Reply::new(111, format!("Range Marker {text}"));
        let markers = [
            (performance_marker(7), true),
            (performance_marker(9), true),
            (performance_marker(10), false),
            (performance_marker(1 << 40), false),
            (range("0-9"), true),
            (range("5-11"), true),
            (range("10-12"), false),
            (range("0-1000"), false),
        ];
        for (marker, moved) in markers {
            assert_eq!(progress.take_marker(&marker), moved, "{marker:?}");
        }
        assert_eq!(*reported.lock(), [7, 8, 8, 8]);
        assert_eq!(marked.lock().to_string(), "0-10");
        // The check at the end of the transfer rejects the excess.
        assert_eq!(progress.bytes(), Some(1 << 40));
    }

    #[test]
    fn markers_without_new_bytes_are_no_progress() {
        let marked = Mutex::default();
        let mut progress = MarkerProgress::new(UNKNOWN, &marked, &|_| {});
        let range = |text: &str| Reply::new(111, format!("Range Marker {text}"));
        let markers = [
            (performance_marker(0), false),
            (performance_marker(7), true),
            (performance_marker(7), false),
            (performance_marker(3), false),
            (performance_marker(7), false),
            (performance_marker(8), true),
            (range("0-7"), true),
            (range("0-7"), false),
            (range("2-5"), false),
            (range("2-8"), true),
            (Reply::new(150, "Opening"), false),
        ];
        for (marker, moved) in markers {
            assert_eq!(progress.take_marker(&marker), moved, "{marker:?}");
        }
    }
}
