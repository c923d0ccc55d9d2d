//! Advice as the flags of other programs.

use std::fmt::Write as _;

use crate::advice::{Advice, Question};

/// A program, or a setting of the system, that takes advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// NcFTP's `ncftpget`.
    Ncftpget,
    /// `globus-url-copy`.
    GlobusUrlCopy,
    /// `lftp`.
    Lftp,
    /// `curl`.
    Curl,
    /// `iperf3`.
    Iperf3,
    /// `rclone`.
    Rclone,
    /// `aria2c`.
    Aria2,
    /// Settings of Linux for all programs of this host.
    Sysctl,
    /// Metrics of `ip route` for one path, which programs obey that nobody can change.
    Route,
}

impl Program {
    /// Every program.
    pub const ALL: [Self; 9] = [
        Self::Ncftpget,
        Self::GlobusUrlCopy,
        Self::Lftp,
        Self::Curl,
        Self::Iperf3,
        Self::Rclone,
        Self::Aria2,
        Self::Sysctl,
        Self::Route,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ncftpget => "ncftpget",
            Self::GlobusUrlCopy => "globus-url-copy",
            Self::Lftp => "lftp",
            Self::Curl => "curl",
            Self::Iperf3 => "iperf3",
            Self::Rclone => "rclone",
            Self::Aria2 => "aria2",
            Self::Sysctl => "sysctl",
            Self::Route => "route",
        }
    }

    /// The program of this name; `aria2c` is `aria2`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = if name == "aria2c" { "aria2" } else { name };
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The question of a client that will run this program, with what else it tells in `question`.
    pub fn question(self, question: Question) -> Question {
        Question {
            max_streams: self.most_streams().or(question.max_streams),
            // ncftpget 3.2 sets what it finds, and so ends autotuning at the first window.
            must_set_buffer: question.must_set_buffer || self == Self::Ncftpget,
            ..question
        }
    }

    /// Most streams that it can open; `None`: the program has no limit of its own.
    const fn most_streams(self) -> Option<u32> {
        match self {
            Self::Ncftpget | Self::Curl => Some(1),
            Self::Aria2 => Some(ARIA2_CONNECTIONS),
            Self::Iperf3 => Some(IPERF3_STREAMS),
            Self::GlobusUrlCopy | Self::Lftp | Self::Rclone | Self::Sysctl | Self::Route => None,
        }
    }

    /// The flags that carry the advice, one word each. Advice that the program has no flag for, or that leaves a
    /// value to the kernel, gives none.
    pub fn flags(self, advice: &Advice) -> Vec<String> {
        let buffer = advice.set_buffer_bytes;
        let streams = advice.streams.filter(|n| *n > 1);
        let mut flags = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                flags.push(name.to_owned());
                flags.push(value);
            }
        };
        let buffer_text = buffer.map(|bytes| bytes.to_string());
        let streams_text = streams.map(|n| n.to_string());
        match self {
            Self::Ncftpget => add("-B", buffer_text),
            Self::GlobusUrlCopy => {
                add("-tcp-bs", buffer_text);
                add("-p", streams_text);
            }
            Self::Lftp => add("-e", lftp_settings(buffer, streams)),
            Self::Curl => add(
                "--limit-rate",
                advice.pace_bps.map(|bps| (bps / 8).to_string()),
            ),
            Self::Iperf3 => {
                add("-w", buffer_text);
                add("-P", streams_text);
                add("-C", advice.congestion_control.clone());
            }
            Self::Rclone => add("--multi-thread-streams", streams_text),
            Self::Aria2 => {
                add("-x", streams.map(|n| n.min(ARIA2_CONNECTIONS).to_string()));
                add("-s", streams_text);
                add(
                    "--socket-recv-buffer-size",
                    buffer.map(|bytes| bytes.min(ARIA2_BUFFER).to_string()),
                );
            }
            Self::Sysctl => flags.extend(sysctl_settings(advice)),
            Self::Route => flags.extend(route_metrics(advice)),
        }
        flags
    }
}

/// Most streams of one iperf3.
const IPERF3_STREAMS: u32 = 128;
/// Most connections to one server that aria2 accepts.
const ARIA2_CONNECTIONS: u32 = 16;
/// Largest receive buffer that aria2 accepts, bytes.
const ARIA2_BUFFER: u64 = 16 << 20;

fn lftp_settings(buffer: Option<u64>, streams: Option<u32>) -> Option<String> {
    let mut settings = String::new();
    if let Some(bytes) = buffer {
        let _ = write!(settings, "set net:socket-buffer {bytes};");
    }
    if let Some(n) = streams {
        let _ = write!(
            settings,
            "set pget:default-n {n};set mirror:use-pget-n {n};"
        );
    }
    (!settings.is_empty()).then_some(settings)
}

/// `name=value` for sysctl(8): autotuning may grow to twice the bandwidth-delay product, because the kernel
/// counts its own overhead in the buffer.
fn sysctl_settings(advice: &Advice) -> Vec<String> {
    let Some(bdp) = advice.bdp_bytes else {
        return Vec::new();
    };
    let most = bdp.saturating_mul(2).clamp(4 << 20, 1 << 31);
    let mut settings = vec![
        format!("net.ipv4.tcp_rmem=4096 131072 {most}"),
        format!("net.ipv4.tcp_wmem=4096 65536 {most}"),
        format!("net.core.rmem_max={most}"),
        format!("net.core.wmem_max={most}"),
    ];
    if let Some(name) = &advice.congestion_control {
        settings.push(format!("net.ipv4.tcp_congestion_control={name}"));
    }
    settings
}

/// Bytes of payload in a full segment on Ethernet.
const SEGMENT: u64 = 1448;
/// The largest initial window that is advised, segments: a tenth of a second at 12 Mbit/s. Beyond it a burst at
/// the start loses packets on most bottlenecks.
const MOST_INITIAL_SEGMENTS: u64 = 100;

/// Words for `ip route change ... WORDS`.
fn route_metrics(advice: &Advice) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(bdp) = advice.bdp_bytes {
        let segments = (bdp / SEGMENT).clamp(10, MOST_INITIAL_SEGMENTS).to_string();
        words.extend(["initcwnd".to_owned(), segments.clone()]);
        words.extend(["initrwnd".to_owned(), segments]);
    }
    if let Some(name) = &advice.congestion_control {
        words.extend(["congctl".to_owned(), name.clone()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice() -> Advice {
        Advice {
            set_buffer_bytes: Some(4 << 20),
            bdp_bytes: Some(1 << 20),
            streams: Some(8),
            congestion_control: Some("bbr".to_owned()),
            pace_bps: Some(80_000_000),
            ..Advice::default()
        }
    }

    #[test]
    fn each_program_gets_its_own_flags() {
        let lines =
            Program::ALL.map(|one| format!("{} {}", one.name(), one.flags(&advice()).join(" ")));
        assert_eq!(
            lines,
            [
                "ncftpget -B 4194304",
                "globus-url-copy -tcp-bs 4194304 -p 8",
                "lftp -e set net:socket-buffer 4194304;set pget:default-n 8;set mirror:use-pget-n 8;",
                "curl --limit-rate 10000000",
                "iperf3 -w 4194304 -P 8 -C bbr",
                "rclone --multi-thread-streams 8",
                "aria2 -x 8 -s 8 --socket-recv-buffer-size 4194304",
                "sysctl net.ipv4.tcp_rmem=4096 131072 4194304 net.ipv4.tcp_wmem=4096 65536 4194304 \
                 net.core.rmem_max=4194304 net.core.wmem_max=4194304 net.ipv4.tcp_congestion_control=bbr",
                "route initcwnd 100 initrwnd 100 congctl bbr",
            ]
        );
    }

    #[test]
    fn a_program_tells_its_own_limits() {
        let asked = |program: Program| program.question(Question::default());
        let ncftpget = asked(Program::Ncftpget);
        assert_eq!(
            (ncftpget.max_streams, ncftpget.must_set_buffer),
            (Some(1), true)
        );
        let aria2 = asked(Program::Aria2);
        assert_eq!(
            (aria2.max_streams, aria2.must_set_buffer),
            (Some(16), false)
        );
        assert_eq!(asked(Program::Lftp), Question::default());
    }

    #[test]
    fn advice_to_leave_all_to_the_kernel_gives_no_flags() {
        let none = Advice {
            streams: Some(1),
            ..Advice::default()
        };
        for one in Program::ALL {
            assert_eq!(one.flags(&none), [] as [String; 0], "{}", one.name());
        }
    }

    #[test]
    fn every_program_is_found_by_its_name() {
        for one in Program::ALL {
            assert_eq!(Program::from_name(one.name()), Some(one));
        }
        assert_eq!(Program::from_name("aria2c"), Some(Program::Aria2));
        assert_eq!(Program::from_name("wget"), None);
    }
}
