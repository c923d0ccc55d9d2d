//! The text of `--why`.

use tune::diagnosis::{LimiterShare, MIN_LONG_RTT_SHARE, long_rtt_share};
use tune::limiter::Limiter;
use units::show;

use ftp::transfer::HostRemark;

use super::{BatchEvidence, LimiterFinding, ThirdPartyStats};

impl BatchEvidence {
    /// Goodput, streams, limiter, and what would remove the limit.
    pub(crate) fn why_line(&self, goodput_bps: f64, finding: LimiterFinding) -> String {
        let mut line = match (self.own_evidence.role, self.third_party) {
            // Only if this end moved no bytes itself: its own measurements say more.
            (None, Some(stats)) => self.describe_third_party(&stats, goodput_bps, finding),
            _ => self.describe_own_transfers(goodput_bps, finding),
        };
        if let Some(remedy) = self.remedy(finding) {
            line.push_str(&format!("; to change that: {remedy}"));
        }
        // The other end sees the consequences of a rate limit here, and advises against those.
        let is_held_here = matches!(finding, LimiterFinding::Measured(share) if share.limiter == Limiter::RateLimit);
        let told = |remark: &&HostRemark| {
            !(is_held_here && remark.host.is_some() && remark.verdict.is_some())
        };
        for remark in self.remarks.iter().filter(told) {
            let host = remark.host.as_deref().unwrap_or("this machine");
            if let Some(text) = &remark.text {
                line.push_str(&format!("; {host}: {text}"));
            }
        }
        line
    }

    /// Remedy for the limiter, as reported by the sender.
    fn remedy(&self, finding: LimiterFinding) -> Option<&str> {
        match finding {
            LimiterFinding::Reported(limiter) => self.senders.remedy(limiter),
            LimiterFinding::Measured(share) => self.senders.remedy(share.limiter),
            // Neither server said what would help.
            LimiterFinding::BetweenServers => None,
        }
    }

    fn describe_own_transfers(&self, goodput_bps: f64, finding: LimiterFinding) -> String {
        let mut line = show::rate(goodput_bps);
        let max_streams = self.own_evidence.peak_streams;
        if max_streams > 0 {
            line.push_str(&format!(" over {}", show::count(max_streams, "stream")));
        }
        line.push_str(&self.senders.final_streams_text(max_streams));
        let (name, explanation) = match finding {
            LimiterFinding::Measured(share) => {
                let long = long_rtt_share(&self.own_evidence);
                (finding.name(), describe_share(share, long))
            }
            LimiterFinding::Reported(limiter) => {
                (finding.name(), describe_limiter(limiter).to_owned())
            }
            LimiterFinding::BetweenServers => (finding.name(), "no reason was reported".to_owned()),
        };
        line.push_str(&format!("; limited by: {name} ({explanation})"));
        if !self.own_evidence.min_rtt.is_zero() {
            let rtt = show::time(self.own_evidence.min_rtt);
            line.push_str(&format!("; round trip {rtt}"));
        }
        if self.own_evidence.buffer_bytes > 0 {
            let mib = self.own_evidence.buffer_bytes as f64 / f64::from(1 << 20);
            line.push_str(&format!(", buffers up to {mib:.1} MiB"));
        }
        if self.own_evidence.retransmits > 0 {
            line.push_str(&format!(
                ", {} retransmitted",
                show::count(self.own_evidence.retransmits, "segment")
            ));
        }
        line
    }

    fn describe_third_party(
        &self,
        stats: &ThirdPartyStats,
        goodput_bps: f64,
        finding: LimiterFinding,
    ) -> String {
        let name = finding.name();
        let (name, explanation) = match finding {
            LimiterFinding::Reported(limiter) => (
                name,
                format!(
                    "reported by the sending server: {}",
                    describe_limiter(limiter)
                ),
            ),
            _ => (
                "the servers or the path between them",
                "the bytes did not pass through this machine".to_owned(),
            ),
        };
        format!(
            "{} over {}{} between the servers; limited by: {name} ({explanation}; {})",
            show::rate(goodput_bps),
            show::count(stats.streams, "stream"),
            self.senders.final_streams_text(stats.streams),
            stats.describe_goodput()
        )
    }
}

impl ThirdPartyStats {
    fn describe_goodput(&self) -> String {
        let moving = show::rate(self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9));
        if self.markers {
            format!("the servers' markers and replies show {moving} during the transfers")
        } else {
            format!(
                "in MODE S the servers report nothing before the end; {moving} from start to end of \
                 the transfers"
            )
        }
    }
}

/// Describes how much of the time the limiter was active, as measured by this end, which had long round trips in so large a
/// share of it.
fn describe_share(share: LimiterShare, long_rtt: f64) -> String {
    let percent = (share.share * 100.0).round();
    let phrase = match share.limiter {
        Limiter::StoreRead => "of the time went into reading the file",
        Limiter::StoreWrite => "of the time went into writing the file",
        Limiter::SenderCpu | Limiter::ReceiverCpu => "of the time this machine's CPU was busy",
        Limiter::SendBuffer => "of the time this machine's socket buffer was full",
        Limiter::ReceiveWindow => "of the time the receiver's window was full",
        Limiter::Link => "of the time packets queued on the path",
        Limiter::CongestionWindow => "of the time the congestion window was full, without loss",
        Limiter::Loss => "of the time the congestion window was full, after losses",
        Limiter::RateLimit => "of the time this machine waited for its rate limit",
        Limiter::ServerCap if long_rtt >= MIN_LONG_RTT_SHARE => {
            "of the time this machine waited for the server or the path: packets queued on a full \
             path, or the server paused"
        }
        Limiter::ServerCap => "of the time this machine waited for the server or the path",
        Limiter::Unknown => return "too little was measured by this end".to_owned(),
    };
    format!("{percent}% {phrase}")
}

/// Describes a limiter that the sender reported.
fn describe_limiter(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::StoreRead => "reading the file",
        Limiter::StoreWrite => "writing the file",
        Limiter::SenderCpu => "the sender's CPU was busy",
        Limiter::ReceiverCpu => "the receiver's CPU was busy",
        Limiter::SendBuffer => "the sender's socket buffers were full",
        Limiter::ReceiveWindow => "the receiver's window was full",
        Limiter::Link => "the path was full",
        Limiter::CongestionWindow => "the congestion windows still grew",
        Limiter::Loss => "the path lost segments",
        Limiter::RateLimit => "the server's rate limit was reached",
        Limiter::ServerCap => "the other end or the path",
        Limiter::Unknown => "nothing was measured",
    }
}
