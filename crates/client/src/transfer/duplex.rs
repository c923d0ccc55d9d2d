//! The end of a third-party transfer: two control connections read side by side.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use proto::marker::{PerfMarker, parse_range_reply};
use proto::ranges::RangeSet;
use proto::reply::Reply;
use tokio::time::{Instant, sleep_until};

use super::told::keep_marked;
use super::{Confirmation, Remark};
use crate::Failure;
use crate::session::Session;
use crate::session::control::{MarkerPace, unreachable};
use crate::session::replies::{Cause, cause, refusal, shown as shown_reply};

/// How long the second side may take to notice that the first failed.
const GRACE: Duration = Duration::from_secs(5);
/// Markers come every 5 s; a time-out shorter than three of them would see stalls where none are.
const MARKER_PATIENCE: Duration = Duration::from_secs(15);
/// Most stripes whose markers are kept.
const MAX_STRIPES: usize = proto::stripes::MAX_STRIPES;

type Answer = Result<Reply, Failure>;

/// Progress by the destination's markers.
pub(super) struct Progress<'a> {
    stripes: BTreeMap<u32, u64>,
    /// Most bytes that 112 markers told of so far.
    most: u64,
    extent: TransferExtent,
    marked: &'a Mutex<RangeSet>,
    report: &'a (dyn Fn(u64) + Send + Sync),
}

/// The most that a destination can have stored, whatever it says.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferExtent {
    /// Where the file ends.
    pub(super) size: Option<u64>,
    /// Bytes that are to move.
    pub(super) missing: Option<u64>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        extent: TransferExtent,
        marked: &'a Mutex<RangeSet>,
        report: &'a (dyn Fn(u64) + Send + Sync),
    ) -> Self {
        Self {
            stripes: BTreeMap::new(),
            most: 0,
            extent,
            marked,
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
    fn note(&mut self, reply: &Reply) -> bool {
        if let Some(mut ranges) = parse_range_reply(reply) {
            ranges.remove(self.extent.size.unwrap_or(u64::MAX), u64::MAX);
            return keep_marked(self.marked, &ranges);
        }
        let Some(marker) = PerfMarker::from_reply(reply) else {
            return false;
        };
        if self.stripes.len() < MAX_STRIPES || self.stripes.contains_key(&marker.stripe_index) {
            self.stripes
                .insert(marker.stripe_index, marker.stripe_bytes);
        }
        let most = self.extent.missing.unwrap_or(u64::MAX);
        let now = self.bytes().unwrap_or(0).min(most);
        (self.report)(now);
        let moved = now > self.most;
        self.most = self.most.max(now);
        moved
    }
}

/// Two servers at work on one file.
pub(super) struct Duplex<'a> {
    pub(super) source: &'a mut Session,
    pub(super) sending: &'a str,
    pub(super) destination: &'a mut Session,
    pub(super) receiving: &'a str,
    pub(super) patience: Duration,
    /// Hears of refusals.
    pub(super) said: &'a Confirmation,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

impl Duplex<'_> {
    /// Waits for both final replies and gives what they say of the servers' limits. A side that
    /// gave none when the other failed is given up.
    pub(super) async fn run(mut self, progress: &mut Progress<'_>) -> Result<Vec<Remark>, Failure> {
        let mut sent: Option<Answer> = None;
        let mut received: Option<Answer> = None;
        let mut first: Option<Side> = None;
        let mut deadline: Option<Instant> = None;
        let mut late = MarkerPace::new();
        while sent.is_none() || received.is_none() {
            let (side, mut reply) = tokio::select! {
                reply = self.source.control.next_reply(), if sent.is_none() => {
                    (Side::Source, reply)
                }
                reply = self.destination.control.next_reply(), if received.is_none() => {
                    (Side::Destination, reply)
                }
                () = until(deadline) => break,
            };
            if let Ok(marker) = &reply
                && marker.is_preliminary()
            {
                let moved = side == Side::Destination && progress.note(marker);
                if moved && first.is_none() {
                    deadline = Some(Instant::now() + self.patience.max(MARKER_PATIENCE));
                }
                let one_is_done = sent.is_some() || received.is_some();
                if !one_is_done || !late.too_many() {
                    continue;
                }
                reply = Err(self.session(side).control.endless_markers());
            }
            let good = matches!(&reply, Ok(reply) if reply.is_success());
            let wait = if good { self.patience } else { GRACE };
            deadline = Some(Instant::now() + wait);
            if !good && first.is_none() {
                first = Some(side);
            }
            match side {
                Side::Source => sent = Some(reply),
                Side::Destination => received = Some(reply),
            }
        }
        self.settle(first, sent, received)
    }

    fn session(&mut self, side: Side) -> &mut Session {
        match side {
            Side::Source => self.source,
            Side::Destination => self.destination,
        }
    }

    fn settle(
        self,
        first: Option<Side>,
        sent: Option<Answer>,
        received: Option<Answer>,
    ) -> Result<Vec<Remark>, Failure> {
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
                    let sent = sent.as_ref().ok().and_then(|r| self.source.remark(r));
                    let received = received.as_ref().ok();
                    let received = received.and_then(|r| self.destination.remark(r));
                    return Ok(sent.into_iter().chain(received).collect());
                }
                (None, Some(_)) => format!("{source} did not finish to {}", self.sending),
                (Some(_), None) => format!("{destination} did not finish to {}", self.receiving),
                (None, None) => format!(
                    "nothing moved from {source} to {destination} (to {})",
                    self.receiving
                ),
            };
            return Err(unreachable(format!(
                "{silent} within {} s; try again, with --resume",
                self.patience.as_secs()
            )));
        };
        if disputed(sent.as_ref(), received.as_ref()) {
            self.said.refuse();
        }
        let first = blamed(first, sent.as_ref(), received.as_ref());
        let (name, doing, answer, other_name, other) = match first {
            Side::Source => (source, self.sending, sent, destination, received),
            Side::Destination => (destination, self.receiving, received, source, sent),
        };
        let Some(answer) = answer else {
            return Err(unreachable(format!(
                "lost {name}; try again, with --resume"
            )));
        };
        let other = match &other {
            Some(Ok(reply)) if !reply.is_success() => Some((other_name, reply)),
            _ => None,
        };
        Err(failed_side(name, doing, answer, other))
    }
}

/// The side whose failure is the reason: the first, unless it only noticed that the data
/// connection broke while the other names why.
fn blamed(first: Side, sent: Option<&Answer>, received: Option<&Answer>) -> Side {
    let (mine, others, other) = match first {
        Side::Source => (sent, received, Side::Destination),
        Side::Destination => (received, sent, Side::Source),
    };
    let names_reason = |answer: Option<&Answer>| matches!(answer, Some(Ok(r)) if !r.is_success() && cause(r) != Cause::Lost);
    if !names_reason(mine) && names_reason(others) {
        other
    } else {
        first
    }
}

/// Whether a server refused what was moved. That both only lost the data connection says nothing
/// against the bytes; that one is done with it and the other is not, does.
fn disputed(sent: Option<&Answer>, received: Option<&Answer>) -> bool {
    let replies = || [sent, received].into_iter().flatten().flatten();
    let refusals = || replies().filter(|reply| !reply.is_success());
    let refused = refusals().any(|reply| cause(reply) != Cause::Lost);
    refused || (refusals().count() > 0 && replies().any(Reply::is_success))
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The failure of one of two servers, with what the other said.
fn failed_side(
    server: &str,
    doing: &str,
    answer: Result<Reply, Failure>,
    other: Option<(&str, &Reply)>,
) -> Failure {
    let mut failure = match answer {
        Ok(reply) => refusal(server, doing, &reply),
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
        Reply::data(112, "Perf Marker", lines, "End.")
    }

    const UNKNOWN: TransferExtent = TransferExtent {
        size: None,
        missing: None,
    };

    #[test]
    fn a_destination_cannot_have_more_than_there_is() {
        let (marked, told) = (Mutex::default(), Mutex::new(Vec::new()));
        let extent = TransferExtent {
            size: Some(10),
            missing: Some(8),
        };
        let report = |bytes| told.lock().unwrap().push(bytes);
        let mut progress = Progress::new(extent, &marked, &report);
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
            assert_eq!(progress.note(&marker), moved, "{marker:?}");
        }
        assert_eq!(*told.lock().unwrap(), [7, 8, 8, 8]);
        assert_eq!(marked.lock().unwrap().to_string(), "0-10");
        // That it claims more, the end of the transfer judges.
        assert_eq!(progress.bytes(), Some(1 << 40));
    }

    #[test]
    fn markers_that_tell_of_nothing_new_are_no_progress() {
        let marked = Mutex::default();
        let mut progress = Progress::new(UNKNOWN, &marked, &|_| {});
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
            assert_eq!(progress.note(&marker), moved, "{marker:?}");
        }
    }
}
