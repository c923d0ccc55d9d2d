//! Contents of replies on the control connection during a transfer and at its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use data::job::{TransferControl, TransferReport, TransferSettings};
use parking_lot::Mutex;
use proto::marker::parse_range_marker;
use proto::ranges::{MAX_RANGES, RangeSet};
use proto::remark::{self, CompletionRemarks};
use proto::reply::Reply;
use proto::sizing::{self, BufferSizing, parse_buffer_size_reply};
use tokio::sync::watch;
use tune::limiter::Limiter;
use tune::streams::auto::LimiterVerdict;
use units::message_rate::MessageRateLimiter;

use super::HostRemark;
use crate::session::ClientSession;

/// Where the contents of preliminary replies are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplySinks<'a> {
    /// Set when the transfer begins.
    pub started: Option<&'a AtomicBool>,
    /// Receives the ranges of 111 replies.
    pub stored_ranges: Option<&'a Mutex<RangeSet>>,
    /// Follows the buffer sizes of 126 replies.
    pub(crate) size_follower: Option<&'a AnnouncedSizeFollower<'a>>,
}

/// A sending data side that follows the buffer sizes announced by a server that receives with
/// [`BufferSizing::Drs1`].
#[derive(Debug)]
pub struct AnnouncedSizeFollower<'a> {
    control: &'a TransferControl,
    rate_limit: Mutex<MessageRateLimiter>,
    started: Instant,
}

impl<'a> AnnouncedSizeFollower<'a> {
    /// The follower of a transfer in which this end is sent sizes; `None` for others.
    pub(super) fn new_if_sending(
        is_sender: bool,
        settings: &TransferSettings,
        control: &'a TransferControl,
    ) -> Option<Self> {
        let follower = settings.options.buffers.sizing == BufferSizing::Drs1 && is_sender;
        follower.then(|| Self {
            control,
            rate_limit: Mutex::new(sizing::announced_size_limiter()),
            started: Instant::now(),
        })
    }

    /// Passes a size on, at a limited rate: each one wakes the thread that sizes buffers, and a
    /// server could send a flood.
    fn follow_size(&self, bytes: u64) {
        let mut rate_limit = self.rate_limit.lock();
        if rate_limit.try_take(self.started.elapsed()) {
            self.control.follow_peer_size(bytes);
        }
    }
}

impl ReplySinks<'_> {
    /// Keeps the content of a preliminary reply. 112 is ignored: this end knows the progress of its
    /// own transfer.
    pub(super) fn record_reply(self, reply: &Reply) {
        if let Some(started) = self.started {
            started.store(true, Ordering::Relaxed);
        }
        if let (Some(stored), Some(ranges)) = (self.stored_ranges, parse_range_marker(reply)) {
            add_stored_ranges(stored, &ranges);
        }
        if let (Some(follower), Some(bytes)) = (self.size_follower, parse_buffer_size_reply(reply))
        {
            follower.follow_size(bytes);
        }
    }
}

/// Adds the ranges of a 111 reply; returns whether they contain new bytes. A server may send such
/// replies without end: ranges beyond [`MAX_RANGES`] are dropped, and are only sent again after an
/// interruption.
pub fn add_stored_ranges(stored: &Mutex<RangeSet>, ranges: &RangeSet) -> bool {
    let mut stored = stored.lock();
    let before = stored.byte_count();
    // The limit counts ranges, which is what uses memory.
    if stored.range_count() + ranges.range_count() <= MAX_RANGES {
        stored.extend(ranges);
    }
    stored.byte_count() > before
}

/// Sizes of this end's receive buffers to send to the server (2003 paper §4.2). Only the newest
/// counts.
pub(super) struct SizesToAnnounce(Option<watch::Receiver<u64>>);

impl SizesToAnnounce {
    /// The sizes of a transfer in which the server is sent them; none for others.
    pub(super) fn new_if_receiving(
        is_sender: bool,
        settings: &TransferSettings,
        control: &TransferControl,
    ) -> Self {
        if settings.options.buffers.sizing != BufferSizing::Drs1 || is_sender {
            return Self(None);
        }
        // A watch channel keeps the latest value only, which is the only useful one.
        let (size, sizes) = watch::channel(0);
        control.on_resize(move |bytes| {
            size.send_replace(bytes);
        });
        Self(Some(sizes))
    }

    /// The next size, bytes; pending for ever when none will come. Cancel-safe.
    pub(super) async fn next_size(&mut self) -> u64 {
        if let Some(sizes) = &mut self.0
            && sizes.changed().await.is_ok()
        {
            return *sizes.borrow_and_update();
        }
        std::future::pending().await
    }
}

/// Remark about data that ssh carries.
const CARRIED: &str = "no port there can be reached, so ssh carried the data, and neither end sees its path; to change that: open ports \
     beside ssh's (docs/ssh.md)";

impl ClientSession {
    /// The remark in the server's final reply. Only servers that announce `DRS` are known to send
    /// one. Where ssh carries the data, that is the remark: the server sees connections from its own machine.
    pub(super) fn remark_of_reply(&self, reply: &Reply) -> Option<HostRemark> {
        if self.is_carried() && !self.server_can_connect() {
            return Some(HostRemark {
                host: Some(self.name().to_owned()),
                verdict: None,
                text: Some(CARRIED.to_owned()),
            });
        }
        if self.features().buffer_sizings.is_empty() {
            return None;
        }
        HostRemark::from_reply(self.name(), reply)
    }

    /// The remark on a transfer whose data connections were with data nodes.
    pub(super) fn remark_of_stripes(&self) -> HostRemark {
        HostRemark {
            host: Some(format!("data nodes of {}", self.name())),
            verdict: None,
            text: Some(format!("{} took part", self.stripe_count())),
        }
    }

    /// The length of a listing in the final reply of a server that is known to send it.
    pub fn listing_bytes(&self, reply: &Reply) -> Option<u64> {
        let is_known = self.features().listing_lengths;
        CompletionRemarks::from_reply(reply)
            .listing_bytes
            .filter(|_| is_known)
    }
}

impl HostRemark {
    /// The remark of this machine, if any.
    pub(super) fn from_local_report(report: &TransferReport) -> Option<Self> {
        let texts = [&report.remark, &report.prior_use];
        let texts: Vec<&str> = texts.into_iter().filter_map(|t| t.as_deref()).collect();
        Self {
            host: None,
            verdict: report.evidence.verdict.clone(),
            text: (!texts.is_empty()).then(|| texts.join("; ")),
        }
        .non_empty()
    }

    /// The remark of `server` in its 226. An unknown limiter is kept as text for people.
    fn from_reply(server: &str, reply: &Reply) -> Option<Self> {
        let CompletionRemarks {
            limiter: verdict,
            remark,
            ..
        } = CompletionRemarks::from_reply(reply);
        let (verdict, text) = match verdict.map(|report| known_limiter(&report).ok_or(report)) {
            None => (None, remark),
            Some(Ok(verdict)) => (Some(verdict), remark),
            Some(Err(unknown)) => {
                // A limiter of a newer server version is shown as text.
                let text_parts = [Some(unknown.to_string()), remark];
                (
                    None,
                    Some(
                        text_parts
                            .into_iter()
                            .flatten()
                            .collect::<Vec<_>>()
                            .join(" "),
                    ),
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

fn known_limiter(report: &remark::LimiterReport) -> Option<LimiterVerdict> {
    Some(LimiterVerdict {
        limiter: Limiter::parse(report.limiter())?,
        streams: report.streams(),
        congestion_control: report.congestion_control().to_owned(),
        remedy: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remark_in(text: &str) -> Option<HostRemark> {
        HostRemark::from_reply("h:2811", &Reply::new(226, text))
    }

    #[test]
    fn a_226_is_split_into_limiter_and_remark() {
        let text = "Transfer Complete. Limited by receive window, 4 streams, bbr. Raise x.";
        let remark = remark_in(text).unwrap();
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
    fn an_unknown_limiter_is_kept_as_text() {
        let remark =
            remark_in("Transfer Complete. Limited by warp core, 4 streams, bbr. Raise x.").unwrap();
        assert_eq!(remark.verdict, None);
        assert_eq!(
            remark.text.as_deref(),
            Some("Limited by warp core, 4 streams, bbr. Raise x.")
        );
    }

    #[test]
    fn the_number_of_stored_ranges_is_bounded() {
        let stored = Mutex::new(RangeSet::new());
        for n in 0..200 {
            let mut ranges = RangeSet::new();
            for m in 0..1000 {
                let start = (n * 1000 + m) * 10;
                ranges.insert(start, start + 5);
            }
            add_stored_ranges(&stored, &ranges);
        }
        let kept = stored.lock().range_count();
        assert!((MAX_RANGES - 1000..=MAX_RANGES).contains(&kept), "{kept}");
    }

    #[test]
    fn a_226_without_remark_gives_none() {
        assert_eq!(remark_in("Transfer Complete."), None);
        assert_eq!(
            HostRemark::from_local_report(&TransferReport::default()),
            None
        );
    }
}
