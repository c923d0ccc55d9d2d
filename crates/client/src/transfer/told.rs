//! Words of the two ends to each other on the control channel while data moves, and at its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use data::job::{Control, Report, Settings};
use proto::marker::parse_range_reply;
use proto::pace::Pace;
use proto::ranges::{MAX_RANGES, RangeSet};
use proto::remark::{self, Said};
use proto::reply::Reply;
use proto::sizing::{self, Sizing, parse_buffer_reply};
use tokio::sync::watch;
use tune::limiter::Limiter;
use tune::streams::auto::Verdict;

use super::Remark;
use crate::session::Session;

/// Where to keep what preliminary replies tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told<'a> {
    /// Set when the transfer begins.
    pub(crate) begun: Option<&'a AtomicBool>,
    /// Takes the ranges of 111 replies.
    pub(crate) marked: Option<&'a Mutex<RangeSet>>,
    /// Follows the sizes of 126 replies.
    pub(crate) follows: Option<&'a Follows<'a>>,
}

/// A data side that follows what a server tells that receives with [`Sizing::Drs1`].
#[derive(Debug)]
pub(crate) struct Follows<'a> {
    control: &'a Control,
    pace: Mutex<Pace>,
    begun: Instant,
}

impl<'a> Follows<'a> {
    /// That of a transfer in which this end is told sizes.
    pub(super) fn of(sends: bool, settings: &Settings, control: &'a Control) -> Option<Self> {
        let follows = settings.options.buffers.sizing == Sizing::Drs1 && sends;
        follows.then(|| Self {
            control,
            pace: Mutex::new(sizing::told_pace()),
            begun: Instant::now(),
        })
    }

    /// Each wakes the thread that sizes buffers, so that those of a flood are dropped.
    fn size(&self, bytes: u64) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if pace.take(self.begun.elapsed()) {
            self.control.follow(bytes);
        }
    }
}

impl Told<'_> {
    /// Keeps what a preliminary reply says; 112 tells nothing new about a transfer with this end.
    pub(super) fn note(self, reply: &Reply) {
        if let Some(begun) = self.begun {
            begun.store(true, Ordering::Relaxed);
        }
        if let (Some(marked), Some(ranges)) = (self.marked, parse_range_reply(reply)) {
            keep_marked(marked, &ranges);
        }
        if let (Some(follows), Some(bytes)) = (self.follows, parse_buffer_reply(reply)) {
            follows.size(bytes);
        }
    }
}

/// Adds the ranges of a 111 reply; whether they tell of new bytes. A server may send such replies
/// without end: what comes beyond [`MAX_RANGES`] is left out, and is only sent again after a cut.
pub(crate) fn keep_marked(marked: &Mutex<RangeSet>, ranges: &RangeSet) -> bool {
    let mut marked = marked.lock().unwrap_or_else(PoisonError::into_inner);
    let before = marked.bytes();
    if marked.count() + ranges.count() <= MAX_RANGES {
        marked.extend(ranges);
    }
    marked.bytes() > before
}

/// Sizes of this end's receive buffers that the server is to be told (2003 paper §4.2). Only the
/// newest counts.
pub(super) struct Sizes(Option<watch::Receiver<u64>>);

impl Sizes {
    /// Those of a transfer in which the server is to be told.
    pub(super) fn of(sends: bool, settings: &Settings, control: &Control) -> Self {
        if settings.options.buffers.sizing != Sizing::Drs1 || sends {
            return Self(None);
        }
        let (size, sizes) = watch::channel(0);
        control.on_resize(move |bytes| {
            size.send_replace(bytes);
        });
        Self(Some(sizes))
    }

    /// The next size, bytes; pends for ever when none will come. Cancel-safe.
    pub(super) async fn next(&mut self) -> u64 {
        if let Some(sizes) = &mut self.0
            && sizes.changed().await.is_ok()
        {
            return *sizes.borrow_and_update();
        }
        std::future::pending().await
    }
}

impl Session {
    /// Remark in the server's last reply. Only those that announce `DRS` are known to
    /// say anything.
    pub(super) fn remark(&self, reply: &Reply) -> Option<Remark> {
        if self.features().drs.is_empty() {
            return None;
        }
        Remark::of_reply(self.name(), reply)
    }
}

impl Remark {
    /// Remark of this machine; `None`: none.
    pub(super) fn of_this_machine(report: &Report) -> Option<Self> {
        Self {
            host: None,
            verdict: report.evidence.verdict.clone(),
            text: report.remark.clone(),
        }
        .or_nothing()
    }

    /// Remark of `server` in its 226. A limiter that is not known here is taken with the rest as words
    /// for people.
    fn of_reply(server: &str, reply: &Reply) -> Option<Self> {
        let Said { verdict, remark } = Said::of_reply(reply);
        let (verdict, text) = match verdict.map(|told| known(&told).ok_or(told)) {
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
        .or_nothing()
    }

    fn or_nothing(self) -> Option<Self> {
        (self.verdict.is_some() || self.text.is_some()).then_some(self)
    }
}

fn known(told: &remark::Verdict) -> Option<Verdict> {
    Some(Verdict {
        limiter: Limiter::parse(told.limiter())?,
        streams: told.streams(),
        congestion: told.congestion().to_owned(),
        remedy: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<Remark> {
        Remark::of_reply("h:2811", &Reply::new(226, text))
    }

    #[test]
    fn a_servers_verdict_is_told_from_its_remark() {
        let text = "Transfer Complete. Limited by receive window, 4 streams, bbr. Raise x.";
        let remark = said(text).unwrap();
        assert_eq!(remark.host.as_deref(), Some("h:2811"));
        assert_eq!(remark.text.as_deref(), Some("Raise x."));
        let verdict = remark.verdict.unwrap();
        assert_eq!(verdict.limiter, Limiter::ReceiveWindow);
        assert_eq!((verdict.streams, verdict.congestion.as_str()), (4, "bbr"));
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
            keep_marked(&marked, &ranges);
        }
        let kept = marked.lock().unwrap().count();
        assert!((MAX_RANGES - 1000..=MAX_RANGES).contains(&kept), "{kept}");
    }

    #[test]
    fn a_server_that_says_nothing_has_no_remark() {
        assert_eq!(said("Transfer Complete."), None);
        assert_eq!(Remark::of_this_machine(&Report::default()), None);
    }
}
