//! The report of a run as text.

use std::fmt::Write;
use std::time::Duration;

use units::show;

use super::report::{DirectionReport, NetReport};

impl NetReport {
    /// Two lines per direction, one line for the machine, then notes, then the reasons why the run is
    /// invalid. Each line ends with a newline.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for direction in &self.directions {
            text.push_str(&direction.to_text(self.seconds));
        }
        let _ = writeln!(
            text,
            "network up for {:.1} s; emulator {:.0} % of a core; of all cores: other programs {:.0} \
             %, hypervisor {:.0} %",
            self.seconds,
            100.0 * self.emulator_cpu,
            100.0 * self.foreign_cpu,
            100.0 * self.stolen_cpu,
        );
        for (label, sentences) in [("note", &self.notes), ("INVALID", &self.invalid)] {
            for sentence in sentences {
                let _ = writeln!(text, "{label}: {sentence}");
            }
        }
        text
    }
}

impl DirectionReport {
    fn to_text(&self, seconds: f64) -> String {
        let mut text = format!(
            "{} to {}: {} ({}) in, {} dropped at the queue, {} lost{}, {} ({}{}) delivered",
            self.from,
            self.to,
            show::count(self.packets, "packet"),
            show::bytes(self.bytes),
            self.queue_drops,
            self.losses,
            share(self.losses, self.packets),
            self.delivered,
            show::bytes(self.delivered_bytes),
            rate(self.delivered_bytes, seconds),
        );
        for (count, what) in [
            (self.duplicated, "duplicated"),
            (self.corrupted, "corrupted"),
            (self.reordered, "reordered"),
        ] {
            // Most paths have none of these; zeros would only make the line longer.
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        let _ = writeln!(
            text,
            "\n  peak queue {} ({}); delivered late by {} (median), {} (p99), {} (worst)",
            show::count(self.peak_queue_packets, "packet"),
            show::bytes(self.peak_queue_bytes),
            micros(self.late_p50_us),
            micros(self.late_p99_us),
            micros(self.late_max_us),
        );
        text
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "three digits are shown; 2^52 bytes are 4 petabytes"
)]
fn rate(value: u64, seconds: f64) -> String {
    if value == 0 || seconds <= 0.0 {
        return String::new();
    }
    let bits_per_second = value as f64 * 8.0 / seconds;
    format!(", {} on average", show::rate(bits_per_second))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "two digits of a ratio are shown"
)]
fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return String::new();
    }
    format!(" ({:.2} %)", 100.0 * part as f64 / whole as f64)
}

fn micros(value: f64) -> String {
    show::time(Duration::try_from_secs_f64(value / 1e6).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction() -> DirectionReport {
        DirectionReport {
            from: "a".into(),
            to: "b".into(),
            packets: 10_000,
            bytes: 15_000_000,
            queue_drops: 7,
            losses: 50,
            delivered: 9_943,
            delivered_bytes: 14_914_500,
            duplicated: 0,
            corrupted: 2,
            reordered: 0,
            peak_queue_packets: 833,
            peak_queue_bytes: 1_249_500,
            late_p50_us: 12.0,
            late_p99_us: 80.4,
            late_max_us: 1_420.0,
        }
    }

    fn report(invalid: Vec<String>) -> NetReport {
        NetReport {
            seconds: 10.0,
            emulator_cpu: 0.081,
            foreign_cpu: 0.15,
            stolen_cpu: 0.0,
            overruns: 0,
            invalid,
            notes: vec!["somebody compiled".into()],
            directions: vec![direction()],
        }
    }

    #[test]
    fn a_direction_has_two_lines() {
        assert_eq!(
            direction().to_text(10.0),
            "a to b: 10000 packets (15.0 MB) in, 7 dropped at the queue, 50 lost (0.50 %), 9943 \
             (14.9 MB, 11.9 Mbit/s on average) delivered, 2 corrupted\n  peak queue 833 packets \
             (1.25 MB); delivered late by 12 us (median), 80.4 us (p99), 1.42 ms (worst)\n"
        );
    }

    #[test]
    fn the_reasons_for_invalidity_come_last() {
        let text = report(vec!["it was late".into()]).to_text();
        assert!(
            text.ends_with("note: somebody compiled\nINVALID: it was late\n"),
            "{text}"
        );
        assert!(!report(Vec::new()).to_text().contains("INVALID"));
    }

    #[test]
    fn an_idle_network_has_no_division_by_zero() {
        let idle = NetReport {
            seconds: 0.0,
            directions: vec![DirectionReport {
                packets: 0,
                losses: 0,
                delivered_bytes: 0,
                ..direction()
            }],
            ..report(Vec::new())
        };
        let text = idle.to_text();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
