//! The line of `--why`.

use tune::diagnosis::LimiterShare;
use tune::limiter::Limiter;
use units::show;

use super::{BatchEvidence, LimiterFinding, ThirdPartyStats};

impl BatchEvidence {
    /// How fast, over what, limited by what, and what would change that.
    pub(crate) fn line(&self, goodput_bps: f64, finding: LimiterFinding) -> String {
        let mut line = match (self.evidence.role, self.between) {
            (None, Some(between)) => self.seen_between(&between, goodput_bps, finding),
            _ => self.seen_here(goodput_bps, finding),
        };
        if let Some(remedy) = self.remedy(finding) {
            line.push_str(&format!("; to change that: {remedy}"));
        }
        for remark in &self.remarks {
            let host = remark.host.as_deref().unwrap_or("this machine");
            if let Some(text) = &remark.text {
                line.push_str(&format!("; {host}: {text}"));
            }
        }
        line
    }

    /// Remedy against what limited the batch, by the word of this machine that sent.
    fn remedy(&self, finding: LimiterFinding) -> Option<&str> {
        match finding {
            LimiterFinding::Told(limiter) => self.senders.remedy(limiter),
            LimiterFinding::Seen(judgement) => self.senders.remedy(judgement.limiter),
            LimiterFinding::Elsewhere => None,
        }
    }

    fn seen_here(&self, goodput_bps: f64, finding: LimiterFinding) -> String {
        let mut line = show::rate(goodput_bps);
        let most = self.evidence.peak_streams;
        if most > 0 {
            line.push_str(&format!(" over {}", streams(most)));
        }
        line.push_str(&self.senders.at_the_end(most));
        let (name, why) = match finding {
            LimiterFinding::Seen(judgement) => (finding.name(), explain(judgement)),
            LimiterFinding::Told(limiter) => (finding.name(), name_plainly(limiter).to_owned()),
            LimiterFinding::Elsewhere => (finding.name(), "nobody told why".to_owned()),
        };
        line.push_str(&format!("; limited by: {name} ({why})"));
        if !self.evidence.min_rtt.is_zero() {
            let rtt = show::time(self.evidence.min_rtt);
            line.push_str(&format!("; round trip {rtt}"));
        }
        if self.evidence.buffer_bytes > 0 {
            let mib = self.evidence.buffer_bytes as f64 / f64::from(1 << 20);
            line.push_str(&format!(", buffers up to {mib:.1} MiB"));
        }
        if self.evidence.retransmits > 0 {
            line.push_str(&format!(
                ", {} segments sent again",
                self.evidence.retransmits
            ));
        }
        line
    }

    fn seen_between(
        &self,
        between: &ThirdPartyStats,
        goodput_bps: f64,
        finding: LimiterFinding,
    ) -> String {
        let name = finding.name();
        let (name, why) = match finding {
            LimiterFinding::Told(limiter) => (
                name.to_owned(),
                format!(
                    "by the word of the server that sent: {}",
                    name_plainly(limiter)
                ),
            ),
            _ => (
                format!("{name}, or the servers themselves"),
                "the bytes did not pass this machine".to_owned(),
            ),
        };
        format!(
            "{} over {}{} between the servers; limited by: {name} ({why}; {})",
            show::rate(goodput_bps),
            streams(between.streams),
            self.senders.at_the_end(between.streams),
            between.seen()
        )
    }
}

impl ThirdPartyStats {
    fn seen(&self) -> String {
        let moving = show::rate(self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9));
        if self.markers {
            format!("the servers' markers and replies tell of {moving} while they moved")
        } else {
            format!(
                "in MODE S the servers tell nothing before the end; {moving} from start to end of \
                 the transfers"
            )
        }
    }
}

pub(super) fn streams(n: u64) -> String {
    match n {
        1 => "1 stream".to_owned(),
        n => format!("{n} streams"),
    }
}

/// Observation of this end.
fn explain(judgement: LimiterShare) -> String {
    let percent = (judgement.share * 100.0).round();
    let what = match judgement.limiter {
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

/// Meaning of the sender's word.
fn name_plainly(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::StoreRead => "reading the file",
        Limiter::StoreWrite => "writing the file",
        Limiter::SenderCpu => "the sender was computing",
        Limiter::ReceiverCpu => "the receiver was computing",
        Limiter::SendBuffer => "the sender's socket buffers were full",
        Limiter::ReceiveWindow => "the receiver's window was full",
        Limiter::CongestionWindow => "the path was full, or the windows still grew",
        Limiter::Loss => "the path lost segments",
        Limiter::RateLimit => "no more was allowed",
        Limiter::ServerCap => "the other end or the path",
        Limiter::Unknown => "nothing was measured",
    }
}
