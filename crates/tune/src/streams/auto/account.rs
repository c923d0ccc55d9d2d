//! What limited a transfer, over all its time.

use std::time::Duration;

use super::Verdict;
use super::gauge::Sight;
use crate::congestion::bears_loss;
use crate::evidence::Class;
use crate::limiter::Limiter;
use crate::sizing::Look;
use crate::sizing::figures::{bits, bytes, span};

/// What limits, as it is accounted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Class(Class),
    /// The rate that the user asked for.
    Asked,
}

impl Limit {
    pub(super) fn limiter(self) -> Limiter {
        match self {
            Self::Class(class) => class.limiter(),
            Self::Asked => Limiter::RateLimit,
        }
    }
}

/// How long each limit held.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    held: Vec<(Limit, Duration)>,
    now: Option<Limit>,
    /// Figures for the remedy, of the latest look.
    window: u64,
    buffer: u64,
    /// What the full path carried, bytes per second.
    full: u64,
    base: Duration,
}

impl Account {
    pub(super) fn note(&mut self, sight: &Sight, limit: Limit, looks: &[Look]) {
        self.now = Some(limit);
        match self.held.iter_mut().find(|(held, _)| *held == limit) {
            Some((_, time)) => *time += sight.time,
            None => self.held.push((limit, sight.time)),
        }
        let most = |field: fn(&Look) -> u64| looks.iter().map(field).max().unwrap_or_default();
        self.window = most(|look| look.peer_window);
        self.buffer = most(|look| look.send_buffer);
        let full = limit == Limit::Class(Class::PathFull);
        if full && (!sight.mending || self.full == 0) {
            self.full = sight.rate;
        }
        self.base = sight.trip.base;
    }

    /// What limits now.
    pub(super) fn now(&self) -> Limiter {
        self.now.map_or(Limiter::Unknown, Limit::limiter)
    }

    /// What limited over all; the transfer has `streams` streams that run `congestion`.
    pub(super) fn verdict(&self, streams: u32, congestion: &str, may_add: bool) -> Verdict {
        let longest = self.held.iter().max_by_key(|(_, time)| *time);
        let limit = longest.map(|(limit, _)| *limit);
        Verdict {
            limiter: limit.map_or(Limiter::Unknown, Limit::limiter),
            streams,
            congestion: congestion.to_owned(),
            remedy: limit.and_then(|limit| self.remedy(limit, streams, congestion, may_add)),
        }
    }

    fn remedy(
        &self,
        limit: Limit,
        streams: u32,
        congestion: &str,
        may_add: bool,
    ) -> Option<String> {
        let more = if may_add {
            String::new()
        } else {
            format!("more than {streams} streams, or ")
        };
        let remedy = match limit {
            Limit::Asked => "a higher rate limit".to_owned(),
            Limit::Class(Class::Window) => format!(
                "the receiver's window of {} a stream: {more}there an administrator can raise \
                 net.ipv4.tcp_rmem",
                bytes(self.window)
            ),
            Limit::Class(Class::SendBuffer) => format!(
                "the send buffer of {} a stream: {more}here an administrator can raise \
                 net.ipv4.tcp_wmem",
                bytes(self.buffer)
            ),
            Limit::Class(Class::Source) => {
                "reading the file, or this machine's processor: nothing to gain on the network"
                    .to_owned()
            }
            Limit::Class(Class::PathFull) => format!(
                "the path itself, {} at {}: nothing to gain here",
                bits(self.full.saturating_mul(8)),
                span(self.base)
            ),
            Limit::Class(Class::Loss) if bears_loss(congestion) => {
                format!("a path that loses less than what {congestion} bears with")
            }
            Limit::Class(Class::Loss) => format!(
                "{more}a congestion control that bears losses, as bbr does \
                 (net.ipv4.tcp_allowed_congestion_control)"
            ),
            Limit::Class(Class::Starting) => {
                "a longer transfer: this one ended in slow start".to_owned()
            }
            Limit::Class(Class::Path | Class::Unknown | Class::Sink | Class::Elsewhere) => {
                return None;
            }
        };
        Some(remedy)
    }
}
