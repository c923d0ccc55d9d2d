//! The limit of this host that held a stream back, and for how long.

use std::time::Duration;

use units::{bytes_in, show};

use super::super::advice::{self, PathSpec, SysctlAdvice};
use super::super::host_limits::HostBufferLimits;
use crate::limiter::Limiter;
use crate::observation::{ClassifiedInterval, Rtt};
use crate::sample::TcpSample;
use crate::sample::max_in_flight;

/// A limit is worth a remark from this part of the time on: one in so many.
const PART: u32 = 5;
/// A remark's advice is for a path of so many times the rate that was reached.
const HEADROOM: u64 = 4;

/// Setting that holds a stream back for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostLimit {
    SendBuffer,
    ReceiveBuffer,
    /// Chosen by the SYN.
    WindowScale,
}

/// A stream that a limit of this host holds back, and that no buffer can help: more streams can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBound {
    /// The send buffer or the receive window.
    pub limiter: Limiter,
    /// Most bytes that one stream can keep in flight.
    pub max_in_flight: u64,
    /// Rate of this stream, bits per second: the path has room for more.
    pub stream_bps: u64,
}

/// A limit as it was last seen.
#[derive(Debug, Clone, Copy)]
struct LastHostLimit {
    setting: HostLimit,
    bound: HostBound,
    buffer: u64,
    rtt: Duration,
}

/// How long a limit of this host held the stream back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostLimitTimes {
    observed: Duration,
    held: Duration,
    /// The last limit, as it was last seen.
    last: Option<LastHostLimit>,
    /// The limit that holds now.
    pub(super) bound: Option<HostBound>,
}

impl HostLimitTimes {
    pub(super) fn add_interval(
        &mut self,
        look: &TcpSample,
        verdict: ClassifiedInterval,
        setting: Option<HostLimit>,
    ) {
        self.observed += verdict.time;
        let Some(setting) = setting else {
            self.bound = None;
            return;
        };
        self.held += verdict.time;
        let (limiter, buffer, most) = match setting {
            HostLimit::SendBuffer => (
                Limiter::SendBuffer,
                look.send_buffer,
                max_in_flight(look.send_buffer),
            ),
            HostLimit::ReceiveBuffer | HostLimit::WindowScale => (
                Limiter::ReceiveWindow,
                look.receive_buffer,
                look.receive_window,
            ),
        };
        let rtt = Rtt::of_sample(look).min;
        let bound = HostBound {
            limiter,
            max_in_flight: most.max(bytes_in(verdict.rate, rtt)),
            stream_bps: verdict.rate.saturating_mul(8),
        };
        self.bound = Some(bound);
        self.last = Some(LastHostLimit {
            setting,
            bound,
            buffer,
            rtt,
        });
    }

    /// The limit with its remedies, if it held for long enough.
    pub(super) fn remark(&self, caps: &HostBufferLimits) -> Option<String> {
        let held = self.held * PART >= self.observed;
        let LastHostLimit {
            setting,
            bound,
            buffer,
            rtt,
        } = self.last.filter(|_| held)?;
        let path = PathSpec {
            rate_bps: bound.stream_bps.saturating_mul(HEADROOM),
            rtt,
        };
        let (what, advice) = match setting {
            HostLimit::SendBuffer => {
                let advice = advice::advise_sending(caps, path).into_iter().collect();
                ("send buffer", advice)
            }
            HostLimit::ReceiveBuffer => ("receive buffer", advice::advise_receiving(caps, path)),
            HostLimit::WindowScale => {
                // It follows from what autotuning may reach, whatever can be set later.
                let untouched = HostBufferLimits {
                    max_settable_receive: 0,
                    ..*caps
                };
                let advice = advice::advise_receiving(&untouched, path);
                ("window scale and receive buffer", advice)
            }
        };
        let mut remark = format!(
            "limited by the {what} of this host ({}: {} in flight, {} a stream at {})",
            show::bytes(buffer),
            show::bytes(bound.max_in_flight),
            show::bits(bound.stream_bps),
            show::time(rtt)
        );
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
        remark.push_str("; more streams are the other way");
        Some(remark)
    }
}
