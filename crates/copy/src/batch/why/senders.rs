//! Limiter reports of the sending ends.

use std::time::Duration;

use tune::limiter::Limiter;
use tune::streams::auto::LimiterVerdict;

use units::show;

/// Limiter reports on the transfers of a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderVerdicts {
    limits: Vec<LimiterTime>,
    /// Most streams at the end of a transfer.
    streams: u32,
    /// Congestion control at the end of the last transfer that reported it.
    congestion: String,
}

/// Totals of one limiter.
#[derive(Debug, Clone)]
struct LimiterTime {
    limiter: Limiter,
    /// Total time of the transfers with this limiter.
    time: Duration,
    /// The last reported remedy.
    remedy: Option<String>,
}

impl SenderVerdicts {
    /// Adds the report on a transfer that took `elapsed`.
    pub(crate) fn add(&mut self, verdict: &LimiterVerdict, elapsed: Duration) {
        self.streams = self.streams.max(verdict.streams);
        if !verdict.congestion_control.is_empty() {
            self.set_congestion(verdict.congestion_control.clone());
        }
        let position = self
            .limits
            .iter()
            .position(|l| l.limiter == verdict.limiter);
        let mut limit = match position {
            Some(at) => self.limits.swap_remove(at),
            None => LimiterTime {
                limiter: verdict.limiter,
                time: Duration::ZERO,
                remedy: None,
            },
        };
        limit.time += elapsed;
        // Advice is not repeated with every transfer, so an earlier one stays valid.
        limit.remedy = verdict.remedy.clone().or(limit.remedy);
        self.limits.push(limit);
    }

    /// Records the congestion control that a transfer used at its end.
    pub(crate) fn set_congestion(&mut self, congestion: String) {
        self.congestion = congestion;
    }

    /// The limiter that was reported for the longest time. `None`: unknown.
    pub(crate) fn limiter(&self) -> Option<Limiter> {
        let known = self.limits.iter().filter(|l| l.limiter != Limiter::Unknown);
        // While a receiver holds back by a rate limit, the sender's kernel sees a full window for as long.
        known
            .max_by_key(|l| (l.time, l.limiter == Limiter::RateLimit))
            .map(|l| l.limiter)
    }

    /// The remedy for a limiter.
    pub(crate) fn remedy(&self, limiter: Limiter) -> Option<&str> {
        let limit = self.limits.iter().find(|l| l.limiter == limiter)?;
        limit.remedy.as_deref()
    }

    /// Text to follow the number `max_streams` of streams: their number at the end if it differs, and the
    /// congestion control, as in `, 2 at the end (bbr)`. May be empty.
    pub(crate) fn final_streams_text(&self, max_streams: u64) -> String {
        let mut text = String::new();
        if self.streams > 0 && u64::from(self.streams) != max_streams {
            text = match max_streams {
                // The number of streams was not sampled, so this is the only one known.
                0 => format!(" over {}", show::count(self.streams, "stream")),
                _ => format!(", {} at the end", self.streams),
            };
        }
        if !self.congestion.is_empty() {
            text.push_str(&format!(" ({})", self.congestion));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(
        limiter: Limiter,
        streams: u32,
        congestion: &str,
        remedy: Option<&str>,
    ) -> LimiterVerdict {
        LimiterVerdict {
            limiter,
            streams,
            congestion_control: congestion.to_owned(),
            remedy: remedy.map(str::to_owned),
        }
    }

    #[test]
    fn the_limiter_with_the_longest_time_is_reported() {
        let mut senders = SenderVerdicts::default();
        assert_eq!(senders.limiter(), None);
        let s = Duration::from_secs;
        senders.add(&verdict(Limiter::Unknown, 1, "", None), s(90));
        assert_eq!(senders.limiter(), None);
        senders.add(&verdict(Limiter::Loss, 8, "bbr", Some("nothing")), s(5));
        senders.add(&verdict(Limiter::StoreRead, 1, "cubic", None), s(8));
        assert_eq!(senders.limiter(), Some(Limiter::StoreRead));
        senders.add(&verdict(Limiter::Loss, 4, "", None), s(5));
        assert_eq!(senders.limiter(), Some(Limiter::Loss));
        assert_eq!(senders.remedy(Limiter::Loss), Some("nothing"));
        assert_eq!(senders.remedy(Limiter::SendBuffer), None);
        assert_eq!(senders.final_streams_text(16), ", 8 at the end (cubic)");
    }

    #[test]
    fn an_unchanged_stream_count_is_not_repeated() {
        let mut senders = SenderVerdicts::default();
        assert_eq!(senders.final_streams_text(4), "");
        senders.add(&verdict(Limiter::Loss, 4, "", None), Duration::ZERO);
        assert_eq!(senders.final_streams_text(4), "");
        assert_eq!(senders.final_streams_text(0), " over 4 streams");
        assert_eq!(senders.final_streams_text(1), ", 4 at the end");
    }
}
