//! The metrics that a route gives to the connections over it.

use enable::advice::{Advice, is_kernel_name};
use enable::emit::Program;
use serde::{Deserialize, Serialize};

/// Metrics of one path (ip-route(8)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteMetrics {
    /// Initial congestion window, segments.
    pub initcwnd: Option<u32>,
    /// Initial receive window, segments.
    pub initrwnd: Option<u32>,
    /// Congestion control, by its kernel name.
    pub congctl: Option<String>,
}

impl RouteMetrics {
    /// The metrics that `longhaul advisor get --emit route` prints; empty if the advice leaves all to the kernel.
    pub fn from_advice(advice: &Advice) -> Self {
        let words = Program::Route.flags(advice);
        let mut metrics = Self::default();
        for pair in words.chunks_exact(2) {
            match pair {
                [name, value] if name == "initcwnd" => metrics.initcwnd = value.parse().ok(),
                [name, value] if name == "initrwnd" => metrics.initrwnd = value.parse().ok(),
                [name, value] if name == "congctl" && is_name(value) => {
                    metrics.congctl = Some(value.clone());
                }
                _ => {}
            }
        }
        metrics
    }

    /// No metric is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Words for `ip route add`.
    pub(super) fn words(&self) -> Vec<String> {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let name = self.congctl.clone().filter(|name| is_name(name));
        [
            ("initcwnd", number(self.initcwnd)),
            ("initrwnd", number(self.initrwnd)),
            ("congctl", name),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some([name.to_owned(), value?]))
        .flatten()
        .collect()
    }
}

/// `lock` would be a keyword of ip-route(8).
fn is_name(text: &str) -> bool {
    text != "lock" && is_kernel_name(text)
}
