//! Why a batch was as fast as it was, in one line of plain words.

use std::time::Duration;

use data::job::WireStats;
use tune::limiter::{Limiter, Measured, Role, Verdict, judge};

use crate::transfer::Remark;

/// What the transfers of a batch measured, summed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    /// What this end did, when it was the same in all transfers and not a third party's.
    role: Option<Role>,
    bytes: u64,
    moving: Duration,
    /// What third-party transfers told.
    between: Option<Between>,
    /// What hosts said of their limits, the last word of each.
    remarks: Vec<Remark>,
    /// Sums and maxima over the transfers.
    pub(crate) wire: WireStats,
}

/// Transfers whose bytes did not pass this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Between {
    /// Moved, by the servers' word.
    pub(crate) bytes: u64,
    /// From the transfer command to the last reply, summed.
    pub(crate) elapsed: Duration,
    /// Most streams that were asked for at once.
    pub(crate) streams: u64,
    /// Markers were to be had (MODE E).
    pub(crate) markers: bool,
}

/// What `limited_by` says of third-party transfers.
const BETWEEN: &str = "path between the servers";

impl Account {
    /// Adds one transfer between two servers.
    pub(crate) fn add_between(&mut self, one: &Between) {
        let all = self.between.get_or_insert_default();
        all.bytes += one.bytes;
        all.elapsed += one.elapsed;
        all.streams = all.streams.max(one.streams);
        all.markers |= one.markers;
    }

    /// The short answer: a limiter's name, or where it must be.
    pub(crate) fn limited_by(&self, verdict: Verdict) -> &'static str {
        match (self.role, self.between) {
            (None, Some(_)) => BETWEEN,
            _ => verdict.limiter.name(),
        }
    }

    /// Keeps the last word of each host.
    pub(crate) fn note(&mut self, remarks: Vec<Remark>) {
        for remark in remarks {
            self.remarks.retain(|r| r.host != remark.host);
            self.remarks.push(remark);
        }
    }

    /// Adds one transfer: bytes and duration at this end, and what the kernel saw.
    pub(crate) fn add(&mut self, role: Role, bytes: u64, elapsed: Duration, wire: &WireStats) {
        self.role = Some(role);
        self.bytes += bytes;
        self.moving += elapsed;
        let sum = &mut self.wire;
        sum.streams = sum.streams.max(wire.streams);
        sum.retransmits += wire.retransmits;
        sum.min_rtt_us = match (sum.min_rtt_us, wire.min_rtt_us) {
            (0, new) => new,
            (old, 0) => old,
            (old, new) => old.min(new),
        };
        sum.rtt_us = sum.rtt_us.max(wire.rtt_us);
        sum.buffer_bytes = sum.buffer_bytes.max(wire.buffer_bytes);
        sum.busy_us += wire.busy_us;
        sum.rwnd_limited_us += wire.rwnd_limited_us;
        sum.sndbuf_limited_us += wire.sndbuf_limited_us;
        sum.store_us += wire.store_us;
        sum.wire_us += wire.wire_us;
    }

    /// What held the transfers back. `rate` is the limit of one transfer, bytes per second.
    pub(crate) fn verdict(&self, rate: Option<u64>) -> Verdict {
        let us = Duration::from_micros;
        let Some(role) = self.role else {
            return Verdict {
                limiter: Limiter::Unknown,
                share: 0.0,
            };
        };
        judge(&Measured {
            role,
            bytes: self.bytes,
            elapsed: self.moving,
            streams: self.wire.streams,
            retransmits: self.wire.retransmits,
            min_rtt: us(self.wire.min_rtt_us.into()),
            buffer_bytes: self.wire.buffer_bytes,
            busy: us(self.wire.busy_us),
            rwnd_limited: us(self.wire.rwnd_limited_us),
            sndbuf_limited: us(self.wire.sndbuf_limited_us),
            store: us(self.wire.store_us),
            wire: us(self.wire.wire_us),
            rate_limit: rate,
        })
    }

    /// The line for `--why`.
    pub(crate) fn line(&self, goodput_bps: f64, verdict: Verdict) -> String {
        let mut line = match (self.role, self.between) {
            (None, Some(between)) => between.line(goodput_bps),
            _ => self.seen_here(goodput_bps, verdict),
        };
        for remark in &self.remarks {
            let host = remark.host.as_deref().unwrap_or("this machine");
            line.push_str(&format!("; {host}: {}", remark.text));
        }
        line
    }

    fn seen_here(&self, goodput_bps: f64, verdict: Verdict) -> String {
        let mut line = bits(goodput_bps);
        if self.wire.streams > 0 {
            line.push_str(&format!(" over {}", streams(self.wire.streams)));
        }
        line.push_str(&format!(
            "; limited by: {} ({})",
            verdict.limiter,
            explain(verdict)
        ));
        if self.wire.min_rtt_us > 0 {
            let ms = f64::from(self.wire.min_rtt_us) / 1000.0;
            line.push_str(&format!("; round trip {ms:.1} ms"));
        }
        if self.wire.buffer_bytes > 0 {
            let mib = self.wire.buffer_bytes as f64 / f64::from(1 << 20);
            line.push_str(&format!(", buffers up to {mib:.1} MiB"));
        }
        if self.wire.retransmits > 0 {
            line.push_str(&format!(", {} segments sent again", self.wire.retransmits));
        }
        line
    }
}

impl Between {
    fn line(&self, goodput_bps: f64) -> String {
        let moving = self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9);
        let seen = if self.markers {
            format!(
                "the servers' markers and replies tell of {} while they moved",
                bits(moving)
            )
        } else {
            format!(
                "in MODE S the servers tell nothing before the end; {} from start to end of the \
                 transfers",
                bits(moving)
            )
        };
        format!(
            "{} over {} between the servers; limited by: {BETWEEN}, or the servers themselves (the \
             bytes did not pass this machine; {seen})",
            bits(goodput_bps),
            streams(self.streams)
        )
    }
}

fn streams(n: u64) -> String {
    match n {
        1 => "1 stream".to_owned(),
        n => format!("{n} streams"),
    }
}

/// Bits per second with a unit.
fn bits(rate: f64) -> String {
    match rate {
        r if r >= 1e9 => format!("{:.2} Gbit/s", r / 1e9),
        r if r >= 1e6 => format!("{:.1} Mbit/s", r / 1e6),
        r => format!("{:.1} kbit/s", r / 1e3),
    }
}

fn explain(verdict: Verdict) -> String {
    let percent = (verdict.share * 100.0).round();
    let what = match verdict.limiter {
        Limiter::StoreRead => "of the time went into reading the file",
        Limiter::StoreWrite => "of the time went into writing the file",
        Limiter::SenderCpu | Limiter::ReceiverCpu => "of the time this machine was computing",
        Limiter::SendBuffer => "of the time this machine's socket buffer was full",
        Limiter::ReceiveWindow => "of the time the receiver's window was full",
        Limiter::CongestionWindow => "of the time the path had no room, without loss",
        Limiter::Loss => "of the time the path had no room, after losses",
        Limiter::RateLimit => "of the rate that was allowed",
        Limiter::ServerCap => "of the time this machine waited for the server or the path",
        Limiter::Unknown => return "too little was seen from here".to_owned(),
    };
    format!("{percent}% {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_limiter_in_plain_words() {
        let mut account = Account::default();
        let wire = WireStats {
            streams: 4,
            min_rtt_us: 50_100,
            buffer_bytes: 4 << 20,
            busy_us: 10_000_000,
            rwnd_limited_us: 6_200_000,
            wire_us: 38_000_000,
            retransmits: 3,
            ..WireStats::default()
        };
        account.add(Role::Sender, 1_250_000_000, Duration::from_secs(10), &wire);
        let verdict = account.verdict(None);
        assert_eq!(
            account.line(1e9, verdict),
            "1.00 Gbit/s over 4 streams; limited by: receive window (62% of the time the \
             receiver's window was full); round trip 50.1 ms, buffers up to 4.0 MiB, 3 segments \
             sent again"
        );
    }

    #[test]
    fn third_party_says_that_the_bytes_did_not_pass_here() {
        let mut account = Account::default();
        let one = Between {
            bytes: 125_000_000,
            elapsed: Duration::from_secs(1),
            streams: 4,
            markers: true,
        };
        account.add_between(&one);
        account.add_between(&one);
        let verdict = account.verdict(None);
        assert_eq!(account.limited_by(verdict), "path between the servers");
        assert_eq!(
            account.line(2_500.0, verdict),
            "2.5 kbit/s over 4 streams between the servers; limited by: path between the servers, \
             or the servers themselves (the bytes did not pass this machine; the servers' markers \
             and replies tell of 1.00 Gbit/s while they moved)"
        );
        let mut silent = Account::default();
        silent.add_between(&Between {
            streams: 1,
            markers: false,
            ..one
        });
        let line = silent.line(2_500.0, verdict);
        assert!(line.contains("1 stream between"), "{line}");
        assert!(line.contains("MODE S the servers tell nothing"), "{line}");
    }

    #[test]
    fn each_hosts_last_word_is_in_the_line() {
        let mut account = Account::default();
        let remark = |host: Option<&str>, text: &str| Remark {
            host: host.map(str::to_owned),
            text: text.to_owned(),
        };
        account.note(vec![remark(None, "old"), remark(Some("h:21"), "raise x")]);
        account.note(vec![remark(None, "raise y")]);
        let line = account.line(0.0, account.verdict(None));
        assert!(
            line.ends_with("; h:21: raise x; this machine: raise y"),
            "{line}"
        );
    }

    #[test]
    fn nothing_moved_is_said_to_be_unknown() {
        let account = Account::default();
        let verdict = account.verdict(None);
        assert_eq!(account.limited_by(verdict), "unknown");
        let line = account.line(0.0, verdict);
        assert!(!line.contains("between"), "{line}");
    }

    #[test]
    fn rate_limit_is_told() {
        let mut account = Account::default();
        let wire = WireStats {
            streams: 1,
            ..WireStats::default()
        };
        account.add(Role::Receiver, 1_000, Duration::from_secs(1), &wire);
        assert_eq!(account.verdict(Some(1_000)).limiter, Limiter::RateLimit);
    }
}
