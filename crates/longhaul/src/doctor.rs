//! `longhaul doctor`: what this machine's settings allow one stream, and what to change.

use std::time::Duration;

use anyhow::Result;
use client::Exit;
use serde_json::{Value, json};
use tune::sizing::advice::{PathSpec, ReachableRates, SysctlAdvice, reachable_rates};
use tune::sizing::host_limits::HostBufferLimits;
use units::show;

use crate::args::DoctorArgs;
use crate::output::print_line;

/// Round trips that are shown when none is given: a campus, a country, an ocean, half the world.
const ROUND_TRIPS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// Settings that cap every connection, whatever its buffers: name, the value that is right, and
/// what another one costs.
const SWITCHES: [(&str, &str, &str); 4] = [
    (
        "tcp_window_scaling",
        "1",
        "without it no window is larger than 64 KB",
    ),
    (
        "tcp_sack",
        "1",
        "without it every loss costs a long path many round trips",
    ),
    (
        "tcp_timestamps",
        "1",
        "without them round trips are measured rarely and fast paths wrap sequence numbers",
    ),
    (
        "tcp_moderate_rcvbuf",
        "1",
        "without it receive buffers do not grow by themselves",
    ),
];

/// A switch that is not as it should be.
struct WrongSysctl {
    name: &'static str,
    right: &'static str,
    now: String,
    cost: &'static str,
}

/// All that is told.
struct DoctorFindings {
    caps: HostBufferLimits,
    congestion: Option<String>,
    available: Option<String>,
    /// Congestion controls that this user may set.
    settable: Vec<String>,
    wrong: Vec<WrongSysctl>,
    paths: Vec<(PathSpec, ReachableRates)>,
}

/// Looks, and prints what it found.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit> {
    let caps = data::os::caps::host_limits();
    let round_trips = args.rtt.map_or(ROUND_TRIPS.to_vec(), |rtt| vec![rtt]);
    let paths = round_trips.into_iter().map(|rtt| {
        let path = PathSpec {
            rate_bps: args.rate.as_bits_per_second(),
            rtt,
        };
        (path, reachable_rates(&caps, path))
    });
    let findings = DoctorFindings {
        caps,
        congestion: setting("tcp_congestion_control"),
        available: setting("tcp_available_congestion_control"),
        settable: data::os::congestion::settable(),
        wrong: find_wrong_sysctls(setting),
        paths: paths.collect(),
    };
    let text = if args.json {
        findings.json().to_string()
    } else {
        findings.text()
    };
    // Nobody may be reading any more.
    let _ = print_line(&text);
    Ok(Exit::Done)
}

/// A setting below net.ipv4; `None` where it cannot be read.
fn setting(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    Some(text.trim().to_owned())
}

fn find_wrong_sysctls(read: impl Fn(&str) -> Option<String>) -> Vec<WrongSysctl> {
    let wrong = SWITCHES.iter().filter_map(|&(name, right, cost)| {
        // Timestamps know a second way of being on.
        let now = read(name).filter(|now| now == "0")?;
        Some(WrongSysctl {
            name,
            right,
            now,
            cost,
        })
    });
    wrong.collect()
}

impl DoctorFindings {
    fn text(&self) -> String {
        let mut lines = self.limits();
        for wrong in &self.wrong {
            lines.push(format!(
                "sysctl -w net.ipv4.{}={} (now {}): {}",
                wrong.name, wrong.right, wrong.now, wrong.cost
            ));
        }
        lines.push("One stream, when `--buffer auto` sizes its buffers at both ends:".to_owned());
        for (path, reach) in &self.paths {
            lines.push(format!(
                "  {} at {}: sends {}, receives {}",
                show::bits(path.rate_bps),
                show::time(path.rtt),
                show::bits(reach.send_bps),
                show::bits(reach.receive_bps),
            ));
        }
        let advice = self.advice();
        if advice.is_empty() {
            lines.push("Nothing to change: no setting of this machine holds it back.".to_owned());
        } else {
            lines.push("To lift that, as root (several streams are the other way out):".to_owned());
            lines.extend(advice.iter().map(|advice| format!("  {advice}")));
        }
        lines.join("\n")
    }

    fn limits(&self) -> Vec<String> {
        let caps = &self.caps;
        let buffer = |what: &str, grown: u64, settable: u64| {
            format!(
                "{what} buffer: {} by autotuning, {} if a program sets it",
                show::bytes(grown),
                show::bytes(settable)
            )
        };
        let mut lines = vec![
            buffer("Send", caps.max_autotuned_send, caps.max_settable_send),
            buffer(
                "Receive",
                caps.max_unset_receive_buffer(),
                caps.max_settable_receive,
            ),
        ];
        if caps.may_force {
            lines.push("This user may exceed net.core.wmem_max and rmem_max.".to_owned());
        }
        if let (Some(now), Some(all)) = (&self.congestion, &self.available) {
            let settable = self.settable.join(" ");
            lines.push(format!(
                "Congestion control: {now} (available: {all}; this user may set: {settable})"
            ));
        }
        if let Some(command) = self.command_to_allow_bbr() {
            lines.push(format!(
                "{command}: lets `--cc auto` send with bbr over paths that lose without being full"
            ));
        }
        lines
    }

    /// Command that makes bbr settable; `None`: it is.
    fn command_to_allow_bbr(&self) -> Option<String> {
        if self.settable.iter().any(|name| name == "bbr") {
            return None;
        }
        let available = self.available.as_deref()?;
        if !available.split_whitespace().any(|name| name == "bbr") {
            return Some("modprobe tcp_bbr".to_owned());
        }
        let allowed = [self.settable.join(" "), "bbr".to_owned()].join(" ");
        Some(format!(
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{}\"",
            allowed.trim()
        ))
    }

    /// The advice for the longest of the paths: it covers the shorter ones.
    fn advice(&self) -> &[SysctlAdvice] {
        self.paths
            .last()
            .map_or(&[], |(_, reach)| reach.advice.as_slice())
    }

    fn json(&self) -> Value {
        let caps = &self.caps;
        json!({
            "send_buffer": { "autotuned": caps.max_autotuned_send, "settable": caps.max_settable_send },
            "receive_buffer": {
                "autotuned": caps.max_unset_receive_buffer(), "settable": caps.max_settable_receive,
            },
            "privileged": caps.may_force,
            "congestion_control": self.congestion,
            "available": self.available,
            "settable": self.settable,
            "wrong": self.wrong.iter().map(|wrong| json!({
                "sysctl": format!("net.ipv4.{}", wrong.name),
                "now": wrong.now, "value": wrong.right, "why": wrong.cost,
            })).collect::<Vec<_>>(),
            "paths": self.paths.iter().map(|(path, reach)| json!({
                "rate_bps": path.rate_bps, "rtt_seconds": path.rtt.as_secs_f64(),
                "send_bps": reach.send_bps, "receive_bps": reach.receive_bps,
                "advice": reach.advice.iter().map(|a| json!({
                    "sysctl": a.sysctl, "now": a.now, "value": a.value,
                    "from_bps": a.from_bps, "to_bps": a.to_bps,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(caps: HostBufferLimits, rtt: u64) -> DoctorFindings {
        let path = PathSpec {
            rate_bps: 1_000_000_000,
            rtt: Duration::from_millis(rtt),
        };
        DoctorFindings {
            caps,
            congestion: Some("cubic".to_owned()),
            available: Some("reno cubic bbr".to_owned()),
            settable: vec!["reno".to_owned(), "cubic".to_owned(), "bbr".to_owned()],
            wrong: Vec::new(),
            paths: vec![(path, reachable_rates(&caps, path))],
        }
    }

    #[test]
    fn a_long_path_names_the_setting_that_binds() {
        let text = findings(HostBufferLimits::default(), 200).text();
        assert!(
            text.contains("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 "),
            "{text}"
        );
        assert!(text.contains("1.00 Gbit/s at 200 ms: sends "), "{text}");
        let json = findings(HostBufferLimits::default(), 200).json();
        assert_eq!(json["paths"][0]["advice"][0]["sysctl"], "net.ipv4.tcp_wmem");
    }

    #[test]
    fn a_short_path_needs_nothing() {
        let text = findings(HostBufferLimits::default(), 1).text();
        assert!(
            text.ends_with("no setting of this machine holds it back."),
            "{text}"
        );
    }

    #[test]
    fn what_keeps_bbr_from_being_set_is_told() {
        let mut findings = findings(HostBufferLimits::default(), 1);
        assert!(!findings.text().contains("--cc auto"));
        assert_eq!(findings.json()["settable"][2], "bbr");
        findings.settable.pop();
        assert_eq!(
            findings.command_to_allow_bbr().unwrap(),
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\""
        );
        findings.available = Some("reno cubic".to_owned());
        assert!(
            findings
                .text()
                .contains("modprobe tcp_bbr: lets `--cc auto`")
        );
        findings.available = None;
        assert_eq!(findings.command_to_allow_bbr(), None);
    }

    #[test]
    fn only_switches_that_are_off_are_told() {
        let read = |name: &str| match name {
            "tcp_sack" => Some("0".to_owned()),
            "tcp_timestamps" => Some("2".to_owned()),
            "tcp_window_scaling" => None,
            _ => Some("1".to_owned()),
        };
        let names: Vec<_> = find_wrong_sysctls(read).iter().map(|w| w.name).collect();
        assert_eq!(names, ["tcp_sack"]);
    }
}
