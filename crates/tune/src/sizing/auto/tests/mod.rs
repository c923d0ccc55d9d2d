//! Scripted looks for each rule, to act and not to act.

mod clamps;
mod properties;
mod receiving;
mod sending;

use std::time::Duration;

use super::super::host_limits::HostBufferLimits;
use super::super::{BufferDecision, BufferSetting};
use super::BufferTuner;
use crate::limiter::Limiter;
use crate::sample::TcpSample;

const MB: u64 = 1 << 20;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Linux 6.18 as it ships, unprivileged.
fn shipped() -> HostBufferLimits {
    HostBufferLimits {
        max_settable_send: 8 * MB,
        max_autotuned_receive: 32 * MB,
        max_settable_receive: 8 * MB,
        ..HostBufferLimits::default()
    }
}

fn privileged() -> HostBufferLimits {
    HostBufferLimits {
        max_settable_send: 256 * MB,
        max_settable_receive: 256 * MB,
        may_force: true,
        ..shipped()
    }
}

/// Looks at a stream as often as is asked for, until `until`; what was decided.
fn watch(
    auto: &mut BufferTuner,
    until: Duration,
    mut look: impl FnMut(Duration) -> TcpSample,
) -> Vec<BufferDecision> {
    let mut at = Duration::ZERO;
    let mut decisions = Vec::new();
    while at <= until {
        decisions.extend(auto.on_sample(&look(at)));
        at += auto.next_sample_in();
    }
    decisions
}

fn changes(decisions: &[BufferDecision]) -> Vec<BufferSetting> {
    decisions.iter().filter_map(|d| d.setting).collect()
}

fn limiters(decisions: &[BufferDecision]) -> Vec<Limiter> {
    decisions.iter().map(|d| d.limiter).collect()
}

/// Bytes that a steady rate, bytes per second, has moved.
fn moved(rate: u64, at: Duration) -> u64 {
    units::bytes_in(rate, at)
}
