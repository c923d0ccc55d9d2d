//! The end of a third-party transfer: two control connections read side by side.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use proto::marker::{PerformanceMarker, parse_range_marker};
use proto::ranges::RangeSet;
use proto::reply::Reply;
use tokio::time::{Instant, sleep_until};

use super::control_messages::add_stored_ranges;
use super::{HostRemark, TransferConfirmation};
use crate::CopyFailure;
use crate::session::ClientSession;
use crate::session::control::{MarkerRateLimit, unreachable_failure};
use crate::session::replies::{
    RefusalCause, display_reply as shown_reply, refusal_cause, refusal_failure,
};

/// How long the second side may take to notice that the first failed.
const SECOND_FAILURE_TIMEOUT: Duration = Duration::from_secs(5);
/// Markers come every 5 s; a time-out shorter than three of them would see stalls where none are.
const MIN_MARKER_TIMEOUT: Duration = Duration::from_secs(15);
/// Most stripes whose markers are kept.
const MAX_STRIPES: usize = proto::stripes::MAX_STRIPES;

type FinalReplyResult = Result<Reply, CopyFailure>;

/// Progress by the destination's markers.
pub(super) struct MarkerProgress<'a> {
    stripes: BTreeMap<u32, u64>,
    /// Most bytes that 112 markers told of so far.
    most_reported: u64,
    extent: ExpectedBytes,
    stored_ranges: &'a Mutex<RangeSet>,
    report: &'a (dyn Fn(u64) + Send + Sync),
}

/// The most that a destination can have stored, whatever it says.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedBytes {
    /// Where the file ends.
    pub(super) size: Option<u64>,
    /// Bytes that are to move.
    pub(super) missing: Option<u64>,
}

impl<'a> MarkerProgress<'a> {
    pub(super) fn new(
        extent: ExpectedBytes,
        marked: &'a Mutex<RangeSet>,
        report: &'a (dyn Fn(u64) + Send + Sync),
    ) -> Self {
        Self {
            stripes: BTreeMap::new(),
            most_reported: 0,
            extent,
            stored_ranges: marked,
            report,
        }
    }

    /// Bytes over all stripes; `None` when no 112 came.
    pub(super) fn bytes(&self) -> Option<u64> {
        (!self.stripes.is_empty()).then(|| {
            self.stripes
                .values()
                .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
        })
    }

    /// Takes a preliminary reply of the destination; whether it shows that bytes moved: more than
    /// any before told of.
    fn take_marker(&mut self, reply: &Reply) -> bool {
        if let Some(mut ranges) = parse_range_marker(reply) {
            ranges.remove(self.extent.size.unwrap_or(u64::MAX), u64::MAX);
            return add_stored_ranges(self.stored_ranges, &ranges);
        }
        let Some(marker) = PerformanceMarker::from_reply(reply) else {
            return false;
        };
        if self.stripes.len() < MAX_STRIPES || self.stripes.contains_key(&marker.stripe_index) {
            self.stripes
                .insert(marker.stripe_index, marker.stripe_bytes);
        }
        let most = self.extent.missing.unwrap_or(u64::MAX);
        let now = self.bytes().unwrap_or(0).min(most);
        (self.report)(now);
        let moved = now > self.most_reported;
        self.most_reported = self.most_reported.max(now);
        moved
    }
}

/// Two servers at work on one file.
pub(super) struct ServerPair<'a> {
    pub(super) source: &'a mut ClientSession,
    pub(super) sending: &'a str,
    pub(super) destination: &'a mut ClientSession,
    pub(super) receiving: &'a str,
    pub(super) patience: Duration,
    /// Hears of refusals.
    pub(super) confirmation: &'a TransferConfirmation,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedServer {
    Source,
    Destination,
}

impl ServerPair<'_> {
    /// Waits for both final replies and gives what they say of the servers' limits. A side that
    /// gave none when the other failed is given up.
    pub(super) async fn wait_for_replies(
        mut self,
        progress: &mut MarkerProgress<'_>,
    ) -> Result<Vec<HostRemark>, CopyFailure> {
        let mut sent: Option<FinalReplyResult> = None;
        let mut received: Option<FinalReplyResult> = None;
        let mut first: Option<FailedServer> = None;
        let mut deadline: Option<Instant> = None;
        let mut late = MarkerRateLimit::new();
        while sent.is_none() || received.is_none() {
            let (side, mut reply) = tokio::select! {
                reply = self.source.control.next_reply(), if sent.is_none() => {
                    (FailedServer::Source, reply)
                }
                reply = self.destination.control.next_reply(), if received.is_none() => {
                    (FailedServer::Destination, reply)
                }
                () = sleep_until_deadline(deadline) => break,
            };
            if let Ok(marker) = &reply
                && marker.is_preliminary()
            {
                let moved = side == FailedServer::Destination && progress.take_marker(marker);
                if moved && first.is_none() {
                    deadline = Some(Instant::now() + self.patience.max(MIN_MARKER_TIMEOUT));
                }
                let one_is_done = sent.is_some() || received.is_some();
                if !one_is_done || !late.is_exceeded() {
                    continue;
                }
                reply = Err(self.session(side).control.too_many_markers_failure());
            }
            let good = matches!(&reply, Ok(reply) if reply.is_success());
            let wait = if good {
                self.patience
            } else {
                SECOND_FAILURE_TIMEOUT
            };
            deadline = Some(Instant::now() + wait);
            if !good && first.is_none() {
                first = Some(side);
            }
            match side {
                FailedServer::Source => sent = Some(reply),
                FailedServer::Destination => received = Some(reply),
            }
        }
        self.conclude(first, sent, received)
    }

    fn session(&mut self, side: FailedServer) -> &mut ClientSession {
        match side {
            FailedServer::Source => self.source,
            FailedServer::Destination => self.destination,
        }
    }

    fn conclude(
        self,
        first: Option<FailedServer>,
        sent: Option<FinalReplyResult>,
        received: Option<FinalReplyResult>,
    ) -> Result<Vec<HostRemark>, CopyFailure> {
        if !matches!(sent, Some(Ok(_))) {
            self.source.control.abandon();
        }
        if !matches!(received, Some(Ok(_))) {
            self.destination.control.abandon();
        }
        let (source, destination) = (self.source.name(), self.destination.name());
        let Some(first) = first else {
            let silent = match (&sent, &received) {
                (Some(sent), Some(received)) => {
                    let sent = sent
                        .as_ref()
                        .ok()
                        .and_then(|r| self.source.remark_of_reply(r));
                    let received = received.as_ref().ok();
                    let received = received.and_then(|r| self.destination.remark_of_reply(r));
                    return Ok(sent.into_iter().chain(received).collect());
                }
                (None, Some(_)) => format!("{source} did not finish to {}", self.sending),
                (Some(_), None) => format!("{destination} did not finish to {}", self.receiving),
                (None, None) => format!(
                    "nothing moved from {source} to {destination} (to {})",
                    self.receiving
                ),
            };
            return Err(unreachable_failure(format!(
                "{silent} within {} s; try again, with --resume",
                self.patience.as_secs()
            )));
        };
        if is_disputed(sent.as_ref(), received.as_ref()) {
            self.confirmation.mark_refused();
        }
        let first = failed_server(first, sent.as_ref(), received.as_ref());
        let (name, doing, answer, other_name, other) = match first {
            FailedServer::Source => (source, self.sending, sent, destination, received),
            FailedServer::Destination => (destination, self.receiving, received, source, sent),
        };
        let Some(answer) = answer else {
            return Err(unreachable_failure(format!(
                "lost {name}; try again, with --resume"
            )));
        };
        let other = match &other {
            Some(Ok(reply)) if !reply.is_success() => Some((other_name, reply)),
            _ => None,
        };
        Err(failure_of_server(name, doing, answer, other))
    }
}

/// The side whose failure is the reason: the first, unless it only noticed that the data
/// connection broke while the other names why.
fn failed_server(
    first: FailedServer,
    sent: Option<&FinalReplyResult>,
    received: Option<&FinalReplyResult>,
) -> FailedServer {
    let (mine, others, other) = match first {
        FailedServer::Source => (sent, received, FailedServer::Destination),
        FailedServer::Destination => (received, sent, FailedServer::Source),
    };
    let names_reason = |answer: Option<&FinalReplyResult>| matches!(answer, Some(Ok(r)) if !r.is_success() && refusal_cause(r) != RefusalCause::Lost);
    if !names_reason(mine) && names_reason(others) {
        other
    } else {
        first
    }
}

/// Whether a server refused what was moved. That both only lost the data connection says nothing
/// against the bytes; that one is done with it and the other is not, does.
fn is_disputed(sent: Option<&FinalReplyResult>, received: Option<&FinalReplyResult>) -> bool {
    let replies = || [sent, received].into_iter().flatten().flatten();
    let refusals = || replies().filter(|reply| !reply.is_success());
    let refused = refusals().any(|reply| refusal_cause(reply) != RefusalCause::Lost);
    refused || (refusals().count() > 0 && replies().any(Reply::is_success))
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The failure of one of two servers, with what the other said.
fn failure_of_server(
    server: &str,
    doing: &str,
    answer: Result<Reply, CopyFailure>,
    other: Option<(&str, &Reply)>,
) -> CopyFailure {
    let mut failure = match answer {
        Ok(reply) => refusal_failure(server, doing, &reply),
        Err(lost) => lost,
    };
    if let Some((name, reply)) = other {
        failure.message = format!(
            "{}; then {name} said: {}",
            failure.message,
            shown_reply(reply)
        );
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn performance(bytes: u64) -> Reply {
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
    fn a_destination_cannot_have_more_than_there_is() {
        let (marked, told) = (Mutex::default(), Mutex::new(Vec::new()));
        let extent = ExpectedBytes {
            size: Some(10),
            missing: Some(8),
        };
        let report = |bytes| told.lock().unwrap().push(bytes);
        let mut progress = MarkerProgress::new(extent, &marked, &report);
        let range = |text: &str| Reply::new(111, format!("Range Marker {text}"));
        let markers = [
            (performance(7), true),
            (performance(9), true),
            (performance(10), false),
            (performance(1 << 40), false),
            (range("0-9"), true),
            (range("5-11"), true),
            (range("10-12"), false),
            (range("0-1000"), false),
        ];
        for (marker, moved) in markers {
            assert_eq!(progress.take_marker(&marker), moved, "{marker:?}");
        }
        assert_eq!(*told.lock().unwrap(), [7, 8, 8, 8]);
        assert_eq!(marked.lock().unwrap().to_string(), "0-10");
        // That it claims more, the end of the transfer judges.
        assert_eq!(progress.bytes(), Some(1 << 40));
    }

    #[test]
    fn markers_that_tell_of_nothing_new_are_no_progress() {
        let marked = Mutex::default();
        let mut progress = MarkerProgress::new(UNKNOWN, &marked, &|_| {});
        let range = |text: &str| Reply::new(111, format!("Range Marker {text}"));
        let markers = [
            (performance(0), false),
            (performance(7), true),
            (performance(7), false),
            (performance(3), false),
            (performance(7), false),
            (performance(8), true),
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
