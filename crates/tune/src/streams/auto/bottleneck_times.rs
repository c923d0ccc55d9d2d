//! Limits of a transfer, over all its time.

use std::time::Duration;

use units::show;

use super::LimiterVerdict;
use super::transfer_meter::TransferInterval;
use crate::congestion::is_loss_tolerant;
use crate::limiter::Limiter;
use crate::observation::Bottleneck;
use crate::sample::TcpSample;

/// Limit, as it is accounted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferBottleneck {
    Stream(Bottleneck),
    /// The rate that the user asked for.
    RateLimit,
}

impl TransferBottleneck {
    pub(super) fn limiter(self) -> Limiter {
        match self {
            Self::Stream(class) => class.limiter(),
            Self::RateLimit => Limiter::RateLimit,
        }
    }

    /// Description of the limit, with the figures of a sight, in plain words.
    pub(super) fn describe(self, sight: &TransferInterval) -> String {
        let speed = show::bits(sight.rate.saturating_mul(8));
        let trip = sight.rtt;
        let (now, base) = (show::time(trip.smoothed), show::time(trip.min));
        match self {
            Self::RateLimit => format!("{speed} is what was asked for"),
            Self::Stream(class) => match class {
                Bottleneck::Unknown => "nothing moved yet".to_owned(),
                Bottleneck::ReceiveWindow => format!("{speed}: the receiver's windows are full"),
                Bottleneck::SendBuffer => format!("{speed}: the send buffers are full"),
                Bottleneck::SenderApp => format!("{speed} is what this end writes"),
                Bottleneck::SlowStart => format!("slow start, {speed} so far"),
                Bottleneck::Link => {
                    format!("the path is full with {speed}: a round trip takes {now} of {base}")
                }
                Bottleneck::Loss => format!("losses without a queue ({now} of {base}): {speed}"),
                Bottleneck::Cwnd | Bottleneck::ReceiverApp | Bottleneck::SenderOrPath => {
                    format!("the congestion windows allow {speed} ({now} of {base})")
                }
            },
        }
    }
}

/// How long each limit held.
#[derive(Debug, Clone, Default)]
pub(super) struct BottleneckTimes {
    held: Vec<(TransferBottleneck, Duration)>,
    now: Option<TransferBottleneck>,
    /// Figures for the remedy: the largest seen, 0 for none.
    window: u64,
    buffer: u64,
}

impl BottleneckTimes {
    pub(super) fn add_interval(
        &mut self,
        sight: &TransferInterval,
        limit: TransferBottleneck,
        looks: &[TcpSample],
    ) {
        self.now = Some(limit);
        match self.held.iter_mut().find(|(held, _)| *held == limit) {
            Some((_, time)) => *time += sight.time,
            None => self.held.push((limit, sight.time)),
        }
        let most = |field: fn(&TcpSample) -> u64| looks.iter().map(field).max().unwrap_or_default();
        // A window of nothing is one that is closed just now, or that the kernel does not show.
        self.window = self.window.max(most(|look| look.peer_window));
        self.buffer = self.buffer.max(most(|look| look.send_buffer));
    }

    /// Limiter now.
    pub(super) fn current(&self) -> Limiter {
        self.now
            .map_or(Limiter::Unknown, TransferBottleneck::limiter)
    }

    /// Limiter over all; the transfer has `streams` streams that run `congestion`.
    pub(super) fn verdict(&self, streams: u32, congestion: &str, may_add: bool) -> LimiterVerdict {
        let longest = self.held.iter().max_by_key(|(_, time)| *time);
        let limit = longest.map(|(limit, _)| *limit);
        LimiterVerdict {
            limiter: limit.map_or(Limiter::Unknown, TransferBottleneck::limiter),
            streams,
            congestion_control: congestion.to_owned(),
            remedy: limit.and_then(|limit| self.remedy(limit, streams, congestion, may_add)),
        }
    }

    /// An imperative, to follow "to change that: ".
    fn remedy(
        &self,
        limit: TransferBottleneck,
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
            TransferBottleneck::RateLimit => "raise the rate limit".to_owned(),
            TransferBottleneck::Stream(Bottleneck::ReceiveWindow) => format!(
                "{more}have net.ipv4.tcp_rmem raised at the receiver{}",
                size_per_stream("window", self.window)
            ),
            TransferBottleneck::Stream(Bottleneck::SendBuffer) => format!(
                "{more}have net.ipv4.tcp_wmem raised at the sender{}",
                size_per_stream("buffer", self.buffer)
            ),
            TransferBottleneck::Stream(Bottleneck::SenderApp) => {
                "let the sender read from a faster store, or leave it more processor time"
                    .to_owned()
            }
            TransferBottleneck::Stream(Bottleneck::Loss) if is_loss_tolerant(congestion) => {
                format!("mend the path: it loses more than {congestion} bears")
            }
            TransferBottleneck::Stream(Bottleneck::Loss) => format!(
                "{more}permit the sender a congestion control that bears losses, as bbr does \
                 (net.ipv4.tcp_allowed_congestion_control)"
            ),
            TransferBottleneck::Stream(Bottleneck::SlowStart) => {
                "move more at a time: slow start took most of it".to_owned()
            }
            // What a full path carries is all there is.
            TransferBottleneck::Stream(
                Bottleneck::Link
                | Bottleneck::Cwnd
                | Bottleneck::Unknown
                | Bottleneck::ReceiverApp
                | Bottleneck::SenderOrPath,
            ) => return None,
        };
        Some(remedy)
    }
}

/// How large it is, if that was seen.
fn size_per_stream(what: &str, size: u64) -> String {
    match size {
        0 => String::new(),
        size => format!(" (its {what} is {} a stream)", show::bytes(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(account: &BottleneckTimes, may_add: bool) -> String {
        let limit = TransferBottleneck::Stream(Bottleneck::ReceiveWindow);
        let remedy = account.remedy(limit, 4, "cubic", may_add);
        remedy.unwrap_or_default()
    }

    #[test]
    fn a_window_that_was_never_seen_has_no_size() {
        let unseen = BottleneckTimes::default();
        let told = remedy(&unseen, true);
        assert_eq!(told, "have net.ipv4.tcp_rmem raised at the receiver");
        let seen = BottleneckTimes {
            window: 1 << 20,
            ..BottleneckTimes::default()
        };
        assert!(
            remedy(&seen, true).contains("window is 1.0"),
            "{}",
            remedy(&seen, true)
        );
    }

    #[test]
    fn a_number_of_streams_that_was_asked_for_is_named_as_the_setting_it_is() {
        let told = remedy(&BottleneckTimes::default(), false);
        assert!(
            told.starts_with("use more streams than 4 (a larger -p"),
            "{told}"
        );
    }
}
