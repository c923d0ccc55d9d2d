//! Scripted looks for each rule, to act and not to act.

mod clamps;
mod properties;
mod receiving;
mod sending;

use std::time::Duration;

use super::super::caps::Caps;
use super::super::{Change, Decision};
use super::Auto;
use crate::limiter::Limiter;
use crate::look::Look;

const MB: u64 = 1 << 20;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Linux 6.18 as it ships, unprivileged.
fn shipped() -> Caps {
    Caps {
        send_settable: 8 * MB,
        receive_autotuned: 32 * MB,
        receive_settable: 8 * MB,
        ..Caps::default()
    }
}

fn privileged() -> Caps {
    Caps {
        send_settable: 256 * MB,
        receive_settable: 256 * MB,
        forced: true,
        ..shipped()
    }
}

/// Looks at a stream as often as is asked for, until `until`; what was decided.
fn watch(
    auto: &mut Auto,
    until: Duration,
    mut look: impl FnMut(Duration) -> Look,
) -> Vec<Decision> {
    let mut at = Duration::ZERO;
    let mut decisions = Vec::new();
    while at <= until {
        decisions.extend(auto.on_look(&look(at)));
        at += auto.due();
    }
    decisions
}

fn changes(decisions: &[Decision]) -> Vec<Change> {
    decisions.iter().filter_map(|d| d.change).collect()
}

fn limiters(decisions: &[Decision]) -> Vec<Limiter> {
    decisions.iter().map(|d| d.limiter).collect()
}

/// Bytes that a steady rate, bytes per second, has moved.
fn moved(rate: u64, at: Duration) -> u64 {
    units::bytes_in(rate, at)
}
