//! Time for which a limit of this host held a stream back.

use std::time::Duration;

use units::{bytes_in, show};

use super::super::advice::{self, PathSpec, SysctlAdvice};
use super::super::host_limits::HostBufferLimits;
use crate::limiter::{Limiter, Role};
use crate::observation::{ClassifiedInterval, Rtt};
use crate::sample::{TcpSample, max_in_flight};

/// A limit is worth a remark if it held for at least one part in this many of the time.
const MIN_PART: u32 = 5;
/// Advice is computed for a path with this many times the rate that was reached.
const HEADROOM: u64 = 4;

/// A setting of this host that limits a stream permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostLimit {
    SendBuffer,
    ReceiveBuffer,
    /// Window scale, which the SYN fixes for the whole connection (RFC 7323 §2.2).
    WindowScale,
}

impl HostLimit {
    /// Role of the end that it limits.
    fn role(self) -> Role {
        match self {
            Self::SendBuffer => Role::Sender,
            Self::ReceiveBuffer | Self::WindowScale => Role::Receiver,
        }
    }
}

/// A limit of this host that no buffer can avoid, but more streams can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBound {
    /// Send buffer or receive window.
    pub limiter: Limiter,
    /// Largest number of bytes that one stream can keep in flight.
    pub max_in_flight: u64,
    /// Rate of this stream, bits per second; the path could carry more.
    pub stream_bps: u64,
}

/// The latest interval in which a limit held.
#[derive(Debug, Clone, Copy)]
struct LastHostLimit {
    limit: HostLimit,
    bound: HostBound,
    sample: TcpSample,
}

impl LastHostLimit {
    /// Buffer that limits, bytes as reported.
    fn buffer(&self) -> u64 {
        match self.limit {
            HostLimit::SendBuffer => self.sample.send_buffer,
            HostLimit::ReceiveBuffer | HostLimit::WindowScale => self.sample.receive_buffer,
        }
    }

    /// Round trip without queues.
    fn rtt(&self) -> Duration {
        Rtt::of_sample(&self.sample, self.limit.role()).min
    }
}

/// Time for which limits of this host held a stream back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostLimitTimes {
    observed: Duration,
    limited_time: Duration,
    /// The limit that held last.
    last: Option<LastHostLimit>,
    /// The limit that holds now, if any.
    pub(super) bound: Option<HostBound>,
}

impl HostLimitTimes {
    pub(super) fn add_interval(
        &mut self,
        sample: &TcpSample,
        classified: ClassifiedInterval,
        limit: Option<HostLimit>,
    ) {
        self.observed += classified.stats.time;
        let Some(limit) = limit else {
            self.bound = None;
            return;
        };
        self.limited_time += classified.stats.time;
        let (limiter, most) = match limit {
            HostLimit::SendBuffer => (Limiter::SendBuffer, max_in_flight(sample.send_buffer)),
            HostLimit::ReceiveBuffer | HostLimit::WindowScale => {
                (Limiter::ReceiveWindow, sample.receive_window)
            }
        };
        let rtt = Rtt::of_sample(sample, limit.role()).min;
        let rate = classified.stats.rate();
        let bound = HostBound {
            limiter,
            // The window of a buffer is an estimate; what moved in a round trip was surely in flight.
            max_in_flight: most.max(bytes_in(rate, rtt)),
            stream_bps: rate.saturating_mul(8),
        };
        self.bound = Some(bound);
        self.last = Some(LastHostLimit {
            limit,
            bound,
            sample: *sample,
        });
    }

    /// Remark for people with the limit and its remedies, if the limit held for long enough.
    pub(super) fn remark(&self, limits: &HostBufferLimits) -> Option<String> {
        let last_limit = self
            .last
            .filter(|_| self.limited_time * MIN_PART >= self.observed)?;
        let LastHostLimit { limit, bound, .. } = last_limit;
        let rtt = last_limit.rtt();
        let path = PathSpec {
            rate_bps: bound.stream_bps.saturating_mul(HEADROOM),
            rtt,
        };
        let (name, advice) = match limit {
            HostLimit::SendBuffer => {
                let advice = advice::advise_sending(limits, path).into_iter().collect();
                ("send buffer", advice)
            }
            HostLimit::ReceiveBuffer => ("receive buffer", advice::advise_receiving(limits, path)),
            HostLimit::WindowScale => {
                // The SYN fixed the scale by the limits of that time; a buffer that is set later does not change it.
                let untouched = HostBufferLimits {
                    max_settable_receive: 0,
                    ..*limits
                };
                let advice = advice::advise_receiving(&untouched, path);
                ("window scale and receive buffer", advice)
            }
        };
        let mut remark = format!(
            "limited by the {name} of this host ({}: {} in flight, {} a stream at {})",
            show::bytes(last_limit.buffer()),
            show::bytes(bound.max_in_flight),
            show::bits(bound.stream_bps),
            show::time(rtt)
        );
        // All settings are needed together, so that each one has the same gain.
        if let Some(last) = advice.last() {
            let raise = |advice: &SysctlAdvice| {
                format!("`sysctl -w {}=\"{}\"`", advice.sysctl, advice.value)
            };
            let raises: Vec<_> = advice.iter().map(raise).collect();
            remark.push_str(&format!(
                "; an administrator can allow up to {} with {}",
                show::bits(last.to_bps),
                raises.join(" and ")
            ));
        }
        remark.push_str("; more streams would also help");
        Some(remark)
    }
}
