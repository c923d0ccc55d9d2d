//! The sentence that explains advice.

use std::time::Duration;

use units::show;

use super::loss::PathLoss;
use super::{BufferAdvice, KnownPath, PathAdvice};
use crate::path::facts::{PathFacts, Spread, whole};

/// One sentence with the numbers that `advice` rests on.
pub(super) fn describe(
    advice: &PathAdvice,
    path: &KnownPath,
    loss: &PathLoss,
    buffers: &BufferAdvice,
    observed: Option<Spread>,
    facts: &PathFacts,
) -> String {
    let streams = advice.streams.unwrap_or(1);
    let rate = if path.usable_bps < path.bandwidth_bps {
        format!(
            "the {} that the client takes of {}",
            show::bits(path.usable_bps),
            show::bits(path.bandwidth_bps)
        )
    } else {
        show::bits(path.usable_bps)
    };
    let mut parts = vec![format!(
        "{} at {rate} are {} in flight",
        show::time(path.rtt),
        show::bytes(path.bdp_bytes)
    )];
    let share = path.bdp_bytes.div_ceil(u64::from(streams.max(1)));
    let share = match streams {
        1 => format!("{} in one stream", show::bytes(share)),
        _ => format!("{} in each of {streams} streams", show::bytes(share)),
    };
    parts.push(match buffers.set_bytes {
        None if buffers.autotuned >= path.bdp_bytes.div_ceil(u64::from(streams.max(1))) => {
            format!(
                "the kernels' autotuning reaches {}, which is enough for {share}",
                show::bytes(buffers.autotuned)
            )
        }
        None => format!(
            "the kernels' autotuning reaches {}, too little for {share}, and no larger buffer can be set",
            show::bytes(buffers.autotuned)
        ),
        Some(set) => format!(
            "a set buffer of {} keeps {} in flight where autotuning reaches {}, for {share}",
            show::bytes(set),
            show::bytes(buffers.in_flight),
            show::bytes(buffers.autotuned)
        ),
    });
    if loss.is_limiting {
        let lost = format!("{:.3} % of packets are lost", loss.ratio * 100.0);
        parts.push(match &advice.congestion_control {
            Some(name) => format!("{lost}, which {name} tolerates"),
            None => format!(
                "{lost}, which leaves each stream a window of {}",
                show::bytes(whole(loss.window))
            ),
        });
    }
    parts.push(match (observed, advice.expected_bps) {
        (Some(goodput), _) => format!(
            "{} carried {} to {}",
            show::count(goodput.count, "transfer"),
            show::bits(goodput.p10_bps),
            show::bits(goodput.p90_bps)
        ),
        (None, Some(expected)) => format!("{} are computed from that", show::bits(expected)),
        (None, None) => "no rate is known".to_owned(),
    });
    parts.extend(directions(facts));
    format!("{}.", parts.join("; "))
}

/// How the other direction differs, if it does.
fn directions(facts: &PathFacts) -> Option<String> {
    if facts.is_of_other_direction {
        let text = "the rate is that of the other direction, because this one was never measured";
        return Some(text.to_owned());
    }
    let text = match (facts.different_rates(), facts.routes_differ) {
        (Some((rate, other)), routes_differ) => {
            let routes = if routes_differ {
                ", by another route"
            } else {
                ""
            };
            format!(
                "this direction of the path carries {} and the other one {}{routes}",
                show::bits(rate),
                show::bits(other)
            )
        }
        (None, true) => {
            "the directions of the path take different routes, so that its round trip may mislead"
                .to_owned()
        }
        (None, false) => return None,
    };
    Some(text)
}

/// The sentence for a path without a known bandwidth or round trip.
pub(super) fn describe_unmeasured(rtt: Option<Duration>, bandwidth_bps: Option<u64>) -> String {
    let known = match (rtt, bandwidth_bps) {
        (Some(rtt), _) => format!(
            "the round trip is {}, but the bandwidth of the bottleneck is not known yet",
            show::time(rtt)
        ),
        (None, Some(bps)) => format!(
            "the bottleneck carries {}, but the round trip is not known yet",
            show::bits(bps)
        ),
        (None, None) => "nothing is known of this path yet".to_owned(),
    };
    format!("{known}: leave the buffers to the kernel.")
}
