//! Words of the two ends to each other on the control channel while data moves, and at its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use data::job::{TransferControl, TransferReport, TransferSettings};
use proto::marker::parse_range_marker;
use proto::message_rate::MessageRateLimiter;
use proto::ranges::{MAX_RANGES, RangeSet};
use proto::remark::{self, CompletionRemarks};
use proto::reply::Reply;
use proto::sizing::{self, BufferSizing, parse_buffer_size_reply};
use tokio::sync::watch;
use tune::limiter::Limiter;
use tune::streams::auto::LimiterVerdict;

use super::HostRemark;
use crate::session::ClientSession;

/// Where to keep what preliminary replies tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplySinks<'a> {
    /// Set when the transfer begins.
    pub(crate) started: Option<&'a AtomicBool>,
    /// Takes the ranges of 111 replies.
    pub(crate) stored_ranges: Option<&'a Mutex<RangeSet>>,
    /// Follows the sizes of 126 replies.
    pub(crate) size_follower: Option<&'a AnnouncedSizeFollower<'a>>,
}

/// A data side that follows what a server tells that receives with [`BufferSizing::Drs1`].
#[derive(Debug)]
pub(crate) struct AnnouncedSizeFollower<'a> {
    control: &'a TransferControl,
    pace: Mutex<MessageRateLimiter>,
    begun: Instant,
}

impl<'a> AnnouncedSizeFollower<'a> {
    /// That of a transfer in which this end is told sizes.
    pub(super) fn new_if_sending(
        sends: bool,
        settings: &TransferSettings,
        control: &'a TransferControl,
    ) -> Option<Self> {
        let follows = settings.options.buffers.sizing == BufferSizing::Drs1 && sends;
        follows.then(|| Self {
            control,
            pace: Mutex::new(sizing::announced_size_limiter()),
            begun: Instant::now(),
        })
    }

    /// Each wakes the thread that sizes buffers, so that those of a flood are dropped.
    fn follow_size(&self, bytes: u64) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if pace.try_take(self.begun.elapsed()) {
            self.control.follow_peer_size(bytes);
        }
    }
}

impl ReplySinks<'_> {
    /// Keeps what a preliminary reply says; 112 tells nothing new about a transfer with this end.
    pub(super) fn record_reply(self, reply: &Reply) {
        if let Some(begun) = self.started {
            begun.store(true, Ordering::Relaxed);
        }
        if let (Some(marked), Some(ranges)) = (self.stored_ranges, parse_range_marker(reply)) {
            add_stored_ranges(marked, &ranges);
        }
        if let (Some(follows), Some(bytes)) = (self.size_follower, parse_buffer_size_reply(reply)) {
            follows.follow_size(bytes);
        }
    }
}

/// Adds the ranges of a 111 reply; whether they tell of new bytes. A server may send such replies
/// without end: what comes beyond [`MAX_RANGES`] is left out, and is only sent again after a cut.
pub(crate) fn add_stored_ranges(marked: &Mutex<RangeSet>, ranges: &RangeSet) -> bool {
    let mut marked = marked.lock().unwrap_or_else(PoisonError::into_inner);
    let before = marked.byte_count();
    if marked.range_count() + ranges.range_count() <= MAX_RANGES {
        marked.extend(ranges);
    }
    marked.byte_count() > before
}

/// Sizes of this end's receive buffers that the server is to be told (2003 paper §4.2). Only the
/// newest counts.
pub(super) struct SizesToAnnounce(Option<watch::Receiver<u64>>);

impl SizesToAnnounce {
    /// Those of a transfer in which the server is to be told.
    pub(super) fn new_if_receiving(
        sends: bool,
        settings: &TransferSettings,
        control: &TransferControl,
    ) -> Self {
        if settings.options.buffers.sizing != BufferSizing::Drs1 || sends {
            return Self(None);
        }
        let (size, sizes) = watch::channel(0);
        control.on_resize(move |bytes| {
            size.send_replace(bytes);
        });
        Self(Some(sizes))
    }

    /// The next size, bytes; pends for ever when none will come. Cancel-safe.
    pub(super) async fn next_size(&mut self) -> u64 {
        if let Some(sizes) = &mut self.0
            && sizes.changed().await.is_ok()
        {
            return *sizes.borrow_and_update();
        }
        std::future::pending().await
    }
}

impl ClientSession {
    /// Remark in the server's last reply. Only those that announce `DRS` are known to
    /// say anything.
    pub(super) fn remark_of_reply(&self, reply: &Reply) -> Option<HostRemark> {
        if self.features().buffer_sizings.is_empty() {
            return None;
        }
        HostRemark::from_reply(self.name(), reply)
    }
}

impl HostRemark {
    /// Remark of this machine; `None`: none.
    pub(super) fn from_local_report(report: &TransferReport) -> Option<Self> {
        Self {
            host: None,
            verdict: report.evidence.verdict.clone(),
            text: report.remark.clone(),
        }
        .non_empty()
    }

    /// Remark of `server` in its 226. A limiter that is not known here is taken with the rest as words
    /// for people.
    fn from_reply(server: &str, reply: &Reply) -> Option<Self> {
        let CompletionRemarks {
            limiter: verdict,
            remark,
        } = CompletionRemarks::from_reply(reply);
        let (verdict, text) = match verdict.map(|told| known_limiter(&told).ok_or(told)) {
            None => (None, remark),
            Some(Ok(verdict)) => (Some(verdict), remark),
            Some(Err(strange)) => {
                let words = [Some(strange.to_string()), remark];
                (
                    None,
                    Some(words.into_iter().flatten().collect::<Vec<_>>().join(" ")),
                )
            }
        };
        Self {
            host: Some(server.to_owned()),
            verdict,
            text,
        }
        .non_empty()
    }

    fn non_empty(self) -> Option<Self> {
        (self.verdict.is_some() || self.text.is_some()).then_some(self)
    }
}

fn known_limiter(told: &remark::LimiterReport) -> Option<LimiterVerdict> {
    Some(LimiterVerdict {
        limiter: Limiter::parse(told.limiter())?,
        streams: told.streams(),
        congestion_control: told.congestion_control().to_owned(),
        remedy: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<HostRemark> {
        HostRemark::from_reply("h:2811", &Reply::new(226, text))
    }

    #[test]
    fn a_servers_verdict_is_told_from_its_remark() {
        let text = "Transfer Complete. Limited by receive window, 4 streams, bbr. Raise x.";
        let remark = said(text).unwrap();
        assert_eq!(remark.host.as_deref(), Some("h:2811"));
        assert_eq!(remark.text.as_deref(), Some("Raise x."));
        let verdict = remark.verdict.unwrap();
        assert_eq!(verdict.limiter, Limiter::ReceiveWindow);
        assert_eq!(
            (verdict.streams, verdict.congestion_control.as_str()),
            (4, "bbr")
        );
    }

    #[test]
    fn a_limiter_that_is_not_known_here_is_words_for_people() {
        let remark =
            said("Transfer Complete. Limited by warp core, 4 streams, bbr. Raise x.").unwrap();
        assert_eq!(remark.verdict, None);
        assert_eq!(
            remark.text.as_deref(),
            Some("Limited by warp core, 4 streams, bbr. Raise x.")
        );
    }

    #[test]
    fn the_ranges_that_a_server_marks_are_bounded_by_count() {
        let marked = Mutex::new(RangeSet::new());
        for n in 0..200 {
            let mut ranges = RangeSet::new();
            for m in 0..1000 {
                let start = (n * 1000 + m) * 10;
                ranges.insert(start, start + 5);
            }
            add_stored_ranges(&marked, &ranges);
        }
        let kept = marked.lock().unwrap().range_count();
        assert!((MAX_RANGES - 1000..=MAX_RANGES).contains(&kept), "{kept}");
    }

    #[test]
    fn a_server_that_says_nothing_has_no_remark() {
        assert_eq!(said("Transfer Complete."), None);
        assert_eq!(
            HostRemark::from_local_report(&TransferReport::default()),
            None
        );
    }
}
