//! Limits of a transfer, over all its time.

use std::time::Duration;

use units::show;

use super::Verdict;
use super::gauge::Sight;
use crate::congestion::bears_loss;
use crate::limiter::Limiter;
use crate::look::Look;
use crate::observation::Class;

/// Limit, as it is accounted for.
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

    /// Description of the limit, with the figures of a sight, in plain words.
    pub(super) fn describe(self, sight: &Sight) -> String {
        let speed = show::bits(sight.rate.saturating_mul(8));
        let trip = sight.trip;
        let (now, base) = (show::time(trip.now), show::time(trip.base));
        match self {
            Self::Asked => format!("{speed} is what was asked for"),
            Self::Class(class) => match class {
                Class::Unknown => "nothing moved yet".to_owned(),
                Class::Window => format!("{speed}: the receiver's windows are full"),
                Class::SendBuffer => format!("{speed}: the send buffers are full"),
                Class::Source => format!("{speed} is what this end writes"),
                Class::Starting => format!("slow start, {speed} so far"),
                Class::PathFull => {
                    format!("the path is full with {speed}: a round trip takes {now} of {base}")
                }
                Class::Loss => format!("losses without a queue ({now} of {base}): {speed}"),
                Class::Path | Class::Sink | Class::Elsewhere => {
                    format!("the congestion windows allow {speed} ({now} of {base})")
                }
            },
        }
    }
}

/// How long each limit held.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    held: Vec<(Limit, Duration)>,
    now: Option<Limit>,
    /// Figures for the remedy: the largest seen, 0 for none.
    window: u64,
    buffer: u64,
}

impl Account {
    pub(super) fn note(&mut self, sight: &Sight, limit: Limit, looks: &[Look]) {
        self.now = Some(limit);
        match self.held.iter_mut().find(|(held, _)| *held == limit) {
            Some((_, time)) => *time += sight.time,
            None => self.held.push((limit, sight.time)),
        }
        let most = |field: fn(&Look) -> u64| looks.iter().map(field).max().unwrap_or_default();
        // A window of nothing is one that is closed just now, or that the kernel does not show.
        self.window = self.window.max(most(|look| look.peer_window));
        self.buffer = self.buffer.max(most(|look| look.send_buffer));
    }

    /// Limiter now.
    pub(super) fn now(&self) -> Limiter {
        self.now.map_or(Limiter::Unknown, Limit::limiter)
    }

    /// Limiter over all; the transfer has `streams` streams that run `congestion`.
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

    /// An imperative, to follow "to change that: ".
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
            format!("use more streams than {streams} (a larger -p or --max-streams), or ")
        };
        let remedy = match limit {
            Limit::Asked => "raise the rate limit".to_owned(),
            Limit::Class(Class::Window) => format!(
                "{more}have net.ipv4.tcp_rmem raised at the receiver{}",
                a_stream("window", self.window)
            ),
            Limit::Class(Class::SendBuffer) => format!(
                "{more}have net.ipv4.tcp_wmem raised at the sender{}",
                a_stream("buffer", self.buffer)
            ),
            Limit::Class(Class::Source) => {
                "let the sender read from a faster store, or leave it more processor time"
                    .to_owned()
            }
            Limit::Class(Class::Loss) if bears_loss(congestion) => {
                format!("mend the path: it loses more than {congestion} bears")
            }
            Limit::Class(Class::Loss) => format!(
                "{more}permit the sender a congestion control that bears losses, as bbr does \
                 (net.ipv4.tcp_allowed_congestion_control)"
            ),
            Limit::Class(Class::Starting) => {
                "move more at a time: slow start took most of it".to_owned()
            }
            // What a full path carries is all there is.
            Limit::Class(
                Class::PathFull | Class::Path | Class::Unknown | Class::Sink | Class::Elsewhere,
            ) => return None,
        };
        Some(remedy)
    }
}

/// How large it is, if that was seen.
fn a_stream(what: &str, size: u64) -> String {
    match size {
        0 => String::new(),
        size => format!(" (its {what} is {} a stream)", show::bytes(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(account: &Account, may_add: bool) -> String {
        let limit = Limit::Class(Class::Window);
        let remedy = account.remedy(limit, 4, "cubic", may_add);
        remedy.unwrap_or_default()
    }

    #[test]
    fn a_window_that_was_never_seen_has_no_size() {
        let unseen = Account::default();
        let told = remedy(&unseen, true);
        assert_eq!(told, "have net.ipv4.tcp_rmem raised at the receiver");
        let seen = Account {
            window: 1 << 20,
            ..Account::default()
        };
        assert!(
            remedy(&seen, true).contains("window is 1.0"),
            "{}",
            remedy(&seen, true)
        );
    }

    #[test]
    fn a_number_of_streams_that_was_asked_for_is_named_as_the_setting_it_is() {
        let told = remedy(&Account::default(), false);
        assert!(
            told.starts_with("use more streams than 4 (a larger -p"),
            "{told}"
        );
    }
}
