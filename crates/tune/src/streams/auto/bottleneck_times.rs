//! Time that a transfer spent at each bottleneck.

use std::time::Duration;

use units::show;

use super::transfer_meter::TransferInterval;
use crate::congestion::is_loss_tolerant;
use crate::limiter::{Limiter, LimiterVerdict};
use crate::observation::Bottleneck;
use crate::sample::TcpSample;

/// Bottleneck of a whole transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferBottleneck {
    Stream(Bottleneck),
    /// Rate limit that the user set.
    RateLimit,
}

impl TransferBottleneck {
    pub(super) fn limiter(self) -> Limiter {
        match self {
            Self::Stream(bottleneck) => bottleneck.limiter(),
            Self::RateLimit => Limiter::RateLimit,
        }
    }

    /// Explanation for people, with the figures of an interval.
    pub(super) fn describe(self, interval: &TransferInterval) -> String {
        let speed = show::bits(interval.rate().saturating_mul(8));
        let rtt = interval.rtt;
        let (latest, minimum) = (show::time(rtt.smoothed), show::time(rtt.min));
        match self {
            Self::RateLimit => format!("{speed} is the rate limit that was set"),
            Self::Stream(bottleneck) => match bottleneck {
                Bottleneck::Unknown => "no data has moved yet".to_owned(),
                Bottleneck::ReceiveWindow => format!("{speed}: the receiver's windows are full"),
                Bottleneck::SendBuffer => format!("{speed}: the send buffers are full"),
                Bottleneck::SenderApp => format!("the sending program writes only {speed}"),
                Bottleneck::SlowStart => format!("slow start, {speed} so far"),
                Bottleneck::Link => {
                    format!(
                        "the path is full at {speed}: a round trip takes {latest} instead of {minimum}"
                    )
                }
                Bottleneck::Loss => {
                    format!(
                        "losses without a queue (round trip {latest}, minimum {minimum}): {speed}"
                    )
                }
                Bottleneck::ReceiverApp => {
                    format!("the receiving program reads only {speed}, so that its windows close")
                }
                Bottleneck::Cwnd | Bottleneck::SenderOrPath => {
                    format!(
                        "the congestion windows allow {speed} (round trip {latest}, minimum {minimum})"
                    )
                }
            },
        }
    }
}

/// Time at each bottleneck, and the figures for a remedy.
#[derive(Debug, Clone, Default)]
pub(super) struct BottleneckTimes {
    times: Vec<(TransferBottleneck, Duration)>,
    latest: Option<TransferBottleneck>,
    /// Largest window and send buffer of a stream, bytes; 0 if the kernel showed none.
    window: u64,
    buffer: u64,
}

impl BottleneckTimes {
    pub(super) fn add_interval(
        &mut self,
        interval: &TransferInterval,
        limit: TransferBottleneck,
        samples: &[TcpSample],
    ) {
        self.latest = Some(limit);
        match self.times.iter_mut().find(|(times, _)| *times == limit) {
            Some((_, time)) => *time += interval.stats.time,
            None => self.times.push((limit, interval.stats.time)),
        }
        let most =
            |field: fn(&TcpSample) -> u64| samples.iter().map(field).max().unwrap_or_default();
        // A window of zero is closed at the moment, or older kernels do not show it.
        self.window = self.window.max(most(|tcp| tcp.peer_window));
        self.buffer = self.buffer.max(most(|tcp| tcp.send_buffer));
    }

    /// Limiter of the last interval.
    pub(super) fn current(&self) -> Limiter {
        self.latest
            .map_or(Limiter::Unknown, TransferBottleneck::limiter)
    }

    /// Limiter over the whole time of a transfer that ends with `streams` streams and this congestion control.
    /// `may_add`: more streams would have been allowed.
    pub(super) fn verdict(
        &self,
        streams: u32,
        congestion_control: &str,
        may_add: bool,
    ) -> LimiterVerdict {
        let longest = self.times.iter().max_by_key(|(_, time)| *time);
        let limit = longest.map(|(limit, _)| *limit);
        LimiterVerdict {
            limiter: limit.map_or(Limiter::Unknown, TransferBottleneck::limiter),
            streams,
            congestion_control: congestion_control.to_owned(),
            remedy: limit
                .and_then(|limit| self.remedy(limit, streams, congestion_control, may_add)),
        }
    }

    /// An imperative that follows "to change that: ".
    fn remedy(
        &self,
        limit: TransferBottleneck,
        streams: u32,
        congestion_control: &str,
        may_add: bool,
    ) -> Option<String> {
        // If more streams were allowed, the tuner has tried them already.
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
                "give the sender a faster store or more CPU time".to_owned()
            }
            TransferBottleneck::Stream(Bottleneck::ReceiverApp) => {
                "give the receiver a faster store or more CPU time".to_owned()
            }
            TransferBottleneck::Stream(Bottleneck::Loss)
                if is_loss_tolerant(congestion_control) =>
            {
                format!("repair the path: it loses more than {congestion_control} tolerates")
            }
            TransferBottleneck::Stream(Bottleneck::Loss) => format!(
                "{more}permit the sender a loss-tolerant congestion control such as bbr \
                 (net.ipv4.tcp_allowed_congestion_control)"
            ),
            TransferBottleneck::Stream(Bottleneck::SlowStart) => {
                "transfer more data at a time: slow start took most of the time".to_owned()
            }
            // No setting makes a full path faster.
            TransferBottleneck::Stream(
                Bottleneck::Link
                | Bottleneck::Cwnd
                | Bottleneck::Unknown
                | Bottleneck::SenderOrPath,
            ) => return None,
        };
        Some(remedy)
    }
}

/// Size of the window or buffer in parentheses; empty if it is unknown.
fn size_per_stream(what: &str, size: u64) -> String {
    match size {
        0 => String::new(),
        size => format!(" (its {what} is {} a stream)", show::bytes(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(times: &BottleneckTimes, may_add: bool) -> String {
        let limit = TransferBottleneck::Stream(Bottleneck::ReceiveWindow);
        let remedy = times.remedy(limit, 4, "cubic", may_add);
        remedy.unwrap_or_default()
    }

    #[test]
    fn the_remedy_names_a_window_size_only_if_one_was_seen() {
        let unseen = BottleneckTimes::default();
        let description = remedy(&unseen, true);
        assert_eq!(description, "have net.ipv4.tcp_rmem raised at the receiver");
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
    fn the_remedy_for_a_fixed_number_of_streams_names_its_option() {
        let description = remedy(&BottleneckTimes::default(), false);
        assert!(
            description.starts_with("use more streams than 4 (a larger -p"),
            "{description}"
        );
    }
}
