//! The rate that this machine's TCP settings allow one stream, and the settings to change.

use std::time::Duration;

use serde_json::{Value, json};
use tune::sizing::advice::{PathSpec, ReachableRates, SysctlAdvice, reachable_rates};
use tune::sizing::host_limits::HostBufferLimits;
use units::show;

use super::report::MachineReport;
use crate::args::DoctorArgs;

/// Round-trip times shown without --rtt: within a region, a country, across an ocean, to the antipodes.
const ROUND_TRIPS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// Settings that limit every connection, independent of its buffers: name below net.ipv4, recommended value,
/// and the effect of switching it off (tcp(7)).
const SWITCHES: [(&str, &str, &str); 4] = [
    (
        "tcp_window_scaling",
        "1",
        "without it the window is at most 64 KB",
    ),
    (
        "tcp_sack",
        "1",
        "without it recovery from several losses takes many round trips",
    ),
    (
        "tcp_timestamps",
        "1",
        "without them the RTT is sampled rarely, and sequence numbers may wrap on fast paths",
    ),
    (
        "tcp_moderate_rcvbuf",
        "1",
        "without it receive buffers do not grow automatically",
    ),
];

/// A setting of [`SWITCHES`] that is off.
struct WrongSysctl {
    name: &'static str,
    recommended: &'static str,
    now: String,
    effect: &'static str,
}

/// The settings of this machine, and the rates that they allow.
pub(super) struct MachineSettings {
    caps: HostBufferLimits,
    congestion: Option<String>,
    available: Option<String>,
    /// Congestion controls that this user may select.
    settable: Vec<String>,
    wrong_sysctls: Vec<WrongSysctl>,
    paths: Vec<(PathSpec, ReachableRates)>,
}

/// Reads a setting below net.ipv4; `None` if it cannot be read.
fn setting(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    Some(text.trim().to_owned())
}

fn find_wrong_sysctls(read: impl Fn(&str) -> Option<String>) -> Vec<WrongSysctl> {
    let wrong_sysctls = SWITCHES.iter().filter_map(|&(name, recommended, effect)| {
        // Only 0 is off: tcp_timestamps is also on with 2, without random offsets (tcp(7)).
        let now = read(name).filter(|now| now == "0")?;
        Some(WrongSysctl {
            name,
            recommended,
            now,
            effect,
        })
    });
    wrong_sysctls.collect()
}

impl MachineSettings {
    /// Reads the settings, for the paths of the command line.
    pub(super) fn read(args: &DoctorArgs) -> Self {
        let caps = data::os::caps::host_limits();
        let round_trips = args.rtt.map_or(ROUND_TRIPS.to_vec(), |rtt| vec![rtt]);
        let paths = round_trips.into_iter().map(|rtt| {
            let path = PathSpec {
                rate_bps: args.rate.as_bits_per_second(),
                rtt,
            };
            (path, reachable_rates(&caps, path))
        });
        Self {
            caps,
            congestion: setting("tcp_congestion_control"),
            available: setting("tcp_available_congestion_control"),
            settable: data::os::congestion::settable(),
            wrong_sysctls: find_wrong_sysctls(setting),
            paths: paths.collect(),
        }
    }

    /// The report.
    pub(super) fn report(&self) -> MachineReport {
        MachineReport {
            text: self.text(),
            json: self.json(),
        }
    }

    /// The report, lines without a newline at the end.
    fn text(&self) -> String {
        let mut lines = self.limits();
        for sysctl in &self.wrong_sysctls {
            lines.push(format!(
                "sysctl -w net.ipv4.{}={} (now {}): {}",
                sysctl.name, sysctl.recommended, sysctl.now, sysctl.effect
            ));
        }
        lines.push("Rate of one stream with `--buffer auto` at both ends:".to_owned());
        for (path, rates) in &self.paths {
            lines.push(format!(
                "  {} at {} RTT: sends {}, receives {}",
                show::bits(path.rate_bps),
                show::time(path.rtt),
                show::bits(rates.send_bps),
                show::bits(rates.receive_bps),
            ));
        }
        let advice = self.advice();
        if advice.is_empty() {
            lines.push("Nothing to change: no setting of this machine limits the rate.".to_owned());
        } else {
            lines.push("To raise it, run as root (or use several streams):".to_owned());
            lines.extend(advice.iter().map(|advice| format!("  {advice}")));
        }
        lines.join("\n")
    }

    fn limits(&self) -> Vec<String> {
        let caps = &self.caps;
        let buffer = |what: &str, grown: u64, settable: u64| {
            format!(
                "{what} buffer: up to {} by autotuning, up to {} if set by a program",
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
            lines.push("This user may exceed net.core.wmem_max and net.core.rmem_max.".to_owned());
        }
        if let (Some(now), Some(all)) = (&self.congestion, &self.available) {
            // tcp_allowed_congestion_control restricts unprivileged users to a part of the
            // available ones (tcp(7)).
            let settable = self.settable.join(" ");
            lines.push(format!(
                "Congestion control: {now} (available: {all}; this user may select: {settable})"
            ));
        }
        if let Some(command) = self.command_to_allow_bbr() {
            lines.push(format!(
                "{command}: lets `--cc auto` use bbr on paths that lose packets without congestion"
            ));
        }
        lines
    }

    /// Command that lets this user select bbr; `None` if that is possible already.
    fn command_to_allow_bbr(&self) -> Option<String> {
        if self.settable.iter().any(|name| name == "bbr") {
            return None;
        }
        let available = self.available.as_deref()?;
        // A module that is not loaded cannot be allowed.
        if !available.split_whitespace().any(|name| name == "bbr") {
            return Some("modprobe tcp_bbr".to_owned());
        }
        // The setting is replaced as a whole, so the present names are repeated.
        let allowed = [self.settable.join(" "), "bbr".to_owned()].join(" ");
        Some(format!(
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{}\"",
            allowed.trim()
        ))
    }

    /// Advice for the longest path. It also covers the shorter ones.
    fn advice(&self) -> &[SysctlAdvice] {
        self.paths
            .last()
            .map_or(&[], |(_, rates)| rates.advice.as_slice())
    }

    /// The report as an object.
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
            "wrong": self.wrong_sysctls.iter().map(|sysctl| json!({
                "sysctl": format!("net.ipv4.{}", sysctl.name),
                "now": sysctl.now, "value": sysctl.recommended, "why": sysctl.effect,
            })).collect::<Vec<_>>(),
            "paths": self.paths.iter().map(|(path, rates)| json!({
                "rate_bps": path.rate_bps, "rtt_seconds": path.rtt.as_secs_f64(),
                "send_bps": rates.send_bps, "receive_bps": rates.receive_bps,
                "advice": rates.advice.iter().map(|a| json!({
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

    fn findings(caps: HostBufferLimits, rtt: u64) -> MachineSettings {
        let path = PathSpec {
            rate_bps: 1_000_000_000,
            rtt: Duration::from_millis(rtt),
        };
        MachineSettings {
            caps,
            congestion: Some("cubic".to_owned()),
            available: Some("reno cubic bbr".to_owned()),
            settable: vec!["reno".to_owned(), "cubic".to_owned(), "bbr".to_owned()],
            wrong_sysctls: Vec::new(),
            paths: vec![(path, reachable_rates(&caps, path))],
        }
    }

    #[test]
    fn a_long_path_gets_advice_on_the_limiting_setting() {
        let text = findings(HostBufferLimits::default(), 200).text();
        assert!(
            text.contains("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 "),
            "{text}"
        );
        assert!(text.contains("1.00 Gbit/s at 200 ms RTT: sends "), "{text}");
        let json = findings(HostBufferLimits::default(), 200).json();
        assert_eq!(json["paths"][0]["advice"][0]["sysctl"], "net.ipv4.tcp_wmem");
    }

    #[test]
    fn a_short_path_gets_no_advice() {
        let text = findings(HostBufferLimits::default(), 1).text();
        assert!(
            text.ends_with("no setting of this machine limits the rate."),
            "{text}"
        );
    }

    #[test]
    fn the_report_has_the_command_that_allows_bbr() {
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
    fn only_switches_that_are_off_are_reported() {
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
