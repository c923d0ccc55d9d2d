//! Word of those that sent on the limits of their streams.

use std::time::Duration;

use tune::limiter::Limiter;
use tune::streams::auto::LimiterVerdict;

use super::line::streams;

/// The verdicts on the transfers of a batch.
#[derive(Debug, Clone, Default)]
pub(super) struct SenderVerdicts {
    limits: Vec<LimiterTime>,
    /// Most streams at the end of a transfer.
    streams: u32,
    /// Congestion control at the end of the last transfer that tells it.
    congestion: String,
}

/// Account of one limiter.
#[derive(Debug, Clone)]
struct LimiterTime {
    limiter: Limiter,
    /// Time of the transfers that it limited.
    time: Duration,
    /// The remedy, by the last word.
    remedy: Option<String>,
}

impl SenderVerdicts {
    /// Adds the verdict on a transfer that took `elapsed`.
    pub(super) fn add(&mut self, verdict: &LimiterVerdict, elapsed: Duration) {
        self.streams = self.streams.max(verdict.streams);
        if !verdict.congestion_control.is_empty() {
            self.ran(verdict.congestion_control.clone());
        }
        let known = self
            .limits
            .iter()
            .position(|l| l.limiter == verdict.limiter);
        let mut limit = match known {
            Some(at) => self.limits.swap_remove(at),
            None => LimiterTime {
                limiter: verdict.limiter,
                time: Duration::ZERO,
                remedy: None,
            },
        };
        limit.time += elapsed;
        limit.remedy = verdict.remedy.clone().or(limit.remedy);
        self.limits.push(limit);
    }

    /// A transfer was sent with this congestion control at its end.
    pub(super) fn ran(&mut self, congestion: String) {
        self.congestion = congestion;
    }

    /// Limiter for most of the time; `None`: nobody knows.
    pub(super) fn limiter(&self) -> Option<Limiter> {
        let known = self.limits.iter().filter(|l| l.limiter != Limiter::Unknown);
        known.max_by_key(|l| l.time).map(|l| l.limiter)
    }

    /// The remedy against it.
    pub(super) fn remedy(&self, limiter: Limiter) -> Option<&str> {
        let limit = self.limits.iter().find(|l| l.limiter == limiter)?;
        limit.remedy.as_deref()
    }

    /// Difference at the end from `most` streams, and the congestion control, to follow their number
    /// in a line: `, 2 at the end (bbr)`; may be empty.
    pub(super) fn at_the_end(&self, most: u64) -> String {
        let mut text = String::new();
        if self.streams > 0 && u64::from(self.streams) != most {
            text = match most {
                0 => format!(" over {}", streams(self.streams.into())),
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
    fn the_limiter_of_most_of_the_time_counts() {
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
        assert_eq!(senders.at_the_end(16), ", 8 at the end (cubic)");
    }

    #[test]
    fn what_is_the_same_at_the_end_is_not_said_again() {
        let mut senders = SenderVerdicts::default();
        assert_eq!(senders.at_the_end(4), "");
        senders.add(&verdict(Limiter::Loss, 4, "", None), Duration::ZERO);
        assert_eq!(senders.at_the_end(4), "");
        assert_eq!(senders.at_the_end(0), " over 4 streams");
        assert_eq!(senders.at_the_end(1), ", 4 at the end");
    }
}
